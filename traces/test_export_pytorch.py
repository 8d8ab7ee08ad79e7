#!/usr/bin/env python3
"""Tests of traces/export_pytorch.py, by subject in exporter_tests/. Skipped where this Python has no torch; runs in a minute.

  /usr/bin/python3 traces/test_export_pytorch.py                  # all
  /usr/bin/python3 traces/test_export_pytorch.py GraphTrace       # one class of exporter_tests/test_*.py
"""

import importlib
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

from exporter_tests.support import NO_TORCH, torch

for file in sorted(os.listdir(os.path.join(HERE, "exporter_tests"))):
    if file.startswith("test_"):
        module = importlib.import_module(f"exporter_tests.{file.removesuffix('.py')}")
        globals().update({name: kind for name, kind in vars(module).items() if name[0].isupper() and isinstance(kind, type)})

if __name__ == "__main__":
    if torch is None:
        print(f"most tests are skipped: {NO_TORCH}", file=sys.stderr)
    unittest.main()
