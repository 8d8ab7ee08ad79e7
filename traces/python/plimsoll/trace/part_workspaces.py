"""What the two parts of a split backward need beside what they read and make.

The input's part runs once, with its graph kept, as whoever runs the weights' part later must do. Of the weights' part each node
that makes a gradient of weights is run alone: autograd is asked for the gradients behind this node only, and what it makes on the
way there is there before the node's first operation.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .executor import Probe
from .storages import storage_bytes
from .weight_part import Nodes


class PartWorkspacesProbe(Probe):
    """Of a pass that computes the gradients of inputs only. `input_peaks[stage]` has the bytes above the start at the fullest moment
    of the input's part. `weights[stage]` has the workspaces of the weights' part, with new gradients and with existing ones; it is
    None where several operations share a parameter, so that they cannot run one after the other."""

    def __init__(self, counter):
        self.counter = counter
        self.input_peaks, self.weights = {}, {}
        self.nodes = None

    def divides(self, stage, root, entries, outgoing, first_gradient):
        self.nodes = Nodes(root.grad_fn, [entry.grad_fn for entry in entries])
        self.run_behind = lambda parameters: torch.autograd.backward(root, first_gradient, retain_graph=True, inputs=parameters)
        self.kept, self.order = [], []  # the gradients that arrive at nodes that make those of weights, and these nodes
        self.hooks = [node.register_hook(lambda _, arrived, node=node: self.keep(node, arrived))
                      for node in self.nodes.making_weights()]
        self.counter.reset_peak()
        self.start = self.counter.live()
        return True

    def keep(self, node, arrived):
        self.kept.extend(arrived)
        self.order.append(node)

    def end(self, phase, stage, outputs):
        if phase != "backward" or self.nodes is None:
            return
        self.input_peaks[stage] = self.counter.peak() - self.start
        for hook in self.hooks:
            hook.remove()
        self.weights[stage] = self.of_weights()
        self.nodes = self.run_behind = self.kept = self.order = None

    def of_weights(self):
        behind = {node: self.nodes.parameters_behind(node) for node in self.order}
        parameters = [parameter for of_node in behind.values() for parameter in of_node]
        if len({id(parameter) for parameter in parameters}) < len(parameters):
            return None
        for parameter in parameters:
            parameter.grad = None
        first = self.fullest(behind)
        made = sum(storage_bytes([parameter.grad for parameter in parameters]).values())
        again = self.fullest(behind)
        for parameter in parameters:
            parameter.grad = None
        return first - made, again

    def fullest(self, behind):
        """Bytes above the start of the weights' part, nodes one after the other."""
        start, most = self.counter.live(), 0
        for node, parameters in behind.items():
            before = self.counter.live() - start
            most = max(most, before + self.peak_of(node, parameters))
        return most

    def peak_of(self, node, parameters):
        """Bytes at the fullest moment from the node's first operation to the end, above what is there before."""
        with PeakFromNode(self.counter) as peak:
            hooks = [one.register_hook(lambda *_, one=one: peak.ended(one, node)) for one in self.nodes.all()]
            self.run_behind(parameters)
            for hook in hooks:
                hook.remove()
        return self.counter.peak() - peak.start


class PeakFromNode(TorchDispatchMode):
    """Resets the counter's peak at the first operation after each node, up to the one that is asked about: when a node has ended,
    what it has read is still there."""

    def __init__(self, counter):
        super().__init__()
        self.counter, self.waits, self.reached = counter, True, False
        self.start = counter.live()
        counter.reset_peak()

    def ended(self, one, wanted):
        self.reached = self.reached or one is wanted
        self.waits = not self.reached

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.waits:
            self.waits = False
            self.start = self.counter.live()
            self.counter.reset_peak()
        return func(*args, **(kwargs or {}))
