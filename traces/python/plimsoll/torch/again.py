"""A forward that runs again makes what it made before: the same random numbers, the same autocast, and running statistics that have moved
once stay where they are.
"""

import contextlib

import torch

from .versions import autocast_now, switch_autocast


def device_of(model):
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def random_state(device):
    """Of the CPU and of the device, outside of torch's memory."""
    states = [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])
    return [bytearray(state.numpy()) for state in states]


class RandomStates:
    """States before forwards that run again and draw numbers, by micro-batch and stage; one that did not change in between is kept once. They are
    kept outside of torch's memory: 5 kB a stage would be much of a small model on a CPU."""

    def __init__(self, device):
        self.device = device
        self.states, self.last = {}, None

    def note(self, key):
        state = random_state(self.device)
        if state == self.last:
            state = self.last
        self.states[key] = self.last = state

    @contextlib.contextmanager
    def restored(self, key):
        before = random_state(self.device)
        self.set(self.states[key])
        try:
            yield
        finally:
            self.set(before)

    def set(self, state):
        torch.set_rng_state(torch.frombuffer(state[0], dtype=torch.uint8))
        if self.device.type == "cuda":
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


class Autocast:
    """The caller's, around a step: on in forwards and off in backwards, as PyTorch demands, also where the caller's whole step is inside. Switched
    directly: a context of torch's costs more than many a kernel."""

    def __enter__(self):
        self.devices, self.is_on = [device for device, _ in autocast_now()], True
        return self

    def switch(self, to_on):
        if to_on != self.is_on:
            for device in self.devices:
                switch_autocast(device, to_on)
            self.is_on = to_on

    def forget_casts(self):
        if self.devices:
            torch.clear_autocast_cache()

    def __exit__(self, *_):
        self.switch(True)


@contextlib.contextmanager
def without_autocast():
    with Autocast() as autocast:
        autocast.switch(False)
        yield


def forget_casts():
    """Autocast keeps casts of parameters: those of a forward without gradients have none, and those of another stage belong to it."""
    if autocast_now():
        torch.clear_autocast_cache()


def follow_gradients(follows):
    if torch.is_grad_enabled() != follows:
        torch.set_grad_enabled(follows)
