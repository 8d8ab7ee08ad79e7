"""Replicas of a model on several devices, each trained by a plan on its own part of the batch: gradients are averaged in buckets, each as soon as the plan's
backward has made all that is in it, as DistributedDataParallel does in plain training (Li et al., VLDB 2020).

    replicas = Replicas()                               # torch.distributed is initialized
    step = apply(model, "plan.json", loss=loss, replicas=replicas)
    step(inputs, targets)                               # gradients are the means over the ranks
    with replicas.no_sync():                            # more batches before the optimizer's step: exchanged with the last
        step(inputs, targets)
"""

import contextlib
import dataclasses

import torch

from .errors import Refused
from .nodes import node_of
from .ranks import Ranks

FIRST_BYTES = 1 << 20  # of the first bucket: it leaves early, and so do those behind it


@dataclasses.dataclass
class Bucket:
    parameters: list = dataclasses.field(default_factory=list)  # in the order in which their gradients lie
    places: dict = dataclasses.field(default_factory=dict)      # {id of a parameter: (its first number, its flag's from the end)}
    numbers: int = 0           # of all gradients
    flat: torch.Tensor = None  # while a step has gradients in it: theirs, and at the end a flag for each, 1 where there is one, else 0
    missing: int = 0           # parameters that the step has still to bring
    work: object = None

    def add(self, parameter):
        self.parameters.append(parameter)
        self.places[id(parameter)] = self.numbers, -len(self.parameters)
        self.numbers += parameter.numel()

    def length(self):
        return self.numbers + len(self.parameters)

    def bytes(self):
        return self.length() * self.parameters[0].element_size()

    def gradient(self, parameter):
        begin, _ = self.places[id(parameter)]
        return self.flat[begin : begin + parameter.numel()].view(parameter.shape)

    def flag(self, parameter):
        return self.flat[self.places[id(parameter)][1]]


class Replicas(Ranks):
    """How the ranks of a process group average gradients.

    group: ProcessGroup of the replicas; None: all ranks
    bucket_bytes: of a bucket, which is closed by the parameter that reaches it
    broadcast_buffers: buffers of the model (running statistics) are those of the group's first rank in each step, as with DistributedDataParallel
    """

    def __init__(self, group=None, bucket_bytes=25 << 20, broadcast_buffers=True):
        super().__init__("replicas", group)
        if bucket_bytes < 1:
            raise Refused(f"replicas: bucket_bytes: expected at least 1, found {bucket_bytes}")
        self.bucket_bytes, self.broadcast_buffers = bucket_bytes, broadcast_buffers

    @contextlib.contextmanager
    def no_sync(self):
        """Steps inside add to each rank's own gradients; the first one behind it averages the sums."""
        before, self.exchanges = self.exchanges, False
        try:
            yield
        finally:
            self.exchanges = before

    def begin(self, model):
        super().begin(model, self.bucket_bytes)

    def exchange_of(self, model):
        return Exchange(self, model)

    def whole(self):
        return contextlib.nullcontext()

    def buckets_of(self, parameters):
        """Of trained ones, the last first, as a backward reaches them; of one dtype each."""
        closed, fill = [], {}
        for parameter in reversed(parameters):
            kind = parameter.dtype, parameter.device
            bucket = fill.setdefault(kind, Bucket())
            bucket.add(parameter)
            if bucket.bytes() >= (self.bucket_bytes if closed else min(FIRST_BYTES, self.bucket_bytes)):
                closed.append(fill.pop(kind))
        return closed + list(fill.values())


class Exchange:
    """The gradients of one step. Buckets leave in their order, which is the same on all ranks whatever their plans are."""

    def __init__(self, replicas, model):
        self.replicas, self.model = replicas, model
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.buckets = replicas.buckets_of(self.trained)
        self.bucket_of = {id(parameter): bucket for bucket in self.buckets for parameter in bucket.parameters}
        self.hooks = []

    def is_of(self, model):
        return [id(parameter) for parameter in model.parameters() if parameter.requires_grad] == [id(parameter) for parameter in self.trained]

    # --- a step -------------------------------------------------------------------------------------------------------------------

    def begin_step(self):
        if self.replicas.broadcast_buffers:
            with torch.no_grad():
                self.replicas.broadcast(list(self.model.buffers()))
        for bucket in self.buckets:
            bucket.flat, bucket.work, bucket.missing = None, None, len(bucket.parameters)
        self.next, self.brought = 0, set()

    def bring(self, parameters):
        """Their gradients are complete on this rank."""
        with torch.no_grad():
            for parameter in parameters:
                if id(parameter) not in self.brought:
                    self.put(parameter)
            self.send()

    def put(self, parameter):
        self.brought.add(id(parameter))
        bucket = self.bucket_of[id(parameter)]
        if bucket.flat is None:
            bucket.flat = torch.zeros(bucket.length(), dtype=parameter.dtype, device=parameter.device)
        bucket.missing -= 1
        if parameter.grad is not None:  # else zeros
            torch.mul(parameter.grad, 1 / self.replicas.ranks, out=bucket.gradient(parameter))
            bucket.flag(parameter).fill_(1)

    def send(self):
        while self.next < len(self.buckets) and self.buckets[self.next].missing == 0:
            bucket = self.buckets[self.next]
            bucket.work = self.replicas.dist.all_reduce(bucket.flat, group=self.replicas.group, async_op=True)
            self.next += 1

    def finish_step(self):
        """What no backward has brought is brought as zeros; then all means are in `.grad`, of parameters that some rank has a gradient of."""
        self.let_go()
        self.bring(self.trained)
        with torch.no_grad():
            for bucket in self.buckets:
                bucket.work.wait()
                for parameter in bucket.parameters:
                    if parameter.grad is not None:
                        parameter.grad.copy_(bucket.gradient(parameter))
                    elif bucket.flag(parameter) > 0:
                        parameter.grad = bucket.gradient(parameter).clone()
                bucket.flat = bucket.work = None

    # --- when gradients are complete ------------------------------------------------------------------------------------------------

    def brought_by(self, plan, staged):
        """{number of an action: parameters whose gradients are complete behind it}: behind the last backward of a stage that uses them."""
        last = {action.stage: number for number, action in enumerate(plan.actions) if action.do == "backward"}
        found, done = {}, {}
        for k, stage in enumerate(staged.stages):
            for parameter in stage.parameters():
                if parameter.requires_grad and k in last:
                    done[id(parameter)] = max(done.get(id(parameter), 0), last[k])
        for parameter in reversed(self.trained):
            if id(parameter) in done:
                found.setdefault(done[id(parameter)], []).append(parameter)
        return found

    def before_whole_backward(self, _, is_last):
        """In the last one gradients leave by hooks, behind autograd's own sum."""
        for parameter in self.trained if is_last else ():
            node = node_of(parameter)
            self.hooks.append((node, node.register_hook(lambda *_, parameter=parameter: self.bring([parameter]))))

    def let_go(self):
        for _, hook in self.hooks:
            hook.remove()
        self.hooks.clear()

    def give_up(self):
        """Of a step that fails on its way."""
        self.let_go()
        for bucket in self.buckets:
            bucket.flat = bucket.work = None

    def bytes(self):
        """Of the buckets that are there."""
        return sum(bucket.bytes() for bucket in self.buckets if bucket.flat is not None)

    # --- what it takes ----------------------------------------------------------------------------------------------------------------

    def resident_bytes(self, plan, _):
        return plan.predicted["resident_bytes"]

    def peak_bytes(self, plan, staged, loss_bytes):
        """The most that the plan's actions and the buckets of their time need together. A bucket is there from its first gradient on: in a plan by stages
        behind the backward of a stage, in one call somewhere within, so that this is the most that there can be. `loss_bytes`: of the value that a step
        returns; a plan by stages frees it with the first backward, and it is there to the end."""
        brought, most, there, begun, loss = self.brought_by(plan, staged), 0, 0, set(), 0
        for number, action in enumerate(plan.actions):
            new = {id(bucket): bucket.bytes() for bucket in (self.bucket_of[id(parameter)] for parameter in brought.get(number, ()))}
            before, there = there, there + sum(size for of, size in new.items() if of not in begun)
            begun |= new.keys()
            most = max(most, action.peak_bytes + (there if plan.in_one_call else before) + loss)
            loss = loss_bytes if not plan.in_one_call and (loss or action.do == "backward") else 0
            most = max(most, action.after_bytes + there + loss)
        return most


def replicas_of(asked):
    """What people give: None or False, True, a ProcessGroup, or Replicas."""
    if asked is None or asked is False:
        return None
    if isinstance(asked, Replicas):
        return asked
    return Replicas(None if asked is True else asked)
