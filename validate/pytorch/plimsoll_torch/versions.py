"""What is spelled differently in torch 1.13 and 2.x, beside CUDA (device.py)."""

import torch


storage_of = torch.Tensor.untyped_storage if hasattr(torch.Tensor, "untyped_storage") else torch.Tensor._storage  # torch 2, 1.13


def bytes_view(storage, device):
    """The storage as a flat tensor of bytes, without a copy."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def view_of(storage, like):
    """A tensor of this geometry (dtype, shape, strides, offset) on the storage."""
    dtype, shape, strides, offset, device = like
    return torch.empty(0, dtype=dtype, device=device).set_(storage, offset, shape, strides)


def geometry(tensor):
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), tensor.device
