"""Whether gradients are followed and which autocast is on, as the model's own code has set them, and how that is entered again; which ops run."""

import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .versions import AUTOCAST_DEVICES, autocast_now, why_no_dispatch_mode


def difference(outer):
    """What the model's own code has changed since the call: (gradients off, autocast or None)."""
    now = autocast_now()
    return not torch.is_grad_enabled(), None if now == outer else now


def entered(state):
    without_gradients, autocast = state
    if not without_gradients and autocast is None:
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    if without_gradients:
        stack.enter_context(torch.no_grad())
    if autocast is not None:
        dtypes = dict(autocast)
        for device in AUTOCAST_DEVICES if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(device, dtype=dtypes.get(device, torch.bfloat16), enabled=device in dtypes))
    return stack


class NamesOfOps(TorchDispatchMode):
    def __init__(self, names):
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def ops_named_in(names):
    """Ops below autograd write their names into the list, where this torch can run any model so."""
    return contextlib.nullcontext() if why_no_dispatch_mode() else NamesOfOps(names)
