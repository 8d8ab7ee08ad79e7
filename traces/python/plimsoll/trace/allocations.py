"""The `allocations` of a trace: what each pass of each stage asks the allocator for, in order, and what becomes of what outlives it."""

from .allocation_log import Unexplained
from .executor import Probe
from .storages import distinct_tensors_in, storage_bytes


class Both(Probe):
    """A probe inside of another: what the outer one does is not seen by the inner."""

    def __init__(self, outer, inner):
        self.outer, self.inner = outer, inner

    def begin(self, *of):
        self.outer.begin(*of)
        self.inner.begin(*of)

    def end(self, *of):
        self.inner.end(*of)
        self.outer.end(*of)

    def made_gradients(self, *of):
        self.outer.made_gradients(*of)

    def released(self, stage):
        self.inner.released(stage)
        self.outer.released(stage)


class OrderProbe(Probe):
    """Cuts the log of a pass stage by stage into marks, and notes where the tensors are that a stage has made."""

    def __init__(self, chain, log):
        self.log = log
        self.parameters = chain.parameters()
        self.parts = []    # (phase, stage) of what comes before each mark but the first; None: of nobody
        self.made = {}     # (phase, stage) -> {address: position} of the output's tensors, of the input's gradients
        self.gradients = {}  # stage -> {address: number} of the parameters' gradients behind its backward

    def cut(self, part):
        self.parts.append(part)
        self.log.mark()

    def begin(self, phase, stage, inputs):
        self.cut(None)

    def end(self, phase, stage, outputs):
        self.cut((phase, stage))
        if phase == "forward":
            self.made[phase, stage] = self.addresses(enumerate(distinct_tensors_in(outputs)))

    def made_gradients(self, stage, contributed):
        self.made["backward", stage] = self.addresses(contributed.items())

    def released(self, stage):
        self.cut(("released", stage))
        self.gradients[stage] = self.addresses((i, p.grad) for i, p in enumerate(self.parameters) if p.grad is not None)

    def over(self):
        """The pass is over and has let go of all that it held."""

    @staticmethod
    def addresses(tensors):
        return {address: number for number, tensor in tensors for address in storage_bytes([tensor])}


class PlainOrderProbe(OrderProbe):
    """The same of a plain iteration: a part for the forward of each stage, then one for the backward of each that it reaches."""

    def begin(self, phase, stage, inputs):
        self.current = ("forward", 0)
        self.cut(None)

    def passed(self, stage):
        self.cut(("forward", stage))
        self.current = ("backward", None)

    def reached(self, stage):
        if self.current[1] is None or stage < self.current[1]:
            if self.current[1] is not None:
                self.cut(self.current)
            self.current = ("backward", stage)

    def end(self, phase, stage, outputs):
        """The loss is there still."""

    def over(self):
        self.cut(self.current)
        self.gradients[None] = self.addresses((i, p.grad) for i, p in enumerate(self.parameters) if p.grad is not None)


def logged(log, probe, run):
    """Runs a pass under a log: ({(phase, stage): [(address, bytes)]}, the probe), or why the log is not whole."""
    log.begin()
    run(probe)
    probe.over()
    try:
        parts = log.end()
    except Unexplained as reason:
        return reason
    return {part: events for part, events in zip(probe.parts[1:], parts) if part is not None}, probe


# --- orders -------------------------------------------------------------------------------------------------------------------------

class Order:
    """Turns events into an order: addresses into numbers."""

    def __init__(self, there=()):
        self.order, self.alive, self.bytes = [], {}, {}  # address -> number, of those that are alive; number -> bytes
        for address, size in there:
            self.number(address, size)

    def number(self, address, size):
        self.alive[address] = len(self.bytes) + 1
        self.bytes[self.alive[address]] = size

    def follow(self, events):
        for address, size in events:
            if size > 0:
                self.number(address, size)
                self.order.append(size)
            elif address in self.alive:
                self.order.append(-self.alive.pop(address))
            elif size < 0:
                raise Unexplained(f"{-size} B are freed that were there before")

    def follow_frees(self, events):
        """Of what is alive; the rest is somebody else's."""
        for address, size in events:
            if size > 0:
                raise Unexplained(f"{size} B are allocated behind the pass")
            if address in self.alive:
                self.order.append(-self.alive.pop(address))

    def named(self, addresses):
        """[number, index] of those that are alive."""
        return sorted([self.alive[address], index] for address, index in addresses.items() if address in self.alive)


def replayed(order, there=()):
    """(peak, end) of an order, in bytes above its start."""
    sizes, live, peak = list(there), 0, 0
    for number in order:
        if number > 0:
            sizes.append(number)
        live += number if number > 0 else -sizes[-number - 1]
        peak = max(peak, live)
    return peak, live


def lists(order, saved, tensors, parameters):
    """One pass as it is written; what is alive and in none of the lists has no explanation."""
    unnamed = set(order.alive.values()) - set(saved) - {n for n, _ in tensors} - {n for n, _ in parameters}
    if unnamed or len(saved) + len(tensors) + len(parameters) != len(order.alive):
        raise Unexplained(f"{sum(order.bytes[n] for n in unnamed)} B live on and are nobody's")
    return {key: value for key, value in (("order", order.order), ("saved", saved), ("tensors", tensors), ("parameters", parameters))
            if value or key == "order"}


class StageOrders:
    """Of all passes of a chain's stages, each held against what the counter saw of the same pass."""

    def __init__(self, chain, saved, memory, logs):
        self.count, self.saved, self.memory, self.logs = len(chain.stages), saved, memory, logs
        self.saved_sizes = {}

    def all(self):
        stages = []
        for k in range(self.count):
            stages.append({"forward": self.forward(k, "new"), "forward_nograd": self.forward(k, "no_grad"),
                           "backward": self.backward(k, "new"), "backward_accumulate": self.backward(k, "accumulate")})
        return stages

    def forward(self, k, kind):
        parts, probe = self.logs[kind]
        order = Order()
        order.follow(parts["forward", k])
        self.check(kind, "forward", k, order.order, self.memory[kind].delta["forward", k])
        made = {} if k + 1 == self.count else self.ids(k + 1, probe.made["forward", k])
        tensors = order.named(made)
        inner = sorted(set(order.alive.values()) - {number for number, _ in tensors})
        self.check_bytes(order, tensors, [tensor["bytes"] for tensor in self.saved.tensors])
        facts, left = self.saved.stages[k], sum(order.bytes[number] for number in inner)
        expected = (facts["inner"] if kind == "new" else 0) + (facts["output"] if k + 1 == self.count else 0)
        if left != expected:
            raise Unexplained(f"the forward of stage {k} ({kind}) leaves {left} B in addition to its output, autograd saves {expected}")
        if kind == "no_grad" and k + 1 == self.count:  # the loss, which the caller lets go
            order.follow_frees([(address, -order.bytes[number]) for address, number in list(order.alive.items())])
        return lists(order, [] if kind == "no_grad" else inner, tensors, [])

    def backward(self, k, kind):
        parts, probe = self.logs[kind]
        forward = Order()
        forward.follow(parts["forward", k])
        made = {} if k + 1 == self.count else self.ids(k + 1, probe.made["forward", k])
        there = [(address, forward.bytes[number]) for address, number in forward.alive.items() if address not in made]
        there.sort(key=lambda one: forward.alive[one[0]])
        if kind != "new" and [size for _, size in there] != self.saved_sizes[k]:
            raise Unexplained(f"stage {k} saves other tensors in another pass")
        self.saved_sizes[k] = [size for _, size in there]
        order = Order(there)
        order.follow(parts["backward", k])
        self.check(kind, "backward", k, order.order, self.memory[kind].delta["backward", k], [size for _, size in there])
        order.follow_frees(parts["released", k])
        gradients = self.ids(k, probe.made["backward", k])
        tensors = order.named(gradients)
        self.check_bytes(order, tensors, self.saved.gradient_bytes)
        return lists(order, [], tensors, order.named(
            {address: index for address, index in probe.gradients[k].items() if address not in gradients}))

    @staticmethod
    def check_bytes(order, tensors, sizes):
        for number, tensor in tensors:
            if order.bytes[number] != sizes[tensor]:
                raise Unexplained(f"tensor {tensor} has a storage of {sizes[tensor]} B in one of {order.bytes[number]}")

    def ids(self, boundary, positions):
        of = self.saved.positions[boundary]
        return {address: of[position] for address, position in positions.items()}

    def check(self, kind, phase, k, order, delta, there=()):
        found = replayed(order, there)
        expected = self.memory[kind].peak[phase, k], delta
        if found != expected:
            raise Unexplained(f"{phase} of stage {k} ({kind}): peak and change by the order {found}, counted {expected}")


def plain_orders(chain, logs, memory):
    """{new, accumulate: [order of each stage's forward, then of each one's backward]}."""
    found, count = {}, len(chain.stages)
    for name, kind in (("new", "plain"), ("accumulate", "plain_accumulate")):
        parts, probe = logs[kind]
        order, pieces = Order(), []
        for part in [("forward", k) for k in range(count)] + [("backward", k) for k in reversed(range(count))]:
            before = len(order.order)
            order.follow(parts.get(part, []))
            pieces.append(order.order[before:])
        if set(order.alive) - set(probe.gradients[None]):
            raise Unexplained("something other than a gradient lives on after a plain iteration")
        counted = memory[f"{kind}_by_stage"]
        peak, expected = replayed(order.order)[0], max(counted.forward_peak, *counted.peak.values())
        if peak != expected:
            raise Unexplained(f"plain iteration ({name}): peak by the order {peak}, counted {expected}")
        found[name] = pieces
    return found
