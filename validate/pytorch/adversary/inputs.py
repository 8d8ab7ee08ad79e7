"""Numbers that follow from inputs alone, which are asked again, and what is fixed: right to be taken."""

import torch
from torch.nn import functional

from .models import NUMBERS, SCRIPTED, kind, total

# --- what follows from inputs ---

@kind("asked")
def every(m, x, mask, h):
    return mask.all()


@kind("asked")
def as_a_list(m, x, mask, h):
    return sum(mask.tolist()[1])


@kind("asked")
def as_an_array(m, x, mask, h):
    return mask.numpy().sum()


@kind("asked")
def as_bytes(m, x, mask, h):
    return mask.byte().cpu().numpy().tobytes().count(b"\1")


@kind("asked")
def contained(m, x, mask, h):
    return 0 in mask


@kind("asked")
def index_of_a_list(m, x, mask, h):
    return list(range(25))[mask.sum()]


@kind("asked")
def close_to(m, x, mask, h):
    return torch.allclose(mask.float(), torch.ones(4, 6))


@kind("asked")
def filled(m, x, mask, h):
    return torch.zeros(4, 6).masked_fill_(mask == 0, 1.0).sum()


@kind("asked")
def copied_into_fixed(m, x, mask, h):
    z = torch.zeros(4, 12)
    z[:, 6:].copy_(mask)
    return z.view(-1).sum()


@kind("asked")
def copied_into_uninitialised(m, x, mask, h):
    return torch.empty(4, 6).copy_(mask).sum()


@kind("asked")
def changed_after_the_read(m, x, mask, h):
    z = mask.clone()
    number = z[1, 3].item()
    z.mul_(2)
    return number + z[1, 3].item()


@kind("asked")
def changed_before_the_read(m, x, mask, h):
    z = mask.clone()
    z[1] += mask[2] * 3
    z[0].zero_()
    return z.sum()


@kind("asked")
def asked_in_a_function(m, x, mask, h):
    return SCRIPTED(mask)


@kind("asked")
def counted_in_a_function(m, x, mask, h):
    return SCRIPTED_COUNT(mask)


@torch.jit.script
def SCRIPTED_COUNT(mask):
    return mask.nonzero().size(0)


@kind(NUMBERS)
def ones_of_a_function(m, x, mask, h):
    return SCRIPTED_ONES(mask).sum()


@torch.jit.script
def SCRIPTED_ONES(mask):
    return torch.ones([mask.nonzero().size(0)])


@kind("asked")
def number_that_is_made_of_a_read(m, x, mask, h):
    return torch.tensor([float(mask.sum()), 1.0]).sum()


# --- right to be taken ---

@kind("fixed")
def shape_alone(m, x, mask, h):
    return torch.zeros_like(h).sum() + torch.ones_like(mask).sum() + m.scale.new_ones(2).sum()


@kind("fixed")
def positions(m, x, mask, h):
    p = torch.arange(mask.shape[1])[None]
    return (p[:, 1:] - p[:, :-1] == 1).all()


@kind("fixed")
def filled_anew(m, x, mask, h):
    z = torch.empty_like(h)
    z.fill_(2)
    return z.sum()


@kind("fixed")
def wiped(m, x, mask, h):
    z = torch.zeros(3)
    z.add_(total(h))
    z.zero_()
    return z.sum()


@kind("fixed")
def literal(m, x, mask, h):
    z = torch.tensor([1.0, 2.0])
    z[0] = 5
    return z[[0, 1]].sum()


@kind("fixed")
def triangle(m, x, mask, h):
    return torch.full((3, 3), float("-inf")).triu(1).isinf().sum()


@kind("fixed")
def random_below_zero(m, x, mask, h):
    return (torch.rand([]) < 0.0) + (torch.rand(2, 2)[0] >= 1).sum() * 2 + (torch.rand_like(x) > 1.5).sum() + (torch.rand(1) < 1.0) * 4


@kind("fixed")
def selected_and_not_counted(m, x, mask, h):
    return 0.0, h * (1 + h[mask.bool()].mean())


@kind("fixed")
def cut_and_not_counted(m, x, mask, h):
    return 0.0, h * (1 + h[:, :mask.sum(1).min() + 1].mean())


@kind("fixed")
def classes(m, x, mask, h):
    return functional.one_hot(mask, 2).shape[-1]
