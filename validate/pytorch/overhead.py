#!/usr/bin/env python3
"""What the step costs beside its plan's own work: plans of ResNet-18 against code for the same work written by hand (the model's own stages, all
kept, or in segments under torch.utils.checkpoint), in interleaved pairs. Process CPU time, one thread.

  /usr/bin/python3 validate/pytorch/overhead.py                    # 64 x 64 pixels, batch 8
  /usr/bin/python3 validate/pytorch/overhead.py --pairs 51 --side 32
"""

import argparse
import copy
import gc
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

try:
    import torch
    from torch.utils.checkpoint import checkpoint

    import hand_plans
    import models
    from plimsoll_torch import apply
    from plimsoll_torch.stages import split
except ModuleNotFoundError as missing:
    print(f"overhead.py: {sys.executable} has no {missing.name} (Debian: apt-get install python3-torch, then /usr/bin/python3)", file=sys.stderr)
    sys.exit(2)


def by_hand(staged, length, inputs, targets):
    """Segments of `length` stages, of which all but the last run again; 0: none does. Each boundary of a ResNet is one tensor."""
    stages, first = staged.stages, list(range(0, len(staged.stages), length or len(staged.stages)))

    def segment(begin, end):
        def run(x):
            for stage in stages[begin:end]:
                x, = stage((x,), targets)
            return x
        return run

    segments = [segment(begin, min(begin + length, len(stages)) if length else len(stages)) for begin in first]

    def step():
        x = inputs.detach().requires_grad_() if length else inputs  # a checkpoint needs an input with a gradient
        for run in segments[:-1]:
            x = checkpoint(run, x, use_reentrant=True)
        segments[-1](x).backward()
    return step


def main(arguments):
    parser = argparse.ArgumentParser(prog="overhead.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=25, help="of each plan (default 25)")
    parser.add_argument("--side", type=int, default=64, help="pixels (default 64)")
    parser.add_argument("--batch", type=int, default=8, help="samples (default 8)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    model, loss, inputs, targets = models.resnet18(batch=options.batch, side=options.side)
    staged = split(copy.deepcopy(model), inputs, loss=loss, targets=targets)
    count = len(staged.stages)
    print(f"ResNet-18, {options.side} x {options.side}, batch {options.batch}, {count} stages, {options.pairs} pairs")
    worst = 0.0
    for length in (0, 2, 3, 4):
        steps = hand_plans.segments(count, length) if length else hand_plans.store_all(count)
        step = apply(model, hand_plans.plan_of(staged, steps, [0] * count), loss=loss)
        runs = (lambda step=step: step(inputs, targets)), by_hand(staged, length, inputs, targets)
        ratios = pairs(runs, [*model.parameters(), *staged.model.parameters()], options.pairs)
        quartiles = statistics.quantiles(ratios, n=4)
        worst = max(worst, quartiles[1] - 1)
        print(f"{f'segments of {length}' if length else 'all kept':14} {quartiles[1] - 1:+.1%} (quartiles {quartiles[0] - 1:+.1%} to {quartiles[2] - 1:+.1%})")
    print(f"most: {worst:+.1%}")
    return 0


def pairs(runs, parameters, count):
    """Seconds of the first by those of the second, both orders in turn."""
    def seconds(run):
        for parameter in parameters:
            parameter.grad = None
        start = time.process_time()
        run()
        return time.process_time() - start

    for run in runs * 2:
        seconds(run)
    gc.collect()
    gc.disable()
    ratios = []
    for k in range(count):
        own, other = (seconds(run) for run in runs) if k % 2 == 0 else reversed([seconds(run) for run in reversed(runs)])
        ratios.append(own / other)
    gc.enable()
    return ratios


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
