"""Which operations of an iteration may run once only: those that read or change what stays behind it.

* A tensor from outside the iteration (a buffer) that the iteration changes: who runs an operation again that reads or changes it finds what the first
  run has left there. Schemas do not say of all operations what they change (`native_batch_norm`), so contents are compared.
* Random numbers: who runs a part again puts their state back to what it was when the part began. Of a stage, the first operation that draws may then
  run again, and no other: it would draw what the first has drawn, were that one kept. Whoever draws from a generator of its own is never put back.
"""

import torch
from plimsoll.torch.again import random_state
from plimsoll.torch.versions import address_of, draws_numbers, storage_of

from .storages import tensors_in

OUTSIDE = "a tensor that is not a buffer"


class Watch:
    """Told of each operation of an iteration before and behind it."""

    def __init__(self, chain):
        self.device = next((tensor.device for tensor in (*chain.parameters(), *tensors_in(chain.input))), torch.device("cpu"))
        names = chain.tensor_names()
        self.names = {address_of(storage_of(buffer)): names[id(buffer)] for buffer in chain.buffers() if id(buffer) in names}
        self.ops = []         # of each operation: (stage, names of what it touches from outside, whether it draws, whether nobody can put that back)
        self.changed = set()  # names

    def before(self, func, outside):
        state = random_state(self.device) if draws_numbers(func) else None
        return state, [(tensor, tensor.detach().clone()) for tensor in outside]

    def behind(self, args, stage, before, written, is_view):
        state, outside = before
        written = {id(tensor) for tensor in written}
        self.changed |= {self.name(tensor) for tensor, was in outside if id(tensor) in written or not same_bits(tensor, was)}
        own = any(isinstance(arg, torch.Generator) for arg in args)
        if not is_view:
            self.ops.append((stage, {self.name(tensor) for tensor, _ in outside}, own or (state is not None and state != random_state(self.device)), own))

    def name(self, tensor):
        return self.names.get(address_of(storage_of(tensor)), OUTSIDE)

    def mark(self, ops):
        """Writes it into the operations of another iteration, which are the same."""
        drawing = set()
        for op, (stage, touched, draws, own) in zip(ops, self.ops):
            if draws:
                op["attributes"] = op.get("attributes", {}) | {"random": "yes"}
            if op["phase"] != "forward":
                continue
            names = sorted(touched & self.changed)
            if names:
                op["attributes"] = op.get("attributes", {}) | {"buffers": names}
            if names or own or draws and stage in drawing:
                op["recomputable"] = False
            if draws:
                drawing.add(stage)


class WatchOfShapes(Watch):
    """Of tensors without numbers: what schemas say, beside statistics of batches, and each draw counts."""

    def before(self, func, outside):
        return func, outside

    def behind(self, args, stage, before, written, is_view):
        func, outside = before
        written = {id(tensor) for tensor in [*written, *statistics_of(func, args)]}
        self.changed |= {self.name(tensor) for tensor in outside if id(tensor) in written}
        own = any(isinstance(arg, torch.Generator) for arg in args)
        if not is_view:
            self.ops.append((stage, {self.name(tensor) for tensor in outside}, own or draws_numbers(func), own))


def statistics_of(func, args):
    """Running means and variances that a norm in training writes, though its schema may not say so."""
    return tensors_in(list(args[3:5])) if func._schema.name.endswith("batch_norm") and args[5] else []


def same_bits(tensor, was):
    """Also of what is not a number."""
    return torch.equal(tensor.detach().contiguous().view(-1).view(torch.uint8), was.contiguous().view(-1).view(torch.uint8))
