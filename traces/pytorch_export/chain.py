"""The chain that is measured: named stages, the last of which is the loss, and the input of the first."""

import dataclasses

import torch


@dataclasses.dataclass
class Stage:
    name: str
    module: torch.nn.Module


@dataclasses.dataclass
class Chain:
    name: str
    stages: list
    input: object
    description: str = ""

    def modules(self):
        return torch.nn.ModuleList([stage.module for stage in self.stages])

    def parameters(self):
        return list(self.modules().parameters())

    def buffers(self):
        return list(self.modules().buffers())


class Loss(torch.nn.Module):
    """The loss stage: a function of the prediction alone; what else it needs it holds."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, prediction):
        return self.function(prediction)


class CrossEntropy(torch.nn.Module):
    """Over the last dimension of the prediction; the target counts as input data, not as an activation."""

    def __init__(self, target):
        super().__init__()
        self.register_buffer("target", target)

    def forward(self, prediction):
        return torch.nn.functional.cross_entropy(prediction.flatten(0, -2), self.target.flatten())


class MeanSquare(torch.nn.Module):
    def forward(self, prediction):
        return prediction.pow(2).mean()
