"""Measures a torch module stage by stage and writes Plimsoll traces (see traces/exporter.md)."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "validate", "pytorch"))  # plimsoll_torch
