"""Tensors and the storages behind them."""

import torch
from plimsoll.torch.outside import storages_seen_by_python
from plimsoll.torch.versions import address_of, storage_of
from torch.multiprocessing.reductions import StorageWeakRef


def dtype_name(tensor):
    return str(tensor.dtype).replace("torch.", "")


def tensors_in(value):
    """The tensors of a boundary: a tensor, or a tuple, list or dict of such, nested as they like."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def distinct_tensors_in(value):
    """Each tensor object once, in the order of first mention."""
    return list({id(tensor): tensor for tensor in tensors_in(value)}.values())


def storage_bytes(tensors):
    """{address: bytes} of the distinct storages behind some tensors; empty ones take no memory."""
    found = {}
    for tensor in tensors:
        storage = storage_of(tensor)
        if storage.nbytes() > 0:
            found[address_of(storage)] = storage.nbytes()
    return found


def storages_there():
    """{address: weak reference} of every storage that some Python object reaches now: whoever is freed gives its address to another."""
    return {address: StorageWeakRef(storage) for address, storage in storages_seen_by_python().items()}


def map_tensors(value, function, is_place=lambda item: isinstance(item, torch.Tensor)):
    """The same form with each tensor (each place) replaced."""
    if is_place(value):
        return function(value)
    if isinstance(value, dict):
        return type(value)((key, map_tensors(item, function, is_place)) for key, item in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, function, is_place) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(item, function, is_place) for item in value)
    return value
