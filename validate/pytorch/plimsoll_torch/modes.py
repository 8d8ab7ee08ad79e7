"""Whether gradients are followed and which autocast is on, as the model's own code has set them, and how that is entered again."""

import contextlib

import torch

from .versions import AUTOCAST_DEVICES, autocast_now


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
