"""Tensors and the storages behind them, with one spelling for torch 1.13 to 2.x."""

import gc

import torch


def storage_of(tensor):
    if hasattr(tensor, "untyped_storage"):  # torch 2
        return tensor.untyped_storage()
    return tensor.storage().untyped()


def tensors_in(value):
    """The tensors of a boundary: a tensor, or a tuple or list of such."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def storage_bytes(tensors):
    """{address: bytes} of the distinct storages behind some tensors; empty ones take no memory."""
    found = {}
    for tensor in tensors:
        storage = storage_of(tensor)
        if storage.nbytes() > 0:
            found[storage.data_ptr()] = storage.nbytes()
    return found


def addresses_seen_by_python():
    """Addresses of every storage that some Python object reaches now."""
    found = set()
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor) and thing.layout == torch.strided:
            found.update(storage_bytes([thing]))
    return found


def map_tensors(value, function):
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(item, function) for item in value)
    return value
