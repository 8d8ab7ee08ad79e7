"""One training iteration of a model whose tensors have shapes and no memory, as a plimsoll.trace.v1 graph without times.

The same recorder runs as for measured graphs (graph_trace.py), on PyTorch's fake tensors: what an operation would make is
made of shapes alone. flops and bytes moved are counted as they are there, and a platform gives times. Workspaces inside
kernels are unknown.
"""

import contextlib

import torch
from plimsoll.torch.recorder import loss_of
from plimsoll.torch.versions import fake_tensors
from torch import nn

from .chain import Chain, Loss, Stage
from .errors import UsageError, first_line
from .graph_trace import recorded
from .layers import layers_of
from .runs_once import WatchOfShapes
from .storages import storage_bytes
from .work import BYTES_MOVED_RULE, FLOPS_RULE


class Whole(nn.Module):
    """A model with its loss, called with what a subject has as its input."""

    def __init__(self, subject):
        super().__init__()
        self.model, self.loss, self.targets = subject.model, subject.loss, subject.targets

    def forward(self, given):
        if isinstance(given, dict):
            output = self.model(**given)
        else:
            output = self.model(*given) if isinstance(given, (tuple, list)) else self.model(given)
        return loss_of(output, self.loss, self.targets)


def whole_chain(subject, precision=contextlib.nullcontext):
    """Modules in a row are stages; of any other model the modules of its lists."""
    if subject.pairs is None:
        names = {id(tensor): name for name, tensor in (*subject.model.named_parameters(), *subject.model.named_buffers())}
        return Chain(subject.name, [Stage("model", Whole(subject))], subject.input, subject.description, precision,
                     layers=layers_of(subject.model), names=names)
    stages = [Stage(name, module) for name, module in subject.pairs]
    if subject.loss is not None:
        stages.append(Stage("loss", Loss(subject.loss, subject.targets)))
    return Chain(subject.name, stages, subject.input, subject.description, precision)


def graph_without_times(chain):
    """The trace without its command-line part of `source`; to be called within `fake_tensors()`. Raises UsageError where the
    model asks for numbers, which nothing has."""
    try:
        watch = WatchOfShapes(chain)
        graph = recorded(chain, None, None, watch)
    except Exception as error:  # whatever the model's own code raises, on shapes alone
        raise UsageError(f"the model does not run on shapes alone: {first_line(error)}") from error
    if any(op["kind"] == "_local_scalar_dense" for op in graph.ops):  # which fake tensors of 1.13 answer with 0
        raise UsageError("the model does not run on shapes alone: it reads a number out of a tensor")
    watch.mark(graph.ops)
    unknown = sorted({op["kind"] for op in graph.ops if op.get("flops") is None})
    if unknown:
        raise UsageError(f"no formula for the flops of {', '.join(unknown)}: measure the model, without --meta")
    return {
        "format": "plimsoll.trace.v1",
        "kind": "graph",
        "name": f"{chain.name}_ops",
        "source": {
            "model": chain.description,
            "stages": graph.names,
            "times": "none: a platform gives them by flops and bytes",
            "workspaces": "unknown, written as 0: nothing was computed",
            "buffers_changed": sorted(watch.changed),
            "buffers_left_out_bytes": sum(storage_bytes(chain.buffers()).values()),
            "flops_rule": FLOPS_RULE,
            "bytes_moved_rule": BYTES_MOVED_RULE,
        },
        "tensors": graph.tensors,
        "ops": graph.ops,
    }
