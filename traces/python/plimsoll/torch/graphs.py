"""Stages that save: the graph that autograd makes of each forward, and its backward.

The first time each stage goes the general way: nodes of our own (borders.py) where its inputs come in and its outputs go out, hooks on all that
is saved. That shows what is so each time, for the calls are the same: which inputs several operations read, what the backward reads, in which
layout gradients come. From then on most stages go the short way: inputs are leaves, into which autograd puts the gradient as it comes, and the
backward begins at the outputs themselves, which have let go of their memory (at roots behind them where they are views, or inputs of the stage's
operations too). The general way remains where a value's gradient is a sum over stages, or comes in another layout than the value's.
"""

import dataclasses

import torch

from . import again
from .borders import Entry, Exit, GradientBox, own_root, readers_of, without_surroundings
from .errors import Refused
from .nodes import node_of
from .plan import WrongPlan
from .saved import Interferences, SavedByStage, SavedLikeBefore
from .versions import engine_backward, storage_of, view_of


class Run:
    """The graph of a stage that has run forward, from where its outputs' gradients come in to where its inputs' come out."""

    def __init__(self, root, incoming, roots, passed, boxes, first, held, saved):
        self.root = root          # None: no output needs a gradient
        self.incoming = incoming  # gradients of the root's tensors, filled before the backward
        self.roots = roots        # {name: its place in `incoming`} of the outputs
        self.passed = passed      # {name of an output: name of the input that it is}
        self.boxes = boxes        # {name of an input: box}
        self.first = first        # {name of an input, or id of a parameter: its place in `incoming`}: of those that several operations read
        self.held = held          # addresses of gradients that the boxes must not share
        self.saved = saved
        self.is_short = False     # whether the stage may go the short way the next time, as far as its forward shows


class ShortRun:
    __slots__ = "outputs", "leaves", "saved"

    def __init__(self, outputs, leaves, saved):
        self.outputs = outputs  # [(name, tensor)] of those that need gradients
        self.leaves = leaves    # [(name, tensor)] of inputs
        self.saved = saved


class Graphs:
    """`always`: addresses of what is always there. `holds_all`: what stages save is in our hands even where autograd might hold it."""

    def __init__(self, plan, staged, always, holds_all):
        self.where, self.stages = plan.where, staged.stages
        self.interferences = Interferences(plan, holds_all)
        self.always = self.always_now = always
        needs = {value.name: value.needs_gradient for value in staged.values}
        self.needing = [[(place, name) for place, name in enumerate(stage.reads) if needs[name]] for stage in self.stages]  # by stage, of inputs
        self.users = [[] for _ in self.stages]  # by stage, of parameters that several use
        for users in users_of(staged):
            for k in users.stages:
                self.users[k].append(users)
        self.several = {}  # {stage: names of inputs and ids of parameters that several of its operations read}
        self.unseen = {}   # {stage: whether functions in it keep tensors in their ctx, bytes of numbers that no hook is shown}
        self.short = {}    # {stage: whether it goes the short way}
        self.rooted = set()  # stages whose outputs need roots of their own: letting go of the outputs would not free them, or hurt what autograd has saved
        self.ways = {}     # {number of a forward: what it is as a function of the graphs and a micro-batch}, of those on the short way
        self.empty = [{} for _ in self.stages]  # by stage, {name of what it reads or makes: a tensor like it, without memory of its own}
        readers = [name for stage in self.stages for name in stage.reads]
        given = set(staged.boundaries[0])
        self.may_be_short = [all(readers.count(name) == 1 and name not in given for _, name in self.needing[k])
                             for k in range(len(self.stages))]
        self.token = torch.zeros(0, requires_grad=True)  # makes autograd follow the stages' inputs
        self.parameters, self.device = list(staged.model.parameters()), again.device_of(staged.model)

    def begin_step(self, addresses):
        """`addresses` of what is always there in this step beside."""
        self.always_now = self.always | addresses

    def values(self, batch, stage):
        """What the stage reads."""
        there = batch.values
        return tuple([there[name] if name in there else self.missing(stage, name) for name in stage.reads])

    # --- forward ------------------------------------------------------------------------------------------------------------------

    def forward(self, batch, k, number):
        """What the stage makes is the micro-batch's, and autograd holds it no longer."""
        stage = self.stages[k]
        there = [name for name in stage.makes if name in batch.values]  # made a second time: autograd would hold its own
        is_ours = not self.interferences.are_none(number, there)
        if self.short.get(k):
            way = self.short_way(k, stage, number, is_ours)
            if self.interferences.knows(number):  # what is there is the plan's, so the same in each step
                self.ways[number] = way
            way(self, batch)
        else:
            self.the_general_way(batch, k, stage, number, self.saved_by(stage, number) if is_ours else None)

    def saved_by(self, stage, number):
        kinds, own = self.interferences.kinds.get(number), (stage.name, self.always_now, self.device)
        return SavedByStage(*own) if kinds is None else SavedLikeBefore(*own, kinds)

    def short_way(self, k, stage, number, is_ours):
        """The forward as a function of the graphs and a micro-batch, with all that is the same in each step at hand. `is_ours`: whether what is saved is in our
        hands."""
        reads = [(name, (place, name) in self.needing[k]) for place, name in enumerate(stage.reads)]
        makes, is_last, has_root, empty = stage.makes, stage.is_last, k in self.rooted, self.empty[k]
        goes = set(stage.reads) if is_ours else self.interferences.between[number]  # what the plan may drop before the backward

        def forward(graphs, batch):
            there, given, leaves, outputs, saved = batch.values, [], [], [], None
            for name, needs in reads:
                tensor = there[name] if name in there else graphs.missing(stage, name)
                if needs:
                    tensor = tensor.detach().requires_grad_()
                    leaves.append((name, tensor))
                given.append(tensor)
            if is_ours:
                saved = graphs.saved_by(stage, number)
                made = graphs.made(batch, k, stage, number, saved, given)
            else:
                made = stage(given, batch.targets)
            if is_last:
                batch.take(stage, made)
            for name, tensor in zip(makes, made):
                if not is_last and name not in there:  # what a repeated forward makes beside may still be there
                    there[name] = tensor.detach()
                if tensor.requires_grad:
                    outputs.append((name, own_root(tensor) if has_root else tensor))
            if not is_last:
                for name, tensor in outputs:
                    tensor.data = empty[name] if name in empty else graphs.without_memory(k, name, tensor)
            if goes:
                for name, tensor in leaves:
                    if name in goes:  # of one that stays autograd may have saved the leaf itself
                        tensor.data = empty[name] if name in empty else graphs.without_memory(k, name, tensor)
            batch.runs[k] = ShortRun(outputs, leaves, saved)
        return forward

    def missing(self, stage, name):
        raise WrongPlan(f"{self.where}: stage '{stage.name}' reads '{name}', which is not there")

    def the_general_way(self, batch, k, stage, number, saved):
        held, boxes, given = set(), {}, list(self.values(batch, stage))
        for place, name in self.needing[k]:
            boxes[name] = GradientBox(held, given[place])
            given[place] = Entry.apply(self.token, boxes[name], given[place])
        versions = [tensor._version for tensor in given]
        made = self.made(batch, k, stage, number, saved, given)
        if versions != [tensor._version for tensor in given]:
            raise Refused(f"stage '{stage.name}' overwrites its input in place, so that it cannot run again")
        passed = {name: of for name, tensor in zip(stage.makes, made) for of, one in zip(stage.reads, given) if one is tensor}
        needing = {name: tensor for name, tensor in zip(stage.makes, made) if name not in passed and tensor.requires_grad}
        entries = {name: tensor for name, tensor in zip(stage.reads, given) if name in boxes}
        run = batch.runs[k] = self.run_of(k, stage, needing, entries, passed, boxes, held, saved)
        run.is_short = self.may_be_short[k] and not passed and not set(run.first).intersection(parameters_of(self.users[k]))
        if not stage.is_last and saved is not None and any(tensor._is_view() or id(tensor) in saved.originals for tensor in needing.values()):
            self.rooted.add(k)
        batch.take(stage, made)

    def made(self, batch, k, stage, number, saved, given):
        if saved is None:
            return stage(given, batch.targets)
        with saved.hooks():
            made = stage(tuple(given), batch.targets)
        self.hold_unseen(k, saved, made)
        named = {storage_of(tensor).data_ptr(): name for name, tensor in zip(stage.makes, made) if not stage.is_last}
        named |= {storage_of(tensor).data_ptr(): name for name, tensor in zip(stage.reads, given)}
        saved.refer_to(named, batch.values)
        self.interferences.has_seen(number, saved)
        return made

    def without_memory(self, k, name, tensor):
        """One of its dtype and shape, on the memory of a parameter."""
        of = next(p for p in self.parameters if p.device == tensor.device and storage_of(p).nbytes() >= tensor.element_size())
        self.empty[k][name] = view_of(storage_of(of), (tensor.dtype, tuple(tensor.shape), (0,) * tensor.dim(), 0, tensor.device))
        return self.empty[k][name]

    def hold_unseen(self, k, saved, made):
        """What hooks are not shown; from the second step on only where there is such."""
        keeps, saved.numbers = self.unseen.get(k, (True, 0))
        keeps = keeps and saved.take_from_functions(made)
        if k not in self.unseen:
            saved.numbers = saved.bytes_of_numbers(made)
        self.unseen[k] = keeps, saved.numbers

    def run_of(self, k, stage, needing, entries, passed, boxes, held, saved):
        incoming = []
        if not needing:
            return Run(None, incoming, {}, passed, boxes, {}, held, saved)
        if k not in self.several:
            self.several[k] = self.read_by_several(k, needing, entries)
        parameters = parameters_of(self.users[k])
        first = {of: entries[of] if of in entries else parameters[of] for of in self.several[k]}
        if stage.is_last and not first:
            return Run(next(iter(needing.values())), incoming, {}, passed, boxes, {}, held, saved)
        incoming += [None] * (len(needing) + len(first))
        root = Exit.apply(incoming, len(needing), *needing.values(), *first.values())
        return Run(root, incoming, {name: i for i, name in enumerate(needing)}, passed, boxes,
                   {of: i for i, of in enumerate(first, len(needing))}, held, saved)

    def read_by_several(self, k, needing, entries):
        """Names of inputs, and ids of parameters that other stages use as well, which several operations of the stage read."""
        nodes = {name: tensor.grad_fn for name, tensor in entries.items()}
        nodes |= {id(users.parameter): node_of(users.parameter) for users in self.users[k]}
        probe = Exit.apply([], 0, *needing.values())
        counts = readers_of(probe.grad_fn, nodes.values())
        return [of for of, node in nodes.items() if counts[node] > 1]

    # --- backward -----------------------------------------------------------------------------------------------------------------

    def backward(self, batch, k, seed):
        """`seed`: function of the loss, its gradient."""
        stage, run = self.stages[k], batch.runs.pop(k, None)
        if run is None:
            raise WrongPlan(f"{self.where}: stage '{stage.name}': its backward reads what it saves, which is not there")
        backward = self.short_backward if type(run) is ShortRun else self.general_backward
        backward(batch, k, stage, run, seed)

    def short_backward(self, batch, k, stage, run, seed):
        roots, gradients, there = (), (), batch.gradients
        for name, tensor in run.outputs:
            gradient = seed(batch.loss) if stage.is_last else there.pop(name, None)
            if gradient is not None:
                roots, gradients = (*roots, tensor), (*gradients, gradient)
        gradient = None  # held by nobody but autograd
        if not roots:
            return
        if run.saved is not None:
            run.saved.give_to_functions()
        is_summed = self.users[k]
        if is_summed:
            self.before_sums(batch, k)
        run_backward(roots, gradients)
        for name, leaf in run.leaves:
            gradient = leaf.grad
            if gradient is not None:
                there[name], leaf.grad = without_surroundings(gradient), None
        if is_summed:
            self.after_sums(batch, k)

    def general_backward(self, batch, k, stage, run, seed):
        is_begun, later = stage.is_last and run.root is not None, {}
        for name in stage.makes:
            gradient = batch.gradients.pop(name, None)
            if gradient is not None and name in run.passed:
                later.setdefault(run.passed[name], []).append(gradient)
            elif gradient is not None and name in run.roots:
                run.incoming[run.roots[name]] = gradient
                run.held.add(storage_of(gradient).data_ptr())
                is_begun = True
        for name in run.boxes:
            if name in batch.gradients:
                later.setdefault(name, []).append(batch.gradients.pop(name))
        gradient = None  # held by nobody but those who need it
        while later:
            name, gradients = later.popitem()
            self.hand_in(run, name, gradients, is_begun)
        if is_begun:
            self.before_sums(batch, k, run)
            self.run_from_root(stage, run, seed(batch.loss) if stage.is_last else None)
        for name, box in run.boxes.items():
            if box.gradient is not None:
                batch.gradients[name] = box.gradient
        self.after_sums(batch, k)
        if is_begun and k not in self.short:
            self.short[k] = run.is_short and all(box.is_of_own_layout for box in run.boxes.values())

    @staticmethod
    def run_from_root(stage, run, first):
        """`first`: of the last stage, the gradient of the loss."""
        if run.incoming:
            if stage.is_last:
                run.incoming[run.roots[stage.makes[0]]] = first
            first = run.root.new_empty(0)
        if run.saved is not None:
            run.saved.give_to_functions()
        run_backward((run.root,), (first,))

    @staticmethod
    def hand_in(run, name, gradients, is_begun):
        """What later stages have made of an input's gradient."""
        box = run.boxes[name]
        while gradients:
            box.take(gradients.pop())
        if is_begun and name in run.first:
            run.incoming[run.first[name]], box.gradient = box.gradient, None

    def before_sums(self, batch, k, run=None):
        """Of parameters that several stages use: plain training sums what a micro-batch contributes before it adds that to `.grad`, one
        contribution after the other."""
        for users in self.users[k]:
            of, parameter = id(users.parameter), users.parameter
            if parameter.grad is None:
                continue
            if k == users.stages[-1]:
                batch.aside[of], parameter.grad = parameter.grad, None
            elif run is not None and of in run.first:
                run.incoming[run.first[of]], parameter.grad = parameter.grad, None

    def after_sums(self, batch, k):
        for users in self.users[k]:
            if k != users.stages[0] or id(users.parameter) not in batch.aside:
                continue
            before, parameter = batch.aside.pop(id(users.parameter)), users.parameter
            parameter.grad = before if parameter.grad is None else before.add_(parameter.grad)


def run_backward(roots, gradients):
    try:
        engine_backward(roots, gradients)
    except RuntimeError as error:
        what, _, rest = str(error).partition(": ")
        if what != Refused.__name__:  # raised in a hook, of which autograd keeps the text alone
            raise
        raise Refused(rest.splitlines()[0]) from error


@dataclasses.dataclass
class Users:
    """A parameter that several stages use."""

    parameter: torch.nn.Parameter
    stages: list  # ascending


def parameters_of(users):
    """{id: parameter}"""
    return {id(of.parameter): of.parameter for of in users}


def users_of(staged):
    found = {}
    for k, stage in enumerate(staged.stages):
        for parameter in stage.parameters():
            if parameter.requires_grad:
                found.setdefault(id(parameter), Users(parameter, [])).stages.append(k)
    return [users for users in found.values() if len(users.stages) > 1]
