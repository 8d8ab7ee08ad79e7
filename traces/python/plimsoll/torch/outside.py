"""Tensors that were there before a forward, beside the model's parameters and buffers: weights of classes that a loss function has, a table in an
attribute of a module that is run as a whole. Autograd saves them like all else, and they are no stage's.
"""

import gc
import itertools

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .versions import storage_of


def storages_seen_by_python():
    """{address: storage} of each that some Python object reaches now. Meanwhile nothing is collected: torch does not know of the references that
    this list holds, and warns where it lets go of such a tensor."""
    collects = gc.isenabled()
    gc.disable()
    try:
        things, kinds = gc.get_objects(), kinds_of_tensors()
        storages = [storage_of(thing) for thing in itertools.compress(things, map(kinds.__contains__, map(type, things)))
                    if not is_fake(thing) and thing.layout == torch.strided and has_storage(thing)]
        del things
    finally:
        if collects:
            gc.enable()
    return {storage.data_ptr(): storage for storage in storages if storage.nbytes() > 0}


def kinds_of_tensors():
    """Tensor and all classes that are made of it."""
    found, rest = set(), [torch.Tensor]
    while rest:
        kind = rest.pop()
        found.add(kind)
        rest += kind.__subclasses__()
    return found


def is_fake(tensor):
    """A stand-in that torch.compile keeps, with a shape and no memory."""
    return type(tensor).__module__.startswith("torch._subclasses")


def has_storage(tensor):
    """Not so of the undefined tensor, with which torch 2 stands in for a gradient that is none, nor of what holds others (a DTensor)."""
    try:
        storage_of(tensor).data_ptr()
    except (NotImplementedError, RuntimeError):
        return False
    return True


class Outside:
    """Finds them among what is saved. `known`: tensors that are looked after elsewhere."""

    def __init__(self, known):
        self.there = {address: StorageWeakRef(storage) for address, storage in storages_seen_by_python().items()}
        for tensor in known:
            self.there.pop(storage_of(tensor).data_ptr(), None)
        self.found = {}  # {address: tensor}, held, so that nothing else gets its address
        self.saved = {}  # {address: the last storage there that was saved}

    def look(self, tensor):
        """Whoever is freed while the forward runs gives its address to another."""
        address = storage_of(tensor).data_ptr()
        self.saved[address] = StorageWeakRef(storage_of(tensor))
        if address in self.there and not self.there[address].expired() and storage_of(tensor).nbytes() > 0:
            self.found[address] = tensor.detach()

    def is_saved(self, tensor):
        reference = self.saved.get(storage_of(tensor).data_ptr())
        return reference is not None and not reference.expired()
