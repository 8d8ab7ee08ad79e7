"""What a stage saves for its backward, and how live bytes move while it runs."""

import weakref

import torch

from .executor import Probe
from .storages import addresses_seen_by_python, storage_bytes, tensors_in


class SavedProbe(Probe):
    """Storages that autograd saves in each forward, through saved_tensors_hooks."""

    def __init__(self, chain):
        self.always = storage_bytes(chain.parameters()) | storage_bytes(chain.buffers())
        self.stages = []
        self.boundaries = []  # storages, tensors of the input and of each output
        self.gradient_inputs = {}

    def begin(self, phase, stage, inputs):
        if phase != "forward":
            return
        if stage == 0:
            self.boundaries.append(described(inputs))
        self.inputs = storage_bytes(tensors_in(inputs))
        self.before = addresses_seen_by_python()
        self.packed = []
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, lambda tensor: tensor)
        self.hooks.__enter__()

    def pack(self, tensor):
        # A detached alias: to return the tensor itself would tie a saved output to its own graph in a cycle.
        alias = tensor.detach()
        self.packed.append(weakref.ref(alias))
        return alias

    def end(self, phase, stage, outputs):
        if phase != "forward":
            self.gradient_inputs[stage] = storage_bytes(
                [tensor.grad for tensor in tensors_in(outputs) if tensor.grad is not None])
            return
        self.hooks.__exit__(None, None, None)
        saved = storage_bytes([alias() for alias in self.packed if alias() is not None])
        out = storage_bytes(tensors_in(outputs))
        self.boundaries.append(described(outputs))
        self.stages.append({
            "inner": sum(n for a, n in saved.items() if a not in out and a not in self.before),
            "output": sum(out.values()),
            "new_output": sum(n for a, n in out.items() if a not in self.before),
            "keeps_input": any(a in saved for a in self.inputs),
            "keeps_output": any(a in saved for a in out if a not in self.before),
            "elsewhere": sum(n for a, n in saved.items()
                             if a in self.before and a not in self.inputs and a not in self.always),
        })


def described(value):
    """[(address, bytes, shape, dtype)] of the storages of a boundary."""
    found = {}
    for tensor in tensors_in(value):
        for address, bytes_ in storage_bytes([tensor]).items():
            found.setdefault(address, (address, bytes_, list(tensor.shape), str(tensor.dtype).replace("torch.", "")))
    return list(found.values())


class LiveProbe(Probe):
    """{(phase, stage): bytes} of the change, the peak above the start, and the change once boundaries are gone."""

    def __init__(self, chain, counter):
        self.chain = chain
        self.counter = counter
        self.first = counter.live()
        self.delta, self.peak, self.final_delta, self.new_gradients = {}, {}, {}, {}
        self.highest = 0

    def begin(self, phase, stage, inputs):
        self.gradients = self.gradient_bytes()
        self.counter.reset_peak()
        self.start = self.counter.live()

    def end(self, phase, stage, outputs):
        self.delta[phase, stage] = self.counter.live() - self.start
        self.peak[phase, stage] = self.counter.peak() - self.start
        self.highest = max(self.highest, self.counter.peak() - self.first)
        self.new_gradients[phase, stage] = self.gradient_bytes() - self.gradients

    def released(self, stage):
        self.final_delta["backward", stage] = self.counter.live() - self.start

    def gradient_bytes(self):
        return sum(storage_bytes([p.grad for p in self.chain.parameters() if p.grad is not None]).values())
