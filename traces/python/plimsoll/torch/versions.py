"""All that differs between torch 1.13 and 2.x (up to 2.11), for the step and for the exporter (traces/python/plimsoll/trace): what is there, what is
not, and the reason for the message. What copies to a host need on CUDA stands in device.py.

Each part names the fact as PyTorch documents it. Run with 1.13 and 2.6 on a CPU and with 2.11 on an H100; in between it follows the documentation, with
stand-ins for what torch answers (test_versions.py).
"""

import contextlib
import functools
import inspect
import os

import torch


def version():
    """(major, minor) of this torch."""
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


# --- storages -----------------------------------------------------------------------------------------------------------------
# docs, torch.Tensor.untyped_storage: from 2.0 on; `storage()` warns from then on, and `_storage()` is what 1.13 has.

storage_of = torch.Tensor.untyped_storage if hasattr(torch.Tensor, "untyped_storage") else torch.Tensor._storage


def address_of(storage):
    """A number that no other living storage has: the address of its memory or, where it has none (meta and fake tensors), of its record."""
    return storage._cdata if storage.device.type == "meta" else storage.data_ptr()


def fake_tensors():
    """The mode that makes tensors without memory; in 2.x it takes others for their shapes, too."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # which costs a second in 2.x

    takes_others = "allow_non_fake_inputs" in inspect.signature(FakeTensorMode.__init__).parameters
    return FakeTensorMode(**({"allow_non_fake_inputs": True} if takes_others else {}))


def bytes_view(storage, device):
    """The storage as a flat tensor of bytes, without a copy."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def view_of(storage, like):
    """A tensor of this geometry (dtype, shape, strides, offset) on the storage."""
    dtype, shape, strides, offset, device = like
    return torch.empty(0, dtype=dtype, device=device).set_(storage, offset, shape, strides)


def geometry(tensor):
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), tensor.device


# --- autograd's engine ----------------------------------------------------------------------------------------------------------
# As torch.autograd.backward calls it in 1.13 and 2.6, without what that checks of each call: it costs as much as a small kernel. Elsewhere the
# function itself.

def engine_backward(roots, gradients):
    run_engine(roots, gradients, False, False, (), allow_unreachable=True, accumulate_grad=True)


run_engine = torch.autograd.Variable._execution_engine.run_backward
if version() > (2, 6):
    engine_backward = torch.autograd.backward


# --- devices ------------------------------------------------------------------------------------------------------------------
# docs, torch.cuda.is_available. torch.cuda.OutOfMemoryError is there from 1.13 on, a RuntimeError.

def why_missing(device):
    """None where the device is there."""
    return "torch sees no CUDA device" if device == "cuda" and not torch.cuda.is_available() else None


# docs, torch.cuda.memory_stats: "allocated_bytes" are blocks, rounded up; "requested_bytes" (pull request 88575, in 2.x) as asked for.

def byte_counter_of_cuda():
    """(name of the counter, whether it is exact)."""
    exact = "requested_bytes.all.current" in torch.cuda.memory_stats()
    return ("requested_bytes" if exact else "allocated_bytes"), exact


# docs, "Understanding CUDA Memory Usage": torch.cuda.memory._record_memory_history(enabled, context, stacks) from 2.1 on, and
# torch.cuda.memory._snapshot()["device_traces"]: a list a device, of entries with action, addr and size as asked for. Before 2.1 with other arguments.

def has_memory_history():
    return version() >= (2, 1)


def write_memory_history(on):
    torch.cuda.memory._record_memory_history(*(("all", None, "python") if on else (None,)))


# --- attention ----------------------------------------------------------------------------------------------------------------
# docs, torch.nn.functional.scaled_dot_product_attention: from 2.0 on.

def why_no_fused_attention():
    return None if hasattr(torch.nn.functional, "scaled_dot_product_attention") else f"needs torch 2, this is {torch.__version__}"


# --- autocast -----------------------------------------------------------------------------------------------------------------
# docs, torch.autocast(device_type, dtype): for "cpu" and "cuda" in 1.13 and later. On a CPU bfloat16 alone; float16 too from 2.2 on (pull
# request 112484). Another dtype is not refused there but switched off with a warning. On CUDA bfloat16 needs a card for which
# torch.cuda.is_bf16_supported() is true. From 2.4 on each device is asked by its name (pull request 124359); torch.is_autocast_cpu_enabled and
# torch.get_autocast_gpu_dtype, which were there before, are deprecated then.

AUTOCAST_DEVICES = ("cuda", "cpu")


def why_no_autocast(device, amp):
    """`amp`: bf16 or fp16. None where it works."""
    if device == "cpu" and amp == "fp16" and version() < (2, 2):
        return f"on a CPU needs torch 2.2, this is {torch.__version__}; bf16 works"
    if device == "cuda" and amp == "bf16" and not torch.cuda.is_bf16_supported():
        return "torch.cuda.is_bf16_supported() is false on this GPU; fp16 works"
    return None


# A CPU's products in bfloat16 are oneDNN's. 1.13 hands them over where the processor has the instructions, without asking oneDNN, which refuses where
# DNNL_MAX_CPU_ISA (oneDNN's docs, "CPU Dispatcher Control") keeps it from using them. So those are left to oneDNN that are not small.

@functools.lru_cache(maxsize=None)
def why_no_bf16_products():
    """A reason for tests to be skipped: None where this process computes products in bfloat16 on its CPU."""
    matrix = torch.ones(64, 64, dtype=torch.bfloat16)
    try:
        torch.mm(matrix, matrix)
    except RuntimeError as error:
        if "could not create a primitive" not in str(error):
            raise
        return f"no products in bfloat16 on this CPU: oneDNN says '{error}' (DNNL_MAX_CPU_ISA is {os.environ.get('DNNL_MAX_CPU_ISA', 'not set')})"
    return None


def autocast_for(device, amp):
    """The context that is entered around a forward; nullcontext itself where none is asked for."""
    if amp is None:
        return contextlib.nullcontext
    return lambda: torch.autocast(device, dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[amp])


def autocast_now():
    """(device, dtype) of each autocast that is on."""
    if hasattr(torch, "get_autocast_dtype"):
        return tuple((device, torch.get_autocast_dtype(device)) for device in AUTOCAST_DEVICES if torch.is_autocast_enabled(device))
    return tuple((device, dtype()) for device, is_on, dtype in (
        ("cuda", torch.is_autocast_enabled, torch.get_autocast_gpu_dtype),
        ("cpu", torch.is_autocast_cpu_enabled, torch.get_autocast_cpu_dtype)) if is_on())


def switch_autocast(device, to_on):
    """Without a context: its dtype and cache stay."""
    if hasattr(torch, "get_autocast_dtype"):
        torch.set_autocast_enabled(device, to_on)
    else:
        {"cuda": torch.set_autocast_enabled, "cpu": torch.set_autocast_cpu_enabled}[device](to_on)


# --- modules ------------------------------------------------------------------------------------------------------------------
# docs, torch.nn.Module.compile: from 2.2 on, in place, so that no wrapper shows it; register_full_backward_pre_hook: from 2.0 on.
# docs, torch.Tensor.register_post_accumulate_grad_hook: from 2.1 on.

def why_no_compile():
    """docs, torch.compile: from 2.0 on."""
    return None if hasattr(torch, "compile") else f"torch.compile needs torch 2, this is {torch.__version__}"


def keep_saved_whole():
    """What a compiled forward saves stays as it is until its backward is over: else (from 2.6 on, donated buffers) a graph may not be kept, which
    the exporter does, and results are written into what the step may hold."""
    from torch._functorch import config
    if hasattr(config, "donated_buffer"):
        config.donated_buffer = False


HOOKS_OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_compiled(module):
    return getattr(module, "_compiled_call_impl", None) is not None


def has_hook_on_gradient(parameter):
    return bool(parameter._backward_hooks) or bool(getattr(parameter, "_post_accumulate_grad_hooks", None))


# --- optimizers ---------------------------------------------------------------------------------------------------------------
# docs, torch.optim, "for-loop, foreach, fused": which a class has, its signature says; for which tensors, it says when it is called (fused
# Adam of 1.13 takes CUDA tensors only), and that sentence is written into the trace. Where neither is asked for, 1.13 loops over the
# parameters, and 2.x takes foreach on CUDA (pull request 93184).

def has_implementation(optimizer, way):
    if way == "default":
        return True
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.get(optimizer, torch.optim.SGD)
    return ("fused" if way == "fused" else "foreach") in inspect.signature(kind).parameters


# --- dispatch modes ---------------------------------------------------------------------------------------------------------------
# torch.utils._python_dispatch.TorchDispatchMode: in 1.13 and later. In 1.13 torch.Tensor([1.0]) raises a RuntimeError inside of one, "already
# associated to a python object"; not in 2.6.

def why_no_dispatch_mode():
    """For code that nobody has chosen to run under one."""
    return "torch.Tensor([1.0]) fails inside of a dispatch mode" if version() < (2, 0) else None


def is_constructor_under_a_mode(error):
    return isinstance(error, RuntimeError) and "already associated to a python object" in str(error)


@contextlib.contextmanager
def without_dispatch_mode():
    """The innermost is off; for the versions that need it."""
    from torch.utils import _python_dispatch
    with _python_dispatch._pop_mode_temporarily():
        yield


# --- transforms ---------------------------------------------------------------------------------------------------------------------
# docs, torch.func.vmap: from 2.0 on. Functions inside are called with tensors that stand for many and have no storage.

def is_inside_transform(tensor):
    functorch = getattr(torch._C, "_functorch", None)
    return functorch is not None and functorch.is_functorch_wrapped_tensor(tensor)


# --- random numbers -----------------------------------------------------------------------------------------------------------
# docs, torch.Tag.nondeterministic_seeded (torch.tags): ops that draw from a generator; in 1.13 and later.

def draws_numbers(op):
    """Whether the op moves on the state of the random numbers: who runs it again restores that state first."""
    return torch.Tag.nondeterministic_seeded in op.tags


# --- selective checkpointing --------------------------------------------------------------------------------------------------
# docs, torch.utils.checkpoint.create_selective_checkpoint_contexts: from 2.4 on. The policy is asked for each op with a context, in the forward
# and, with `is_recompute` true, when it runs again; in later versions in the forward alone, and `is_recompute` is always false. Ops such as
# detach (SAC_IGNORED_OPS) are not asked about. With allow_cache_entry_mutation values are saved that later ops overwrite. A checkpoint takes a context_fn with use_reentrant=False only.

def selective_checkpointing():
    """(enum of policies, function that makes contexts of a policy), None before 2.4."""
    from torch.utils import checkpoint
    if not hasattr(checkpoint, "create_selective_checkpoint_contexts"):
        return None
    return checkpoint.CheckpointPolicy, checkpoint.create_selective_checkpoint_contexts


def name_of_op(op):
    """'mm' of aten.mm.default; of what is no op with a schema (an operator of higher order, as compiled code is) its own name."""
    schema = getattr(op, "_schema", None)
    return schema.name.split("::")[-1] if schema is not None else str(op)
