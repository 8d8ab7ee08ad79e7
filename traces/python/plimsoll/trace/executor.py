"""Runs a chain once, stage by stage or as plain training does, and tells a probe what happens.

Stage by stage, the caller holds every boundary tensor that the sequence still needs, and every gradient until the backward
that reads it is over: the executor that `saved_bytes` and the workspaces describe (traces/measured.md).
"""

import contextlib

import torch
from plimsoll.torch.borders import Entry, Exit, GradientBox
from plimsoll.torch.versions import storage_of

from .errors import UsageError, first_line
from .storages import distinct_tensors_in, map_tensors, tensors_in


class Probe:
    """Sees nothing; measurements override what they need."""

    def begin(self, phase, stage, inputs):
        pass

    def end(self, phase, stage, outputs):
        pass

    def made_gradients(self, stage, contributed):
        """The tensors of its input, by position, of which a backward made a gradient or added to one: {position: gradient}."""

    def divides(self, stage, root, entries, outgoing, first_gradient):
        """A backward is about to make the gradients of its inputs only: from `root` with `first_gradient` to `entries`, given
        `outgoing`. Whether its graph must stay until its end."""
        return False

    def passed(self, stage):
        """The forward of a plain iteration is over with this stage."""

    def reached(self, stage):
        """The backward of a plain iteration begins with this stage."""

    def released(self, stage):
        """The backward of a stage is over and what nobody needs any more is gone."""


class ReportingBox(GradientBox):
    """Tells what later stages made from what this one adds to it."""

    def __init__(self, others):
        super().__init__(others)
        self.contributed = False

    def pass_on(self, gradient):
        super().take(gradient)

    def take(self, gradient):
        self.contributed = True
        super().take(gradient)


# --- a sequence of steps ------------------------------------------------------------------------------------------------

def store_all(stages):
    """Steps are (kind, stage), kind "F" a forward that keeps nothing, "S" one that saves, "B" a backward."""
    return [("S", k) for k in range(stages)] + [("B", k) for k in reversed(range(stages))]


def checkpointed(stages, segment):
    """Chen's: the input of each segment is kept; all but the last are run again before their backward."""
    first = list(range(0, stages, segment))
    steps = [("S" if k >= first[-1] else "F", k) for k in range(stages)]
    for begin in reversed(first):
        own = range(begin, min(begin + segment, stages))
        steps += [("S", k) for k in own] if begin != first[-1] else []
        steps += [("B", k) for k in reversed(own)]
    return steps


def sequence_text(steps):
    return " ".join(f"{kind}{k}" for kind, k in steps)


class Facts:
    """What a first pass finds out of each boundary: the tensors' storages as ids, which need a gradient, and which of them
    each stage's backward reads."""

    def __init__(self, ids, needs, kept):
        self.ids, self.needs, self.kept = ids, needs, kept


class Place:
    """Stands for the tensor with this number in the form of a boundary."""

    def __init__(self, number):
        self.number = number


class Boundary:
    """x_j: its form, and its distinct tensors (None once dropped); positions below count these."""

    def __init__(self, value):
        tensors = distinct_tensors_in(value)
        number = {id(tensor): i for i, tensor in enumerate(tensors)}
        self.form = map_tensors(value, lambda tensor: Place(number[id(tensor)]))
        self.tensors = [tensor.detach() for tensor in tensors]
        self.needs = [tensor.requires_grad for tensor in tensors]

    def of(self, tensors):
        """The value with these tensors in its places."""
        return map_tensors(self.form, lambda place: tensors[place.number], lambda item: isinstance(item, Place))


class Recorded:
    """The graph of a stage that has run forward, from where its outputs' gradients come in to where its inputs' come out."""

    def __init__(self, root, roots, outgoing, incoming, passed, entries, held):
        self.root = root          # None: no output needs a gradient
        self.roots = roots        # {position of an output: its place among the root's tensors}
        self.outgoing = outgoing  # gradients of these, filled before the backward
        self.incoming = incoming  # a box for each input tensor
        self.passed = passed      # {position of an output: position of the input that it is}
        self.entries = entries    # input tensors inside the graph
        self.held = held          # addresses of gradients that the boxes must not share


class StageRun:
    """One pass over a sequence of steps. Without facts every boundary is held until the backwards beside it are over; with
    them each tensor until the last step that reads it before it is made anew."""

    def __init__(self, chain, probe, facts=None, inputs_only=False):
        self.stages, self.precision = chain.stages, chain.precision
        self.probe, self.facts, self.inputs_only = probe, facts, inputs_only
        self.last = len(self.stages) - 1
        self.token = torch.zeros(0, requires_grad=True)  # makes autograd follow the stages' inputs
        self.x = {0: Boundary(chain.input)}
        self.recorded, self.gradients = {}, {}  # gradients[j]: {position: gradient of a tensor of x_j}

    def run(self, steps):
        for number, (kind, k) in enumerate(steps):
            if kind == "B":
                self.backward(k)
            else:
                with torch.set_grad_enabled(kind == "S"):
                    self.forward(k)
            self.drop(steps[number + 1:])
            if kind == "B":
                self.probe.released(k)

    # --- forward ----------------------------------------------------------------------------------------------------------

    def forward(self, k):
        source, saves = self.x[k], torch.is_grad_enabled()
        held = set()
        boxes = [ReportingBox(held) for _ in source.tensors]
        given = [Entry.apply(self.token, box, tensor) if saves and needs else tensor
                 for tensor, box, needs in zip(source.tensors, boxes, source.needs)]
        versions = [tensor._version for tensor in source.tensors]
        self.probe.begin("forward", k, source.of(given))
        with refusals_of("forward", self.stages[k]), self.precision():
            out = self.stages[k].module(source.of(given))
        self.probe.end("forward", k, out)
        if versions != [tensor._version for tensor in source.tensors]:
            raise UsageError(begins_in_place(self.stages[k]))
        if k == self.last:
            refuse_unless_loss(out, saves)
        self.x[k + 1] = Boundary(out if k < self.last else ())
        if not saves:
            self.x[k + 1].needs = self.facts.needs[k + 1] if self.facts else [False] * len(self.x[k + 1].tensors)
            return
        outputs = distinct_tensors_in(out)
        passed = {p: i for p, tensor in enumerate(outputs) for i, one in enumerate(given) if one is tensor}
        roots = [p for p, tensor in enumerate(outputs) if p not in passed and tensor.requires_grad]
        outgoing = [None] * len(roots)
        root = out if k == self.last else Exit.apply(outgoing, len(roots), *(outputs[p] for p in roots)) if roots else None
        self.recorded[k] = Recorded(root, {p: i for i, p in enumerate(roots)}, outgoing, boxes, passed, given if self.inputs_only else None, held)

    # --- backward ---------------------------------------------------------------------------------------------------------

    def backward(self, k):
        run = self.recorded.pop(k)
        beyond = self.gradients.pop(k + 1, {})
        for p, gradient in beyond.items():
            if p in run.passed:
                run.incoming[run.passed[p]].pass_on(gradient)
            else:
                run.outgoing[run.roots[p]] = gradient
                run.held.add(storage_of(gradient).data_ptr())
        begins = run.root is not None and (k == self.last or any(g is not None for g in run.outgoing))
        self.probe.begin("backward", k, None)
        with refusals_of("backward", self.stages[k]):
            if begins and self.inputs_only:
                self.gradients_of_inputs(k, run)
            elif begins:
                torch.autograd.backward(run.root, self.first_gradient(run))
        self.probe.end("backward", k, None)
        self.probe.made_gradients(k, {p: box.gradient for p, box in enumerate(run.incoming) if box.contributed})
        self.gradients[k] = {p: box.gradient for p, box in enumerate(run.incoming) if box.gradient is not None}

    @staticmethod
    def first_gradient(run):
        """None: the loss, whose gradient is one."""
        return run.root.new_empty(0) if run.root.numel() == 0 else None

    def gradients_of_inputs(self, k, run):
        wanted = [(box, entry) for box, entry in zip(run.incoming, run.entries) if entry.requires_grad]
        if not wanted:
            return
        first, entries = self.first_gradient(run), [entry for _, entry in wanted]
        keeps_graph = self.probe.divides(k, run.root, entries, run.outgoing, first)
        found = torch.autograd.grad(run.root, entries, first, allow_unused=True, retain_graph=keeps_graph)
        for (box, _), gradient in zip(wanted, found):
            if gradient is not None:
                box.take(gradient)

    # --- what nobody needs any more -----------------------------------------------------------------------------------------

    def drop(self, coming):
        needed, made = set(), set()
        for kind, k in coming:
            needed |= self.read_by(kind, k) - made
            made |= set() if kind == "B" else self.names(k + 1) - self.names(k)
        for j, boundary in list(self.x.items()):
            names = self.names_by_position(j)
            boundary.tensors = [tensor if name in needed else None for tensor, name in zip(boundary.tensors, names)]
            if all(tensor is None for tensor in boundary.tensors) and j <= self.last:
                del self.x[j]

    def names_by_position(self, j):
        """What tells the tensors of a boundary apart: the boundary itself, or their storages where those are known."""
        return self.facts.ids[j] if self.facts else [("boundary", j)] * len(self.x[j].tensors if j in self.x else ())

    def names(self, j):
        return set(self.facts.ids[j]) if self.facts else {("boundary", j)}

    def read_by(self, kind, k):
        if kind != "B":
            return self.names(k)
        return self.facts.kept[k] if self.facts else self.names(k) | self.names(k + 1)


@contextlib.contextmanager
def refusals_of(phase, stage):
    """What the model's own code raises is the user's."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        if phase == "forward" and ("in-place" in str(error) or "inplace" in str(error)):
            raise UsageError(begins_in_place(stage)) from error
        raise UsageError(f"{phase} of stage '{stage.name}': {first_line(error)}") from error


def refuse_unless_loss(out, saves):
    if not isinstance(out, torch.Tensor) or out.numel() != 1 or (saves and not out.requires_grad):
        raise UsageError(f"the loss must be one number that some parameter's gradient flows to, found {described(out)}")


def described(value):
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor of shape {list(value.shape)}" + ("" if value.requires_grad else " that needs no gradient")


def begins_in_place(stage):
    return (f"stage '{stage.name}' overwrites its input in place, so the input cannot be a checkpoint: "
            "cut the chain elsewhere (--stages auto) or make that operation out of place")


def run_stagewise(chain, probe, inputs_only=False):
    StageRun(chain, probe, inputs_only=inputs_only).run(store_all(len(chain.stages)))


def run_sequence(chain, probe, steps, facts):
    StageRun(chain, probe, facts).run(steps)


def run_without_gradients(chain, probe):
    StageRun(chain, probe).run([("F", k) for k in range(len(chain.stages))])


def run_plain(chain, probe, at_stages=False, by_calls=False):
    """One ordinary training iteration: nothing is held, the engine frees what it can. With `by_calls` the stages run one after the other
    instead of the model's own forward, whose names may hold tensors; with `at_stages` too, and the probe is told when the backward
    reaches each: when the gradient of one of the tensors that it makes is complete."""
    probe.begin("iteration", 0, chain.input)
    loss = run_forwards_with_hooks(chain, probe) if at_stages else run_forward(chain, by_calls)
    if at_stages:
        probe.reached(len(chain.stages) - 1)
    loss.backward()
    probe.end("iteration", 0, loss)


def run_forward(chain, by_calls):
    if chain.whole is not None and not by_calls:
        with chain.precision():
            return chain.whole()
    x = chain.input
    for stage in chain.stages:
        with chain.precision():
            x = stage.module(x)
    return x


def run_forwards_with_hooks(chain, probe):
    x = chain.input
    for k, stage in enumerate(chain.stages):
        given = {id(tensor) for tensor in tensors_in(x)}
        with chain.precision():
            x = stage.module(x)
        probe.passed(k)
        for tensor in tensors_in(x) if k + 1 < len(chain.stages) else ():
            if tensor.requires_grad and id(tensor) not in given:
                tensor.register_hook(lambda _, k=k: probe.reached(k))
    return x


def clear_gradients(chain):
    for parameter in chain.parameters():
        parameter.grad = None
