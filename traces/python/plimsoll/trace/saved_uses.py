"""Which layers' backwards read what a stage's forward has saved, and as what: `conv3x3.input`, `relu.output`; of the input of a
pooling PyTorch's read the shape alone, `pool.shape`.

Names are those of traces/chain.md. Nodes of autograd's graph show what they have saved as attributes, `_saved_result` and the like.
"""

from plimsoll.torch.nodes import held_by, nodes_behind
from plimsoll.torch.versions import storage_of

from .storages import dtype_name, storage_bytes, tensors_in

KINDS = (  # the first that a node's name begins with counts
    ("NativeBatchNorm", "bn"), ("CudnnBatchNorm", "bn"), ("MiopenBatchNorm", "bn"), ("NativeLayerNorm", "ln"), ("Relu", "relu"),
    ("Gelu", "gelu"), ("LogSoftmax", "loss"), ("Softmax", "softmax"), ("NllLoss", "loss"), ("MaxPool", "pool"), ("AvgPool", "pool"),
    ("AdaptiveAvgPool", "pool"), ("Embedding", "embedding"), ("Bmm", "matmul"), ("Baddbmm", "matmul"), ("ScaledDotProduct", "matmul"),
    ("Addmm", "linear"), ("Mm", "linear"), ("Linear", "linear"))


def layer_of(node):
    name = node.name()
    if name.startswith("Convolution"):
        sides = list(node._saved_weight.shape[2:])
        return f"conv{sides[0]}x{sides[0]}" if len(sides) == 2 and sides[0] == sides[1] else "conv"
    return next((kind for begin, kind in KINDS if name.startswith(begin)), "other")


def saved_by(node):
    """{attribute: addresses of the storages behind it}."""
    found = {name: list(storage_bytes(tensors)) for name, tensors in held_by(node).items()}
    return {name: addresses for name, addresses in found.items() if addresses}


def unseen_by_hooks(outputs, seen):
    """Tensors that the nodes behind the outputs hold in other storages than those of `seen`, which hooks on saved tensors were shown."""
    known = set(storage_bytes(seen))
    held = [tensor for node in nodes_behind(tensors_in(outputs)) for tensors in held_by(node).values() for tensor in tensors]
    return [tensor for tensor in held if known.isdisjoint(storage_bytes([tensor]))]


def uses_of_saved(outputs, parameters):
    """{address: uses} of the storages that the nodes behind the outputs have saved, as far as they show it; `parameters` are
    addresses. A product of two values that no parameter is part of is a matmul."""
    uses = {}
    for node in nodes_behind(tensors_in(outputs)):
        saved = saved_by(node)
        layer = layer_of(node)
        if layer == "linear" and len(saved) > 1 and not any(a in parameters for of in saved.values() for a in of):
            layer = "matmul"
        for name, addresses in saved.items():
            is_result = name.startswith("_saved_result") or name == "_saved_total_weight"
            use = f"{layer}.{'output' if is_result else 'shape' if layer == 'pool' else 'input'}"
            for address in addresses:
                if use not in uses.setdefault(address, []):
                    uses[address].append(use)
    return uses


def shape_and_dtype(tensors):
    """Of a storage that these tensors view: of one that fills it, numbers in a row if there is such; else nothing."""
    filling = [tensor for tensor in tensors if tensor.numel() * tensor.element_size() == storage_of(tensor).nbytes()]
    if not filling:
        return {}
    of = next((tensor for tensor in filling if tensor.is_contiguous()), filling[0])
    return {"shape": list(of.shape), "dtype": dtype_name(of)}
