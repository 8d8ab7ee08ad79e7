"""What PyTorch's allocator is asked for, in order, cut at marks: [(address, bytes)], bytes below 0 of what is freed.

malloc   by the preloaded live_bytes.c, which knows each block of PyTorch's CPU allocator
cuda     by the memory history of the caching allocator, in which a mark is a block of a few bytes that is allocated and freed
"""

import ctypes

import torch
from plimsoll.torch.versions import has_memory_history, write_memory_history

from .live_bytes import CudaCounter, MallocCounter


class Unexplained(Exception):
    """An order that is not whole, says something else than the counter, or holds what nobody knows: no trace has it."""


class MallocLog:
    """Between begin() and end(), which gives what came between each mark and the next."""

    ENTRIES = 1 << 20  # as in live_bytes.c

    def __init__(self):
        self.library = ctypes.CDLL(None)
        self.library.plimsoll_logged.restype = ctypes.c_longlong
        self.library.plimsoll_log.restype = ctypes.POINTER(ctypes.c_longlong)

    def begin(self):
        self.marks = []
        self.library.plimsoll_begin_log()

    def mark(self):
        self.marks.append(self.library.plimsoll_logged())

    def end(self):
        count = self.library.plimsoll_logged()
        if count > self.ENTRIES:
            raise Unexplained(f"{count} allocations in one pass are more than the log holds")
        numbers = self.library.plimsoll_log()[:2 * count]
        self.library.plimsoll_end_log()
        events = list(zip(numbers[::2], numbers[1::2]))
        return [events[first:last] for first, last in zip(self.marks, self.marks[1:])]


class CudaLog:
    def begin(self):
        self.marks = []
        torch.cuda.synchronize()
        write_memory_history(True)

    def mark(self):
        # Sizes differ from mark to mark, so that a history that holds an earlier pass too is cut at this one's marks.
        block = torch.empty(1 + len(self.marks) % 509, dtype=torch.uint8, device="cuda")
        self.marks.append((block.data_ptr(), block.numel()))

    def end(self):
        history = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
        write_memory_history(False)
        return cut_at_marks(events_of(history), self.marks)


def events_of(history):
    """A block is free for its own stream once that is asked for; `free_completed` follows."""
    sign = {"alloc": 1, "free_requested": -1}
    return [(event["addr"], sign[event["action"]] * event["size"]) for event in history if event["action"] in sign]


def cut_at_marks(events, marks):
    """Looks for the marks from the last to the first."""
    found, last = [], len(events)
    for address, size in reversed(marks):
        pair = [(address, size), (address, -size)]
        last = next((k for k in range(last - 2, -1, -1) if events[k:k + 2] == pair), None)
        if last is None:
            raise Unexplained("the memory history does not hold what was allocated while it was written")
        found.insert(0, last)
    return [events[first + 2:last] for first, last in zip(found, found[1:])]


def log_for(counter):
    """None where nothing is written down in order."""
    if isinstance(counter, MallocCounter):
        return MallocLog()
    return CudaLog() if isinstance(counter, CudaCounter) and counter.exact and has_memory_history() else None
