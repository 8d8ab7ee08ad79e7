"""What autograd keeps for a forward, counted by storage. For kept_by_llama.py, kept_by_models.py and kept_under_autocast.py."""

import torch


def kept_by(forward, left_out):
    """Bytes that autograd keeps for what `forward()` computes, without the tensors `left_out`."""
    ours = {each.untyped_storage().data_ptr() for each in left_out}
    found = {}

    def pack(saved):
        storage = saved.untyped_storage()
        if storage.data_ptr() not in ours:
            found[storage.data_ptr()] = (storage.nbytes(), saved)  # with the tensor, so that its address stays its own
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        forward()
    return sum(size for size, _ in found.values())
