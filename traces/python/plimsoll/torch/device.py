"""Copies between a device and its host. On a CPU both are the same memory, and a copy is a copy. On CUDA the host's side is pinned and
copies run on two streams of their own, ordered by events.

All memory of the device is of one pool, that of the kernels' stream, and no block is ever marked as used by another stream: the allocator
would keep such a block until the device has got there, and the host is far ahead. Instead,

- what goes out is held until the kernels' stream waits for the copy. Actions stand in the order in which they begin, so that this may be as
  soon as any action waits for it: no later kernel could have begun before;
- what comes back is allocated where the copy is issued, and the inward stream waits for what the kernels' stream has been given up to there,
  for the memory may have been that of any of it;
- so that this does not take the copy away from beside a kernel, it is issued right behind the last thing that it waits for (order.py).
"""

import ctypes

import torch

from .order import issue_order, last_waits, stream_of
from .versions import bytes_view, storage_of


class CpuCopies:
    """Everything is done when it is issued."""

    has_order = False  # whether anything is to be done before and after actions, for the order of streams

    def __init__(self, plan):
        self.free = {}  # buffers by their bytes, for the next step
        self.host_bytes = 0  # of all buffers that there are
        self.before = {number: (number,) for number, action in enumerate(plan.actions) if stream_of(action) == "inward"}

    def host_buffer(self, bytes_):
        kept = self.free.get(bytes_)
        if kept:
            return kept.pop()
        self.host_bytes += bytes_
        return torch.frombuffer(bytearray(bytes_), dtype=torch.uint8) if bytes_ else torch.empty(0, dtype=torch.uint8)

    def release(self, buffer):
        self.free.setdefault(buffer.numel(), []).append(buffer)

    def empty_storages(self, sizes, device):
        """For what comes back."""
        return [storage_of(torch.empty(size, dtype=torch.uint8, device=device)) for size in sizes]

    def begin(self, number):
        """Before an action is issued: it waits for those that it names."""

    def begin_inward(self, number):
        """Before a copy to the device is issued, which may be before its action."""

    def out(self, buffer, first, storage, begin, end):
        """Bytes [begin, end) of a storage to the buffer, in which the storage lies from byte `first` on. Without tensors around them: what a
        recurrent layer saves is hundreds of small storages."""
        ctypes.memmove(buffer.data_ptr() + first + begin, storage.data_ptr() + begin, end - begin)

    def back(self, storage, begin, end, buffer, first):
        """The same bytes to another storage."""
        ctypes.memmove(storage.data_ptr() + begin, buffer.data_ptr() + first + begin, end - begin)

    def end(self, number):
        """After an action, or a copy to the device, is issued."""

    def finish(self):
        """All copies are over."""

    def settle(self):
        """The device has come to rest: nobody has to wait for what was before."""


class CudaCopies(CpuCopies):
    has_order = True

    def __init__(self, device, plan):
        super().__init__(plan)
        self.device = device
        self.before = issue_order(plan)
        self.streams = [stream_of(action) for action in plan.actions]
        self.waits = last_waits(plan)
        self.awaited = {wait for of in self.waits for wait in of.values()}
        self.outward, self.inward = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.forget()

    def forget(self):
        self.events = {}  # of awaited actions
        self.kept = {}    # {number of a copy to the host: what it reads}, in the order of issue, which is that in which they end

    def host_buffer(self, bytes_):
        """One that was read back is written again behind that copy."""
        kept = self.free.get(bytes_)
        if not kept:
            self.host_bytes += bytes_
            return torch.empty(bytes_, dtype=torch.uint8, pin_memory=True)
        buffer, read = kept.pop()
        if read is not None:
            self.outward.wait_event(read)
        return buffer

    def release(self, buffer):
        self.free.setdefault(buffer.numel(), []).append((buffer, self.inward.record_event()))

    def kernels(self):
        return torch.cuda.current_stream(self.device)

    def stream(self, number):
        return {"kernels": self.kernels, "outward": lambda: self.outward, "inward": lambda: self.inward}[self.streams[number]]()

    def empty_storages(self, sizes, device):
        made = super().empty_storages(sizes, device)
        self.inward.wait_event(self.kernels().record_event())
        return made

    def begin(self, number):
        self.number, copy = number, self.waits[number].get("outward")
        if copy in self.kept:
            self.let_go(copy)
        if self.streams[number] != "inward":
            self.wait(number)

    def let_go(self, copy):
        """Of what this copy to the host and those before it read: from here on it is the kernels' stream's to give away."""
        self.kernels().wait_event(self.events[copy])
        for past in [past for past in self.kept if past <= copy]:
            del self.kept[past]

    def begin_inward(self, number):
        self.wait(number)

    def wait(self, number):
        own = self.streams[number]
        for stream, last in self.waits[number].items():
            if stream != own and (own, stream) != ("kernels", "outward"):  # for which it has waited already
                self.stream(number).wait_event(self.events[last])

    def out(self, buffer, first, storage, begin, end):
        source = bytes_view(storage, self.device)[begin:end]
        with torch.cuda.stream(self.outward):
            buffer[first + begin:first + end].copy_(source, non_blocking=True)
        self.kept.setdefault(self.number, []).append(source)

    def back(self, storage, begin, end, buffer, first):
        with torch.cuda.stream(self.inward):
            bytes_view(storage, self.device)[begin:end].copy_(buffer[first + begin:first + end], non_blocking=True)

    def end(self, number):
        if number in self.awaited:
            self.events[number] = self.stream(number).record_event()

    def finish(self):
        for stream, name in ((self.outward, "outward"), (self.inward, "inward")):
            if name in self.streams:
                self.kernels().wait_stream(stream)
        self.forget()

    def settle(self):
        self.free = {bytes_: [(buffer, None) for buffer, _ in kept] for bytes_, kept in self.free.items()}


def copies_for(device, plan):
    return CudaCopies(device, plan) if device.type == "cuda" else CpuCopies(plan)


class OnHost:
    """Some storages one after the other in one buffer of the host, filled and read back by ranges of bytes; `planned`: of so many, where there may
    be fewer or more."""

    def __init__(self, storages, device, copies, planned=None):
        self.sizes = [storage.nbytes() for storage in storages]
        self.there = sum(self.sizes)
        self.planned = self.there if planned is None else planned
        self.device, self.copies = device, copies
        self.buffer = copies.host_buffer(max(self.there, self.planned))
        self.returned = None

    def fill(self, storages, part):
        for number, first, begin, end in self.pieces(part):
            self.copies.out(self.buffer, first, storages[number], begin, end)

    def read(self, part):
        if self.returned is None:
            self.returned = self.copies.empty_storages(self.sizes, self.device)
        for number, first, begin, end in self.pieces(part):
            self.copies.back(self.returned[number], begin, end, self.buffer, first)

    def pieces(self, part):
        """(storage, where it begins, first byte and end in it) of what lies in the range of bytes."""
        low, until = 0, self.there
        if part is not None and self.planned > 0:  # else all: who plans for nothing says no ranges
            low, until = (byte * self.there // self.planned for byte in (part[0], sum(part)))
        first = 0
        for number, size in enumerate(self.sizes):
            begin, end = max(low - first, 0), min(until - first, size)
            if begin < end:
                yield number, first, begin, end
            first += size

    def release(self):
        self.copies.release(self.buffer)
        self.buffer = None
