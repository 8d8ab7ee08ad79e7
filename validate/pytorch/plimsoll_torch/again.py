"""A forward that runs again makes what it made before: the same random numbers, the same autocast, and running statistics that have moved
once stay where they are.
"""

import contextlib

import torch

from .versions import autocast_now


class RandomStates:
    """States before forwards that run again, by micro-batch and stage; one that did not change in between is kept once. They are kept outside
    of torch's memory: 5 kB a stage would be much of a small model on a CPU."""

    def __init__(self, device):
        self.device = device if device.type == "cuda" else None
        self.states, self.last = {}, None

    def now(self):
        states = [torch.get_rng_state()] + ([torch.cuda.get_rng_state(self.device)] if self.device is not None else [])
        return [bytearray(state.numpy()) for state in states]

    def note(self, key):
        state = self.now()
        if state == self.last:
            state = self.last
        self.states[key] = self.last = state

    @contextlib.contextmanager
    def restored(self, key):
        before = self.now()
        self.set(self.states[key])
        try:
            yield
        finally:
            self.set(before)

    def set(self, state):
        torch.set_rng_state(torch.frombuffer(state[0], dtype=torch.uint8))
        if self.device is not None:
            torch.cuda.set_rng_state(torch.frombuffer(state[1], dtype=torch.uint8), self.device)

    def clear(self):
        self.states, self.last = {}, None


@contextlib.contextmanager
def statistics_stay(norms):
    """Batch norms compute from the batch, as in the first run, and leave their running statistics alone."""
    moved = [norm for norm in norms if norm.training and norm.track_running_stats]
    for norm in moved:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in moved:
            norm.track_running_stats = True


def batch_norms(modules):
    return [module for module in modules if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]


@contextlib.contextmanager
def without_autocast():
    """Backwards run outside of autocast, as PyTorch demands, also where the caller's whole step is inside."""
    with contextlib.ExitStack() as stack:
        for device, _ in autocast_now():
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def forget_casts():
    """Autocast keeps casts of parameters: those of a forward without gradients have none, and those of another stage belong to it."""
    if autocast_now():
        torch.clear_autocast_cache()
