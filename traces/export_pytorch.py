#!/usr/bin/env python3
"""Measure a torch module and write a Plimsoll trace: plimsoll.trace as a command. --help says how."""

import sys

from plimsoll.trace.exporter import main

sys.exit(main(sys.argv[1:]))
