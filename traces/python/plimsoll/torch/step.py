"""One training step by a plan: forwards, backwards, copies and drops in the plan's order, gradients in `.grad` as after loss.backward()."""

import contextlib

import torch

from . import again
from .device import OnHost, copies_for
from .errors import Refused
from .graphs import Graphs
from .plan import LimitExceeded, WrongPlan, read_plan
from .recorder import constants_in, named_inputs
from .refusals import refuse_compiled_otherwise, refuse_other_model, refuse_thawed, refuse_what_cannot_run
from .report import Counts, report_of
from .sizes import bytes_of
from .stages import ANOTHER_SHAPE, InARow, named_arguments, split
from .values import map_leaves, tensors_in
from .versions import geometry, storage_of, view_of
from .whole_graph import WholeGraph, refuse_without_graph


def apply(model, plan, loss=None, limit=None, cuda_graph=False, compile=False, ranks=None):
    """As several.apply, which people call, by one plan."""
    whole = model if isinstance(model, torch.nn.Module) else InARow(model)
    plan = read_plan(plan)
    refuse_what_cannot_run(whole)
    refuse_other_model(whole, plan)
    refuse_compiled_otherwise(plan, compile)
    limit = bytes_of(limit) if limit is not None else None
    for number, action in enumerate(plan.actions):
        if limit is not None and action.peak_bytes > limit:
            raise LimitExceeded(f"{plan.name_of(number)} needs {action.peak_bytes} B by the plan, above the limit of {limit} B")
    if cuda_graph:
        refuse_without_graph(again.device_of(whole), limit)
    if ranks is not None and ranks.what == "sharded":
        for given, what in ((limit is not None, "limit"), (compile, "compile")):
            if given:
                raise Refused(f"{what}: counts on parameters that are always there; with sharded ones leave it out")
    if cuda_graph and ranks is not None:
        raise Refused(f"cuda_graph: with {ranks.what} ranks exchange while the step is issued; leave one of them out")
    return Step(whole, plan, loss, limit, cuda_graph, ranks)


class MicroBatch:
    """What is alive of one micro-batch."""

    def __init__(self, values, targets, count):
        self.values, self.targets = values, targets  # {name: tensor}
        self.count = count   # of micro-batches in the step
        self.gradients = {}  # {name: gradient}
        self.runs = {}       # {stage: Run}
        self.of_kind = {"boundary": self.values, "gradient": self.gradients, "saved": self.runs}
        self.aside = {}      # {id of a parameter: its gradient from before}
        self.on_host = {}    # {value of the plan: OnHost}
        self.lying = {}      # {value of the plan: [(name, geometry)]} of what has been dropped and is on the host
        self.loss = None

    def take(self, stage, made):
        """What a stage makes, without its graph."""
        if stage.is_last:
            loss, = made
            self.loss = loss.detach() if self.count == 1 else loss.detach() / self.count
            return
        for name, tensor in zip(stage.makes, made):
            if name not in self.values:  # what a repeated forward makes beside may still be there
                self.values[name] = tensor.detach() if tensor.requires_grad else tensor


class Step:
    """A step by one plan; what several.apply returns for one."""

    def __init__(self, model, plan, loss, limit, cuda_graph=False, ranks=None):
        self.model, self.plan, self.loss, self.limit = model, plan, loss, limit
        self.ranks, self.exchange, self.brought = ranks, None, {}  # Replicas or Sharded; of the first step on, as `staged`
        self.device = again.device_of(model)
        self.staged = None  # from the first step on, which has inputs; made anew where the model's Python code would take another course
        self.copies = copies_for(self.device, plan)
        self.autocast = again.Autocast()
        self.whole_graph = WholeGraph(self.device) if cuda_graph else None
        self.is_sharded = ranks is not None and ranks.what == "sharded"
        self.counts = Counts(self.device)
        self.random = again.RandomStates(self.device)
        self.loss_bytes = 0
        self.exchanges = False  # whether this step averages gradients with other replicas
        self.watch = None   # told (number, action) before each action and once (None, None) at the end, by whoever measures
        self.batches = ()

    # --- one step -----------------------------------------------------------------------------------------------------------------

    def __call__(self, inputs, targets=None, scale=1.0):
        """Train for one step, as several.apply says."""
        example = micro_batches(self.model, inputs, targets, self.plan)[0]
        if self.staged is None or not self.staged.is_course_of(example[0]):
            with self.ranks.whole() if self.ranks is not None else contextlib.nullcontext():
                self.prepare(*example)
            again.forget_casts()
        if self.whole_graph is not None:
            return self.whole_graph(self, inputs, targets, scale)
        return self.issue(inputs, targets, scale)

    def issue(self, inputs, targets, scale):
        ready = self.ready(inputs, targets)
        with self.counts.of_step():
            return self.run(*ready, scale)

    def ready(self, inputs, targets):
        """Micro-batches, and of each the tensors that its first stage may read: other shapes are refused, and what the model's code would take
        another course for."""
        batches = micro_batches(self.model, inputs, targets, self.plan)
        return batches, [self.staged.values_of(of) for of, _ in batches]

    def run(self, batches, given, scale):
        without = [p for p in self.parameters if p.grad is None]
        self.exchanges = self.exchange is not None and self.ranks.exchanges
        try:
            if self.exchanges:
                self.exchange.begin_step()
            with torch.enable_grad(), self.autocast:
                losses = self.plainly(batches, given, scale) if self.plan.in_one_call else self.by_actions(batches, given, scale)
            if self.exchanges:
                self.exchange.finish_step()
        except BaseException:
            self.copies.finish()
            if self.exchange is not None:
                self.exchange.give_up()
            for parameter in without:
                parameter.grad = None
            raise
        finally:
            self.random.clear()
            self.batches = ()
        self.loss_bytes = sum(storage_of(loss).nbytes() for loss in losses)
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def report(self):
        """Promised and actual time and peak of the last steps, and what to do where they part; to be printed (report.py)."""
        if not self.exchanges:
            return report_of(self.plan, self.counts, self.copies.host_bytes)
        return report_of(self.plan, self.counts, self.copies.host_bytes, self.ranks.what, self.peak_with_ranks(), self.exchange.resident_bytes(self.plan, self.staged))

    def peak_with_ranks(self):
        """Of a step that averages gradients with other ranks."""
        return self.exchange.peak_bytes(self.plan, self.staged, self.loss_bytes)

    def prepare(self, inputs, targets):
        if self.staged is None:
            refuse_what_cannot_run(self.model)  # what has come since `apply`
        else:
            refuse_other_model(self.model, self.plan)  # a module may have been replaced
        refuse_thawed(self.model, self.plan)
        staged = self.cut(inputs, targets, self.plan.how)
        shapes = self.plan.model.get("input_shapes", {})
        for name, found in staged.input_shapes().items():
            if name in shapes and shapes[name] != found:
                raise WrongPlan(f"input '{name}': the plan is for {shapes[name]['dtype']} {shapes[name]['shape']}, found {found['dtype']} {found['shape']}"
                                f"{ANOTHER_SHAPE}")
        staged.questions.refuse_other(self.plan.model.get("answers", []))
        if names_of(staged) != self.plan.stages and self.plan.how == "auto":  # fewer parameters are trained, or it is in autocast, which may cut elsewhere
            with contextlib.suppress(Refused):
                staged = self.cut(inputs, targets, self.plan.stages[:-1])
        if names_of(staged) != self.plan.stages:
            raise WrongPlan(f"{self.plan.where}: its stages are {self.plan.stages}, of this model come {names_of(staged)}")
        for j, (found, expected) in enumerate(zip(staged.boundaries[:-1], self.plan.model["boundaries"])):
            if found != expected:
                raise WrongPlan(f"{self.plan.where}: before stage '{self.plan.stages[j]}' there are "
                                f"{expected} by the plan, and {found} in this model")
        self.plan.refuse_other_values({value.name: value.storage for value in staged.values}, [stage.keeps for stage in staged.stages])
        for k in sorted(self.plan.run_again):
            if staged.stages[k].runs_once:
                raise Refused(f"stage '{self.plan.stages[k]}': {staged.stages[k].runs_once}, so it cannot be run again as the plan asks")
        self.norms = [again.batch_norms(one for operation in stage.operations if isinstance(operation.function, torch.nn.Module)
                                        for one in operation.function.modules()) for stage in staged.stages]
        self.draws = [k in self.plan.run_again and stage.draws_numbers for k, stage in enumerate(staged.stages)]
        if self.whole_graph is not None:
            self.whole_graph.refuse(staged, self.draws)
            self.whole_graph.forget()
        self.parameters = list(self.model.parameters())
        kept = [*self.parameters, *self.model.buffers(), *staged.outside]
        kept += [tensor for stage in staged.stages for operation in stage.operations for tensor in constants_in(operation.arguments)]
        always = {storage_of(tensor).data_ptr() for tensor in kept}
        if self.plan.is_compiled:
            staged.compile()
        if self.ranks is not None:
            if self.exchange is None or not self.exchange.is_of(self.model):
                self.exchange = self.ranks.exchange_of(self.model)
            self.brought = self.exchange.brought_by(self.plan, staged)
            if self.is_sharded:
                self.exchange.refuse_other_plans(self.plan, staged)
                always -= self.exchange.addresses_there()
        self.staged, self.graphs = staged, Graphs(self.plan, staged, always, holds_all=self.limit is not None)
        if self.is_sharded:
            self.graphs.parameters = self.exchange.with_memory()
        self.to_do = self.actions()

    def actions(self):
        """[(action, what it does, what it drops that is never copied, whether it drops other things)]: all that is the same each time is looked up
        here, once. What it does is a function of the step and its micro-batch, and holds no step, which so goes with its last name."""
        do = {"forward": self.forward, "backward": self.backward, "copy": self.copy, "wait": lambda *_: nothing}
        found = []
        for number, action in enumerate(self.plan.actions):
            values = [self.plan.values[name] for name in action.drops if name not in self.plan.moved]
            drops = [(value.kind, key) for value in values for key in ([value.stage] if value.kind == "saved" else value.names)]
            found.append((action, do[action.do](action, number), drops, len(values) < len(action.drops) or bool(action.drops_on_host)))
        return found

    def for_smaller(self, shapes):
        """A step by the same plan for inputs of these shapes; what is on the host is in the same buffers."""
        step = Step(self.model, self.plan.for_smaller(shapes), self.loss, self.limit, self.whole_graph is not None, self.ranks)
        step.copies = self.copies
        return step

    def cut(self, inputs, targets, how):
        return split(self.model, inputs, how=how, loss=self.loss, targets=targets, hooks_are_own=True)

    def plainly(self, batches, given, scale):
        """One graph of all stages. The calls that were recorded, and not the model's forward, whose local names may hold tensors to its end."""
        losses = []
        for number, (values, (_, targets)) in enumerate(zip(given, batches)):
            self.autocast.switch(True)
            loss = self.staged.run(values, targets, self.exchange.around(number, targets) if self.is_sharded else None)
            loss = loss / len(batches) if len(batches) > 1 else loss
            self.autocast.switch(False)
            if self.exchanges:
                self.exchange.before_whole_backward(number, is_last=number == len(batches) - 1)
            scaled(loss, scale).backward()
            losses.append(loss.detach())
        return losses

    def by_actions(self, batches, given, scale):
        self.scale = scale
        batches = [MicroBatch(dict(zip(self.staged.boundaries[0], map(torch.Tensor.detach, values))), targets, len(batches))
                   for values, (_, targets) in zip(given, batches)]
        self.graphs.begin_step({storage_of(tensor).data_ptr() for batch in batches for tensor in tensors_in(batch.targets)})
        self.batches = batches
        brought = self.brought if self.exchanges else {}
        needs, frees = (self.exchange.needs, self.exchange.frees) if self.is_sharded else ({}, {})
        if self.is_sharded:
            self.exchange.always = self.graphs.always_now
        is_watched, before = self.watch is not None or self.limit is not None or self.copies.has_order, self.copies.before
        for number, (action, do, drops, moves) in enumerate(self.to_do):
            batch = batches[action.micro_batch]
            if is_watched:
                self.begin(number, action)
            if number in before:
                for copy in before[number]:
                    self.fetch(copy)
            if number in needs:
                self.exchange.before(number)
            do(self, batch)
            if is_watched and not is_fetched(action):
                self.copies.end(number)
            for kind, key in drops:
                batch.of_kind[kind].pop(key, None)
            if moves:
                self.drop_what_moves(batch, action)
            if number in brought:
                self.exchange.bring(brought[number])
            if number in frees:
                self.exchange.behind(number)
        self.copies.finish()
        if self.watch is not None:
            self.watch(None, None)
        self.to_inputs(batches, given)
        return [batch.loss for batch in batches]

    def begin(self, number, action):
        """What is asked before an action is issued."""
        if self.watch is not None:
            self.watch(number, action)
        if self.limit is not None and not is_fetched(action):
            self.refuse_above_limit(number)
        self.copies.begin(number)

    def to_inputs(self, batches, given):
        """Gradients of inputs that ask for one."""
        for batch, tensors in zip(batches, given):
            for name, tensor in zip(self.staged.boundaries[0], tensors):
                gradient = batch.gradients.pop(name, None)
                if gradient is not None and tensor.requires_grad and tensor.is_leaf:
                    tensor.grad = gradient if tensor.grad is None else tensor.grad.add_(gradient)

    # --- forward and backward -----------------------------------------------------------------------------------------------------

    def forward(self, action, number):
        k, saves, key, stage = action.stage, action.saves, (action.micro_batch, action.stage), self.staged.stages[action.stage]
        graphs, ways, autocast, draws, norms = self.graphs, self.graphs.ways, self.autocast, self.draws[k], self.norms[k]
        is_as_before = action.again and bool(draws or norms)

        def run(batch):
            if not saves:
                batch.take(stage, stage(graphs.values(batch, stage), batch.targets))
            elif number in ways:
                ways[number](graphs, batch)
            else:
                graphs.forward(batch, k, number)

        def run_as_before(step, batch):
            with step.random.restored(key) if draws else contextlib.nullcontext(), again.statistics_stay(norms):
                run(batch)

        def do(step, batch):
            again.follow_gradients(saves)
            if not autocast.is_on:
                autocast.switch(True)
            if is_as_before:
                run_as_before(step, batch)
            else:
                if draws:
                    step.random.note(key)
                run(batch)
            if autocast.devices:
                autocast.forget_casts()
        return do

    def backward(self, action, _):
        k, graphs, autocast = action.stage, self.graphs, self.autocast

        def do(step, batch):
            if autocast.is_on:
                autocast.switch(False)
            graphs.backward(batch, k, step.seed)
        return do

    def seed(self, loss):
        """The gradient of the loss: one, times the scale, shared among micro-batches."""
        one = scaled(torch.ones_like(loss), self.scale)
        return one / len(self.batches) if len(self.batches) > 1 else one

    # --- drops and copies ---------------------------------------------------------------------------------------------------------

    def drop_what_moves(self, batch, action):
        """Of what is copied somewhere in the plan."""
        for name in action.drops:
            if name in self.plan.moved:
                self.drop(batch, name)
        for name in action.drops_on_host:
            batch.on_host.pop(name).release()

    def drop(self, batch, name):
        value, is_on_host = self.plan.values[name], name in batch.on_host
        if is_on_host:
            batch.on_host[name].returned = None
        elif value.kind == "saved":
            batch.runs.pop(value.stage, None)
            return
        if value.kind == "saved":
            if value.stage in batch.runs:
                batch.runs[value.stage].saved.away()
            return
        where = batch.values if value.kind == "boundary" else batch.gradients
        tensors = [(one, where.pop(one)) for one in value.names if one in where]
        if is_on_host:
            batch.lying[name] = [(one, geometry(tensor)) for one, tensor in tensors]

    def copy(self, action, number):
        if action.to_host:
            return lambda step, batch: step.to_host(batch, action)
        return nothing if number in self.plan.stays else lambda step, batch: step.from_host(batch, action)

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
            value = self.plan.values[name]
            self.refuse_other_size(name, value, found)
            batch.on_host[name] = OnHost(storages, self.device, self.copies, value.bytes if value.is_at_most else None)
        batch.on_host[name].fill(storages, action.range)

    def refuse_other_size(self, name, value, found):
        """What follows from data may have fewer bytes than planned. More of them cost the promised peak, which is told, and nothing else; a limit is
        kept by itself."""
        if value.is_at_most:
            self.counts.note_size(name, found, value.bytes)
        elif found != value.bytes:
            raise Refused(f"'{name}' has {found} B, by the plan {value.bytes} B: the model is another now than when it was measured")

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
            raise LimitExceeded(f"{self.plan.name_of(number)} needs {action.peak_bytes - before} B in addition to the {live} B that are there, above "
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
        return sum(sizes.values()) + (self.exchange.bytes() if self.exchange is not None else 0)


def is_fetched(action):
    """Whether it is issued by itself, before its turn or at it."""
    return action.do == "copy" and not action.to_host


def nothing(*_):
    """What an action does whose work is done elsewhere."""


def names_of(staged):
    return [stage.name for stage in staged.stages]


def scaled(value, scale):
    """`scale`: a number, or a tensor with one, which is not looked at."""
    if isinstance(scale, torch.Tensor):
        return value * scale.to(value.dtype)
    return value * scale if scale != 1.0 else value


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
    rows = {id(tensor) for name, tensor in named if tensor.shape[0] == 1 and shapes.get(name, {}).get("shape", [])[:1] == [1]}
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
