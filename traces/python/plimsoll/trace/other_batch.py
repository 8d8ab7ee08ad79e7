"""Another batch of the same form, to see which sizes follow from data: rows change places, and numbers are others of the same range. And what is
planned for where they do: "at most", the larger of the two and as much again as they differ.
"""

import copy
import dataclasses

import torch

from .errors import UsageError
from .storages import map_tensors

EMPTY_IN_EXAMPLE = "{} is empty in the example, and not in another batch: take an example in which it has rows"


def other_batches(*values):
    """From the most to the least that is changed: numbers, the order of rows alone."""
    return [map_tensors(values, lambda tensor, change=change: change(tensor).requires_grad_(tensor.requires_grad))
            for change in (with_other_numbers, with_other_rows)]


def with_other_numbers(tensor):
    """Of floating point: with the same mean and spread; else drawn from those that are there."""
    given = tensor.detach()
    draws = torch.Generator().manual_seed(given.numel())
    if given.is_floating_point() and given.numel() > 1:
        wide = given.float()
        return (torch.randn(given.shape, generator=draws).to(given.device) * wide.std() + wide.mean()).to(given.dtype)
    chosen = torch.randint(max(1, given.numel()), given.shape, generator=draws).to(given.device)
    return given.reshape(-1)[chosen] if given.dim() else given.clone()


def with_other_rows(tensor):
    given = tensor.detach()
    return given.flip(0) if given.dim() else given.clone()


def at_most(one, other):
    return max(one, other) + abs(one - other)


@dataclasses.dataclass
class Sizes:
    """What a stage saves and what stands between stages, at most: `saved` is as memory.SavedProbe, in the larger sizes."""

    saved: object
    stages: list   # numbers of those that save other tensors
    tensors: list  # numbers of tensors between stages that differ


def differing(saved, other):
    """None where all sizes are the same. Where experts share out the rows, what they save together may be the same all the same."""
    stages = [k for k, (one, two) in enumerate(zip(saved.stages, other.stages))
              if sorted(one["inner_storages"].values()) != sorted(two["inner_storages"].values())]
    number = numbers_in(saved, other)
    sizes = [other.tensors[number[t]]["bytes"] if number[t] is not None else 0 for t in range(len(saved.tensors))]
    gradients = {t: other.gradient_bytes.get(number[t], bytes_) for t, bytes_ in saved.gradient_bytes.items()}
    tensors = [t for t, size in enumerate(sizes) if size != saved.tensors[t]["bytes"]]
    return Sizes(larger(saved, other, stages, sizes, gradients), stages, tensors) if stages or tensors else None


def numbers_in(saved, other):
    """{number of a tensor between stages: its number on the other batch, None where it is empty there}"""
    found = {}
    for one, two in zip(saved.positions, other.positions):
        for number, there in zip(one, two):
            if number is None and there is not None:
                raise UsageError(EMPTY_IN_EXAMPLE.format("a tensor between two stages") + ", or cut elsewhere (--stages)")
            found[number] = there
    return found


def larger(saved, other, stages, sizes, gradients):
    merged = copy.copy(saved)
    merged.tensors = [one | {"bytes": at_most(one["bytes"], size)} for one, size in zip(saved.tensors, sizes)]
    merged.gradient_bytes = {number: at_most(bytes_, gradients[number]) for number, bytes_ in saved.gradient_bytes.items()}
    more = [one["bytes"] - was["bytes"] for one, was in zip(merged.tensors, saved.tensors)]
    merged.stages, seen = [dict(facts) for facts in saved.stages], set()
    for k in reversed(range(len(merged.stages))):
        facts, before, behind = merged.stages[k], set(saved.boundaries[k]), set(saved.boundaries[k + 1])
        facts["inner"] = at_most(facts["inner"], other.stages[k]["inner"])
        facts["output"] += sum(more[number] for number in behind)
        facts["passed"] += sum(more[number] for number in behind & before)
        facts["new_output"] += sum(more[number] for number in behind - before)
        made = set(facts["gradient_tensors"]) - seen
        facts["new_gradient"] += sum(merged.gradient_bytes[number] - saved.gradient_bytes[number] for number in made)
        seen |= made
        if k in stages:
            facts["saved_tensors"] = []
    return merged
