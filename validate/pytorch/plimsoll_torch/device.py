"""Copies between a device and its host. On a CPU both are the same memory, and a copy is a copy. On CUDA the host's side is pinned and
copies run on two streams of their own, ordered by events; written by PyTorch's documentation (torch.cuda.Stream, Event, Tensor.record_stream,
Tensor.pin_memory), it has not run on a GPU.

What goes out is held until the kernels' stream waits for the copy, and then let go: from there on the allocator gives its memory to
kernels that run behind that wait. (With record_stream alone it would look whether the copy is over at the moment it is asked, when a
host that runs ahead has only just issued it, and take more memory.)
"""

import ctypes

import torch

from .versions import bytes_view, storage_of


class CpuCopies:
    """Everything is done when it is issued."""

    def __init__(self):
        self.free = {}  # buffers by their bytes, for the next step

    def host_buffer(self, bytes_):
        kept = self.free.get(bytes_)
        return kept.pop() if kept else torch.frombuffer(bytearray(bytes_), dtype=torch.uint8) if bytes_ else torch.empty(0, dtype=torch.uint8)

    def release(self, buffer):
        self.free.setdefault(buffer.numel(), []).append(buffer)

    def empty_storage(self, bytes_, device):
        return storage_of(torch.empty(bytes_, dtype=torch.uint8, device=device))

    def begin(self, number, action):
        """Before an action is issued: it waits for those that it names."""

    def out(self, buffer, first, storage, begin, end):
        """Bytes [begin, end) of a storage to the buffer, in which the storage lies from byte `first` on. Without tensors around them: what a
        recurrent layer saves is hundreds of small storages."""
        ctypes.memmove(buffer.data_ptr() + first + begin, storage.data_ptr() + begin, end - begin)

    def back(self, storage, begin, end, buffer, first):
        """The same bytes to another storage."""
        ctypes.memmove(storage.data_ptr() + begin, buffer.data_ptr() + first + begin, end - begin)

    def end(self, number, action):
        """After an action is issued."""

    def finish(self):
        """All copies are over."""


class CudaCopies(CpuCopies):
    """`awaited`: numbers of actions that others wait for."""

    def __init__(self, device, awaited):
        super().__init__()
        self.device, self.awaited = device, awaited
        self.outward, self.inward = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.forget()

    def forget(self):
        self.events = {}       # of awaited actions
        self.kept = {}         # {number of a copy to the host: what it reads}
        self.over = {}         # {awaited action: the last copy to the host that is over when it is}
        self.known = {"kernels": -1, "outward": -1, "inward": -1}  # of each stream: the last copy to the host that it has waited for

    def host_buffer(self, bytes_):
        """One that was read back is written again behind that copy."""
        kept = self.free.get(bytes_)
        if not kept:
            return torch.empty(bytes_, dtype=torch.uint8, pin_memory=True)
        buffer, read = kept.pop()
        self.outward.wait_event(read)
        return buffer

    def release(self, buffer):
        self.free.setdefault(buffer.numel(), []).append((buffer, self.inward.record_event()))

    @staticmethod
    def name_of_stream(action):
        return "kernels" if action.do != "copy" else "outward" if action.to_host else "inward"

    def stream_of(self, action):
        return {"kernels": torch.cuda.current_stream(self.device), "outward": self.outward, "inward": self.inward}[self.name_of_stream(action)]

    def empty_storage(self, bytes_, device):
        """Of the stream that fills it; the kernels that read it are on the current one."""
        with torch.cuda.stream(self.inward):
            made = torch.empty(bytes_, dtype=torch.uint8, device=device)
        made.record_stream(torch.cuda.current_stream(self.device))
        return storage_of(made)

    def begin(self, number, action):
        stream, name = self.stream_of(action), self.name_of_stream(action)
        for wait in action.waits:
            stream.wait_event(self.events[wait])
            self.known[name] = max(self.known[name], self.over[wait])
        self.number = number
        for copy in [copy for copy in self.kept if copy <= self.known["kernels"]]:
            del self.kept[copy]

    def out(self, buffer, first, storage, begin, end):
        source = bytes_view(storage, self.device)[begin:end]
        with torch.cuda.stream(self.outward):
            buffer[first + begin:first + end].copy_(source, non_blocking=True)
        self.kept.setdefault(self.number, []).append(source)

    def back(self, storage, begin, end, buffer, first):
        with torch.cuda.stream(self.inward):
            bytes_view(storage, self.device)[begin:end].copy_(buffer[first + begin:first + end], non_blocking=True)

    def end(self, number, action):
        name = self.name_of_stream(action)
        if name == "outward":
            self.known[name] = number
        if number in self.awaited:
            self.events[number], self.over[number] = self.stream_of(action).record_event(), self.known[name]

    def finish(self):
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(self.outward)
        current.wait_stream(self.inward)
        self.forget()


def copies_for(device, plan):
    if device.type != "cuda":
        return CpuCopies()
    return CudaCopies(device, {wait for action in plan.actions for wait in action.waits})


class OnHost:
    """Some storages one after the other in one buffer of the host, filled and read back by ranges of bytes."""

    def __init__(self, storages, device, copies):
        self.sizes = [storage.nbytes() for storage in storages]
        self.device, self.copies = device, copies
        self.buffer = copies.host_buffer(sum(self.sizes))
        self.returned = None

    def fill(self, storages, part):
        for number, first, begin, end in self.pieces(part):
            self.copies.out(self.buffer, first, storages[number], begin, end)

    def read(self, part):
        if self.returned is None:
            self.returned = [self.copies.empty_storage(size, self.device) for size in self.sizes]
        for number, first, begin, end in self.pieces(part):
            self.copies.back(self.returned[number], begin, end, self.buffer, first)

    def pieces(self, part):
        """(storage, where it begins, first byte and end in it) of what lies in the range of bytes."""
        low, length = part if part is not None else (0, sum(self.sizes))
        first = 0
        for number, size in enumerate(self.sizes):
            begin, end = max(low - first, 0), min(low + length - first, size)
            if begin < end:
                yield number, first, begin, end
            first += size

    def release(self):
        self.copies.release(self.buffer)
        self.buffer = None
