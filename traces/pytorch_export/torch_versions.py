"""All that differs between torch 1.13 and 2.x (up to 2.11), and between a CPU and CUDA: what is there, what is not, and the message. What the
executor of plans needs of it stands beside that (validate/pytorch/plimsoll_torch: versions.py, modes.py, device.py).

Each part names the fact as PyTorch documents it. Run here with 1.13 on a CPU; the rest follows the documentation and has not been run.
"""

import contextlib
import inspect

import torch

from .errors import UsageError


def version():
    """(major, minor) of this torch."""
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


# --- devices ------------------------------------------------------------------------------------------------------------------
# docs, torch.cuda.is_available. torch.cuda.OutOfMemoryError is there from 1.13 on, a RuntimeError.

def refuse_missing(device):
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch sees no CUDA device")


# docs, torch.cuda.memory_stats: "allocated_bytes" are blocks, rounded up; "requested_bytes" (pull request 88575, in 2.x) as asked for.

def byte_counter_of_cuda():
    """(name of the counter, whether it is exact)."""
    exact = "requested_bytes.all.current" in torch.cuda.memory_stats()
    return ("requested_bytes" if exact else "allocated_bytes"), exact


# --- attention ----------------------------------------------------------------------------------------------------------------
# docs, torch.nn.functional.scaled_dot_product_attention: from 2.0 on.

def refuse_missing_attention(attention):
    if attention == "fused" and not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        raise UsageError(f"--attention fused needs torch 2, this is {torch.__version__}")


# --- autocast -----------------------------------------------------------------------------------------------------------------
# docs, torch.autocast(device_type, dtype): for "cpu" and "cuda" in 1.13 and later. On a CPU bfloat16 alone; float16 too from 2.2 on (pull
# request 112484). Another dtype is not refused there but switched off with a warning. On CUDA bfloat16 needs a card for which
# torch.cuda.is_bf16_supported() is true.

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
# docs, torch.optim, "for-loop, foreach, fused": which a class has, its signature says; for which tensors, it says when it is called (fused
# Adam of 1.13 takes CUDA tensors only), and that sentence is written into the trace. Where neither is asked for, 1.13 loops over the
# parameters, and 2.x takes foreach on CUDA (pull request 93184).

def has_implementation(optimizer, way):
    if way == "default":
        return True
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.get(optimizer, torch.optim.SGD)
    return ("fused" if way == "fused" else "foreach") in inspect.signature(kind).parameters


# --- random numbers -----------------------------------------------------------------------------------------------------------
# docs, torch.Tag.nondeterministic_seeded (torch.tags): ops that draw from a generator; in 1.13 and later.

def draws_numbers(op):
    """Whether the op moves on the state of the random numbers: who runs it again restores that state first."""
    return torch.Tag.nondeterministic_seeded in op.tags
