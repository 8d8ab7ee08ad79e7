"""Whether gradients are followed and which autocast is on, as the model's own code has set them, and how that is entered again."""

import contextlib

import torch

DEVICES = ("cuda", "cpu")


def autocast_now():
    """(device, dtype) of each autocast that is on. From torch 2.4 on each device is asked by its name (pull request 124359); what was
    there before is deprecated then."""
    if hasattr(torch, "get_autocast_dtype"):
        return tuple((device, torch.get_autocast_dtype(device)) for device in DEVICES if torch.is_autocast_enabled(device))
    return tuple((device, dtype()) for device, is_on, dtype in (
        ("cuda", torch.is_autocast_enabled, torch.get_autocast_gpu_dtype),
        ("cpu", torch.is_autocast_cpu_enabled, torch.get_autocast_cpu_dtype)) if is_on())


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
        for device in DEVICES if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(device, dtype=dtypes.get(device, torch.bfloat16), enabled=device in dtypes))
    return stack
