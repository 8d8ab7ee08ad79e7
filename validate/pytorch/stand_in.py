"""A stand-in for a CUDA device, for tests of the step where there is none. The host is infinitely far ahead: all is issued before anything runs.

Device: streams, events and the caching allocator, as far as the step asks them (torch.cuda.Stream, Event, current_stream, stream; torch.empty on
the device and pinned; copy_ from one to the other). What is issued on a stream is over before the next thing there; between streams only
events say so. A block that is freed serves what is allocated on its stream later, and where another stream has been recorded on it, nobody.
Each stream has a clock that counts what is over, there and elsewhere, when the next thing begins; by these clocks it is an error

- to read what has not been written before, or something else than what is asked for;
- to write what has not been read before, or written twice;
- to touch a block before all is over that touched a freed block which it may be made of.

Model: stages that compute nothing and have the bytes and seconds of a plan, for the step to run. Their tensors are real memory that nobody touches.
"""

import contextlib
from types import SimpleNamespace
from unittest import mock

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from plimsoll.torch import device as device_of_step
from plimsoll.torch.order import last_waits, stream_of
from plimsoll.torch.plan import read_plan
from plimsoll.torch.step import Step
from plimsoll.torch.versions import storage_of


class Hazard(AssertionError):
    """Something runs before what it needs is over."""


def merge(clock, other):
    for stream, count in other.items():
        clock[stream] = max(count, clock.get(stream, 0))


class Stream:
    def __init__(self, name):
        self.name, self.clock, self.time = name, {}, 0.0

    def record_event(self):
        return SimpleNamespace(clock=dict(self.clock), time=self.time)

    def wait_event(self, event):
        merge(self.clock, event.clock)
        self.time = max(self.time, event.time)

    wait_stream = wait_event


class Block:
    """Memory of the device or of the host. `must`: what has to be over before it is touched."""

    def __init__(self, storage, stream, must):
        self.reference, self.bytes, self.stream, self.must = StorageWeakRef(storage), storage.nbytes(), stream, must
        self.touched = []   # [(begin, end, stream, count there, whether it writes)]
        self.content = []   # [(begin, end, of which write, first byte of it)]
        self.is_recorded = False

    def fill(self, begin, end, content):
        outside = [(b, min(e, begin), of, first) for b, e, of, first in self.content if b < begin]
        outside += [(max(b, end), e, of, first + max(b, end) - b) for b, e, of, first in self.content if e > end]
        self.content = outside + content

    def part(self, begin, end):
        """What stands in these bytes; [] where some have never been written."""
        found = sorted((max(b, begin), min(e, end), of, first + max(b, begin) - b) for b, e, of, first in self.content if b < end and e > begin)
        joints = [begin, *(e for _, e, _, _ in found)]
        return found if joints == [*(b for b, _, _, _ in found), end] else []


class Device:
    """`base`: bytes that are there from the start; `rate`: of copies, in bytes per second."""

    def __init__(self, base, rate):
        self.base, self.rate, self.peak = base, rate, base
        self.kernels, self.names = Stream("kernels"), iter(("outward", "inward"))
        self.current, self.blocks, self.lost, self.freed = self.kernels, {}, [], {}  # freed: {stream: clock of all who touched what is free}
        cuda = SimpleNamespace(Stream=lambda _: Stream(next(self.names)), current_stream=lambda _: self.current, stream=self.on)
        self.torch = SimpleNamespace(cuda=cuda, empty=self.empty, uint8=torch.uint8, frombuffer=torch.frombuffer)

    @contextlib.contextmanager
    def on(self, stream):
        outer, self.current = self.current, stream
        yield
        self.current = outer

    # --- memory ---

    def empty(self, bytes_, dtype, device=None, pin_memory=False):
        made = torch.empty(bytes_, dtype=dtype)
        if bytes_:
            self.allocated(storage_of(made), pin_memory)
        return made

    def allocated(self, storage, is_pinned=False):
        self.look_for_freed()
        stream = None if is_pinned else self.current.name
        self.blocks[storage.data_ptr()] = Block(storage, stream, dict(self.freed.get(stream, {})))
        self.peak = max(self.peak, self.live())

    def look_for_freed(self):
        for address, block in list(self.blocks.items()):
            if block.reference.expired():
                del self.blocks[address]
                if block.is_recorded:
                    self.lost.append(block)
                else:
                    for _, _, stream, count, _ in block.touched:
                        merge(self.freed.setdefault(block.stream, {}), {stream: count})

    def live(self):
        return self.base + sum(block.bytes for block in [*self.blocks.values(), *self.lost] if block.stream is not None)

    def uncounted(self, tensor):
        self.blocks[storage_of(tensor).data_ptr()].bytes = 0

    # --- what is issued ---

    def issue(self, reads, writes, seconds):
        """On the current stream. `reads`, `writes`: [(block, begin, end)]."""
        self.look_for_freed()
        stream = self.current
        for is_write, touched in ((False, reads), (True, writes)):
            for block, begin, end in touched:
                self.check(stream, block, begin, end, is_write)
        count = stream.clock[stream.name] = stream.clock.get(stream.name, 0) + 1
        stream.time += seconds
        for is_write, touched in ((False, reads), (True, writes)):
            for block, begin, end in touched:
                block.touched.append((begin, end, stream.name, count, is_write))

    def check(self, stream, block, begin, end, is_write):
        what = f"{stream.name} {'writes' if is_write else 'reads'} {end - begin} B"
        for other, count in block.must.items():
            if stream.clock.get(other, 0) < count:
                raise Hazard(f"{what} that may still be in use by {other} from before they were freed")
        for b, e, other, count, has_written in block.touched:
            if b < end and e > begin and (is_write or has_written) and stream.clock.get(other, 0) < count:
                raise Hazard(f"{what} that {other} may not have {'written' if has_written else 'read'} yet")
        if not is_write and not block.part(begin, end):
            raise Hazard(f"{what} that nobody has written")

    def kernel(self, reads, writes, seconds):
        """`reads`, `writes`: [(storage, name of what stands there)]."""
        self.look_for_freed()
        known, made = ([(self.blocks[storage.data_ptr()], name) for storage, name in of] for of in (reads, writes))
        self.issue([(block, 0, block.bytes) for block, _ in known], [(block, 0, block.bytes) for block, _ in made], seconds)
        for block, name in known:
            if any(of != name or b != first for b, _, of, first in block.part(0, block.bytes)):
                raise Hazard(f"{self.current.name} reads {block.bytes} B in which something else stands")
        for block, name in made:
            block.fill(0, block.bytes, [(0, block.bytes, name, 0)])

    def copied(self, destination, source):
        self.look_for_freed()
        places = []
        for tensor in (source, destination):
            storage = storage_of(tensor)
            begin = tensor.storage_offset() * tensor.element_size()
            places.append((self.blocks[storage.data_ptr()], begin, begin + tensor.numel() * tensor.element_size()))
        (of, low, high), (to, begin, end) = places
        self.issue([places[0]], [places[1]], (high - low) / self.rate)
        to.fill(begin, end, [(b - low + begin, e - low + begin, name, first) for b, e, name, first in of.part(low, high)])
        return destination

    # --- in place of torch ---

    @contextlib.contextmanager
    def in_use(self):
        copy, known = torch.Tensor.copy_, lambda tensor: storage_of(tensor).data_ptr() in self.blocks
        copied = lambda to, of, *rest, **options: self.copied(to, of) if known(to) and known(of) else copy(to, of, *rest, **options)
        recorded = lambda tensor, _: setattr(self.blocks[storage_of(tensor).data_ptr()], "is_recorded", True)
        with mock.patch.object(torch.Tensor, "copy_", copied), mock.patch.object(torch.Tensor, "record_stream", recorded), \
                mock.patch.object(device_of_step, "torch", self.torch):
            yield


# --- stages that compute nothing --------------------------------------------------------------------------------------------------

class Make(torch.autograd.Function):
    """The first node of a stage: gradients of what it reads and of its parameter appear in its backward."""

    @staticmethod
    def forward(ctx, stage, *tensors):
        ctx.stage, ctx.shapes = stage, [tensor.numel() if tensor.requires_grad else None for tensor in tensors]
        return torch.zeros(1)

    @staticmethod
    def backward(ctx, _):
        made = [ctx.stage.new(4 * count) if count is not None and needed else None for count, needed in zip(ctx.shapes, ctx.needs_input_grad[1:])]
        ctx.stage.device.kernel([], [(storage_of(tensor), "gradient") for tensor in made if tensor is not None], 0.0)
        return (None, *made)


class Save(torch.autograd.Function):
    """Its last node: saves what the stage saves, and reads that in its backward."""

    @staticmethod
    def forward(ctx, stage, names, count, *tensors):
        """`tensors`: a token, `count` outputs, then what is saved."""
        ctx.set_materialize_grads(False)
        ctx.stage, ctx.names = stage, names
        ctx.save_for_backward(*tensors[1 + count:])
        return tuple(tensor.view_as(tensor) for tensor in tensors[1:1 + count])

    @staticmethod
    def backward(ctx, *gradients):
        stage = ctx.stage
        reads = list(zip(map(storage_of, ctx.saved_tensors), ctx.names))
        reads += [(storage_of(gradient), "gradient") for gradient in gradients if gradient is not None and gradient.numel() > 1]
        stage.device.kernel(reads, stage.workspace(0), stage.model.seconds[stage.model.number])
        if stage.is_last:
            stage.device.uncounted(stage.model.loss)
        return (None, None, None, torch.zeros(1), *[None] * (len(ctx.names) + len(gradients)))


class ModelStage:
    def __init__(self, model, k, reads, makes):
        self.model, self.k, self.name, self.reads, self.makes = model, k, model.plan.stages[k], reads, makes
        self.is_last, self.operations, self.device = k == len(model.plan.stages) - 1, [], model.device
        self.draws_numbers, self.keeps = False, set(model.read_by_backward[k])
        self.parameter = model.parameter_of(k)

    def parameters(self):
        return [] if self.parameter is None else [self.parameter]

    def new(self, bytes_):
        made = torch.empty(bytes_ // 4)
        self.device.allocated(storage_of(made))
        return made

    def workspace(self, bytes_):
        """What the action takes beside `bytes_`, for as long as the caller holds it."""
        size = self.model.room() - bytes_
        return [(storage_of(self.device.empty(size, torch.uint8)), "workspace")] if size > 0 else []

    def __call__(self, values, targets):
        model, saves = self.model, self.model.action().saves
        sizes = {"loss": 4} if self.is_last else {name: model.bytes_of[name] for name in self.makes}
        made = {name: self.new(size) for name, size in sizes.items()}
        model.loss = made.get("loss")
        saved = {f"{self.name} {part}": self.device.empty(size, torch.uint8) for part, size in enumerate(model.saved_bytes(self.k)) if saves}
        inputs = dict(zip(self.reads, values))
        workspace = self.workspace(sum(sizes.values()) + sum(tensor.numel() for tensor in saved.values()))
        self.device.kernel(stored(inputs), stored(made) + stored(saved) + workspace, model.seconds[model.number])
        del workspace
        if not saves:
            return tuple(made.values())
        saved |= {name: tensor.detach() for name, tensor in (inputs | made).items() if name in model.read_by_backward[self.k]}
        token = Make.apply(self, *values, *self.parameters())
        return Save.apply(self, list(saved), len(made), token, *made.values(), *saved.values())


def stored(tensors):
    return [(storage_of(tensor), name) for name, tensor in tensors.items()]


class Model:
    """What the step asks of a model that has been split."""

    def __init__(self, plan, device, seconds):
        self.plan, self.device, self.number, self.seconds = plan, device, 0, seconds
        self.bytes_of = {name: value.bytes for value in plan.values.values() if value.kind == "boundary" for name in value.names}
        self.boundaries = [*plan.model["boundaries"][:-1], ["loss"]]
        needing = {name for value in plan.values.values() if value.kind == "gradient" and value.bytes for name in value.names}
        storage = {name: number for number, value in enumerate(plan.values.values()) for name in value.names if value.kind == "boundary"}
        self.values = [SimpleNamespace(name=name, storage=storage[name], needs_gradient=name in needing) for name in self.bytes_of]
        self.read_by_backward = self.there_at_backwards()
        self.stages = [ModelStage(self, k, stage["reads"], stage["makes"]) for k, stage in enumerate(plan.model["stages"])]
        self.questions, self.outside = SimpleNamespace(refuse_other=lambda *_: None), []
        self.model = torch.nn.Module()
        self.model._parameters.update({str(stage.k): stage.parameter for stage in self.stages if stage.parameter is not None})

    def there_at_backwards(self):
        """{stage: names of the values between stages that its backward may read: they are there, and it waits for what has brought them}."""
        there, known, found = {name: -1 for name in self.plan.values["x0"].names}, -1, {}  # {name: the copy that has brought it}
        waits = last_waits(self.plan)
        for number, action in enumerate(self.plan.actions):
            is_back, value = stream_of(action) == "inward", self.plan.values.get(action.value)
            there |= {name: -1 for made in action.makes for name in self.plan.values[made].names}
            if is_back and value.kind == "boundary":
                there |= {name: number for name in value.names}
            if not is_back:
                known = max(known, waits[number].get("inward", -1))
            if action.do == "backward":
                found[action.stage] = [name for name, copy in there.items() if copy <= known and name not in self.boundaries[0]]
            for name in [name for dropped in action.drops if self.plan.values[dropped].kind == "boundary" for name in self.plan.values[dropped].names]:
                there.pop(name, None)
        return found

    def action(self):
        return self.plan.actions[self.number]

    def room(self):
        """What the action may take beside what is there before."""
        return self.action().peak_bytes - self.before(self.number)

    def before(self, number):
        return self.plan.actions[number - 1].after_bytes if number else self.plan.predicted["resident_bytes"] + self.plan.predicted["input_bytes"]

    def saved_bytes(self, k):
        """Of two tensors, without the loss, which a plan counts there."""
        size = next(value.bytes for value in self.plan.values.values() if value.kind == "saved" and value.stage == k) - 4 * self.stages[k].is_last
        return [part for part in (size // 3, size - size // 3) if part]

    def parameter_of(self, k):
        """What the first backward leaves beside gradients of values."""
        number, action = next((number, action) for number, action in enumerate(self.plan.actions) if action.do == "backward" and action.stage == k)
        left = action.after_bytes - self.before(number) + sum(self.plan.values[name].bytes for name in action.drops)
        gradients = {f"gradient of {name}" for name, value in self.plan.values.items() if value.kind == "boundary"
                     and set(value.names) & set(self.plan.model["stages"][k]["reads"])}
        past = self.plan.actions[:number]
        for name in gradients & set(self.plan.values):
            value = self.plan.values[name]
            readers = [stage for stage, of in enumerate(self.plan.model["stages"]) if set(value.names) & set(of["reads"])]
            if not any(other.do == "backward" and other.stage in readers for other in past):
                left -= value.bytes
        assert left >= 0 and left % 4 == 0, (k, left)
        return torch.nn.Parameter(torch.empty(left // 4)) if left else None

    # --- what the step asks ---

    def is_course_of(self, _):
        return True

    def values_of(self, inputs):
        return (inputs,)

    def input_shapes(self):
        return {}


def run(text, steps=2, change=None):
    """Runs a plan (JSON as a dict) with the step's own code. Returns the Device. `change`: a function of the Step, called before."""
    plan, seconds = read_plan(text), [action["seconds"] for action in text["actions"]]
    device = Device(plan.predicted["resident_bytes"], rate_of_copies(plan, seconds))
    model = Model(plan, device, seconds)
    with device.in_use():
        step = Step(model.model, plan, None, None)
        step.copies = device_of_step.CudaCopies(torch.device("cpu"), plan)
        if change is not None:
            change(step)
        step.watch = lambda number, _: setattr(model, "number", number)
        inputs = device.empty(plan.values["x0"].bytes, torch.uint8)
        device.kernel([], [(storage_of(inputs), plan.values["x0"].names[0])], 0.0)
        with mock.patch("plimsoll.torch.step.split", lambda *_, **__: model):
            for _ in range(steps):
                for parameter in model.model.parameters():
                    parameter.grad = None
                step(inputs)
    return device


def rate_of_copies(plan, seconds):
    pairs = [(plan.values[action.value].bytes, duration) for action, duration in zip(plan.actions, seconds) if action.do == "copy"]
    return sum(bytes_ for bytes_, _ in pairs) / sum(duration for _, duration in pairs) if pairs else 1.0
