"""What the numbers of a run follow from: for each storage that an operation below autograd makes or writes.

*Fixed*: nothing but constants of the code, shapes, and other fixed numbers. *From inputs only*: fixed numbers and numbers of the model's inputs
(and of buffers, attributes and whatever else was there before the run, which is kept apart, `There`). *Unguarded*: anything else, a parameter,
a random number, uninitialised memory, what numpy may write into, what the run changes of what was there before. All tensors on a storage
follow from the same: what is written into one of them is in all of them. `zeros_like` and its kin read the shape only; random numbers of
[0, 1) below p are decided where p <= 0 or p >= 1.

Shapes follow the same rule. An operation whose result has as many numbers as its arguments say (`nonzero`, x[mask], `unique`, ...) is a
source of sizes, which go on to all that is made of the result.

What is fixed or follows from inputs only is kept as a list of steps, so that it can be computed again from other inputs (questions.py).
Steps name storages by number and hold no tensors of the run.
"""

import contextlib
import dataclasses
import functools
import random
import sys

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from .errors import Refused
from .values import map_leaves, tensors_in
from .versions import draws_numbers, geometry, storage_of

READ_ONLY_THE_SHAPE = {"zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "randint_like", "new_zeros", "new_ones",
                       "new_full", "new_empty", "new_empty_strided"}
READS = {"_local_scalar_dense", "item", "equal", "is_nonzero", "allclose"}
UNINITIALISED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "empty_quantized", "resize_", "resize",
                 "resize_as_"}
UNBOUND = {"as_strided", "as_strided_", "set_", "_reinterpret_tensor"}  # read what lies beside their argument in its storage
WRITTEN_UNSAID = {"running_mean", "running_var", "noise"}  # arguments that batch norms and rrelu overwrite, which their schemas do not say
FILLED_ALONE = {"fill_", "zero_", "copy_"}  # make a storage anew where their argument is all of it
COMPARED = {"lt": lambda p: True if p >= 1 else False if p <= 0 else None, "le": lambda p: True if p >= 1 else False if p < 0 else None,
            "gt": lambda p: False if p >= 1 else True if p < 0 else None, "ge": lambda p: False if p >= 1 else True if p <= 0 else None}
# Their results are as large as the numbers of their arguments say; the number of arguments whose shape alone counts.
SIZES_FOLLOW = {"index": 1, "masked_select": 1, "_pack_padded_sequence": 1}
SHAPED_AS_FIRST = {"index_add", "index_copy", "index_fill", "index_put", "index_reduce", "scatter", "scatter_add", "scatter_reduce", "masked_scatter"}
RANDOM = "a random number"
MOST_LITERAL_BYTES = 1 << 20


class There(str):
    """What was there before the run and is no parameter, in words. Among the names of inputs: it can be read again like one."""


class Slot:
    """What a storage follows from."""

    def __init__(self, number, nbytes, made, inputs=frozenset(), why="", sizes=frozenset()):
        self.number, self.bytes = number, nbytes
        self.made = made      # whether the run has made it; its inputs and what was there before it are not
        self.inputs = inputs  # names, and what was there before
        self.why = why        # in words, why it is unguarded
        self.sizes = sizes    # sources of sizes: `Asked`
        self.is_uniform = False  # random numbers of [0, 1)
        self.is_cast = False     # of a parameter, which autocast keeps for later calls
        self.owner = None        # the module in whose call it was made


class Place:
    """A tensor in the arguments of a step. No dataclass: those are containers."""

    def __init__(self, slot, geometry):
        self.slot, self.geometry = slot, geometry


class Blank:
    """A tensor of which the shape alone counts."""

    def __init__(self, shape, device):
        self.shape, self.device = shape, device


@dataclasses.dataclass
class Step:
    function: object
    arguments: tuple  # (args, kwargs) with a Place for each tensor
    made: list        # a Place for each tensor of the result
    reads: set        # numbers of slots
    writes: set       # numbers of slots, those that it makes included


class ShapesOf:
    """What an operation makes, its shapes alone."""

    def __init__(self, operation):
        self.operation = operation

    def __call__(self, *args, **kwargs):
        return shapes_of(self.operation(*args, **kwargs))


@dataclasses.dataclass(eq=False)
class Asked:
    """A number or a shape that follows from the data, and how to find it again."""

    position: int     # so many steps were before it
    function: object  # gives the answer
    arguments: tuple
    reads: set
    answer: object
    inputs: frozenset
    why: str
    is_shape: bool


class Origins(TorchDispatchMode):
    """`here()`: the module whose code runs, for what it makes."""

    def __init__(self, model):
        super().__init__()
        self.slots = {}  # address of a storage's head -> (weak reference, slot)
        self.by_number, self.steps = [], []
        self.is_aside = False
        self.call = None          # the recorded call that runs, if any
        self.is_literal = False   # whether what is called has nothing but numbers of Python in its arguments that are no tensors
        self.outside = None       # told of what is read outside of every call
        self.python_state = states_of_python()
        self.there = {}           # number of a slot -> a tensor on it that was there before the run
        self.parameters = {reference_of(tensor)[0]: f"the parameter '{name}'" for name, tensor in model.named_parameters()}
        self.buffers = {reference_of(tensor)[0]: There(f"the buffer '{name}'") for name, tensor in model.named_buffers()}

    @contextlib.contextmanager
    def aside(self):
        """What the recorder itself does with tensors."""
        before, self.is_aside = self.is_aside, True
        try:
            yield
        finally:
            self.is_aside = before

    # --- storages ---

    def given(self, name, tensor):
        """An input of the model."""
        slot = self.slot_of(tensor)
        slot.inputs, slot.why = frozenset([name]), ""
        self.there.pop(slot.number, None)
        return Place(slot.number, geometry(tensor))

    def slot_of(self, tensor, made=False, **follows):
        try:
            address, reference = reference_of(tensor)
        except (RuntimeError, NotImplementedError):  # sparse and the like
            return Slot(-1, 0, made, why="a tensor without a storage", sizes=frozenset([unknown_sizes("a tensor without a storage")]))
        if address not in self.slots:
            if not made:
                follows = {"inputs": frozenset([self.buffers.get(address, ELSEWHERE)]), "why": self.parameters.get(address, "")}
                self.there[len(self.by_number)] = tensor
            slot = Slot(len(self.by_number), storage_of(tensor).nbytes(), made, **follows)
            self.by_number.append(slot)
            self.slots[address] = reference, slot
        return self.slots[address][1]

    def lend(self, tensor, why):
        """From now on somebody may write into it unseen."""
        self.slot_of(tensor).why = why

    # --- operations ---

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.is_aside:
            return func(*args, **kwargs)
        with self.aside():
            operation = Dispatched(self, func, args, kwargs)
            for tensor, _ in operation.written:
                self.refuse_parameter(tensor, operation.name)
            result = func(*args, **kwargs)
            operation.note(result)
        return result

    def refuse_parameter(self, tensor, name):
        """Before it is overwritten."""
        parameter = self.parameters.get(reference_of(tensor)[0])
        if parameter is not None:
            raise Refused(f"the model's forward overwrites {parameter} ({name}), which would move with each run: leave that to the script, behind the step")

    def add_step(self, function, arguments, made, given):
        writes = {self.slot_of(tensor).number for tensor in made}
        self.steps.append(Step(function, arguments, [Place(self.slot_of(tensor).number, geometry(tensor)) for tensor in made], given, writes))

    def asked(self, function, arguments, slots, answer, is_shape):
        return Asked(len(self.steps), function, arguments, {slot.number for slot in slots}, answer, union(slot.inputs for slot in slots),
                     next((slot.why for slot in slots if slot.why), ""), is_shape)

    def whole(self, tensor):
        """All numbers of a tensor, read at once."""
        slot = self.slot_of(tensor)
        return self.asked(torch.Tensor.clone, ((self.placed(tensor),), {}), [slot], tensor.detach().clone(), False)

    def placed(self, leaf):
        return Place(self.slot_of(leaf).number, geometry(leaf)) if isinstance(leaf, torch.Tensor) else leaf

    def is_from_python(self):
        return self.is_literal and self.python_state == states_of_python()


class Dispatched:
    """One operation below autograd."""

    def __init__(self, origins, func, args, kwargs):
        self.origins, self.func, self.args, self.kwargs = origins, func, args, kwargs
        schema = getattr(func, "_schema", None)
        space, _, self.name = (schema.name if schema is not None else str(func)).rpartition("::")
        self.is_known = schema is not None and space == "aten"
        self.given, self.written = [], []
        if self.name == "lift_fresh":
            self.bring(args[0])
        arguments = [*zip(schema.arguments, args), *((one, kwargs[one.name]) for one in schema.arguments if one.name in kwargs)] if schema else \
            [(None, (args, kwargs))]
        for argument, value in arguments:
            writes = argument is not None and (argument.alias_info is not None and argument.alias_info.is_write or argument.name in WRITTEN_UNSAID)
            for tensor in tensors_in(value):
                slot = origins.slot_of(tensor)
                if tensor.is_conj() or tensor.is_neg():
                    slot.why = slot.why or "a tensor that is conjugated or negated when it is read"
                self.given.append((tensor, slot))
                if writes:
                    self.written.append((tensor, slot))
        self.arguments = map_leaves((args, kwargs), origins.placed)
        if origins.call is not None:
            origins.call.look_at(self)

    def bring(self, tensor):
        """Numbers of Python become a tensor."""
        if not self.origins.is_from_python() or self.unseen() or reference_of(tensor)[0] in self.origins.slots or storage_of(tensor).nbytes() > MOST_LITERAL_BYTES:
            return
        self.origins.slot_of(tensor, made=True)
        self.origins.add_step(tensor.clone().clone, ((), {}), [tensor], set())

    def note(self, result):
        made = tensors_in(result)
        if not made and result is not None:
            return self.read(result) if self.is_read() else None
        if self.decided(result):
            return
        inputs, why, whole = self.follows()
        sizes = self.sizes(made)
        for tensor, slot in self.written:
            if whole:
                slot.inputs, slot.why, slot.is_uniform = inputs, why, False
            else:
                there = "" if slot.made or slot.number not in self.origins.there else "what the run changes of what was there before"
                slot.inputs, slot.why, slot.is_uniform = slot.inputs | inputs, slot.why or why or there, False
        known = {slot.number for _, slot in self.given}
        for tensor in made:
            slot = self.origins.slot_of(tensor, made=True, inputs=inputs, why=why)
            if slot.number in known:  # a view, or what has been written
                if not self.written:
                    slot.sizes, slot.inputs, slot.why = slot.sizes | sizes, slot.inputs | inputs, slot.why or why
                continue
            known.add(slot.number)
            slot.sizes = sizes if tensor.dim() or self.is_source() else frozenset()
            slot.is_uniform = self.name in ("rand", "rand_like") and tensor.dtype in (torch.float32, torch.float64)
            if self.origins.call is not None:
                slot.owner = self.origins.call.owner
                slot.is_cast = self.name == "_to_copy" and self.origins.call.has_autocast and not any(of.made for _, of in self.given)
            if getattr(tensor, "is_nested", False):
                slot.sizes = frozenset([unknown_sizes("a nested tensor")])
        if self.name == "uniform_" and whole and range_of(self.args) == (0, 1):
            self.written[0][1].is_uniform = self.written[0][0].dtype in (torch.float32, torch.float64)
        is_view = not self.written and all(self.origins.slot_of(tensor) in [slot for _, slot in self.given] for tensor in made)
        if not why and not is_view:
            made += [tensor for tensor, _ in self.written]
            self.origins.add_step(self.func, self.arguments, made, {slot.number for _, slot in self.given})
        if sizes and self.is_source() and self.origins.call is None and self.origins.outside is not None:
            self.origins.outside(next(iter(sizes)))

    def follows(self):
        """(names of inputs, why it is unguarded, whether what is written is nothing of what was there). Of what is read for its shape alone, and
        of numbers and shapes that a call has read before, nothing is computed again: they leave it unguarded."""
        read = [slot for tensor, slot in self.given]
        whole = self.name in FILLED_ALONE | {"uniform_"} and all(is_all_of_storage(tensor) for tensor, _ in self.written)
        if whole:
            read = [slot for tensor, slot in self.given[1:]]
        if self.name in READ_ONLY_THE_SHAPE:
            read = []
        why = next((slot.why for slot in read if slot.why), "")
        inputs = union(slot.inputs for slot in read)
        if not self.is_known:
            why = why or f"an operation whose doings nobody knows ({self.name})"
        elif draws_numbers(self.func) or any(argument.name == "generator" for argument in self.func._schema.arguments):
            why = why or RANDOM
        if self.name in UNINITIALISED:
            why = why or "uninitialised memory"
        if self.name in UNBOUND:
            why = why or "memory beyond the tensor's own values"
        for asked in union(slot.sizes for _, slot in self.given if slot not in read) | self.unseen():
            if asked.inputs or asked.why:
                inputs, why = inputs | asked.inputs, why or asked.why or "a shape that follows from data"
        return inputs, why, whole

    def unseen(self):
        """What decides the result beside the arguments: what its call has read, and shapes of what the call was handed and this was not."""
        call = self.origins.call
        return call.sizes_now() | call.handed_sizes() - union(slot.sizes for _, slot in self.given) if call is not None else frozenset()

    # --- sizes ---

    def is_source(self):
        """Whether the result is as large as numbers in the arguments say."""
        if self.name == "index":
            return any(tensor.dtype in (torch.bool, torch.uint8) for tensor in tensors_in(self.args[1]))
        tag = getattr(torch.Tag, "dynamic_output_shape", None)
        return self.name in SIZES_FOLLOW or tag in self.func.tags if self.is_known else not self.follows_from_shapes

    @functools.cached_property
    def follows_from_shapes(self):
        """Whether an operation of others can say how large its result is without any numbers."""
        def bare(leaf):
            return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta") if isinstance(leaf, torch.Tensor) else leaf
        try:
            args, kwargs = map_leaves((self.args, self.kwargs), bare)
            return shapes_of(self.func(*args, **kwargs)) == self.shapes
        except Exception:  # whatever their code raises: they cannot
            return False

    def sizes(self, made):
        self.shapes = shapes_of(made)
        found = union(slot.sizes for _, slot in self.given[:1 if self.name in SHAPED_AS_FIRST else None])
        if made and self.is_source():
            first = SIZES_FOLLOW.get(self.name, 0)
            args, kwargs = self.arguments
            args = (*(map_leaves(of, blank) for of in args[:first]), *args[first:])
            counted = [self.origins.slot_of(tensor) for tensor in tensors_in((self.args[first:], self.kwargs))]
            source = self.origins.asked(ShapesOf(self.func), (args, kwargs), counted, self.shapes, True)
            if not self.is_known:
                source.why = source.why or f"an operation whose doings nobody knows ({self.name})"
            found |= {source}
            if self.origins.call is not None:
                self.origins.call.sources.add(source)
        if self.origins.call is not None:
            found |= self.origins.call.sizes_now()
        return found

    # --- reads ---

    def is_read(self):
        """Whether what is no tensor follows from numbers, and not from shapes and the like alone."""
        return self.given and (not self.is_known or self.name in READS or torch.Tag.data_dependent_output in self.func.tags)

    def read(self, result):
        """A number has been handed to Python, or to what is written in C++ above this operation."""
        asked = self.origins.asked(self.func, self.arguments, [slot for _, slot in self.given], result, False)
        if self.origins.call is not None:
            self.origins.call.reads.append(asked)
        elif self.origins.outside is not None:
            self.origins.outside(asked)

    def decided(self, result):
        """Random numbers of [0, 1) below a number that none or all of them are below."""
        if self.name not in COMPARED or self.written or len(self.args) != 2 or not isinstance(self.args[1], (bool, int, float)) \
                or not self.given[0][1].is_uniform or self.given[0][1].sizes or self.unseen():
            return False
        answer = COMPARED[self.name](torch.tensor(self.args[1], dtype=self.args[0].dtype).item())  # as the comparison rounds it
        if answer is None:
            return False
        self.origins.slot_of(result, made=True)
        self.origins.add_step(torch.full, ((tuple(result.shape), answer), {"dtype": torch.bool, "device": result.device}), [result], set())
        return True


ELSEWHERE = There("a tensor that was there before")


def of_inputs(names):
    """Those that are the model's inputs."""
    return [name for name in names if not isinstance(name, There)]


def reference_of(tensor):
    reference = StorageWeakRef(storage_of(tensor))
    return reference.cdata, reference


def union(sets):
    return frozenset().union(*sets)


def unknown_sizes(why):
    return Asked(0, None, ((), {}), set(), None, frozenset(), why, True)


def shapes_of(result):
    return [list(tensor.shape) for tensor in tensors_in(result)]


def blank(leaf):
    if not isinstance(leaf, Place):
        return leaf
    _, shape, _, _, device = leaf.geometry
    return Blank(shape, device)


def is_all_of_storage(tensor):
    return tensor.is_contiguous() and tensor.numel() * tensor.element_size() == storage_of(tensor).nbytes()


def range_of(args):
    return (*args[1:3], *(0, 1)[len(args) - 1:]) if len(args) <= 3 else None


def states_of_python():
    """Where Python's random numbers stand, and numpy's."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return random.getstate(), None
    _, words, *rest = numpy.random.get_state()
    return random.getstate(), (words.tobytes(), rest)
