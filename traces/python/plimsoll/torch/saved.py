"""What autograd saves in the forward of a stage, in our own hands: dropped, moved to the host and brought back as a plan says.

A node of autograd's graph holds a `Hold` instead of a tensor, and nobody else holds that for long: when the backward has run
the node, the tensor in it is gone, as in plain training. A hold of a tensor that shares its storage with a value between
stages has no tensor of its own, but takes that value's when it is asked.

Each tensor costs some microseconds of Python. Where the plan neither moves what a stage saves nor drops, before its backward, a value
that the backward reads, autograd may as well hold its tensors itself: from the second step on it does, when the first has shown which
values these are. Elsewhere it then holds itself what the plan leaves alone.
"""

import weakref

import torch

from .errors import Refused
from .nodes import held_by, kept_in_ctx, nodes_behind
from .values import map_leaves
from .versions import geometry, storage_of, view_of


class Hold:
    __slots__ = ("tensor", "of", "geometry", "values", "stage", "__weakref__")

    def __init__(self, tensor):
        self.tensor = tensor
        self.of = self.geometry = self.values = self.stage = None

    def refer_to(self, name, values, stage):
        """From now on: the storage of the value of that name."""
        self.of, self.values, self.stage = name, values, stage
        self.geometry, self.tensor = geometry(self.tensor), None

    def get(self):
        if self.of is not None:
            if self.of not in self.values:
                raise Refused(f"stage '{self.stage}': its backward reads '{self.of}', which the plan has dropped: it saves other "
                              "tensors now than when it was measured")
            value = self.values[self.of]
            return value if geometry(value) == self.geometry else view_of(storage_of(value), self.geometry)
        if self.tensor is None:
            raise Refused(f"stage '{self.stage}': its backward reads what the plan has dropped or moved")
        return self.tensor


def unpack(held):
    return held.get() if isinstance(held, Hold) else held


class SavedByStage:
    """Of one forward on the device. `always`: addresses of parameters and buffers, which stay and are held as they are, and so is what lies in
    the memory of another device: numbers such as the 3 of x / 3 on a GPU."""

    def __init__(self, stage, always, device):
        self.stage, self.always, self.device = stage, always, device
        self.holds = []   # weak references
        self.kinds, self.numbers_of_holds = [], []  # of all that is saved, in order; which of these are the holds
        self.originals = set()  # ids of what is saved as it is, not as a result
        self.in_ctx = []  # [(node, attribute, what it is with a hold for each tensor)] of functions that keep tensors themselves
        self.numbers = 0  # bytes of numbers that no hook is shown; they stay where they are
        self.reads = set()  # names of values between stages that the backward reads
        self.moved = []   # of what is on its way or on the host: [(weak reference to a hold, number of its storage, geometry)]
        self.sizes = []   # of these storages

    def hooks(self):
        return torch.autograd.graph.saved_tensors_hooks(self.pack, unpack)

    def pack(self, tensor):
        if storage_of(tensor).nbytes() == 0:  # nothing to drop or move, and no other one's memory: an expert that gets no rows
            self.kinds.append(NAMED)  # the next time it may be anything
            return tensor.detach()
        if storage_of(tensor).data_ptr() in self.always or tensor.device.type != self.device.type:
            self.kinds.append(ALWAYS)
            return tensor
        if tensor.grad_fn is not None:
            self.originals.add(id(tensor))
        # A detached alias: the tensor itself would tie a saved output to its own graph in a cycle.
        hold = Hold(tensor.detach())
        self.numbers_of_holds.append(len(self.kinds))
        self.kinds.append(INNER)
        self.holds.append(weakref.ref(hold))
        return hold

    def take_from_functions(self, made):
        """What functions keep in their ctx is held as if they had saved it. Whether there is such."""
        for node in nodes_behind(made):
            for name, value in kept_in_ctx(node).items():
                self.in_ctx.append((node, name, map_leaves(value, lambda leaf: self.pack(leaf) if isinstance(leaf, torch.Tensor) else leaf)))
                setattr(node, name, self.in_ctx[-1][2])
        return bool(self.in_ctx)

    def give_to_functions(self):
        """Before the backward."""
        for node, name, held in self.in_ctx:
            setattr(node, name, map_leaves(held, unpack))
        self.in_ctx = []

    def bytes_of_numbers(self, made):
        """Behind what the stage has made, of those that no hook was shown."""
        seen = self.always | {storage_of(hold().tensor).data_ptr() for hold in self.holds if hold() is not None}
        held = [tensor for node in nodes_behind(made) for tensors in held_by(node).values() for tensor in tensors if tensor.dim() == 0]
        return sum({storage_of(tensor).data_ptr(): storage_of(tensor).nbytes() for tensor in held
                    if tensor.device == made[0].device and storage_of(tensor).data_ptr() not in seen}.values())

    def refer_to(self, named, values):
        """`named`: {address of a storage: name} of the values between stages, in `values` when they are asked for."""
        inner = []
        for number, reference in zip(self.numbers_of_holds, self.holds):
            hold = reference()
            if hold is None:
                continue
            name = named.get(storage_of(hold.tensor).data_ptr())
            if name is None:
                hold.stage = self.stage
                inner.append(reference)
            else:
                hold.refer_to(name, values, self.stage)
                self.reads.add(name)
                self.kinds[number] = NAMED
        self.holds = inner

    def storages(self):
        """Distinct ones, in the order in which they were saved, and which holds view them."""
        found = {}
        for reference in self.holds:
            hold = reference()
            if hold is not None and hold.tensor is not None:
                found.setdefault(storage_of(hold.tensor).data_ptr(), []).append(hold)
        return list(found.values())

    def bytes(self):
        return sum(storage_of(holds[0].tensor).nbytes() for holds in self.storages())

    def places(self):
        """What a copy reads, and after `away` where what comes back goes: (storages, how each view lies on them)."""
        storages = self.storages()
        self.moved = [(weakref.ref(hold), number, geometry(hold.tensor)) for number, holds in enumerate(storages) for hold in holds]
        return [storage_of(holds[0].tensor) for holds in storages]

    def away(self):
        """The tensors are not held any more; what reads them must wait for `back`."""
        for reference in self.holds:
            hold = reference()
            if hold is not None:
                hold.tensor = None

    def back(self, storages):
        for reference, number, like in self.moved:
            hold = reference()
            if hold is not None:
                hold.tensor = view_of(storages[number], like)


ALWAYS, INNER, NAMED, LEFT = range(4)  # what a tensor that is saved is: always there, the stage's own, a value between stages, nothing to us


class SavedLikeBefore(SavedByStage):
    """Of a forward that has run before: what it saves is known by its number in the order of saving."""

    def __init__(self, stage, always, device, kinds):
        super().__init__(stage, always, device)
        self.rest, self.own = iter(kinds), []

    def pack(self, tensor):
        kind = next(self.rest, NAMED)
        if kind == ALWAYS:
            return tensor
        if kind == LEFT:
            return tensor.detach()
        if kind == NAMED:
            return super().pack(tensor)
        hold = Hold(tensor.detach())
        hold.stage = self.stage
        self.own.append(weakref.ref(hold))
        return hold

    def refer_to(self, named, values):
        super().refer_to(named, values)
        self.holds += self.own


class Interferences:
    """Where the plan takes something away between a forward that saves and its backward, so that autograd may not hold it."""

    def __init__(self, plan, counts_all):
        self.counts_all = counts_all  # whether what a stage saves is counted, even where the plan leaves it alone
        self.between = {}  # {number of a forward: names that are dropped before its backward; None: what it saves is moved or dropped}
        self.reads = {}    # {number of a forward: what its backward reads}, from the first step on
        self.kinds = {}    # {number of a forward: what each tensor is that it saves}, likewise
        begun = {}         # {(micro-batch, stage): number of the forward}
        for number, action in enumerate(plan.actions):
            if action.do == "backward":
                begun.pop((action.micro_batch, action.stage), None)
            if action.do == "forward" and action.saves:
                begun[action.micro_batch, action.stage] = number
                self.between[number] = set()
            for name in ((action.value,) if action.do == "copy" else ()) + action.drops:
                self.takes(plan.values[name], {key: forward for key, forward in begun.items() if key[0] == action.micro_batch},
                           is_drop=name in action.drops)

    def takes(self, value, begun, is_drop):
        for (_, stage), forward in begun.items():
            if value.kind == "saved" and value.stage == stage:
                self.between[forward] = None
            elif value.kind == "boundary" and is_drop and self.between[forward] is not None:
                self.between[forward].update(value.names)

    def has_seen(self, number, saved):
        if not self.knows(number):
            self.reads[number] = saved.reads
            inner = INNER if self.between[number] is None or self.counts_all else LEFT
            self.kinds[number] = [inner if kind == INNER else kind for kind in saved.kinds]

    def knows(self, number):
        """Whether it has seen what the forward saves."""
        return number in self.reads

    def are_none(self, number, there):
        """Whether autograd may hold what the forward saves; `there`: names of what it makes that is there already."""
        reads, between = self.reads.get(number), self.between[number]
        return not self.counts_all and reads is not None and between is not None and reads.isdisjoint(between) and reads.isdisjoint(there)
