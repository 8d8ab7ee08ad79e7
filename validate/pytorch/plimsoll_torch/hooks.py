"""Hooks of modules: the model's own, which its forward registers to collect what is inside, and those of others.

The model's own are Python code as the rest of its forward: they run when it is recorded, what they call is written down, and a stage runs the
module without them. Those of transformers (output_hidden_states, output_router_logits) collect nothing outside of the model's forward.
"""

from .versions import HOOKS_OF_MODULES

COLLECTING = ("transformers.utils.output_capturing",)
AROUND_FORWARD = ("_forward_hooks", "_forward_pre_hooks")


def others_hooks_of(module):
    """Names of the kinds of hooks that it has, beside those of transformers."""
    return [kind for kind in HOOKS_OF_MODULES if any(not is_collecting(hook) for hook in (getattr(module, kind, None) or {}).values())]


def is_collecting(hook):
    return getattr(hook, "__module__", None) in COLLECTING


def with_others_hooks(model):
    """Ids of the modules that have hooks now, before the model's own forward has registered any."""
    return {id(module) for module in model.modules() if others_hooks_of(module)}


def has_around_forward(module):
    return any(getattr(module, kind, None) for kind in AROUND_FORWARD)
