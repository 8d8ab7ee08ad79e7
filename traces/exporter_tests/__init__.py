"""Tests of traces/export_pytorch.py, by subject; traces/test_export_pytorch.py runs them."""
