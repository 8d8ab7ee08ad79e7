"""What follows from parameters is written where it was not, in one way or another."""

import concurrent.futures
import copy
import pickle

import torch
from torch import nn
from torch.nn import functional

from .models import BOX, HIDDEN, NUMBERS, SCRIPTED, UNKNOWN, Hidden, kind, total

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
