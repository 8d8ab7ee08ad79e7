"""A small model with something between its layers, and a test that trains it by a plan beside plain training, step by step."""

import contextlib
import copy
import unittest

import torch
from torch import nn

import hand_plans
from models import mean_square
from plimsoll.torch import apply
from plimsoll.torch.stages import split


class Layers(nn.Module):
    """`between(model, x, i)`: what the model does behind each layer."""

    own_factor = 1.0

    def __init__(self, between=lambda model, x, i: x, layers=3):
        super().__init__()
        torch.manual_seed(0)
        self.read, self.layers, self.head = nn.Linear(4, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(layers)), nn.Linear(8, 2)
        self.between = between

    def forward(self, x):
        x = self.read(x)
        for i, layer in enumerate(self.layers):
            x = self.between(self, torch.tanh(layer(x)), i)
        return self.head(x)


def batch(seed, rows=3):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed))


def planned(model, x, loss=mean_square, how="auto"):
    staged = split(model, x, how=how, loss=loss)
    return hand_plans.plan_of(staged, hand_plans.recompute_all(len(staged.stages)), [0] * len(staged.stages))


class Beside(unittest.TestCase):
    """A model by a plan beside the same one in plain training."""

    def begin(self, model, loss=mean_square):
        self.model, self.loss = model, loss
        self.plain, self.plan = copy.deepcopy(model), planned(copy.deepcopy(model), batch(0), loss)
        self.step = apply(self.model, self.plan, loss=loss)

    def check(self, seed, change=lambda model: None, around=contextlib.nullcontext):
        """One step of both, behind `change` of both; `around`: the context of forwards."""
        for model in (self.plain, self.model):
            model.zero_grad(set_to_none=True)
            change(model)
        torch.manual_seed(seed)
        with around():
            found = self.step(batch(seed))
        torch.manual_seed(seed)
        with around():
            expected = self.loss(self.plain(batch(seed)), None)
        expected.backward()
        self.assertTrue(torch.equal(found, expected.detach()), (found, expected))
        for (name, p), q in zip(self.plain.named_parameters(), self.model.parameters()):
            self.assertEqual(p.grad is None, q.grad is None, name)
            self.assertTrue(p.grad is None or torch.equal(p.grad, q.grad), name)
