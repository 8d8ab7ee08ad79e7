"""The whole step as one CUDA graph: it is issued once, and from then on replayed by one call, so that the host's part is next to nothing.

A graph runs the same kernels on the same memory each time. Inputs, targets and the scale are copied to where they were when it was recorded;
gradients are always in the same memory, which is put into `.grad`, or added to a gradient that is there. What follows from data is not in it:
numbers that the model's code reads are asked before each step, as ever, and where kernels themselves depend on data nothing can be recorded.
Random numbers go on from replay to replay by torch's default generator; a state that is put back (a forward that draws them and runs again)
cannot be recorded, and is refused.
"""

import torch

from .errors import Refused
from .values import map_leaves, tensors_in
from .versions import autocast_now

WARM_STEPS = 2  # issued as ever before one is recorded: stages are cut, kernels chosen, pinned buffers made, and stages go the short way


def refuse_without_graph(device, limit):
    if device.type != "cuda":
        raise Refused(f"cuda_graph: the model is on '{device.type}', and a CUDA graph runs on a GPU alone")
    if limit is not None:
        raise Refused("cuda_graph: a limit is looked at before each action, and in a graph there is no before; leave one of them out")


class WholeGraph:
    def __init__(self, device):
        self.stream = torch.cuda.Stream(device)
        self.key = None
        self.forget()

    def forget(self):
        """What was recorded is of another step now."""
        self.graph, self.steps = None, 0

    def refuse(self, staged, draws_again):
        for stage, draws in zip(staged.stages, draws_again):
            if draws:
                raise Refused(f"cuda_graph: stage '{stage.name}' draws random numbers and runs again, and their state cannot be put back in a graph")
            if stage.draws_on_host:
                raise Refused(f"cuda_graph: stage '{stage.name}' draws random numbers on the host, which would be the same in each step")

    def __call__(self, step, inputs, targets, scale):
        """As Step.__call__, which has looked at the inputs."""
        if any(tensor.requires_grad for tensor in tensors_in(inputs)):
            raise Refused("cuda_graph: an input asks for its gradient, and the graph has inputs of its own")
        key = autocast_now(), [(tensor.shape, tensor.dtype) for tensor in tensors_in(targets)]
        if key != self.key:
            self.forget()
            self.key = key
        if self.graph is None:
            self.steps += 1
            if self.steps <= WARM_STEPS:
                return self.on_own_stream(lambda: step.issue(inputs, targets, scale))
            self.record(step, inputs, targets, scale)
        step.ready(inputs, targets)  # refuses other shapes, and numbers for which the model would take another course
        return self.replayed(step, inputs, targets, scale)

    def on_own_stream(self, work):
        """Libraries have workspaces for each stream: those of this one are made before it is recorded."""
        current = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            made = work()
        current.wait_stream(self.stream)
        return made

    def record(self, step, inputs, targets, scale):
        own = lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
        self.inputs, self.targets = map_leaves(inputs, own), map_leaves(targets, own)
        self.scale = torch.full((), float(scale), device=step.device)
        before = [(parameter, parameter.grad) for parameter in step.parameters]
        for parameter in step.parameters:
            parameter.grad = None
        ready = step.ready(self.inputs, self.targets)  # asks for numbers, which a graph cannot
        torch.cuda.synchronize(step.device)
        step.copies.settle()
        try:
            self.graph = self.recorded(lambda: step.run(*ready, self.scale))
            self.gradients = [(parameter, parameter.grad) for parameter in step.parameters if parameter.grad is not None]
        except RuntimeError as error:
            self.forget()
            raise Refused(f"cuda_graph: this step cannot be recorded: {(str(error).splitlines() or [type(error).__name__])[0]}") from error
        finally:
            step.copies.settle()
            for parameter, gradient in before:
                parameter.grad = gradient

    def recorded(self, work):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self.loss = work()
        return graph

    def replayed(self, step, inputs, targets, scale):
        for own, given in zip(tensors_in((self.inputs, self.targets)), tensors_in((inputs, targets))):
            own.copy_(given, non_blocking=True)
        self.scale.fill_(scale)
        there = [(parameter, gradient, self.kept(parameter, gradient)) for parameter, gradient in self.gradients]
        with step.counts.of_step():
            self.graph.replay()
        for parameter, gradient, before in there:
            parameter.grad = gradient if before is None else before.add_(gradient)
        return self.loss.clone()

    @staticmethod
    def kept(parameter, gradient):
        """A gradient that is there, to which the step's is added; a copy where it is what the replay will overwrite."""
        there = parameter.grad
        return there.clone() if there is not None and there.data_ptr() == gradient.data_ptr() else there
