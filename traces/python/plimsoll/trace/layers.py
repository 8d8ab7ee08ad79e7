"""Stages of a model that is run as a whole: the modules of its lists, and what runs before, between and behind them.

A list counts where its modules are of one class and each is called by itself, such as the blocks of a transformer. Lists
inside of such a module do not count. A module that is called twice is two stages.
"""

import contextlib

from torch import nn

from .storages import tensors_in


def layers_of(model):
    """[(name, module)] of the outermost lists of two or more modules of one class."""
    found = []
    for name, child in model.named_children():
        rows = isinstance(child, nn.ModuleList) and len(child) > 1 and len({type(module) for module in child}) == 1
        inner = ([(str(number), module) for number, module in enumerate(child)] if rows else layers_of(child))
        found += [(f"{name}.{place}", module) for place, module in inner]
    return found


class StagesOfLayers:
    """The stages that a recorder is in while the model runs, by number, and their names."""

    def __init__(self, recorder, layers):
        self.recorder, self.layers = recorder, layers
        self.calls, self.handed, self.within, self.behind = {}, [], False, None

    @contextlib.contextmanager
    def watched(self):
        for name, module in self.layers:
            module.forward = self.counted(name, module.forward)
        try:
            yield
        finally:
            for _, module in self.layers:
                del module.forward

    def counted(self, name, forward):
        def run(*args, **kwargs):
            if self.within:  # one layer calls another
                return forward(*args, **kwargs)
            self.hands_on([args, kwargs])
            self.calls[name] = self.calls.get(name, 0) + 1
            call = name if self.calls[name] == 1 else f"{name}#{self.calls[name]}"
            self.begins(call)
            self.within = True
            result = forward(*args, **kwargs)
            self.within = False
            self.hands_on(result)
            self.behind = f"behind {call}"
            return result
        return run

    def begins(self, name):
        names = self.recorder.names
        if any(op["stage"] == self.recorder.stage for op in self.recorder.ops):
            names.append(name)
        else:  # nothing ran in it
            names[-1] = name
        self.recorder.stage, self.behind = len(names) - 1, None

    def before_operation(self):
        """What runs first behind a layer begins a stage."""
        if self.behind and self.recorder.phase == "forward":
            self.begins(self.behind)

    def hands_on(self, value):
        """The backward of the stage that made this begins with its gradients."""
        for tensor in tensors_in(value):
            if tensor.grad_fn is not None and all(tensor is not other for other in self.handed):
                self.handed.append(tensor)
                tensor.register_hook(self.recorder.enters_backward_of(self.maker_of(tensor)))

    def maker_of(self, tensor):
        number = self.recorder.present_value(tensor)
        return next((op["stage"] for op in reversed(self.recorder.ops) if number in op["outputs"]), self.recorder.stage)
