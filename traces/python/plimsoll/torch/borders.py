"""The borders of a stage: autograd holds neither its input nor its output for the caller's sake, so that both can be dropped.

Sums of gradients are those of plain training, bit for bit. There a tensor's gradient is the sum of what its readers make, one after the
other, from the last reader to the first: ((c3 + c2) + c1). Here later stages have summed c3 + c2 = G already. Where one operation of the
stage reads the tensor, G + c1 is the same sum. Where several do (c1a, then c1b), autograd would make G + (c1a + c1b); so G is handed to
it as what arrives first, and it makes (G + c1a) + c1b.
"""

import torch

from .versions import storage_of


class Entry(torch.autograd.Function):
    """Gives a stage one input tensor; its gradient goes to a box."""

    @staticmethod
    def forward(ctx, token, box, tensor):
        ctx.box = box
        return tensor.detach()

    @staticmethod
    def backward(ctx, gradient):
        ctx.box.take(gradient)
        return None, None, None


class Exit(torch.autograd.Function):
    """Where the backward of a stage begins: hands in gradients of its outputs, then those that inputs have already."""

    @staticmethod
    def forward(ctx, incoming, outputs, *tensors):
        ctx.incoming, ctx.outputs = incoming, outputs
        return tensors[0].new_zeros(0)

    @staticmethod
    def backward(ctx, _):
        gradients = tuple(ctx.incoming)
        del ctx.incoming[ctx.outputs:]  # that autograd may add to them in place
        return (None, None, *gradients)


def own_root(tensor):
    """The same tensor for a backward to begin at, which to autograd is no view: it may let go of its memory, and the tensor that of its own."""
    return torch.ops.aten._unsafe_view.default(tensor, tensor.shape)


class GradientBox:
    """The gradient of one input tensor of a stage, in a storage of its own."""

    def __init__(self, others, tensor=None):
        self.gradient = None
        self.others = others  # addresses of gradients that somebody holds
        self.strides = tensor.stride() if tensor is not None and is_dense(tensor) else None
        self.is_of_own_layout = True  # whether all gradients have the tensor's, so that a leaf would keep them as they are

    def take(self, gradient):
        self.is_of_own_layout = self.is_of_own_layout and gradient.stride() == self.strides
        if self.gradient is None:
            self.gradient = self.alone(gradient)
        elif is_expanded(self.gradient):  # to which nothing can be added in place
            self.gradient = self.gradient + gradient
        else:
            self.gradient.add_(gradient)
        self.others.add(storage_of(self.gradient).data_ptr())

    def alone(self, gradient):
        """Without what lies around a window, and not the same memory as another gradient."""
        return gradient.clone() if storage_of(gradient).data_ptr() in self.others else without_surroundings(gradient)


def without_surroundings(gradient):
    return gradient.clone() if storage_of(gradient).nbytes() > gradient.numel() * gradient.element_size() else gradient


def is_dense(tensor):
    """Whether its numbers lie side by side, in whatever order of dimensions."""
    expected = 1
    for stride, side in sorted(zip(tensor.stride(), tensor.shape)):
        if side != 1 and stride != expected:
            return False
        expected *= side
    return True


def is_expanded(tensor):
    return storage_of(tensor).nbytes() < tensor.numel() * tensor.element_size()


def readers_of(root, entries):
    """How many operations behind `root` read each of these nodes' results: edges that lead to them."""
    counts = {entry: 0 for entry in entries}
    seen, stack = set(), [root]
    while stack:
        node = stack.pop()
        for following, _ in node.next_functions:
            if following is None:
                continue
            if following in counts:
                counts[following] += 1
            if following not in seen:
                seen.add(following)
                stack.append(following)
    return counts
