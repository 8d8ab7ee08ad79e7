"""The chain that is measured: named stages, the last of which is the loss, and the input of the first."""

import contextlib
import dataclasses
import typing

import torch


@dataclasses.dataclass
class Stage:
    name: str
    module: torch.nn.Module
    runs_once: str = ""  # why its forward must not run again, in words


@dataclasses.dataclass
class Chain:
    name: str
    stages: list
    input: object
    description: str = ""
    precision: typing.Callable = contextlib.nullcontext  # entered around each stage's forward: autocast
    whole: typing.Callable = None   # runs the model as it is, up to the loss; None: the stages in a row are the model
    layers: list = ()               # (name, module) within the only stage that begin stages of a graph (layers.py)
    names: dict = None              # of parameters and buffers, by id; None: "stage.name"
    on_others: typing.Callable = lambda: ()  # the same chain on other batches (other_batch.py), for a pass or two
    pytorch: dict = None            # how plans name stages and boundaries: `pytorch` of the trace's source

    def modules(self):
        return torch.nn.ModuleList([stage.module for stage in self.stages])

    def parameters(self):
        return list(self.modules().parameters())

    def buffers(self):
        return list(self.modules().buffers())

    def tensor_names(self):
        """Of parameters and buffers, by id; a tied one has the name of its first stage."""
        if self.names is not None:
            return self.names
        return {id(tensor): f"{stage.name}.{name}" for stage in reversed(self.stages)
                for name, tensor in (*stage.module.named_parameters(), *stage.module.named_buffers())}


class Loss(torch.nn.Module):
    """The loss stage: a function of the outputs and of targets, which are there before and count as no activation."""

    def __init__(self, function, targets):
        super().__init__()
        self.function, self.targets = function, targets

    def forward(self, outputs):
        return self.function(outputs, self.targets)
