"""Shapes that follow from data."""

import torch
from torch import nn
from torch.nn import functional

from .models import NUMBERS, SHAPE, kind

# --- shapes ---

@kind(SHAPE)
def nonzero_of_activations(m, x, mask, h):
    return len((h > 0.5).nonzero())


@kind(SHAPE)
def selected_activations(m, x, mask, h):
    return h.detach()[h > 0.5].numel() / 8


@kind(SHAPE)
def selected_by_themselves(m, x, mask, h):
    above = h > 0.5
    return above[above].numel() / 8 + torch.masked_select(above, above).numel() / 8


@kind(SHAPE)
def unique_activations(m, x, mask, h):
    return torch.unique((h.detach() * 3).round()).shape[0]


@kind(SHAPE)
def range_to_a_number_of_activations(m, x, mask, h):
    return torch.arange((h.detach() > 0.5).sum()).shape[0] / 8


@kind(SHAPE)
def counted_bins(m, x, mask, h):
    return torch.bincount((h.detach() * 9).long().flatten()).numel()


@kind(SHAPE)
def module_that_counts_activations(m, x, mask, h):
    return m.leaf_count(h > 0.5) / 8


@kind(NUMBERS)
def module_that_hands_its_parameter_on(m, x, mask, h):
    return m.leaf_scales(h)[1]


@kind("asked")
def module_that_counts(m, x, mask, h):
    return m.leaf_count(mask)


@kind("asked")
def selected(m, x, mask, h):
    return h[mask.bool()].shape[0]


@kind("asked")
def selected_length(m, x, mask, h):
    return len(h[mask.bool()])


@kind("asked")
def selected_view(m, x, mask, h):
    return h[mask.bool()].view(-1, 1).size(0)


@kind("asked")
def masked_select(m, x, mask, h):
    return torch.masked_select(h, mask.bool()).numel()


@kind("asked")
def nonzero(m, x, mask, h):
    return mask.nonzero().numel()


@kind("asked")
def where(m, x, mask, h):
    return torch.where(mask > 0)[0].numel()


@kind("asked")
def unique(m, x, mask, h):
    return torch.unique(mask).numel()


@kind("asked")
def unique_consecutive(m, x, mask, h):
    return len(torch.unique_consecutive(mask))


@kind("asked")
def repeated(m, x, mask, h):
    return torch.repeat_interleave(h, mask.sum(1), dim=0).shape[0]


@kind("asked")
def rows_one_by_one(m, x, mask, h):
    return sum(1 for _ in h[mask.bool()])


@kind("asked")
def parts(m, x, mask, h):
    return len(h[mask.bool()].split(2))


@kind("asked")
def cut_to_a_number(m, x, mask, h):
    return h.flatten()[:mask.sum()].shape[0]


@kind("asked")
def range_to_a_number(m, x, mask, h):
    return torch.arange(mask.sum()).numel()


@kind("asked")
def packed(m, x, mask, h):
    return nn.utils.rnn.pack_padded_sequence(h[:, :, None], mask.sum(1), batch_first=True, enforce_sorted=False).data.shape[0]


@kind("asked")
def added_to_what_is_selected(m, x, mask, h):
    return (h[mask.bool()] * 2).exp()[None].numel()


# --- shapes that become numbers of tensors ---

@kind(NUMBERS)
def ones_like_what_is_selected(m, x, mask, h):
    return torch.ones_like(h[mask.bool()]).sum() / 8


@kind(NUMBERS)
def expanded_as_what_is_selected(m, x, mask, h):
    return torch.ones(1, 1).expand_as(h[mask.bool()][None]).sum() / 8


@kind(NUMBERS)
def grid_of_what_is_selected(m, x, mask, h):
    return torch.meshgrid(torch.ones(2), h[mask.bool()], indexing="ij")[0].sum()


@kind(NUMBERS)
def selected_and_filled(m, x, mask, h):
    return h.detach()[mask.bool()].clone().fill_(1).sum()


@kind(NUMBERS)
def random_of_what_is_selected(m, x, mask, h):
    return (torch.rand_like(h[mask.bool()]) >= 0).sum()


@kind(NUMBERS)
def sum_of_a_range_to_a_number(m, x, mask, h):
    return torch.arange(mask.sum()).sum() / 99


@kind(NUMBERS)
def classes_of_a_number(m, x, mask, h):
    return torch.ones_like(functional.one_hot(mask.sum(1)[1:2])).sum()


@kind(NUMBERS)
def module_that_gives_a_count_as_a_tensor(m, x, mask, h):
    return m.leaf_counted(mask)


@kind("asked")
def module_that_notes_a_shape(m, x, mask, h):
    h = m.leaf_notes(h, mask)
    return float(m.leaf_notes.noted), h


@kind("asked")
def sum_of_what_is_selected(m, x, mask, h):
    return mask[mask.bool()].sum()
