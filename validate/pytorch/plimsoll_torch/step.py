"""One training step by a plan: forwards, backwards, copies and drops in the plan's order, gradients in `.grad` as after loss.backward()."""

import contextlib
import dataclasses

import torch

from . import again
from .borders import Entry, Exit, GradientBox, readers_of
from .device import OnHost, copies_for
from .errors import Refused
from .plan import LimitExceeded, WrongPlan, read_plan
from .recorder import constants_in, named_inputs
from .refusals import refuse_other_model, refuse_what_cannot_run
from .report import Counts, report_of
from .saved import HeldByAutograd, Interferences, SavedByStage
from .sizes import bytes_of
from .stages import InARow, named_arguments, split
from .values import map_leaves, tensors_in
from .versions import geometry, storage_of, view_of


def apply(model, plan, loss=None, limit=None):
    """As several.apply, which people call, by one plan."""
    whole = model if isinstance(model, torch.nn.Module) else InARow(model)
    plan = read_plan(plan)
    refuse_what_cannot_run(whole)
    refuse_other_model(whole, plan)
    limit = bytes_of(limit) if limit is not None else None
    for number, action in enumerate(plan.actions):
        if limit is not None and action.peak_bytes > limit:
            raise LimitExceeded(f"{plan.name_of(number)} needs {action.peak_bytes} B by the plan, above the limit of {limit} B")
    return Step(whole, plan, loss, limit)


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


class MicroBatch:
    """What is alive of one micro-batch."""

    def __init__(self, values, targets):
        self.values, self.targets = values, targets  # {name: tensor}
        self.gradients = {}  # {name: gradient}
        self.runs = {}       # {stage: Run}
        self.aside = {}      # {id of a parameter: its gradient from before}
        self.on_host = {}    # {value of the plan: OnHost}
        self.lying = {}      # {value of the plan: [(name, geometry)]} of what has been dropped and is on the host
        self.loss = None


class Step:
    def __init__(self, model, plan, loss, limit):
        self.model, self.plan, self.loss, self.limit = model, plan, loss, limit
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.staged = None  # from the first step on, which has inputs; made anew where the model's Python code would take another course
        self.copies = copies_for(self.device, plan)
        self.counts = Counts(self.device)
        self.random = again.RandomStates(self.device)
        self.token = torch.zeros(0, requires_grad=True)  # makes autograd follow the stages' inputs
        self.watch = None   # told (number, action) before each action and once (None, None) at the end, by whoever measures
        self.batches = ()
        self.several = {}   # {stage: names of inputs and ids of parameters that several of its operations read}
        self.unseen = {}    # {stage: whether functions in it keep tensors in their ctx, bytes of numbers that no hook is shown}
        self.interferences = Interferences(plan)

    # --- one step -----------------------------------------------------------------------------------------------------------------

    def __call__(self, inputs, targets=None, scale=1.0):
        """The loss (the mean over micro-batches), a tensor without a graph. With several micro-batches `inputs` and `targets` are cut along
        their first dimension. `scale`: gradients are those of (loss * scale), as a GradScaler asks."""
        batches = micro_batches(self.model, inputs, targets, self.plan)
        if self.staged is None or not self.staged.is_course_of(batches[0][0]):
            self.prepare(*batches[0])
            again.forget_casts()
        given = [self.staged.values_of(of) for of, _ in batches]  # refuses other shapes, and what the model's code would take another course for
        without = [p for p in self.model.parameters() if p.grad is None]
        try:
            with torch.enable_grad(), self.counts.of_step():
                losses = self.plainly(batches, given, scale) if self.plan.in_one_call else self.by_actions(batches, given, scale)
        except BaseException:
            self.copies.finish()
            for parameter in without:
                parameter.grad = None
            raise
        finally:
            self.random.clear()
            self.batches = ()
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def report(self):
        """Promised and actual time and peak of the last steps, and what to do where they part; to be printed (report.py)."""
        return report_of(self.plan, self.counts)

    def prepare(self, inputs, targets):
        staged = split(self.model, inputs, how=self.plan.how, loss=self.loss, targets=targets, hooks_are_own=True)
        shapes = self.plan.model.get("input_shapes", {})
        for name, found in staged.input_shapes().items():
            if name in shapes and shapes[name] != found:
                raise WrongPlan(f"input '{name}': the plan is for {shapes[name]['dtype']} {shapes[name]['shape']}, found {found['dtype']} {found['shape']}")
        staged.questions.refuse_other(self.plan.model.get("answers", []))
        if [stage.name for stage in staged.stages] != self.plan.stages:
            raise WrongPlan(f"{self.plan.where}: its stages are {self.plan.stages}, of this model come {[stage.name for stage in staged.stages]}")
        for j, (found, expected) in enumerate(zip(staged.boundaries[:-1], self.plan.model["boundaries"])):
            if found != expected:
                raise WrongPlan(f"{self.plan.where}: before stage '{self.plan.stages[j]}' there are "
                                f"{expected} by the plan, and {found} in this model")
        for k in sorted(self.plan.run_again):
            for changed in (name for operation in staged.stages[k].operations for name in operation.changes):
                raise Refused(f"stage '{self.plan.stages[k]}': its forward changes the buffer '{changed}', so it cannot be run again as the plan "
                              "asks")
        self.staged, self.several, self.unseen = staged, {}, {}
        self.interferences.forget()
        self.needs = {value.name: value.needs_gradient for value in staged.values}
        self.users = users_of(staged)
        self.norms = [again.batch_norms(one for operation in stage.operations if isinstance(operation.function, torch.nn.Module)
                                        for one in operation.function.modules()) for stage in staged.stages]
        kept = [*self.model.parameters(), *self.model.buffers()]
        kept += [tensor for stage in staged.stages for operation in stage.operations for tensor in constants_in(operation.arguments)]
        self.always = {storage_of(tensor).data_ptr() for tensor in kept}

    def plainly(self, batches, given, scale):
        """One graph of all stages. The calls that were recorded, and not the model's forward, whose local names may hold tensors to its end."""
        losses = []
        for values, (_, targets) in zip(given, batches):
            loss = self.staged.run(values, targets)
            loss = loss / len(batches) if len(batches) > 1 else loss
            with again.without_autocast():
                (loss * scale if scale != 1.0 else loss).backward()
            losses.append(loss.detach())
        return losses

    def by_actions(self, batches, given, scale):
        self.scale = scale
        batches = [MicroBatch(dict(zip(self.staged.boundaries[0], map(torch.Tensor.detach, values))), targets)
                   for values, (_, targets) in zip(given, batches)]
        self.always_now = self.always | {storage_of(tensor).data_ptr() for batch in batches for tensor in tensors_in(batch.targets)}
        self.batches = batches
        do = {"forward": self.forward, "backward": self.backward, "copy": self.copy, "wait": lambda *_: None}
        for number, action in enumerate(self.plan.actions):
            if self.watch is not None:
                self.watch(number, action)
            if self.limit is not None and (action.do != "copy" or action.to_host):
                self.refuse_above_limit(number)
            batch = batches[action.micro_batch]
            self.copies.begin(number)
            for copy in self.copies.before.get(number, ()):
                self.fetch(copy)
            do[action.do](batch, action, number)
            if action.do != "copy" or action.to_host:
                self.copies.end(number)
            for name in action.drops:
                self.drop(batch, name)
            for name in action.drops_on_host:
                batch.on_host.pop(name).release()
        self.copies.finish()
        if self.watch is not None:
            self.watch(None, None)
        self.to_inputs(batches, given)
        return [batch.loss for batch in batches]

    def to_inputs(self, batches, given):
        """Gradients of inputs that ask for one."""
        for batch, tensors in zip(batches, given):
            for name, tensor in zip(self.staged.boundaries[0], tensors):
                gradient = batch.gradients.pop(name, None)
                if gradient is not None and tensor.requires_grad and tensor.is_leaf:
                    tensor.grad = gradient if tensor.grad is None else tensor.grad.add_(gradient)

    def value(self, batch, name, stage):
        if name not in batch.values:
            raise WrongPlan(f"{self.plan.where}: stage '{stage.name}' reads '{name}', which is not there")
        return batch.values[name]

    # --- forward ------------------------------------------------------------------------------------------------------------------

    def forward(self, batch, action, number):
        k, key = action.stage, (action.micro_batch, action.stage)
        stage = self.staged.stages[k]
        with contextlib.ExitStack() as stack:
            if action.again:
                stack.enter_context(self.random.restored(key))
                stack.enter_context(again.statistics_stay(self.norms[k]))
            elif k in self.plan.run_again:
                self.random.note(key)
            if action.saves:
                batch.runs[k], made = self.saving(batch, k, stage, number)
            else:
                with torch.no_grad():
                    made = stage(tuple(self.value(batch, name, stage) for name in stage.reads), batch.targets)
        again.forget_casts()
        if stage.is_last:
            batch.loss = made[0].detach() if len(self.batches) == 1 else made[0].detach() / len(self.batches)
            return
        for name, tensor in zip(stage.makes, made):
            if name not in batch.values:  # what a repeated forward makes beside may still be there
                batch.values[name] = tensor.detach()

    def saving(self, batch, k, stage, number):
        there = [name for name in stage.makes if name in batch.values]  # made a second time: autograd would hold its own
        by_autograd = self.limit is None and self.interferences.are_none(number, there)  # a limit counts what is held
        saved, held, boxes, given = (HeldByAutograd if by_autograd else SavedByStage)(stage.name, self.always_now), set(), {}, []
        for name in stage.reads:
            tensor = self.value(batch, name, stage)
            if self.needs[name]:
                boxes[name] = GradientBox(held)
                tensor = Entry.apply(self.token, boxes[name], tensor)
            given.append(tensor)
        versions = [tensor._version for tensor in given]
        with saved.hooks():
            made = stage(tuple(given), batch.targets)
        if versions != [tensor._version for tensor in given]:
            raise Refused(f"stage '{stage.name}' overwrites its input in place, so that it cannot run again")
        passed = {name: of for name, tensor in zip(stage.makes, made) for of, one in zip(stage.reads, given) if one is tensor}
        if not by_autograd:
            self.hold_unseen(k, saved, made)
            named = {storage_of(tensor).data_ptr(): name for name, tensor in zip(stage.makes, made) if not stage.is_last}
            named |= {storage_of(tensor).data_ptr(): name for name, tensor in zip(stage.reads, given)}
            saved.refer_to(named, batch.values)
            self.interferences.reads[number] = saved.reads
        needing = {name: tensor for name, tensor in zip(stage.makes, made) if name not in passed and tensor.requires_grad}
        entries = {name: tensor for name, tensor in zip(stage.reads, given) if name in boxes}
        return self.run_of(k, stage, needing, entries, passed, boxes, held, saved), made

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
        first = {of: entries[of] if of in entries else self.users[of].parameter for of in self.several[k]}
        if stage.is_last and not first:
            return Run(next(iter(needing.values())), incoming, {}, passed, boxes, {}, held, saved)
        incoming += [None] * (len(needing) + len(first))
        root = Exit.apply(incoming, len(needing), *needing.values(), *first.values())
        return Run(root, incoming, {name: i for i, name in enumerate(needing)}, passed, boxes,
                   {of: i for i, of in enumerate(first, len(needing))}, held, saved)

    def read_by_several(self, k, needing, entries):
        """Names of inputs, and ids of parameters that other stages use as well, which several operations of the stage read."""
        nodes = {name: tensor.grad_fn for name, tensor in entries.items()}
        nodes |= {of: node_of(users.parameter) for of, users in self.users.items() if k in users.stages}
        probe = Exit.apply([], 0, *needing.values())
        counts = readers_of(probe.grad_fn, nodes.values())
        return [of for of, node in nodes.items() if counts[node] > 1]

    # --- backward -----------------------------------------------------------------------------------------------------------------

    def backward(self, batch, action, _):
        stage = self.staged.stages[action.stage]
        if action.stage not in batch.runs:
            raise WrongPlan(f"{self.plan.where}: stage '{stage.name}': its backward reads what it saves, which is not there")
        run = batch.runs.pop(action.stage)
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
            self.before_sums(batch, action.stage, run)
            with again.without_autocast():
                self.run_backward(batch, stage, run)
        for name, box in run.boxes.items():
            if box.gradient is not None:
                batch.gradients[name] = box.gradient
        self.after_sums(batch, action.stage)

    def before_sums(self, batch, k, run):
        """Of parameters that several stages use: plain training sums what a micro-batch contributes before it adds that to `.grad`, one
        contribution after the other."""
        for of, users in self.users.items():
            parameter = users.parameter
            if parameter.grad is None or k not in users.stages:
                continue
            if k == users.stages[-1]:
                batch.aside[of], parameter.grad = parameter.grad, None
            elif of in run.first:
                run.incoming[run.first[of]], parameter.grad = parameter.grad, None

    def after_sums(self, batch, k):
        for of, users in self.users.items():
            if k != users.stages[0] or of not in batch.aside:
                continue
            before, parameter = batch.aside.pop(of), users.parameter
            parameter.grad = before if parameter.grad is None else before.add_(parameter.grad)

    def run_backward(self, batch, stage, run):
        first = self.seed(batch.loss) if stage.is_last else None
        if run.incoming:
            if stage.is_last:
                run.incoming[run.roots[stage.makes[0]]] = first
            first = run.root.new_empty(0)
        run.saved.give_to_functions()
        try:
            torch.autograd.backward(run.root, first)
        except RuntimeError as error:
            what, _, rest = str(error).partition(": ")
            if what != Refused.__name__:  # raised in a hook, of which autograd keeps the text alone
                raise
            raise Refused(rest.splitlines()[0]) from error

    def seed(self, loss):
        """The gradient of the loss: one, times the scale, shared among micro-batches."""
        one = torch.ones_like(loss)
        if self.scale != 1.0:
            one = one * self.scale
        return one / len(self.batches) if len(self.batches) > 1 else one

    @staticmethod
    def hand_in(run, name, gradients, is_begun):
        """What later stages have made of an input's gradient."""
        box = run.boxes[name]
        while gradients:
            box.take(gradients.pop())
        if is_begun and name in run.first:
            run.incoming[run.first[name]], box.gradient = box.gradient, None

    # --- drops and copies ---------------------------------------------------------------------------------------------------------

    def drop(self, batch, name):
        value = self.plan.values[name]
        if name in batch.on_host:
            batch.on_host[name].returned = None
        if value.kind == "saved":
            if name not in batch.on_host:
                batch.runs.pop(value.stage, None)
            elif value.stage in batch.runs:
                batch.runs[value.stage].saved.away()
            return
        where = batch.values if value.kind == "boundary" else batch.gradients
        tensors = [(one, where.pop(one)) for one in value.names if one in where]
        if name in batch.on_host:
            batch.lying[name] = [(one, geometry(tensor)) for one, tensor in tensors]

    def copy(self, batch, action, number):
        if action.to_host:
            self.to_host(batch, action)
        elif number not in self.plan.stays:
            self.from_host(batch, action)

    def storages(self, batch, name):
        """Where a value lies on the device."""
        value = self.plan.values[name]
        if value.kind == "saved":
            return batch.runs[value.stage].saved.places()
        where = batch.values if value.kind == "boundary" else batch.gradients
        return [storage_of(next(where[one] for one in value.names if one in where))]

    def to_host(self, batch, action):
        name = action.value
        storages = self.storages(batch, name)
        if name not in batch.on_host:
            found = sum(storage.nbytes() for storage in storages)
            if self.plan.values[name].kind == "saved":
                found += batch.runs[self.plan.values[name].stage].saved.numbers
            if self.plan.values[name].stage == len(self.staged.stages) - 1:
                found += storage_of(batch.loss).nbytes()  # which a plan counts here, and which stays
            if found != self.plan.values[name].bytes:
                raise Refused(f"'{name}' has {found} B, by the plan {self.plan.values[name].bytes} B: the model is another now than when it was "
                              "measured")
            batch.on_host[name] = OnHost(storages, self.device, self.copies)
        batch.on_host[name].fill(storages, action.range)

    def fetch(self, number):
        """Issues a copy to the device, where its action stands or before."""
        action = self.plan.actions[number]
        if self.limit is not None:
            self.refuse_above_limit(number)
        self.copies.begin_inward(number)
        if number not in self.plan.stays:
            self.batches[action.micro_batch].on_host[action.value].read(action.range)
        self.copies.end(number)

    def from_host(self, batch, action):
        """What it has fetched is there."""
        name = action.value
        host, value = batch.on_host[name], self.plan.values[name]
        storages = host.returned
        if value.kind == "saved":
            batch.runs[value.stage].saved.back(storages)
            host.returned = None if action.range is None else host.returned
            return
        where = batch.values if value.kind == "boundary" else batch.gradients
        for one, like in batch.lying[name]:
            where[one] = view_of(storages[0], like)
        host.returned = None if action.range is None else host.returned

    # --- the limit ----------------------------------------------------------------------------------------------------------------

    def refuse_above_limit(self, number):
        action = self.plan.actions[number]
        before = self.plan.actions[number - 1].after_bytes if number else self.plan.predicted["resident_bytes"]
        live = self.live_bytes()
        if live + max(0, action.peak_bytes - before) > self.limit:
            raise LimitExceeded(f"{self.plan.name_of(number)} needs {action.peak_bytes - before} B beside the {live} B that are there, above "
                                f"the limit of {self.limit} B")

    def live_bytes(self):
        """On CUDA what its allocator has given out; on a CPU the storages of parameters, gradients, and of what the step holds."""
        if self.device.type == "cuda":
            return torch.cuda.memory_allocated(self.device)
        held = [*self.model.parameters(), *(p.grad for p in self.model.parameters() if p.grad is not None)]
        sizes = {}
        for batch in self.batches:
            held += [*batch.values.values(), *batch.gradients.values()]
            for run in batch.runs.values():
                for holds in run.saved.storages():
                    held.append(holds[0].tensor)
        for tensor in held:
            sizes[storage_of(tensor).data_ptr()] = storage_of(tensor).nbytes()
        return sum(sizes.values())


@dataclasses.dataclass
class Users:
    """A parameter that several stages use."""

    parameter: torch.nn.Parameter
    stages: list  # ascending


def users_of(staged):
    """{id: Users}"""
    found = {}
    for k, stage in enumerate(staged.stages):
        for parameter in stage.parameters():
            if parameter.requires_grad:
                found.setdefault(id(parameter), Users(parameter, [])).stages.append(k)
    return {of: users for of, users in found.items() if len(users.stages) > 1}


def node_of(parameter):
    """Where autograd adds to the parameter's gradient."""
    with torch.enable_grad():
        return parameter.view_as(parameter).grad_fn.next_functions[0][0]


def micro_batches(model, inputs, targets, plan):
    """[(inputs, targets)] of each, cut along the first dimension."""
    if plan.micro_batches == 1:
        return [(inputs, targets)]
    cut = [part(inputs, plan.micro_batches, of_every(named_inputs(*named_arguments(model, inputs)), plan)), part(targets, plan.micro_batches)]
    return list(zip(*cut))


def of_every(named, plan):
    """Ids of the inputs that go to every micro-batch as they are: of one row, as when the model was measured, beside others of more (positions
    of shape [1, T]). One number for the whole batch would count once for each micro-batch."""
    shapes = plan.model.get("input_shapes", {})
    for name, tensor in named:
        if tensor.dim() == 0:
            raise Refused(f"input '{name}' is one number for the whole batch, and the plan has {plan.micro_batches} micro-batches, whose losses are "
                          "averaged: leave it out, or plan with one micro-batch")
    rows = {id(tensor) for name, tensor in named if tensor.shape[0] == 1 and list(tensor.shape) == shapes.get(name, {}).get("shape")}
    return rows if any(tensor.shape[0] > 1 for _, tensor in named) else set()


def part(value, count, whole=()):
    pieces = {}

    def cut(leaf):
        if isinstance(leaf, torch.Tensor) and id(leaf) in whole:
            pieces[id(leaf)] = [leaf] * count
        elif isinstance(leaf, torch.Tensor):
            if leaf.dim() == 0 or leaf.shape[0] % count:
                raise Refused(f"the plan has {count} micro-batches, into which a tensor of shape {list(leaf.shape)} cannot be cut")
            pieces.setdefault(id(leaf), leaf.chunk(count))
        return leaf

    map_leaves(value, cut)
    return [map_leaves(value, lambda leaf, k=k: pieces[id(leaf)][k] if isinstance(leaf, torch.Tensor) else leaf) for k in range(count)]
