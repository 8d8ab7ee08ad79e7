"""Models that try to be taken wrongly: each reads a number or a shape out of tensors, in another way, and multiplies by it.

A trick is a function of (model, x, mask, h), of which x and mask are inputs and h follows from parameters, that gives Python a number. Its kind
says what is right: "fixed" (taken), "asked" (taken, and batches that answer otherwise are refused before anything runs), or the words of the
refusal. What a step leaves to the next differs: parameters, the buffer `count`, the attributes `flag` and `array`, the global `BOX`.
"""

import concurrent.futures
import copy
import dataclasses
import pickle
import random

import numpy
import torch
from torch import nn
from torch.nn import functional

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


# --- what follows from parameters reaches storages that were fixed ---

@kind(NUMBERS)
def view_and_copy(m, x, mask, h):
    z = torch.zeros(4)
    z[:2].copy_(h[0, :2].detach())
    return z.sum()


@kind(NUMBERS)
def setitem(m, x, mask, h):
    z = torch.zeros(4)
    z[1] = total(h)
    return z[1]


@kind(NUMBERS)
def setitem_by_mask(m, x, mask, h):
    z = torch.zeros(4, 6)
    z[mask.bool()] = h[mask.bool()].detach()
    return z.mean()


@kind(NUMBERS)
def out_argument(m, x, mask, h):
    z = torch.zeros(4, 6)
    torch.add(h.detach(), 1, out=z)
    return z.mean()


@kind(NUMBERS)
def data_of_a_tensor(m, x, mask, h):
    z = torch.zeros(2)
    z.data.add_(total(h))
    return z.sum()


@kind(NUMBERS)
def data_set(m, x, mask, h):
    z = torch.zeros(4, 6)
    z.data = h.detach()
    return z.mean()


@kind(NUMBERS)
def added_in_place(m, x, mask, h):
    z = torch.zeros(2)
    z += total(h)
    return z.sum()


@kind(NUMBERS)
def view_made_before_the_write(m, x, mask, h):
    base = torch.zeros(4)
    view = base.view(2, 2).t()
    base.add_(total(h))
    return view.sum()


@kind(NUMBERS)
def write_into_a_view_of_a_view(m, x, mask, h):
    base = torch.zeros(2, 3)
    base.t()[1:].unsqueeze(0).select(2, 0).fill_(total(h))
    return base.sum()


@kind(NUMBERS)
def halves_of_a_storage(m, x, mask, h):
    base = torch.zeros(8)
    base[4:].copy_(h[0, :4].detach())
    return base[:4].as_strided((8,), (1,)).sum()


@kind(NUMBERS)
def expanded(m, x, mask, h):
    z = torch.zeros(1)
    e = z.expand(3)
    z.add_(total(h))
    return e.sum()


@kind(NUMBERS)
def index_put(m, x, mask, h):
    return torch.zeros(3).index_put_((torch.tensor([1]),), total(h)).sum()


@kind(NUMBERS)
def scattered(m, x, mask, h):
    z = torch.zeros(3)
    z.scatter_(0, torch.tensor([2]), h[0, :1].detach())
    return z.sum()


@kind(NUMBERS)
def foreach(m, x, mask, h):
    z = torch.zeros(4, 6)
    torch._foreach_add_([z], [h.detach()])
    return z.mean()


@kind(NUMBERS)
def set_to_another_storage(m, x, mask, h):
    return torch.zeros(4, 6).set_(h.detach()).mean()


@kind(NUMBERS)
def swapped_by_storage(m, x, mask, h):
    z = torch.zeros(4, 6)
    alias = torch.empty(0).set_(z.storage(), 0, (4, 6), (6, 1)) if torch.__version__ < "2" else torch.empty(0).set_(z.untyped_storage(), 0, (4, 6), (6, 1))
    alias.copy_(h.detach())
    return z.mean()


@kind("by DLPack")
def alias_by_dlpack(m, x, mask, h):
    z = torch.zeros(4, 6)
    torch.from_dlpack(z).copy_(h.detach())
    return z.mean()


@kind("by DLPack")
def alias_by_a_dlpack_capsule(m, x, mask, h):
    z = torch.zeros(4, 6)
    torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(z)).copy_(h.detach())
    return z.mean()


@kind((UNKNOWN, NUMBERS))
def alias_by_numpy(m, x, mask, h):
    z = torch.zeros(4, 6)
    torch.from_numpy(z.numpy()).copy_(h.detach())
    return z.mean()


class Hidden(torch.autograd.Function):
    """Writes into an argument and tells nobody."""

    @staticmethod
    def forward(ctx, h, z):
        z.data.add_(h.sum())
        return h * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


@kind(NUMBERS)
def written_by_an_autograd_function(m, x, mask, h):
    z = torch.zeros(2)
    Hidden.apply(h, z)
    return z.sum()


@kind(NUMBERS)
def written_by_a_module(m, x, mask, h):
    class Writes(nn.Module):
        def forward(self, z):
            with torch.no_grad():
                z.copy_(h[0, :2])
            return z * 1
    z = torch.zeros(2)
    Writes()(z)
    return z.sum()


@kind(NUMBERS)
def python_map(m, x, mask, h):
    seen = []
    torch.zeros(4, 6).map_(h.detach(), lambda a, b: seen.append(b) or a)
    return sum(seen) / 24


@kind(NUMBERS)
def python_apply(m, x, mask, h):
    seen = []
    h.detach().clone().apply_(lambda v: seen.append(v) or v)
    return sum(seen) / 24


@kind(NUMBERS)
def copied_by_numpy(m, x, mask, h):
    z = torch.zeros(1)
    z.numpy()[0] = h.detach().numpy().mean()
    return z.sum()


@kind(NUMBERS)
def numbers_in_a_list(m, x, mask, h):
    return torch.tensor([1.0, total(h)]).sum()


@kind(NUMBERS)
def scripted(m, x, mask, h):
    return SCRIPTED(h)


@torch.jit.script
def SCRIPTED(h):
    return float(h.sum())


@kind(NUMBERS)
def as_text(m, x, mask, h):
    return float(str(total(h)).split("(")[1].split(")")[0])


@kind(NUMBERS)
def formatted(m, x, mask, h):
    return float(f"{total(h):.6f}")


@kind(NUMBERS)
def compared(m, x, mask, h):
    return 2 if torch.equal(h[0].argmax(), h[1].argmax()) else 1 if total(h) > 8 else 0


@kind(NUMBERS)
def largest_of_a_list(m, x, mask, h):
    return [0.5, 1.5, 3.0][max(range(3), key=lambda i: h[:, i].detach().sum())]


@kind("does not run on the example")
def sparse_count(m, x, mask, h):
    return (h.detach() - 0.5).relu().to_sparse()._nnz()


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


# --- more ways to write ---

@kind(NUMBERS)
def running_mean_of_a_function(m, x, mask, h):
    mean, variance = torch.zeros(6), torch.ones(6)
    functional.batch_norm(h, mean, variance, training=True)
    return mean.sum()


@kind((UNKNOWN, NUMBERS))
def running_mean_of_a_module(m, x, mask, h):
    norm = nn.BatchNorm1d(6)
    norm(h)
    return norm.running_mean.sum()


@kind(NUMBERS)
def noise_of_rrelu(m, x, mask, h):
    noise = torch.zeros(4, 6)
    torch._C._nn.rrelu_with_noise(h.detach() - 0.5, noise, 0.1, 0.3, True)
    return noise.sum()


@kind(NUMBERS)
def sorted_into(m, x, mask, h):
    values, places = torch.zeros(4, 6), torch.zeros(4, 6, dtype=torch.long)
    torch.sort(h.detach(), out=(values, places))
    return values[0, 5] + places.view(-1)[3]


@kind(NUMBERS)
def diagonal(m, x, mask, h):
    z = torch.zeros(4, 4)
    z.diagonal().copy_(h[:, 0].detach())
    return z.sum()


@kind(NUMBERS)
def other_dtype(m, x, mask, h):
    z = torch.zeros(4, 6)
    z.view(torch.int32).copy_(h.detach().contiguous().view(torch.int32))
    return z.mean()


@kind((UNKNOWN, NUMBERS))
def of_a_parameter_made_of_it(m, x, mask, h):
    z = torch.zeros(4, 6)
    nn.Parameter(z).data.copy_(h.detach())
    return z.mean()


@kind(NUMBERS)
def initialised_at_random(m, x, mask, h):
    return nn.init.normal_(torch.zeros(3)).sum()


@kind(NUMBERS)
def random_integers(m, x, mask, h):
    return torch.zeros(3).random_(0, 5).sum()


@kind(NUMBERS)
def exponential(m, x, mask, h):
    return torch.zeros(3).exponential_().sum()


@kind(NUMBERS)
def dropped_out_in_place(m, x, mask, h):
    z = torch.ones(8)
    functional.dropout(z, 0.5, inplace=True)
    return z.sum()


@kind(NUMBERS)
def module_that_drops_out(m, x, mask, h):
    return nn.Dropout(0.5)(torch.ones(8)).sum()


@kind(NUMBERS)
def hidden_write_into_a_copy_of_an_input(m, x, mask, h):
    z = mask.float()
    Hidden.apply(h, z)
    return z.sum()


@kind(NUMBERS)
def deep_copy(m, x, mask, h):
    return copy.deepcopy(h.detach()).mean()


@kind(NUMBERS)
def pickled(m, x, mask, h):
    return pickle.loads(pickle.dumps(h.detach())).mean()


@kind(NUMBERS)
def tensor_of_a_tensor(m, x, mask, h):
    return torch.tensor(h.detach()).mean()


@kind(NUMBERS)
def every_number(m, x, mask, h):
    return sum(map(float, h.flatten())) / 24


@kind((UNKNOWN, NUMBERS))
def state_of_the_generator(m, x, mask, h):
    return torch.get_rng_state()[4:40].sum() / 9


@kind(NUMBERS)
def without_functions(m, x, mask, h):
    with torch._C.DisableTorchFunction():
        return h.detach().mean().item()


@kind("its forward starts a thread, in which nothing is seen")
def read_in_a_thread(m, x, mask, h):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: h.detach().mean().item()).result()


@kind(NUMBERS)
def view_of_a_parameter(m, x, mask, h):
    return m.head.weight.detach().view(-1)[1]


@kind((UNKNOWN, NUMBERS))
def input_in_a_global(m, x, mask, h):
    return BOX["example"].sum()


@kind("asked")
def input_twice(m, x, mask, h):
    return torch.stack([mask, mask * 2]).sum()


@kind("asked")
def input_without_functions(m, x, mask, h):
    with torch._C.DisableTorchFunction():
        return mask.sum().item()


@kind("asked")
def transposed(m, x, mask, h):
    return mask.t()[1].tolist().count(1)


@kind("asked")
def largest_in_a_row(m, x, mask, h):
    return max(mask.sum(1).tolist()) - min(int(n) for n in mask.sum(1))


@kind(HIDDEN)
def hidden_write_of_nothing(m, x, mask, h):
    """Nothing is written for the example."""
    z = torch.zeros(4, 6)
    m.leaf_looks.looked_at = z

    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h, mask):
            m.leaf_looks.looked_at.add_(1 - mask)
            return h * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient, None
    h = Writes.apply(h, mask)
    return 0.0, h + z


@kind(HIDDEN)
def hidden_cast(m, x, mask, h):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        m.leaf_looks.looked_at = m.scale.detach().to(torch.bfloat16)
        return 0.0, m.leaf_looks(h)


@kind(HIDDEN)
def hidden_input(m, x, mask, h):
    m.leaf_looks.looked_at = mask
    return 0.0, m.leaf_looks(h)


@kind(HIDDEN)
def kept_for_the_second_call(m, x, mask, h):
    return 0.0, m.leaf_keeps(m.second(m.leaf_keeps(h, True)).tanh(), False)


@kind("fixed")
def initialised(m, x, mask, h):
    return nn.init.constant_(torch.empty(3), 2).sum() + nn.init.ones_(torch.empty(2)).sum()


@kind("fixed")
def module_without_parameters(m, x, mask, h):
    return nn.Softmax(-1)(torch.zeros(2, 2)).argmax()


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


@dataclasses.dataclass
class Batch:
    mask: torch.Tensor


class Nested(Model):
    """The mask in a dict in a dataclass."""

    def forward(self, x, more):
        return super().forward(x, more["batch"].mask)
