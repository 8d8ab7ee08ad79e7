"""Numbers that were there before the run, are made of nothing, are drawn, or are used by a call that is not handed them."""

import random

import numpy
import torch
from torch.nn import functional

from .models import BOX, HIDDEN, NUMBERS, UNKNOWN, kind

# --- what was there before the run, or is made of nothing ---

@kind(NUMBERS)
def parameter(m, x, mask, h):
    return m.scale


@kind(NUMBERS)
def parameter_after_arithmetic(m, x, mask, h):
    return (torch.zeros(2) + m.scale.detach()).sum()


@kind(NUMBERS)
def buffer(m, x, mask, h):
    return m.count.item()


@kind(NUMBERS)
def buffer_after_a_write(m, x, mask, h):
    return (m.count.clone().mul_(2) + 1).item()


@kind(NUMBERS)
def attribute(m, x, mask, h):
    return m.flag.item()


@kind(NUMBERS)
def closure(m, x, mask, h):
    return BOX["flag"].item()


@kind((UNKNOWN, NUMBERS))
def array(m, x, mask, h):
    return torch.from_numpy(m.array).sum()


@kind(NUMBERS)
def array_as_a_literal(m, x, mask, h):
    return torch.tensor(m.array).sum()


@kind(NUMBERS)
def uninitialised(m, x, mask, h):
    return torch.nan_to_num(torch.empty(4)).sum().clamp(0, 1)


@kind(NUMBERS)
def uninitialised_like(m, x, mask, h):
    return torch.empty_like(x).isnan().any()


@kind(NUMBERS)
def uninitialised_new(m, x, mask, h):
    return h.new_empty(3).isnan().any()


@kind(NUMBERS)
def uninitialised_in_part(m, x, mask, h):
    z = torch.empty(4)
    z[:2] = 0
    return z.isnan().any()


@kind(NUMBERS)
def enlarged(m, x, mask, h):
    return torch.zeros(2).resize_(64).isnan().any()


# --- random numbers ---

@kind(NUMBERS)
def bernoulli(m, x, mask, h):
    return torch.zeros(8).bernoulli_(0.5).sum()


@kind(NUMBERS)
def dropout(m, x, mask, h):
    return functional.dropout(torch.ones(8), 0.5).sum()


@kind(NUMBERS)
def generator(m, x, mask, h):
    return torch.rand(8, generator=BOX["generator"]).sum()


@kind(NUMBERS)
def normal(m, x, mask, h):
    return torch.randn(8).lt(0.0).sum()


@kind(NUMBERS)
def permuted(m, x, mask, h):
    return torch.randperm(8)[0]


@kind(NUMBERS)
def drawn(m, x, mask, h):
    return torch.multinomial(torch.ones(8), 1)


@kind(NUMBERS)
def below_a_half(m, x, mask, h):
    return (torch.rand([]) < 0.5) + (torch.rand([]) < 0.5) * 2


@kind(NUMBERS)
def not_above_a_half(m, x, mask, h):
    return (torch.rand(3) <= 0.5).sum()


@kind(NUMBERS)
def below_a_parameter(m, x, mask, h):
    return (torch.rand(8) < m.scale * 0.5).sum()


@kind(NUMBERS)
def uniform_of_another_range(m, x, mask, h):
    return (torch.empty(8).uniform_(0, 2) < 1).sum()


@kind(NUMBERS)
def changed_random_below_zero(m, x, mask, h):
    return (torch.rand(8).sub_(0.5) < 0).sum()


@kind(NUMBERS)
def random_of_python(m, x, mask, h):
    return torch.tensor([random.random()] * 2).sum()


@kind(NUMBERS)
def random_of_numpy(m, x, mask, h):
    return torch.tensor(numpy.random.rand(3).tolist()).sum()


# --- what a call uses and is not handed ---

@kind(HIDDEN)
def attribute_of_another_module(m, x, mask, h):
    m.leaf_looks.looked_at = mask * 2
    return 0.0, m.leaf_looks(h)


class Boxed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h * BOX["mask"].float().mean()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@kind(HIDDEN)
def global_of_an_autograd_function(m, x, mask, h):
    BOX["mask"] = mask * 2
    return 0.0, Boxed.apply(h)


@kind(HIDDEN)
def hidden_in_what_a_parameter_makes(m, x, mask, h):
    m.leaf_looks.looked_at = m.scale.detach() * torch.ones(2)
    return 0.0, m.leaf_looks(h)
