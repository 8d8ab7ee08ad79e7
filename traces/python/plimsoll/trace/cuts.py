"""Chains of a user's model: its modules in a row, or the stages into which plimsoll.torch cuts it."""

import torch
from plimsoll.torch.errors import Refused
from plimsoll.torch.recorder import constants_in
from plimsoll.torch.refusals import fingerprint_of, frozen_in
from plimsoll.torch.stages import split

from .chain import Chain, Loss, Stage
from .errors import UsageError
from .other_batch import other_batches


def chain_of_modules(subject, precision):
    """A stage for each of the pairs, and the loss where the last does not make it: called as they are."""
    losses = [Loss(subject.loss, subject.targets)] if subject.loss is not None else []
    staged = staged_of(subject, model_in_a_row(subject), None, precision, check=False)
    modules = [*(module for _, module in subject.pairs), *losses]
    if len(staged.stages) != len(modules):
        raise UsageError(f"of {len(subject.pairs)} modules in a row {len(staged.stages) - len(losses)} take and make tensors; leave the others out")
    stages = [Stage(stage.name, module, stage.runs_once) for stage, module in zip(staged.stages, modules)]  # one that runs again has a name for each call

    def on(inputs, targets):
        own = [Stage(stages[-1].name, Loss(subject.loss, targets))] if losses else []
        return Chain(subject.name, [*stages[:len(stages) - len(own)], *own], inputs, precision=precision)
    return Chain(subject.name, stages, subject.input, subject.description, precision, on_others=lambda: on_others(subject, on), pytorch=described(staged))


def chain_of_cuts(subject, how, precision, is_compiled=False):
    """`is_compiled`: each stage is run by torch.compile."""
    staged = staged_of(subject, subject.model if how is not None else model_in_a_row(subject), how, precision, check=True)
    if is_compiled:
        compile_stages(staged)

    def stages(targets):
        last = len(staged.stages) - 1
        return [Stage(stage.name, StageModule(staged, i, targets if i == last else None), stage.runs_once) for i, stage in enumerate(staged.stages)]

    def on(inputs, targets):
        return Chain(subject.name, stages(targets), staged.values_of(inputs), precision=precision)
    return Chain(subject.name, stages(subject.targets), staged.values_of(subject.input), subject.description, precision,
                 whole=lambda: staged.whole(subject.input, subject.targets),
                 names={id(tensor): name for name, tensor in named_tensors(staged, subject.loss)}, on_others=lambda: on_others(subject, on),
                 pytorch=described(staged) | ({"compiled": True} if is_compiled else {}))


def on_others(subject, on):
    return (lambda batch=batch: on(*batch) for batch in other_batches(subject.input, subject.targets))


def staged_of(subject, model, how, precision, check):
    try:
        with precision():
            return split(model, subject.input, how, subject.loss, subject.targets, check)
    except Refused as error:
        raise UsageError(str(error)) from error


def model_in_a_row(subject):
    return subject.model if isinstance(subject.model, torch.nn.Sequential) else subject.pairs


def compile_stages(staged):
    try:
        staged.compile()
    except Refused as error:
        raise UsageError(f"--compile: {error}") from error


def named_tensors(staged, loss):
    """Parameters and buffers; the model's own name comes last."""
    own = [*loss.named_parameters(), *loss.named_buffers()] if isinstance(loss, torch.nn.Module) else ()
    return [*((f"loss.{name}", tensor) for name, tensor in own), *staged.model.named_parameters(), *staged.model.named_buffers()]


class StageModule(torch.nn.Module):
    """Takes the tensors of the boundary before the stage and returns those of the one behind; what passes by is handed on as it is."""

    def __init__(self, staged, i, targets):
        super().__init__()
        self.stage, self.targets = staged.stages[i], targets
        self.before, self.behind = staged.boundaries[i], staged.boundaries[i + 1]
        modules = {id(operation.function): operation.function for operation in self.stage.operations
                   if isinstance(operation.function, torch.nn.Module)}
        self.modules_called = torch.nn.ModuleList(modules.values())
        for number, tensor in enumerate(self.loose_tensors()):
            if isinstance(tensor, torch.nn.Parameter):
                self.register_parameter(f"parameter{number}", tensor)
            else:
                self.register_buffer(f"buffer{number}", tensor)

    def loose_tensors(self):
        """Parameters and buffers that the stage's functions read."""
        found = [tensor for operation in self.stage.operations for tensor in constants_in(operation.arguments)]
        return list({id(tensor): tensor for tensor in found}.values())

    def forward(self, boundary):
        at_hand = dict(zip(self.before, boundary))
        made = self.stage(tuple(at_hand[name] for name in self.stage.reads), self.targets)
        if self.stage.is_last:
            return made[0]
        at_hand.update(zip(self.stage.makes, made))
        return tuple(at_hand[name] for name in self.behind)


def described(staged):
    """What a plan needs to name the stages and to know the model."""
    return {"how": staged.how, "input_shapes": staged.input_shapes(), "answers": staged.questions.answers(),
            "stages": [{"name": stage.name, "modules": stage.modules, "reads": stage.reads, "makes": stage.makes}
                       for stage in staged.stages],
            "boundaries": staged.boundaries, "fingerprint": fingerprint_of(staged.model), "frozen": frozen_in(staged.model)}
