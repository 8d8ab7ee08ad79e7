"""The models that tricks are played in, and what the tricks share."""

import dataclasses

import numpy
import torch
from torch import nn

NUMBERS, SHAPE, HIDDEN = "reads numbers out of a tensor", "reads a shape that follows from data", "uses a tensor that it is not handed as an argument"
UNKNOWN = "that no recorded call has made"  # of the model itself; a module is taken as one call then, and its reads are judged
TRICKS = {}
BOX = {}


def kind(what):
    def noted(trick):
        TRICKS[trick.__name__] = trick, what
        return trick
    return noted


class Count(nn.Module):
    """A leaf that gives a number and no tensor."""

    def forward(self, mask):
        return mask.nonzero().shape[0]


class Scales(nn.Module):
    """A leaf that reads its own parameter, which is right where it runs again, and hands the number on, which is not."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x * self.factor, float(self.factor)


class Notes(nn.Module):
    """A leaf that leaves a shape in an attribute."""

    def forward(self, h, mask):
        self.noted = mask.nonzero().shape[0]
        return h * 1


class Counted(nn.Module):
    """A leaf that gives a count as a tensor."""

    def forward(self, mask):
        return torch.tensor(mask.nonzero().shape[0]) + torch.ones(mask.nonzero().shape[0]).sum()


class Keeps(nn.Module):
    """A leaf that keeps what it made in its first call for the second, which gives that a gradient."""

    def forward(self, h, is_first):
        if is_first:
            self.kept = h.mean(1, keepdim=True)
        return h * self.kept


class Looks(nn.Module):
    """A leaf with an attribute that another module sets."""

    def forward(self, x):
        return x * self.looked_at.float().mean()


class Model(nn.Module):
    def __init__(self, trick):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)
        self.leaf_count, self.leaf_scales, self.leaf_looks = Count(), Scales(), Looks()
        self.leaf_notes, self.leaf_counted, self.leaf_keeps = Notes(), Counted(), Keeps()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("count", torch.zeros(()))
        self.flag, self.array, self.trick = torch.zeros(()), numpy.zeros(1), trick

    def forward(self, x, mask):
        h = self.first(x).relu() * self.scale
        number = self.trick(self, x, mask, h)
        number, h = number if isinstance(number, tuple) else (float(number), h)
        return self.head(self.second(h * (1.0 + number)).tanh()).pow(2).mean()


class Inside(nn.Module):
    """The model in another, which can take it as one call where something in it is not seen."""

    def __init__(self, model):
        super().__init__()
        self.model, self.last = model, nn.Linear(1, 1)

    def forward(self, x, mask):
        return self.last(self.model(x, mask)[None]).pow(2).mean()


def batch(seed, ones=True):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.ones(4, 6, dtype=torch.long)
    if not ones:
        mask[1, 2:], mask[3, :4] = 0, 0
    return {"x": torch.randn(4, 6, generator=generator), "mask": mask}


def total(h):
    return h.detach().sum()


@torch.jit.script
def SCRIPTED(h):
    return float(h.sum())


@dataclasses.dataclass
class Batch:
    mask: torch.Tensor


class Nested(Model):
    """The mask in a dict in a dataclass."""

    def forward(self, x, more):
        return super().forward(x, more["batch"].mask)


class Hidden(torch.autograd.Function):
    """Writes into an argument and tells nobody."""

    @staticmethod
    def forward(ctx, h, z):
        z.data.add_(h.sum())
        return h * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None
