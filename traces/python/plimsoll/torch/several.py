"""Inputs whose shapes vary: a plan for each shape or bucket, chosen by the inputs of the step; of equal shapes by what the model's code reads
of them. Smaller inputs are run by the plan of larger ones where that is asked for: the model is cut anew for them, and each action takes at most
what the plan says.
"""

import collections
import math

import torch

from . import again, step
from .errors import Refused
from .plan import WrongPlan
from .questions import OtherAnswer
from .recorder import loss_of, named_inputs
from .replicas import replicas_of
from .sharded import sharded_of
from .stages import InARow, named_arguments
from .step import micro_batches

OTHERWISE = ("refuse", "plain", "at most")
MOST_KEPT = 16  # steps for smaller inputs: each takes a cut of the model, and then is there


def apply(model, plan, loss=None, limit=None, otherwise="refuse", cuda_graph=False, compile=False, replicas=None, sharded=None):
    """Make `step`, which trains `model` for one step by `plan`: `value = step(inputs, targets, scale=1.0)`.

    model: the nn.Module that was measured, or the list of modules
    plan: a file of `plimsoll plan --for pytorch`, or its JSON as a dict; or a list of them, for inputs of several shapes
    loss: function of (outputs, targets) that returns one number, as when it was measured; None: the model returns its own loss
    limit: bytes (int), or a size such as "12 GB": no action is begun that would need more on the device
    otherwise: what happens to inputs that no plan is for: "refuse"; "plain": trained without a plan, in the memory that takes; "at most": by a
        plan for larger ones, in at most the memory that it promises, where there is such
    cuda_graph: from the third step on all of it is one CUDA graph, issued by one call; where that cannot be, the reason is said
    compile: stages are run by torch.compile (torch 2), as they were when they were measured with --compile
    replicas: True, a ProcessGroup, or plimsoll.torch.replicas.Replicas: each rank trains its part of the batch by its plan, and gradients are averaged
        over the ranks, in buckets, while the backward goes on; parameters and buffers are those of the first rank from here on
    sharded: True, a ProcessGroup, or plimsoll.torch.sharded.Sharded: as replicas, and each rank keeps a part of each parameter, of its gradient and of the
        optimizer's states: the model's parameters are these parts, flat, from here on, so make the optimizer behind it

    The step takes
    inputs: what the model is called with: a tensor, a tuple of arguments, or a dict of arguments by name. Shapes and dtypes are those of the
        plan; with several micro-batches all of them together, cut along the first dimension into equal parts
    targets: for `loss`; cut like inputs
    scale: gradients are those of (loss * scale), as accumulation and a GradScaler ask

    and returns the loss, a tensor of shape [] without a graph: the mean over micro-batches, not scaled. Gradients are added to `.grad`, as by
    loss.backward(). `step.report()` tells seconds and bytes of the last steps (plimsoll.torch.report.Report; of several plans a dict of them).

    Raises Refused, or WrongPlan, which is one, before anything is done: where a plan is malformed or not of this model, where the model cannot
    be run by plans, and from a step where no plan is for its inputs. LimitExceeded where the plan needs more than `limit`, or a step would, for
    what else is on the device. A step that fails on its way leaves no gradient where there was none.
    """
    if otherwise not in OTHERWISE:
        raise Refused(f"otherwise: expected 'refuse', 'plain' or 'at most', found {otherwise!r}")
    plans = list(plan) if isinstance(plan, (list, tuple)) else [plan]
    if not plans:
        raise WrongPlan("plan: expected a plan or several, found an empty list")
    whole = model if isinstance(model, torch.nn.Module) else InARow(model)
    replicas, sharded = replicas_of(replicas), sharded_of(sharded)
    if sharded is not None and replicas is not None:
        raise Refused("sharded: ranks with parts of the parameters are replicas already; leave replicas out")
    if sharded is not None and otherwise == "plain":
        raise Refused("otherwise: 'plain' trains with all parameters there; with sharded ones give a plan for each shape, or 'at most'")
    ranks = replicas if sharded is None else sharded
    steps = [step.apply(whole, one, loss=loss, limit=limit, cuda_graph=cuda_graph, compile=compile, ranks=ranks) for one in plans]
    if ranks is not None:
        ranks.begin(whole)
    return steps[0] if len(steps) == 1 and otherwise == "refuse" else Several(whole, steps, loss, otherwise, replicas)


class Several:
    """Steps by the shapes that they are for."""

    def __init__(self, model, steps, loss, otherwise, replicas=None):
        self.model, self.steps, self.loss, self.otherwise, self.replicas = model, steps, loss, otherwise, replicas
        self.smaller = collections.OrderedDict()  # {(number of a step, shapes): a step by its plan for these, which are smaller}
        for k, one in enumerate(steps):
            if not one.plan.model.get("input_shapes"):
                raise WrongPlan(f"{one.plan.where}: does not say for which inputs it is, so it cannot be one of several")
            for other in steps[:k]:
                if other.plan.micro_batches == one.plan.micro_batches and shapes_of(other) == shapes_of(one) \
                        and all(other.plan.model.get(key) == one.plan.model.get(key) for key in ("answers", "frozen")):
                    raise WrongPlan(f"{other.plan.where} and {one.plan.where} are both for {told(shapes_of(one))}")

    def __call__(self, inputs, targets=None, scale=1.0):
        """As apply says. Without a plan the batch is trained as a whole, not in micro-batches."""
        others = None
        for one in self.chosen(inputs):
            try:
                return one(inputs, targets, scale)
            except OtherAnswer as error:  # before anything is done
                others = error
        if self.otherwise == "plain":
            return self.plainly(inputs, targets, scale)
        if others is not None:
            raise others
        plans = "; ".join(f"{one.plan.where} for {told(shapes_of(one))}" + (f" in {one.plan.micro_batches} micro-batches"
                          if one.plan.micro_batches > 1 else "") for one in self.steps)
        raise WrongPlan(f"no plan is for {told(self.shapes(inputs))}: there are {plans} (otherwise='plain' trains such inputs without a plan, 'at most' "
                        "smaller ones by a plan for larger ones)")

    def chosen(self, inputs):
        """The steps whose plans are for inputs of these shapes; then, where that is asked for, those for larger ones, the smallest first."""
        found = [(number, one, self.of_micro_batch(one, inputs)) for number, one in enumerate(self.steps)]
        yield from (one for _, one, shapes in found if shapes == shapes_of(one))
        if self.otherwise == "at most":
            for number, one, shapes in sorted(found, key=lambda of: numbers_in(shapes_of(of[1]))):
                if shapes != shapes_of(one) and is_within(shapes, shapes_of(one)):
                    yield self.for_smaller(number, shapes)

    def for_smaller(self, number, shapes):
        key = number, told(shapes)
        if key not in self.smaller:
            self.smaller[key] = self.steps[number].for_smaller({name: {"dtype": dtype, "shape": shape} for name, (dtype, shape) in shapes.items()})
        self.smaller.move_to_end(key)
        if len(self.smaller) > MOST_KEPT:
            self.smaller.popitem(last=False)
        return self.smaller[key]

    def of_micro_batch(self, one, inputs):
        """Shapes of the first, None where inputs cannot be cut into as many as the plan has."""
        try:
            return self.shapes(micro_batches(one.model, inputs, None, one.plan)[0][0])
        except Refused:
            return None

    def shapes(self, inputs):
        return {name: (str(tensor.dtype).replace("torch.", ""), list(tensor.shape))
                for name, tensor in named_inputs(*named_arguments(self.model, inputs))}

    def plainly(self, inputs, targets, scale):
        args, kwargs = named_arguments(self.model, inputs)
        exchange = self.replicas.exchange_of(self.model) if self.replicas is not None and self.replicas.exchanges else None
        if exchange is not None:
            exchange.begin_step()
        with torch.enable_grad():
            loss = loss_of(self.model(*args.values(), **kwargs), self.loss, targets)
            with again.without_autocast():
                (loss * scale if scale != 1.0 else loss).backward()
        if exchange is not None:
            exchange.finish_step()
        return loss.detach()

    def report(self):
        """{plan: report}, of those by which a step has run."""
        steps = {one.plan.where: one for one in self.steps} | {f"{self.steps[number].plan.where}, for {shapes}": one
                                                               for (number, shapes), one in self.smaller.items()}
        return {where: one.report() for where, one in steps.items() if one.counts.steps}


def shapes_of(one):
    return {name: (of["dtype"], of["shape"]) for name, of in one.plan.model["input_shapes"].items()}


def numbers_in(shapes):
    return sum(math.prod(shape) for _, shape in shapes.values())


def is_within(shapes, larger):
    """Whether they are of the same inputs, and none is larger on any side."""
    return shapes is not None and shapes.keys() == larger.keys() and all(
        dtype == larger[name][0] and len(shape) == len(larger[name][1]) and all(0 < own <= most for own, most in zip(shape, larger[name][1]))
        for name, (dtype, shape) in shapes.items())


def told(shapes):
    return ", ".join(f"{name} {dtype} {shape}" for name, (dtype, shape) in shapes.items())
