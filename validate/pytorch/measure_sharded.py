#!/usr/bin/env python3
"""Promised and measured peaks of plans with sharded parameters, on two ranks or more that find each other by gloo on this machine, and whether their
numbers are those of plain training under DistributedDataParallel. One JSON file, and a line a plan.

  /usr/bin/python3 validate/pytorch/measure_sharded.py gpt unet --ranks 2 -o out/sharded

Models, plans and the counter of bytes are those of measure.py.
"""

import argparse
import copy
import datetime
import gc
import json
import os
import sys

import measure
import measured_ranks

from plimsoll.trace import exporter

import torch
import torch.distributed as dist
from plimsoll.torch import Refused, apply
from plimsoll.torch.sharded import Sharded

HERE = os.path.dirname(os.path.abspath(__file__))


def command_line():
    parser = exporter.OneLineParser(prog="measure_sharded.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    positive = exporter.positive
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--ranks", type=positive, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("--batch", type=positive, default=8, metavar="N", help="samples of a rank's micro-batch (default 8)")
    parser.add_argument("--plans", type=positive, default=2, metavar="N", help="budgets of rotor (default 2)")
    parser.add_argument("--strategies", default=",".join(measure.OTHERS), metavar="A,B,...", help=f"in addition to rotor (default {','.join(measure.OTHERS)})")
    parser.add_argument("--program", default=os.path.join(measure.ROOT, "build", "plimsoll"), metavar="FILE", help="plimsoll (default build/plimsoll)")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER")
    return parser


def main(arguments):
    try:
        if measured_ranks.is_one():
            return measured_ranks.answer(arguments, rows_of_rank)
        options = command_line().parse_args(arguments)
        if not os.access(options.program, os.X_OK):
            raise exporter.UsageError(f"--program {options.program}: no such program; './dev build' makes it")
        measure_all(options)
    except (exporter.UsageError, exporter.MeasurementError, Refused) as error:
        print(f"measure_sharded.py: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def measure_all(options):
    rows = []
    for model in options.models:
        prepared = [model, "--prepare", "--rounds", "1", "--batch", str(options.batch), "--plans", str(options.plans), "--strategies", options.strategies,
                    "--program", options.program, "-o", options.output]
        measure.checked([sys.executable, os.path.join(HERE, "measure.py"), *prepared])
        rows += of_model(options, model)
        measure.say(f"{model}: {len(rows)} rows so far")
    result = {"format": "plimsoll.sharded_measurement.v1", "origin": f"measured by measure_sharded.py, torch {torch.__version__}, gloo",
              "date": datetime.date.today().isoformat(), "command": "python3 validate/pytorch/measure_sharded.py " + " ".join(sys.argv[1:]), "ranks": options.ranks,
              "rows": rows}
    path = os.path.join(options.output, "sharded.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    for row in rows:
        print(f"{row['model']:>12} {row['strategy']:<28} ahead {row['ahead']} rank {row['rank']}: promised {row['promised_bytes']:>11} B, measured "
              f"{row['measured_bytes']:>11} B, {row['measured_bytes'] - row['promised_bytes']:+d} B; {'same bits' if not row['differs'] else row['differs'][0] + ' differs'}")
    measure.say(f"wrote {path}")


def of_model(options, model):
    name = model.rpartition(":")[2]
    folder = os.path.join(options.output, name)
    with open(os.path.join(folder, "plans.json"), encoding="utf-8") as file:
        plans = [plan | {"file": os.path.join(folder, plan["file"])} for plan in json.load(file)["plans"]]
    reference = model if ":" in model else f"{os.path.join(HERE, 'models.py')}:{model}"
    task = {"model": reference, "batch": options.batch, "device": "cpu", "dtype": "fp32", "amp": None, "plans": plans, "ranks": options.ranks}
    found = measured_ranks.answers(__file__, task, folder, measure.environment_of_runs("cpu"))
    return [{"model": name} | row for rows in found for row in rows]


# --- a rank, in a process of its own with the counter loaded --------------------------------------------------------------------------------

def rows_of_rank(task, rank):
    from plimsoll.trace.live_bytes import counter_for
    exporter.leave_no_preload()
    return [row_of(task, rank, of, ahead, counter_for("cpu")) for of in task["plans"] for ahead in (0, 1)]


def row_of(task, rank, of, ahead, counter):
    model, loss, inputs, targets = measure.load(task)
    plain = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(model), broadcast_buffers=False)
    with open(of["file"], encoding="utf-8") as file:
        plan = json.load(file)
    step = apply(model, plan, loss=loss, sharded=Sharded(ahead=ahead))
    differs = different(rank, step, plain, model, loss, inputs, targets)
    step(inputs, targets)
    for parameter in model.parameters():
        parameter.grad = None
    gc.collect()
    counter.reset_peak()
    start = counter.live()
    step(inputs, targets)
    measured = counter.peak() - start + step.exchange.resident_bytes(step.plan, step.staged) + plan["predicted"]["input_bytes"]
    return {"strategy": of["strategy"], "budget_bytes": of["budget_bytes"], "rank": rank, "ahead": ahead, "promised_bytes": step.peak_with_ranks(),
            "measured_bytes": measured, "of_one_device_bytes": plan["predicted"]["one_after_the_other_peak_bytes"], "differs": differs}


def different(rank, step, plain, model, loss, inputs, targets):
    """Names of what is not, bit for bit, as under DistributedDataParallel: the loss, and this rank's parts of gradients."""
    from plimsoll.torch.recorder import loss_of
    inputs, targets = of_rank(rank, (inputs, targets))
    torch.manual_seed(7)
    value = step(inputs, targets)
    torch.manual_seed(7)
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs if isinstance(inputs, tuple) else (inputs,), {})
    other = loss_of(plain(*args, **kwargs), loss, targets)
    other.backward()
    found = [] if torch.equal(value, other.detach()) else ["loss"]
    for (name, of), own in zip(plain.module.named_parameters(), model.parameters()):
        each = -(-of.numel() // dist.get_world_size())
        gradient = None if of.grad is None else of.grad.reshape(-1)[rank * each : (rank + 1) * each]
        if (gradient is None) != (own.grad is None) or gradient is not None and not torch.equal(gradient, own.grad):
            found.append(f"gradient of {name}")
    return found


def of_rank(rank, value):
    """Another batch on each rank: other rows of it."""
    from plimsoll.torch.values import map_leaves
    return map_leaves(value, lambda leaf: leaf.roll(rank, 0) if isinstance(leaf, torch.Tensor) and leaf.dim() else leaf)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
