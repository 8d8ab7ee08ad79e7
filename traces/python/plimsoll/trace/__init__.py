"""Measures a torch module and writes a trace of it, from which Plimsoll plans: stage by stage (a chain), or every operation (a graph).

    python3 -m plimsoll.trace --model my_model.py:build --batch 8 -o my_trace.json

traces/export_pytorch.py is the same command in a checkout, --help lists its options, traces/exporter.md says how each number is measured,
traces/format.md what it means: seconds, bytes, floating-point operations. What cannot be measured ends with one line on stderr: exit code 2
where the command or the model is at fault (errors.UsageError), 1 where the measurement contradicts itself (errors.MeasurementError).
"""
