#!/usr/bin/env python3
"""What the step costs beside its plan's own work: plans against loops written by hand that run the same stages in the same order (forwards that
keep nothing, forwards that save, backwards), in interleaved pairs. Process CPU time, one thread. Twelve layers of a GPT-2 so small that its
kernels take next to no time, so that the host's part is nearly all, without and with autocast, and ResNet-18.

  /usr/bin/python3 validate/pytorch/overhead.py                    # ResNet-18 with 64 x 64 pixels, batch 8
  /usr/bin/python3 validate/pytorch/overhead.py --pairs 51 --side 32
"""

import argparse
import contextlib
import copy
import gc
import statistics
import sys
import time

try:
    import torch

    import gpu_models
    import hand_plans
    import models
    from plimsoll.torch import apply
    from plimsoll.torch.stages import split
except ModuleNotFoundError as missing:
    print(f"overhead.py: {sys.executable} has no {missing.name} (Debian: apt-get install python3-torch, then /usr/bin/python3)", file=sys.stderr)
    sys.exit(2)


def by_hand(staged, steps, inputs, targets, autocast):
    """What one would write who knows the plan and that each boundary is one tensor, that no stage draws numbers and none keeps statistics."""
    def step():
        values, graphs, gradient = {0: inputs}, {}, None
        for kind, k in steps:
            if kind == "F":
                with torch.no_grad(), autocast():
                    values[k + 1], = staged.stages[k]((values[k],), targets)
            elif kind == "S":
                leaf = values[k].detach().requires_grad_(values[k].is_floating_point())
                with autocast():
                    made, = staged.stages[k]((leaf,), targets)
                graphs[k], values[k + 1] = (leaf, made), made.detach()
            else:
                leaf, made = graphs.pop(k)
                made.backward(gradient)
                gradient = leaf.grad
    return step


def small_gpt2():
    torch.manual_seed(0)
    model, tokens = gpu_models.Gpt2(layers=12, width=32, heads=2, length=8, words=64), torch.randint(64, (1, 8))
    return model, gpu_models.cross_entropy, tokens, torch.randint(64, (1, 8))


def compared(name, made, pairs, autocast):
    """The worst median of what steps take, over what loops by hand take."""
    model, loss, inputs, targets = made
    with autocast():
        staged = split(copy.deepcopy(model), inputs, loss=loss, targets=targets)
    count, worst = len(staged.stages), 0.0
    print(f"{name}, {count} stages, {pairs} pairs")
    for length in (0, 3, 6):
        steps = hand_plans.segments(count, length) if length else hand_plans.store_all(count)
        step = apply(model, hand_plans.plan_of(staged, steps, [0] * count), loss=loss)

        def own(step=step):
            with autocast():
                step(inputs, targets)

        runs = own, by_hand(staged, steps, inputs, targets, autocast)
        seconds = paired(runs, [*model.parameters(), *staged.model.parameters()], pairs)
        quartiles = statistics.quantiles([mine / other for mine, other in seconds], n=4)
        worst = max(worst, quartiles[1])
        action = statistics.median(mine - other for mine, other in seconds) / len(steps)
        print(f"  {f'segments of {length}' if length else 'all kept':14} {quartiles[1] - 1:+.1%} (quartiles {quartiles[0] - 1:+.1%} to {quartiles[2] - 1:+.1%}), "
              f"{action * 1e6:+.1f} us an action")
    return worst


def paired(runs, parameters, count):
    """[(seconds of the first, of the second)], both orders in turn."""
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
    found = []
    for k in range(count):
        found.append(tuple(seconds(run) for run in runs) if k % 2 == 0 else tuple(reversed([seconds(run) for run in reversed(runs)])))
    gc.enable()
    return found


def main(arguments):
    parser = argparse.ArgumentParser(prog="overhead.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=25, help="of each plan (default 25)")
    parser.add_argument("--side", type=int, default=64, help="pixels (default 64)")
    parser.add_argument("--batch", type=int, default=8, help="samples (default 8)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    bf16 = lambda: torch.autocast("cpu", dtype=torch.bfloat16)
    worst = max(compared("GPT-2 of width 32", small_gpt2(), options.pairs, contextlib.nullcontext),
                compared("GPT-2 of width 32, autocast", small_gpt2(), options.pairs, bf16),
                compared(f"ResNet-18, {options.side} x {options.side}, batch {options.batch}", models.resnet18(batch=options.batch, side=options.side),
                         options.pairs, contextlib.nullcontext))
    print(f"most: {worst - 1:+.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
