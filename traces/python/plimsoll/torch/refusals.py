"""What a model may not have, to be run by plans: each with the path at which it is and the reason."""

import torch

from .errors import Refused
from .hooks import others_hooks_of
from .plan import WrongPlan
from .questions import OtherAnswer
from .versions import has_hook_on_gradient, is_compiled, why_no_compile

WRAPPERS = {
    "DistributedDataParallel": "exchanges gradients in hooks that expect one backward (with replicas=True a step exchanges them itself)",
    "FullyShardedDataParallel": "gathers and frees parameters around each forward and backward (with sharded=True a step does so itself)",
    "FSDPModule": "gathers and frees parameters around each forward and backward (with sharded=True a step does so itself)",
    "DataParallel": "runs copies on several devices",
    "OptimizedModule": "is compiled as a whole",
    "DeepSpeedEngine": "has an engine of its own",
}
def place_of(path):
    return f"module '{path}'" if path else "the model"


def refuse_what_cannot_be_cut(model):
    """Exporter and executor alike."""
    for path, module in model.named_modules():
        for kind in type(module).__mro__:
            if kind.__name__ in WRAPPERS:
                raise Refused(f"{place_of(path)} is wrapped in {kind.__name__}, which {WRAPPERS[kind.__name__]}; give the module inside it")
        if isinstance(module, torch.jit.ScriptModule):
            raise Refused(f"{place_of(path)} is scripted or traced (torch.jit), so that its calls are not seen; give the module that it was made of")
        if is_compiled(module):
            raise Refused(f"{place_of(path)} is compiled as a whole (Module.compile); give the module as it was before")
        if getattr(module, "sparse", False) is True:
            raise Refused(f"{place_of(path)} makes sparse gradients, whose bytes nobody knows before: build it with sparse=False")


def refuse_what_cannot_run(model):
    """By plans."""
    refuse_what_cannot_be_cut(model)
    for path, module in model.named_modules():
        for hooks in others_hooks_of(module):
            raise Refused(f"{place_of(path)} has {hooks.strip('_').replace('_', ' ')}, which would run again with each recomputation")
    for name, parameter in model.named_parameters():
        if has_hook_on_gradient(parameter):
            raise Refused(f"parameter '{name}' has a hook on its gradient, which would see parts of it")
    devices = {str(parameter.device) for parameter in model.parameters()}
    if len(devices) > 1:
        raise Refused(f"the model is on several devices ({', '.join(sorted(devices))}), and a plan is for one")


def fingerprint_of(model):
    """[path, class, shapes of its own parameters] of each module: by this a plan knows its model."""
    return [[path, type(module).__name__, [list(parameter.shape) for parameter in module.parameters(recurse=False)]]
            for path, module in model.named_modules()]


def frozen_in(model):
    """Names of parameters that are not trained."""
    return [name for name, parameter in model.named_parameters() if not parameter.requires_grad]


def refuse_thawed(model, plan):
    """What is trained now and was frozen when it was measured: its gradients, and what their backward reads, are in no plan."""
    frozen = set(plan.model.get("frozen", ()))
    for name, parameter in model.named_parameters() if frozen else ():
        if parameter.requires_grad and name in frozen:
            raise OtherAnswer(f"parameter '{name}' is trained, and was frozen when the model was measured for {plan.where}: measure and plan anew")


def refuse_other_model(model, plan):
    """Names the first path that differs."""
    expected, found = [list(of) for of in plan.fingerprint], fingerprint_of(model)
    for here, there in zip(found, expected):
        if here == there:
            continue
        if here[0] != there[0]:
            raise WrongPlan(f"{plan.where}: is of another model: expected module '{there[0]}' ({there[1]}), found '{here[0]}' ({here[1]})")
        raise WrongPlan(f"{plan.where}: is of another model: module '{here[0]}': expected {there[1]} with parameters {there[2]}, found {here[1]} "
                        f"with {here[2]}")
    if len(found) != len(expected):
        more = (found if len(found) > len(expected) else expected)[min(len(found), len(expected))]
        what = "is not in the plan" if len(found) > len(expected) else "is not in this model"
        raise WrongPlan(f"{plan.where}: is of another model: module '{more[0]}' ({more[1]}) {what}")


def refuse_compiled_otherwise(plan, compiled):
    """What stages save and how long they take is other when they are compiled."""
    reason = why_no_compile()
    if compiled and reason is not None:
        raise Refused(f"stages cannot be compiled: {reason}")
    if compiled and not plan.is_compiled:
        raise WrongPlan(f"{plan.where}: is of stages that were measured as they are, not compiled; measure them with --compile, or leave out compile=True")
    if plan.is_compiled and not compiled:
        raise WrongPlan(f"{plan.where}: is of stages that were measured compiled; apply(..., compile=True) runs them so")
