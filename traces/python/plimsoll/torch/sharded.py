"""Parameters sharded over ranks, each of which trains its part of the batch by a plan: a rank keeps a part of every parameter, of its gradient and of
the optimizer's states. A stage's parameters are gathered before it runs and freed behind it; its gradients go to the ranks that keep them when the
plan's backward has made them (ZeRO's third stage, Rajbhandari et al., SC 2020; fully_shard of PyTorch).

    sharded = Sharded()                                 # torch.distributed is initialized
    step = apply(model, "plan.json", loss=loss, sharded=sharded)
    optimizer = Adam(model.parameters())                # behind apply: parameters are this rank's parts, flat
    step(inputs, targets)                               # gradients are the means over the ranks, of these parts
    sharded.clip_grad_norm_(1.0)
    with sharded.whole():                               # all of every parameter, on every rank: to save, to load, to evaluate
        torch.save(model.state_dict(), "model.pt")
"""

import contextlib

import torch

from .errors import Refused
from .ranks import Ranks
from .versions import geometry, storage_of, view_of


class Part:
    """What a rank keeps of a parameter, and all of it while it is gathered."""

    def __init__(self, name, parameter, rank, ranks):
        numbers = parameter.numel()
        if sorted(zip(parameter.stride(), parameter.shape)) != dense_in_some_order(parameter):
            raise Refused(f"sharded: parameter '{name}' has gaps or repeats in its memory, shape {list(parameter.shape)} and strides {list(parameter.stride())}")
        self.parameter, self.rank, self.ranks = parameter, rank, ranks
        self.each = -(-numbers // ranks)  # the last rank may have fewer
        self.kept = max(0, min(self.each, numbers - rank * self.each))
        dtype, shape, strides, _, device = geometry(parameter)
        self.like = dtype, shape, strides, 0, device
        self.flat = torch.zeros(ranks * self.each, dtype=dtype, device=device)
        self.storage = storage_of(self.flat)
        self.view = view_of(self.storage, self.like)
        self.view.copy_(parameter.detach())
        self.chunks = self.flat.split(self.each) if self.each else ()  # by rank
        self.home = self.chunks[rank].clone() if self.each else self.flat
        self.is_there = True
        self.free()
        self.all_bytes, self.flat_bytes = self.bytes(numbers), self.bytes(ranks * self.each)
        self.works = []       # under way: of the gathering
        self.gradient = None  # from before the step, and of micro-batches behind us: this rank's part
        parameter.data = self.home[:self.kept]

    def bytes(self, numbers):
        return numbers * self.flat.element_size()

    def free(self):
        if self.is_there and self.each:
            self.storage.resize_(0)
        self.is_there = False

    def enter(self):
        """From now on the parameter has its whole shape; its memory is there while it is gathered."""
        self.gradient, self.parameter.grad = self.parameter.grad, None
        self.parameter.data = self.view

    def leave(self):
        self.parameter.grad = None
        self.parameter.data = self.home[:self.kept]
        self.parameter.grad, self.gradient = self.gradient, None


def dense_in_some_order(parameter):
    """[(stride, side)] as they are where its numbers fill its memory without gaps."""
    found, stride = [], 1
    for own, side in sorted(zip(parameter.stride(), parameter.shape)):
        found.append((stride if side > 1 else own, side))
        stride *= side
    return found


class Sharded(Ranks):
    """How the ranks of a process group share the parameters of a model.

    group: ProcessGroup; None: all ranks
    ahead: a stage's parameters are gathered while so many stages before it run, and gradients are under way until the next ones leave; 0: nothing is
        under way while a stage runs, which takes the least memory
    """

    def __init__(self, group=None, ahead=1):
        super().__init__("sharded", group)
        if ahead < 0:
            raise Refused(f"sharded: ahead: expected at least 0, found {ahead}")
        self.rank, self.ahead, self.parts, self.shares = self.dist.get_rank(group), ahead, {}, {}
        self.has_gathering = self.dist.get_backend(group) == "nccl"  # of flat tensors; gloo makes copies for it, or refuses it

    def begin(self, model):
        super().begin(model, self.ahead)
        with torch.no_grad():
            self.parts = {id(parameter): Part(name, parameter, self.rank, self.ranks) for name, parameter in model.named_parameters()}

    def exchange_of(self, model):
        return ShardedStep(self, model)

    @contextlib.contextmanager
    def whole(self):
        """All parameters have their whole shape and memory here, on all ranks; what is written into them stays, as each rank's part has it. Gradients are set
        aside."""
        parts = list(self.parts.values())
        with torch.no_grad():
            for part in parts:
                part.enter()
                self.gather(part)
            for part in parts:
                self.wait(part)
        try:
            yield
        finally:
            with torch.no_grad():
                for part in parts:
                    if part.each:
                        part.home.copy_(part.chunks[self.rank])
                    part.free()
                    part.leave()

    def clip_grad_norm_(self, max_norm):
        """As torch.nn.utils.clip_grad_norm_, over all ranks; returns the norm."""
        gradients = [part.parameter.grad for part in self.parts.values() if part.parameter.grad is not None]
        device = next((gradient.device for gradient in gradients), torch.device("cpu"))
        total = torch.stack([torch.zeros((), device=device), *(gradient.float().norm() ** 2 for gradient in gradients)]).sum()
        self.dist.all_reduce(total, group=self.group)
        norm = total.sqrt()
        for gradient in gradients:
            gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0).to(gradient.dtype))
        return norm

    # --- one parameter --------------------------------------------------------------------------------------------------------------

    def gather(self, part):
        """Begins it."""
        part.is_there = True
        if not part.each:
            return
        part.storage.resize_(part.flat_bytes)
        if self.has_gathering:
            part.works = [self.dist.all_gather_into_tensor(part.flat, part.home, group=self.group, async_op=True)]
            return
        part.chunks[self.rank].copy_(part.home)
        part.works = [self.dist.broadcast(chunk, self.global_rank(rank), group=self.group, async_op=True) for rank, chunk in enumerate(part.chunks)]

    def wait(self, part):
        for work in part.works:
            work.wait()
        part.works = []

    def share_in(self, dtype):
        """1 / ranks; on a CPU a number as such takes memory in each product. Those of fewer bits would round it."""
        if dtype not in (torch.float32, torch.float64):
            return 1 / self.ranks
        if dtype not in self.shares:
            self.shares[dtype] = torch.tensor(1 / self.ranks, dtype=dtype)
        return self.shares[dtype]

    def scatter(self, part):
        """Begins to bring the mean of the ranks' gradients to where its parts are kept; the parameter has none from here on. What it takes until then."""
        flat = torch.empty(part.ranks * part.each, dtype=part.flat.dtype, device=part.flat.device)
        flat[part.parameter.numel():].zero_()
        torch.mul(part.parameter.grad, self.share_in(part.flat.dtype), out=view_of(storage_of(flat), part.like))
        part.parameter.grad = None
        if self.has_gathering:
            own = torch.empty_like(part.home)
            return part, flat, own, [self.dist.reduce_scatter_tensor(own, flat, group=self.group, async_op=True)]
        chunks = flat.split(part.each)
        works = [self.dist.reduce(chunk, self.global_rank(rank), group=self.group, async_op=True) for rank, chunk in enumerate(chunks)]
        return part, flat, chunks[self.rank], works


class ShardedStep:
    """Gathering and scattering of one step, by one plan."""

    def __init__(self, sharded, model):
        self.sharded = sharded
        self.parts = [sharded.parts[id(parameter)] for parameter in model.parameters()]
        self.gathers, self.frees, self.needs = {}, {}, {}  # {number of an action: parts}: before it, behind it, and those that it reads
        self.under_way = []   # of gradients: what `scatter` returns
        self.addresses = {}   # {part: address of its memory while it is there}
        self.always = set()   # of the graphs: addresses that stages may save as they are
        self.is_begun, self.before_bytes = False, 0
        self.number, self.numbers, self.brought = 0, {}, {}  # in one call: of the action that runs; {(kind, micro-batch, stage): number}

    def is_of(self, model):
        return [id(parameter) for parameter in model.parameters()] == [id(part.parameter) for part in self.parts]

    def with_memory(self):
        """Tensors that are there all the time."""
        return [part.home for part in self.parts]

    # --- by the plan ----------------------------------------------------------------------------------------------------------------

    def brought_by(self, plan, staged):
        """{number of an action: parameters whose gradients leave behind it}: in each micro-batch, behind the last backward of a stage that uses them. And notes
        when parameters are gathered and freed."""
        self.plan_gathers(plan, staged)
        found, last = {}, {}
        for number, action in enumerate(plan.actions):
            if action.do == "backward":
                for parameter in staged.stages[action.stage].parameters():
                    if parameter.requires_grad:
                        last[action.micro_batch, id(parameter)] = number, parameter
        for number, parameter in last.values():
            found.setdefault(number, []).append(parameter)
        self.numbers = {(action.do, action.micro_batch, staged.stages[action.stage]): number for number, action in enumerate(plan.actions)}
        self.brought = found
        return found

    def plan_gathers(self, plan, staged):
        runs = [number for number, action in enumerate(plan.actions) if action.do in ("forward", "backward")]
        self.needs = {number: [self.sharded.parts[id(parameter)] for parameter in staged.stages[plan.actions[number].stage].parameters()] for number in runs}
        spans = {}  # {part: [[place of the first run in `runs` at which it is there, that of the last]]}
        self.gathers, self.frees = {}, {}
        for place, number in enumerate(runs):
            for part in self.needs[number]:
                of, begin = spans.setdefault(part, []), max(0, place - self.sharded.ahead)
                if of and begin <= of[-1][1] + 1:
                    of[-1][1] = place
                else:
                    of.append([begin, place])
                    self.gathers.setdefault(runs[begin], []).append(part)
        for part, of in spans.items():
            for _, end in of:
                self.frees.setdefault(runs[end], []).append(part)

    def refuse_other_plans(self, plan, staged):
        """Ranks gather the same parameters in the same order."""
        names = {id(part.parameter): number for number, part in enumerate(self.parts)}
        own = [[action.do, action.stage, action.micro_batch] for action in plan.actions if action.do in ("forward", "backward")]
        self.sharded.refuse_others([own, [[names[id(parameter)] for parameter in stage.parameters()] for stage in staged.stages]],
                                   "another plan than rank 0: all ranks run the same stages in the same order")

    def addresses_there(self):
        return {storage_of(part.flat).data_ptr() for part in self.parts if part.is_there}

    # --- a step -------------------------------------------------------------------------------------------------------------------

    def begin_step(self):
        self.is_begun, self.number = True, -1
        self.before_bytes = 0  # of gradients that are there already
        for part in self.parts:
            part.enter()
            self.before_bytes += part.bytes(part.kept) if part.gradient is not None else 0

    def before(self, number):
        with torch.no_grad():
            for part in self.gathers.get(number, ()):
                self.sharded.gather(part)
                self.addresses[part] = storage_of(part.flat).data_ptr()
                self.always.add(self.addresses[part])
            for part in self.needs.get(number, ()):
                self.sharded.wait(part)

    def around(self, micro_batch, targets):
        """Of a plan in one call, for `Staged.run`: stages run in the order of its actions, forward and, as hooks on what they make tell, backward. Nodes of a
        stage all run before those of the stages before it: autograd takes the last made first."""
        def call(stage, given):
            self.go_on_to(self.numbers["forward", micro_batch, stage])
            made = stage(given, targets)
            for tensor in made:
                if tensor.requires_grad and not stage.is_last:
                    tensor.register_hook(lambda _: self.go_on_to(self.numbers["backward", micro_batch, stage]))
            return made
        return call

    def before_whole_backward(self, micro_batch, **_):
        self.go_on_to(next(number for (do, of, stage), number in self.numbers.items() if do == "backward" and of == micro_batch and stage.is_last))

    def go_on_to(self, number):
        while self.number < number:
            if self.number in self.brought:
                self.bring(self.brought[self.number])
            self.behind(self.number)
            self.number += 1
            if self.number in self.needs:
                self.before(self.number)

    def behind(self, number):
        for part in self.frees.get(number, ()):
            self.let_go(part)

    def let_go(self, part):
        self.sharded.wait(part)
        self.always.discard(self.addresses.pop(part, None))
        part.free()

    def bring(self, parameters):
        """Their gradients are complete on this rank, of a micro-batch. Which have none is the same on all ranks: they run the same stages."""
        with torch.no_grad():
            self.land()
            for parameter in parameters:
                if parameter.grad is not None:
                    self.under_way.append(self.sharded.scatter(self.sharded.parts[id(parameter)]))
            if self.sharded.ahead == 0:
                self.land()

    def land(self):
        while self.under_way:
            part, flat, own, works = self.under_way.pop(0)
            for work in works:
                work.wait()
            mine = own[:part.kept] if self.sharded.has_gathering else own[:part.kept].clone()
            storage_of(flat).resize_(0)  # a thread of gloo's may hold it a moment longer
            part.gradient = mine if part.gradient is None else part.gradient.add_(mine)

    def finish_step(self):
        if self.number >= 0:
            self.bring(self.brought.get(self.number, ()))
        with torch.no_grad():
            self.land()
        self.leave()

    def give_up(self):
        """Of a step that fails on its way."""
        for *_, works in self.under_way:
            for work in works:
                work.wait()
        self.under_way = []
        if self.is_begun:
            self.leave()

    def leave(self):
        self.is_begun = False
        for part in self.parts:
            if part.is_there:
                self.let_go(part)
            part.leave()

    def bytes(self):
        """Of gradients under way, and of what is gathered."""
        there = sum(part.flat_bytes for part in self.parts if part.is_there)
        return there + sum(part.flat_bytes for part, *_ in self.under_way)

    # --- what it takes ----------------------------------------------------------------------------------------------------------------

    def resident_bytes(self, plan, staged):
        """What the plan counts as resident, with this rank's parts in place of the parameters that stages use, and of their gradients."""
        used = self.used_by(staged)
        gradients = self.before_bytes - (sum(part.all_bytes for part in used if part.parameter.requires_grad) if plan.has_gradients else 0)
        return plan.predicted["resident_bytes"] + sum(part.bytes(part.each) - part.all_bytes for part in used) + gradients

    def used_by(self, staged):
        return list({self.sharded.parts[id(parameter)]: None for stage in staged.stages for parameter in stage.parameters()})

    def peak_bytes(self, plan, staged, loss_bytes):
        """The most that the plan's actions need, with parameters gathered for each, and gradients there until they have gone to the ranks that keep them.
        `loss_bytes`: of the value that a step returns; a plan frees it with the first backward, and it is there to the end; so is its gradient in one call, whose
        actions have both."""
        brought, count = self.brought_by(plan, staged), Count(self.resident_bytes(plan, staged) - plan.predicted["resident_bytes"], self.before_bytes > 0)
        there, in_plan, loss = set(), set(), 0  # parts whose gradients are there as the backward makes them; those whose gradients the plan counts
        for number, action in enumerate(plan.actions):
            trained = self.trained_in(staged, action) if action.do == "backward" else []
            count.more += sum(part.flat_bytes for part in self.gathers.get(number, ()))
            count.more += sum(part.all_bytes for part in trained if part not in there)
            count.more -= sum(part.all_bytes for part in trained if part not in in_plan and not plan.has_gradients)
            there.update(trained)
            in_plan.update(trained)
            count.at(action.peak_bytes + (0 if plan.in_one_call else loss))
            loss = (2 * loss_bytes if plan.in_one_call else loss_bytes) if loss or action.do == "backward" else 0
            parts = [self.sharded.parts[id(parameter)] for parameter in brought.get(number, ())]
            count.leave(parts, action.after_bytes + loss)
            there.difference_update(parts)
            if self.sharded.ahead == 0:
                count.land(action.after_bytes + loss)
            count.more -= sum(part.flat_bytes for part in self.frees.get(number, ()))
        count.land(plan.actions[-1].after_bytes + loss)
        return count.most

    def trained_in(self, staged, action):
        return [self.sharded.parts[id(parameter)] for parameter in staged.stages[action.stage].parameters() if parameter.requires_grad]


class Count:
    """The most bytes; `more`: than the plan says. `adds`: whether gradients are there before a step."""

    def __init__(self, more, adds):
        self.most, self.more, self.adds, self.under_way, self.landed = 0, more, adds, [], set()

    def at(self, bytes_):
        self.most = max(self.most, bytes_ + self.more)

    def leave(self, parts, bytes_):
        """As ShardedStep.bring, at an action behind which the plan counts so many bytes."""
        if parts:
            self.land(bytes_)
        for part in parts:
            self.more += part.flat_bytes
            self.at(bytes_)
            self.more -= part.all_bytes
        self.under_way += parts

    def land(self, bytes_):
        for part in self.under_way:
            self.more += part.bytes(part.kept)
            self.at(bytes_)
            self.more -= part.flat_bytes + (part.bytes(part.kept) if self.adds or part in self.landed else 0)
        self.landed.update(self.under_way)
        self.under_way = []


def sharded_of(asked):
    """What people give: None or False, True, a ProcessGroup, or Sharded."""
    if asked is None or asked is False:
        return None
    if isinstance(asked, Sharded):
        return asked
    return Sharded(None if asked is True else asked)
