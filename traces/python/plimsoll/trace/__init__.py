"""Measures a torch module stage by stage and writes Plimsoll traces (see traces/exporter.md)."""
