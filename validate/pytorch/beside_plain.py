#!/usr/bin/env python3
"""Trains a model by a plan beside plain training, on batches that were not measured, and holds them against each other bit for bit: loss, all
gradients, buffers. Exit code 1 where a bit differs.

  /usr/bin/python3 validate/pytorch/beside_plain.py my_model.py:build --batch 8 --plan plan.json
"""

import argparse
import copy
import inspect
import sys

import torch

from plimsoll.torch import Refused, apply
from plimsoll.torch.stages import named_arguments
from plimsoll.torch.values import map_leaves
from plimsoll.trace.user_code import load_file


def built(where, batch):
    """(model, loss, inputs, targets) of file.py:name; what is random in it is the same each time."""
    place, _, name = where.rpartition(":")
    build = getattr(load_file(place), name)
    torch.manual_seed(0)
    made = build(batch=batch) if "batch" in inspect.signature(build).parameters else build()
    model, loss, inputs, targets = (*made, None)[:4]
    if loss is not None and len(made) == 3:
        own, loss = loss, lambda output, _: own(output)
    return model.train(), loss, inputs, targets


def other_batch(example, generator):
    """Of the same shapes: real numbers anew, tokens among the least and the most that were there; what has two values at most, as a mask does, stays."""
    def other(leaf):
        if not isinstance(leaf, torch.Tensor) or leaf.dtype == torch.bool or leaf.numel() == 0:
            return leaf
        if leaf.is_floating_point():
            return torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype)
        least, most = int(leaf.min()), int(leaf.max())
        return leaf if most - least < 2 else torch.randint(least, most + 1, leaf.shape, generator=generator, dtype=leaf.dtype)
    return map_leaves(example, other)


def plain_loss(model, loss, inputs, targets):
    args, kwargs = named_arguments(model, inputs)
    output = model(*args.values(), **kwargs)
    return loss(output, targets) if loss is not None else output["loss"] if isinstance(output, dict) else output.loss


def differences(model, loss, inputs, targets, plan, batches=3):
    """What differs between training by the plan and plain training, in words; nothing where each bit is the same."""
    plain, generator, found = copy.deepcopy(model), torch.Generator().manual_seed(1), []
    step = apply(model, plan, loss=loss)
    for number in range(batches):
        given, wanted = other_batch(inputs, generator), other_batch(targets, generator)
        for one in (plain, model):
            one.zero_grad(set_to_none=True)
        torch.manual_seed(number)
        expected = plain_loss(plain, loss, given, wanted)
        expected.backward()
        torch.manual_seed(number)
        if not torch.equal(step(given, wanted), expected.detach()):
            found.append(f"batch {number}: the loss")
        for (name, p), q in zip(plain.named_parameters(), model.parameters()):
            if (p.grad is None) != (q.grad is None) or p.grad is not None and not torch.equal(p.grad, q.grad):
                found.append(f"batch {number}: the gradient of {name}")
        found += [f"batch {number}: buffer {name}" for (name, p), q in zip(plain.named_buffers(), model.buffers()) if not torch.equal(p, q)]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="FILE.py:NAME", help="as for traces/export_pytorch.py")
    parser.add_argument("--plan", required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--batches", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        found = differences(*built(options.model, options.batch), options.plan, options.batches)
    except Refused as error:
        print(f"{options.model}: {error}", file=sys.stderr)
        return 2
    print(f"{options.model} by {options.plan}: " + (f"{len(found)} differences, the first is {found[0]}" if found else
                                                   f"loss, gradients and buffers of {options.batches} batches are those of plain training, bit for bit"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
