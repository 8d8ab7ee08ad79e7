"""Hooks of modules: the model's own, which its forward registers to collect what is inside, and those of others.

The model's own are Python code as the rest of its forward: they run when it is recorded, what they call is written down, and a stage runs the
module without them. So are those of transformers and peft, which may be there before: they collect nothing outside of the model's forward
(output_hidden_states, output_router_logits), or let what embeddings make ask for a gradient (gradient_checkpointing_enable).
"""

from .versions import HOOKS_OF_MODULES

OF_LIBRARIES = ("output_capturing_hook", "make_inputs_require_grads", "make_inputs_require_grad")
AROUND_FORWARD = ("_forward_hooks", "_forward_pre_hooks")


def others_hooks_of(module):
    """Names of the kinds of hooks that it has, beside those that are part of a model of these libraries."""
    return [kind for kind in HOOKS_OF_MODULES if any(not is_of_library(hook) for hook in (getattr(module, kind, None) or {}).values())]


def is_of_library(hook):
    return (getattr(hook, "__module__", None) or "").split(".")[0] in ("transformers", "peft") and getattr(hook, "__name__", "") in OF_LIBRARIES


def with_others_hooks(model):
    """Ids of the modules that have hooks now, before the model's own forward has registered any."""
    return {id(module) for module in model.modules() if others_hooks_of(module)}


def has_around_forward(module):
    return any(getattr(module, kind, None) for kind in AROUND_FORWARD)
