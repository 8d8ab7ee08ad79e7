"""All that differs between torch 1.13 and 2.x (up to 2.11), and between a CPU and CUDA: what is there, what is not, and the message.

Each entry names the fact as PyTorch documents it. Tested here with 1.13 on a CPU; what needs another version or a GPU says so in one line.
"""

import contextlib
import inspect

import torch

from .errors import UsageError


def version():
    """(major, minor) of this torch."""
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


# --- autocast -----------------------------------------------------------------------------------------------------------------
# docs, torch.autocast(device_type, dtype): from 1.10 on, for "cpu" and "cuda". On a CPU bfloat16 alone up to 2.1; float16 too from 2.2 on
# (pull request 112484, "Add Half support for CPU autocast on eager mode"). Another dtype is disabled there with a warning, not refused.
# On CUDA bfloat16 needs a card and library for which torch.cuda.is_bf16_supported() is true.

def autocast_for(device, amp):
    """The context that is entered around a forward; nullcontext itself where none is asked for."""
    if amp is None:
        return contextlib.nullcontext
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[amp]
    if device == "cpu" and dtype == torch.float16 and version() < (2, 2):
        raise UsageError(f"--amp fp16 on a CPU needs torch 2.2, this is {torch.__version__}; bf16 works")
    if device == "cuda" and dtype == torch.bfloat16 and not torch.cuda.is_bf16_supported():
        raise UsageError("--amp bf16: torch.cuda.is_bf16_supported() is false on this GPU; fp16 works")
    return lambda: torch.autocast(device, dtype=dtype)


# --- optimizers ---------------------------------------------------------------------------------------------------------------
# docs, torch.optim: "foreach" (a loop over lists of tensors; None, the default, chooses it on CUDA from 2.0 on) is a parameter of SGD, Adam
# and AdamW in 1.13 already. "fused": of Adam in 1.13 and AdamW from 2.0 on, CUDA alone; SGD from 2.3 on; on a CPU from 2.4 on. What a version has
# but not for these tensors, it refuses when it is called, and its reason is written into the trace.

def has_implementation(optimizer, way):
    """Whether the optimizer's class knows the parameter."""
    if way == "default":
        return True
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.get(optimizer, torch.optim.SGD)
    return ("fused" if way == "fused" else "foreach") in inspect.signature(kind).parameters
