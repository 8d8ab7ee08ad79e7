"""Plimsoll's part in Python: `plimsoll.trace` measures a model of PyTorch and writes a trace, `plimsoll.torch` trains it by a plan."""
