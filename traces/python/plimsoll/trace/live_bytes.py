"""Live tensor bytes and their peak, counted in one of three ways:

malloc   every block of PyTorch's CPU allocator, through a preloaded live_bytes.c: exact
sweep    storages seen after each dispatched operation: portable, misses temporaries inside one kernel
cuda     counters of PyTorch's caching allocator
"""

import contextlib
import ctypes

import torch
from plimsoll.torch.versions import byte_counter_of_cuda, storage_of
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from .storages import tensors_in


class MallocCounter:
    name = "malloc: LD_PRELOAD counter of posix_memalign blocks (exact)"
    exact = True

    def __init__(self):
        library = ctypes.CDLL(None)
        for function in ("plimsoll_live_bytes", "plimsoll_peak_bytes"):
            getattr(library, function).restype = ctypes.c_longlong
        self.library = library

    def live(self):
        return self.library.plimsoll_live_bytes()

    def peak(self):
        return self.library.plimsoll_peak_bytes()

    def reset_peak(self):
        self.library.plimsoll_reset_peak()

    def counting(self):
        return contextlib.nullcontext()

    @staticmethod
    def available():
        return hasattr(ctypes.CDLL(None), "plimsoll_live_bytes")


class SweepCounter(TorchDispatchMode):
    """Storages that appear while it is active are followed by weak references until they expire."""

    name = "sweep: storages alive after each dispatched operation (misses temporaries inside a kernel)"
    exact = True

    def __init__(self):
        super().__init__()
        self.alive = {}  # address -> (weak reference, bytes)
        self.highest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        known = {storage_of(tensor).data_ptr() for tensor in tensors_in(list(args))}
        for tensor in tensors_in([result]):
            storage = storage_of(tensor)
            address = storage.data_ptr()
            if address not in known and storage.nbytes() > 0:
                self.alive[address] = (StorageWeakRef(storage), storage.nbytes())
        self.highest = max(self.highest, self.live())
        return result

    def live(self):
        self.alive = {address: entry for address, entry in self.alive.items() if not entry[0].expired()}
        return sum(bytes_ for _, bytes_ in self.alive.values())

    def peak(self):
        return max(self.highest, self.live())

    def reset_peak(self):
        self.highest = self.live()

    def counting(self):
        return self


class CudaCounter:
    """Bytes as asked for where torch reports them, else block sizes, which are rounded up."""

    def __init__(self):
        self.key, self.exact = byte_counter_of_cuda()
        self.name = f"cuda: {self.key} of the caching allocator"

    def live(self):
        return torch.cuda.memory_stats()[f"{self.key}.all.current"]

    def peak(self):
        return torch.cuda.memory_stats()[f"{self.key}.all.peak"]

    def reset_peak(self):
        torch.cuda.reset_peak_memory_stats()

    def counting(self):
        return contextlib.nullcontext()


def counter_for(device):
    if device == "cuda":
        return CudaCounter()
    return MallocCounter() if MallocCounter.available() else SweepCounter()
