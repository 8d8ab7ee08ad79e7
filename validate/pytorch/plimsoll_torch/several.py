"""Inputs whose shapes vary: a plan for each shape or bucket, chosen by the inputs of the step; of equal shapes by what the model's code reads
of them."""

import torch

from . import again, step
from .errors import Refused
from .plan import WrongPlan
from .questions import OtherAnswer
from .recorder import loss_of, named_inputs
from .stages import InARow, named_arguments
from .step import micro_batches

OTHERWISE = ("refuse", "plain")


def apply(model, plan, loss=None, limit=None, otherwise="refuse", cuda_graph=False, compile=False):
    """A function that trains `model` for one step by `plan`: `loss = step(inputs, targets)`.

    model: the nn.Module that was measured, or the list of modules
    plan: a file of `plimsoll plan --for pytorch`, or its JSON as a dict; or a list of them, for inputs of several shapes
    loss: function of (outputs, targets), as when it was measured
    limit: bytes, or "12 GB": no action is begun that would need more on the device
    cuda_graph: from the third step on all of it is one CUDA graph, issued by one call; where that cannot be, the reason is said
    compile: stages are run by torch.compile (torch 2), as they were when they were measured with --compile
    otherwise: what happens to inputs that no plan is for: "refuse", or "plain": trained without a plan, in the memory that takes

    Raises Refused, before anything is done, where a plan is not of this model or the model cannot be run by plans.
    """
    if otherwise not in OTHERWISE:
        raise Refused(f"otherwise: expected 'refuse' or 'plain', found {otherwise!r}")
    plans = list(plan) if isinstance(plan, (list, tuple)) else [plan]
    if not plans:
        raise WrongPlan("plan: expected a plan or several, found an empty list")
    whole = model if isinstance(model, torch.nn.Module) else InARow(model)
    steps = [step.apply(whole, one, loss=loss, limit=limit, cuda_graph=cuda_graph, compile=compile) for one in plans]
    return steps[0] if len(steps) == 1 and otherwise == "refuse" else Several(whole, steps, loss, otherwise)


class Several:
    """Steps by the shapes that they are for."""

    def __init__(self, model, steps, loss, otherwise):
        self.model, self.steps, self.loss, self.otherwise = model, steps, loss, otherwise
        for k, one in enumerate(steps):
            if not one.plan.model.get("input_shapes"):
                raise WrongPlan(f"{one.plan.where}: does not say for which inputs it is, so it cannot be one of several")
            for other in steps[:k]:
                if other.plan.micro_batches == one.plan.micro_batches and shapes_of(other) == shapes_of(one) \
                        and all(other.plan.model.get(key) == one.plan.model.get(key) for key in ("answers", "frozen")):
                    raise WrongPlan(f"{other.plan.where} and {one.plan.where} are both for {told(shapes_of(one))}")

    def __call__(self, inputs, targets=None, scale=1.0):
        """As a step's. Without a plan the batch is trained as a whole, not in micro-batches."""
        others = None
        for one in self.chosen(inputs):
            try:
                return one(inputs, targets, scale)
            except OtherAnswer as error:  # before anything is done
                others = error
        if self.otherwise == "refuse" and others is not None:
            raise others
        if self.otherwise == "refuse":
            plans = "; ".join(f"{one.plan.where} for {told(shapes_of(one))}" + (f" in {one.plan.micro_batches} micro-batches"
                              if one.plan.micro_batches > 1 else "") for one in self.steps)
            raise WrongPlan(f"no plan is for {told(self.shapes(inputs))}: there are {plans} (otherwise='plain' trains such inputs without a plan)")
        return self.plainly(inputs, targets, scale)

    def chosen(self, inputs):
        """The steps whose plans are for inputs of these shapes."""
        for one in self.steps:
            try:
                first = micro_batches(one.model, inputs, None, one.plan)[0][0]
            except Refused:  # cannot be cut into so many
                continue
            if self.shapes(first) == shapes_of(one):
                yield one

    def shapes(self, inputs):
        return {name: (str(tensor.dtype).replace("torch.", ""), list(tensor.shape))
                for name, tensor in named_inputs(*named_arguments(self.model, inputs))}

    def plainly(self, inputs, targets, scale):
        args, kwargs = named_arguments(self.model, inputs)
        with torch.enable_grad():
            loss = loss_of(self.model(*args.values(), **kwargs), self.loss, targets)
            with again.without_autocast():
                (loss * scale if scale != 1.0 else loss).backward()
        return loss.detach()

    def report(self):
        """{plan: report}, of those by which a step has run."""
        return {one.plan.where: one.report() for one in self.steps if one.report().steps}


def shapes_of(one):
    return {name: (of["dtype"], of["shape"]) for name, of in one.plan.model["input_shapes"].items()}


def told(shapes):
    return ", ".join(f"{name} {dtype} {shape}" for name, (dtype, shape) in shapes.items())
