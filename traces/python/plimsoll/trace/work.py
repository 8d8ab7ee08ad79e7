"""Floating-point operations and memory traffic of each stage, from the operations that are really dispatched.

flops: 2 per multiply-add of convolutions and matrix products; a convolution's backward counts one forward for each of the
input and weight gradients really computed. Everything else counts 0.
bytes moved: over operations that are not views, the sum of min(elements * element size, storage bytes) of the distinct
tensors read and written, a tensor overwritten in place twice; a lookup reads only the rows it returns, and what is made
"like" a tensor does not read it.
"""

import math

from plimsoll.torch.versions import address_of, storage_of
from torch.utils._python_dispatch import TorchDispatchMode

from .executor import Probe
from .storages import tensors_in

FLOPS_RULE = ("2 per multiply-add of convolutions and matrix products; a convolution's backward counts one forward for each "
              "gradient really computed; all else 0")
BYTES_MOVED_RULE = ("sum over dispatched non-view operations of min(elements * element size, storage bytes) of distinct "
                    "tensors read and written, in-place ones twice; lookups read only the rows returned, *_like and new_* "
                    "read nothing")

ALLOCATIONS = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
LOOKUPS = {"embedding", "index_select", "gather"}


def operation_name(func):
    """'convolution_backward' of aten.convolution_backward.default."""
    return func._schema.name.split("::")[-1]


def matrix_flops(a, b):
    return 2 * a.numel() * b.shape[-1]


def convolution_flops(out, weight, transposed, x):
    """Each output element (input element if transposed) meets one filter: weight elements / its first dimension."""
    return 2 * (x if transposed else out).numel() * math.prod(weight.shape[1:])


def attention_flops(q, k, v, products_with_k, products_with_v):
    pairs = q.numel() // q.shape[-1] * k.shape[-2]
    return 2 * pairs * (products_with_k * k.shape[-1] + products_with_v * v.shape[-1])


def flops_of(name, args, result):
    """Floating-point operations of one dispatched operation; None where it is known to be heavy but has no formula."""
    if name in ("mm", "bmm"):
        return matrix_flops(args[0], args[1])
    if name in ("addmm", "baddbmm", "addbmm"):
        return matrix_flops(args[1], args[2])
    if name in ("mv", "dot"):
        return 2 * args[0].numel()
    if name == "addmv":
        return 2 * args[1].numel()
    if name in ("convolution", "_convolution", "convolution_overrideable"):
        return convolution_flops(result, args[1], args[6], args[0])
    if name == "mkldnn_convolution":
        return convolution_flops(result, args[1], False, args[0])
    if name == "convolution_backward":
        once = convolution_flops(args[0], args[2], args[7], args[1])
        return once * sum(args[10][:2])
    if "scaled_dot_product" in name:
        if "backward" in name:  # scores again, then gradients of values, scores, queries, keys
            return attention_flops(*args[1:4], 3, 2)
        return attention_flops(*args[:3], 1, 1)
    if any(word in name for word in ("rnn", "lstm", "gru", "attention", "cudnn_convolution", "linear")):
        return None
    return 0


def reads_only_the_shape(name):
    return name.endswith("_like") or name.startswith("new_")


def traffic(tensor):
    return min(tensor.numel() * tensor.element_size(), storage_of(tensor).nbytes())


def is_view(func, inputs, outputs):
    """Only bookkeeping: every result lies in a storage that was given, and nothing is written. Results without memory lie nowhere."""
    if func._schema.is_mutable:
        return False
    if outputs and not any(storage_of(tensor).nbytes() for tensor in outputs):
        return any(of.alias_info is not None for of in func._schema.returns)
    given = {address_of(storage_of(tensor)) for tensor in inputs}
    return bool(outputs) and all(address_of(storage_of(tensor)) in given for tensor in outputs)


def bytes_moved_by(func, name, inputs, outputs):
    if name in ALLOCATIONS or is_view(func, inputs, outputs):
        return 0
    read = {id(tensor): tensor for tensor in inputs}
    written = {id(tensor): tensor for tensor in outputs}
    total = sum(traffic(tensor) for tensor in written.values())
    if reads_only_the_shape(name):
        return total
    if name in LOOKUPS:
        table = inputs[0]
        return total + min(traffic(table), total) + sum(traffic(t) for t in read.values() if t is not table)
    return total + sum(traffic(tensor) for tensor in read.values())


class WorkProbe(Probe):
    """{(phase, stage): [flops or None, bytes moved, operations]}."""

    def __init__(self):
        self.work = {}
        self.mode = None

    def begin(self, phase, stage, inputs):
        self.mode = WorkMode()
        self.mode.__enter__()

    def end(self, phase, stage, outputs):
        self.mode.__exit__(None, None, None)
        self.work[phase, stage] = (self.mode.flops, self.mode.bytes_moved, self.mode.operations)


class WorkMode(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.flops, self.bytes_moved, self.operations = 0, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = operation_name(func)
        inputs = tensors_in(list(args) + list((kwargs or {}).values()))
        outputs = tensors_in([result])
        flops = flops_of(name, args, result)
        self.flops = None if flops is None or self.flops is None else self.flops + flops
        self.bytes_moved += bytes_moved_by(func, name, inputs, outputs)
        self.operations += 1
        return result
