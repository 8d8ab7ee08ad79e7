#!/usr/bin/env python3
"""Train what export_pytorch.py exports, in three ways, and measure time and memory of whole iterations.

  python3 traces/measure_training.py --model gpt --layers 12 --width 768 --sequence 1024 --batch 8 --device cuda -o t.json

An iteration is forward and backward without an optimizer, with fresh gradients, as a chain trace has it:
  plain         what store_all predicts
  checkpointed  torch.utils.checkpoint around every stage but the loss: full_recompute
  offloaded     torch.autograd.graph.save_on_cpu with pinned memory: save_on_cpu
Times are medians of CUDA events around an iteration; memory is torch.cuda.max_memory_allocated and _reserved.
On a CPU only times are measured.
"""

import contextlib
import datetime
import json
import shlex
import statistics
import sys

from plimsoll.trace.exporter import command_line, device_names, versions
from plimsoll.trace.errors import MeasurementError, UsageError


def main(arguments):
    parser = command_line()
    parser.prog, parser.description = "measure_training.py", __doc__
    try:
        options = parser.parse_args(arguments)
        for name in ("graph", "optimizer", "bytes_of"):
            if getattr(options, name):
                raise UsageError(f"--{name.replace('_', '-')} is for export_pytorch.py")
        measured = measure(options)
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(measured, file, indent=1)
            file.write("\n")
    except (UsageError, MeasurementError) as error:
        print(f"measure_training.py: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def measure(options):
    try:
        import torch
    except ImportError as error:
        raise UsageError(f"{sys.executable} has no torch") from error
    from plimsoll.trace.clocks import clock_for
    from plimsoll.trace.models import chain_for, refuse_missing

    refuse_missing(options)
    torch.set_num_threads(options.threads)
    chain = chain_for(options)
    clock = clock_for(options.device, options.threads)
    ways = {}
    for name, way in (("plain", plain), ("checkpointed", checkpointed), ("offloaded", offloaded)):
        try:
            ways[name] = measured_way(chain, way, clock, options)
        except torch.cuda.OutOfMemoryError as error:
            ways[name] = {"out_of_memory": str(error).splitlines()[0]}
        print(f"{chain.name}, {options.amp or options.dtype}, {name}: {summary(ways[name])}", file=sys.stderr)
    return {
        "format": "plimsoll.training.v1",
        "name": chain.name,
        "description": chain.description,
        **device_names(options.device),
        "dtype": options.amp or options.dtype,
        "versions": versions(),
        "date": datetime.date.today().isoformat(),
        "command": "python3 traces/measure_training.py " + shlex.join(sys.argv[1:]),
        "clock": clock.name,
        "ways": ways,
    }


def plain(stage, value):
    return stage(value)


def checkpointed(stage, value):
    from torch.utils.checkpoint import checkpoint
    return checkpoint(stage, value, use_reentrant=False)


def offloaded(stage, value):
    return stage(value)


def context_of(way, options):
    import torch
    if way is not offloaded:
        return contextlib.nullcontext()
    return torch.autograd.graph.save_on_cpu(pin_memory=options.device == "cuda")


def iteration(chain, way, options):
    for parameter in chain.parameters():
        parameter.grad = None
    value = chain.input
    with chain.precision(), context_of(way, options):
        for stage in chain.stages[:-1]:
            value = way(stage.module, value)
        value = chain.stages[-1].module(value)
    value.backward()
    return value.detach()


def measured_way(chain, way, clock, options):
    import torch
    for _ in range(options.warm_up):
        loss = iteration(chain, way, options)
    on_gpu = options.device == "cuda"
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(options.repetitions):
        start = clock.mark()
        loss = iteration(chain, way, options)
        finish = clock.mark()
        clock.settle()
        seconds.append(clock.seconds(start, finish))
    found = {"iteration_s": statistics.median(seconds), "iterations_s": seconds, "loss": float(loss)}
    if on_gpu:
        found["max_memory_allocated_bytes"] = torch.cuda.max_memory_allocated()
        found["max_memory_reserved_bytes"] = torch.cuda.max_memory_reserved()
    return found


def summary(way):
    if "out_of_memory" in way:
        return f"out of memory ({way['out_of_memory']})"
    memory = f", {way['max_memory_allocated_bytes']} B" if "max_memory_allocated_bytes" in way else ""
    return f"{1e3 * way['iteration_s']:.2f} ms{memory}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
