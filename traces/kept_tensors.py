"""What autograd keeps for a forward, counted by storage. For kept_by_llama.py, kept_by_models.py,
kept_by_mixtures.py and kept_under_autocast.py."""

import gc
import weakref

import torch


def storage_of(tensor):
    """PyTorch 1.13 has no untyped ones."""
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


class Held:
    """What autograd gets in a tensor's place."""

    def __init__(self, tensor):
        self.tensor = tensor


def kept_by(forward, left_out):
    """Bytes that autograd keeps of what `forward()` computes, without the tensors `left_out`: for as long as its result is
    there. What it kept for a result that nobody reads is gone by then."""
    ours = {storage_of(each).data_ptr() for each in left_out}
    held = []

    def pack(saved):
        made = Held(saved)
        held.append(weakref.ref(made))
        return made

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda made: made.tensor):
        result = forward()
    gc.collect()
    alive = [storage_of(made.tensor) for made in (each() for each in held) if made is not None]
    del result
    return sum({each.data_ptr(): each.nbytes() for each in alive if each.data_ptr() not in ours}.values())
