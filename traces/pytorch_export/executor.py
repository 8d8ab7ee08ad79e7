"""Runs a chain once, stage by stage or as plain training does, and tells a probe what happens.

The caller holds every boundary tensor: a stage's input, output and output gradient live until its backward is over.
That is the executor whose peaks the trace fields describe (traces/README.md).
"""

import torch

from .errors import UsageError
from .storages import map_tensors, tensors_in


class Probe:
    """Sees nothing; measurements override what they need."""

    def begin(self, phase, stage, inputs):
        pass

    def end(self, phase, stage, outputs):
        pass

    def released(self, stage):
        """The backward of a stage is over and its boundary tensors are gone."""


def as_leaf(tensor):
    return tensor.detach().requires_grad_(tensor.requires_grad)


def detached_input(value):
    return map_tensors(value, lambda tensor: tensor.detach())


def run_forward(stages, x, probe):
    """All stages on detached inputs; returns [(inputs, outputs)]."""
    held = []
    for k, stage in enumerate(stages):
        leaf = detached_input(x) if k == 0 else map_tensors(x, as_leaf)
        versions = [tensor._version for tensor in tensors_in(leaf)]
        probe.begin("forward", k, leaf)
        try:
            x = stage.module(leaf)
        except RuntimeError as error:
            if "in-place" in str(error):
                raise UsageError(begins_in_place(stage)) from error
            raise
        probe.end("forward", k, x)
        if versions != [tensor._version for tensor in tensors_in(leaf)]:
            raise UsageError(begins_in_place(stage))
        held.append((leaf, x))
    if not isinstance(x, torch.Tensor) or x.numel() != 1 or (torch.is_grad_enabled() and not x.requires_grad):
        raise UsageError(f"the loss must be one number that some parameter's gradient flows to, found {described(x)}")
    return held


def described(value):
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor of shape {list(value.shape)}" + ("" if value.requires_grad else " that needs no gradient")


def begins_in_place(stage):
    return (f"stage '{stage.name}' overwrites its input in place, so the input cannot be a checkpoint: "
            "cut the chain elsewhere or make that operation out of place")


def run_backward(held, probe, inputs_only=False):
    """Backward of all stages, last first; `held` is consumed. With inputs_only no weight gradients are computed."""
    gradients = None
    while held:
        k = len(held) - 1
        leaf, out = held.pop()
        roots, root_gradients = differentiable(out, gradients)
        wanted = [tensor for tensor in tensors_in(leaf) if tensor.requires_grad]
        probe.begin("backward", k, leaf)
        if roots and not inputs_only:
            torch.autograd.backward(roots, root_gradients)
        elif roots and wanted:
            torch.autograd.backward(roots, root_gradients, inputs=wanted)
        probe.end("backward", k, leaf)
        gradients = [tensor.grad for tensor in tensors_in(leaf)]
        del leaf, out, roots, root_gradients, wanted
        probe.released(k)


def differentiable(out, gradients):
    """The outputs to start a backward from, and their gradients (None: the loss, whose gradient is one)."""
    roots, root_gradients = [], []
    for i, tensor in enumerate(tensors_in(out)):
        if not tensor.requires_grad:
            continue
        if gradients is None:
            roots.append(tensor)
            root_gradients.append(None)
        elif gradients[i] is not None:
            roots.append(tensor)
            root_gradients.append(gradients[i])
    return roots, root_gradients


def run_stagewise(chain, probe, inputs_only=False):
    run_backward(run_forward(chain.stages, chain.input, probe), probe, inputs_only)


def run_without_gradients(chain, probe):
    with torch.no_grad():
        run_forward(chain.stages, chain.input, probe)


def run_plain(chain, probe):
    """One ordinary training iteration, for comparison: nothing is held, the engine frees what it can."""
    probe.begin("iteration", 0, chain.input)
    x = chain.input
    for stage in chain.stages:
        x = stage.module(x)
    x.backward()
    probe.end("iteration", 0, x)


def clear_gradients(chain):
    for parameter in chain.parameters():
        parameter.grad = None
