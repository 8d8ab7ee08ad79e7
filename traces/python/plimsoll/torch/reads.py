"""What Python reads out of tensors while a model is recorded, numbers and shapes: taken where they are fixed, kept as questions where they follow
from inputs only, else refused (origins.py has the rule).

A recorded call runs again as a whole: what C++ reads inside one is read anew each time and needs no guard, nor do the shapes that a module's
own code reads there. Of such a module numbers are judged nevertheless, since memory and time depend on its course, but those of its own
parameters and buffers. What leaves the call as a number is judged like any other.
"""

import contextlib

import torch

from .errors import Refused
from .origins import RANDOM, There, of_inputs, union, unknown_sizes
from .values import children_of, tensors_in
from .versions import autocast_now, without_dispatch_mode

ALL_AT_ONCE = {"tolist", "numpy", "__array__", "__repr__", "__str__", "storage", "untyped_storage", "_storage", "_typed_storage", "__dlpack__",
               "__reduce_ex__", "__deepcopy__", "apply_", "map_", "map2_"}  # the last three hand each number to a function of Python
LENT = {"numpy", "__array__", "storage", "untyped_storage", "_storage", "_typed_storage", "__dlpack__", "data_ptr", "__cuda_array_interface__",
        "apply_", "map_", "map2_"}
NOT_JUDGED_INSIDE = {"__repr__", "__str__", "storage", "untyped_storage", "_storage", "_typed_storage", "__dlpack__"}
PARTS = {"unbind", "split", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit", "split_with_sizes", "unsafe_split", "unsafe_chunk", "__iter__",
         "unsafe_split_with_sizes"}
NO_SHAPE = {"dtype", "device", "layout", "requires_grad", "is_leaf", "is_cuda", "is_cpu", "is_floating_point", "is_complex", "is_signed", "grad_fn",
            "_version", "is_sparse", "is_quantized", "is_nested", "is_meta", "is_mps", "is_xla", "is_xpu", "is_mkldnn", "get_device", "element_size",
            "itemsize", "names", "has_names", "is_conj", "is_neg", "is_inference", "output_nr", "grad", "grad_dtype", "retains_grad", "_base",
            "_is_view", "type", "data_ptr", "__hash__", "_backward_hooks", "is_shared", "is_pinned", "requires_grad_"}
NUMBERS = {"__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__", "__array__", "item", "tolist", "numpy", "equal", "allclose",
           "is_nonzero"}  # where no operation is seen
UNSEEN = "what nobody has seen"
PLAIN = (bool, int, float, complex, str, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)


class Call:
    """A recorded call that runs now."""

    def __init__(self, reads, name, given, owner, is_leaf):
        origins = reads.origins
        self.reads_of, self.name, self.owner, self.is_leaf = reads, name, owner, is_leaf
        slots = [origins.slot_of(tensor) for tensor in given]
        self.given, self.sizes = {slot.number for slot in slots}, union(slot.sizes for slot in slots)
        self.has_autocast = bool(autocast_now())
        self.first = len(origins.by_number)  # what has a lower number was there before the call
        self.is_python = is_leaf and not isinstance(owner, torch.jit.ScriptFunction)  # reads of other code are not told one by one
        self.reads = []        # numbers that were read in it
        self.sources = set()   # of sizes, that it has made
        self.unguarded = []    # those of them that are read anew each time, and that nobody has judged
        self.shapes = []       # shapes that follow from data and were read in it
        self.is_own = False    # whether the model's own code has read something
        self.is_handed_all = True  # whether it uses no tensors of the run but its arguments
        self.is_blind = False  # whether its operations are not seen
        self.ignores = False

    def sizes_now(self):
        """What is made from here on may be as large as the numbers say that have been read."""
        return frozenset() if self.ignores else frozenset(self.reads) | frozenset(self.shapes) | frozenset(self.unguarded if self.is_own else ())

    def handed_sizes(self):
        """What the shapes follow from that its code may know without a read that is seen."""
        return self.sizes | (frozenset() if self.is_python else self.sources)

    def look_at(self, operation):
        for _, slot in operation.given:
            is_fixed = not slot.why and not slot.inputs and all(slot is not written for _, written in operation.written)
            is_its_own = slot.owner is not None and slot.owner is self.owner and not of_inputs(slot.inputs) and slot.why != RANDOM
            if slot.number < self.first and slot.number not in self.given and (slot.made or of_inputs(slot.inputs)) \
                    and not (is_fixed or slot.is_cast or is_its_own):
                self.is_handed_all = False


class Reads:
    """`here()`: in words, whose code runs; `is_own()`: whether it is the model's, not that of torch's modules."""

    def __init__(self, origins, here, is_own):
        self.origins, self.here, self.is_own = origins, here, is_own
        self.questions = []  # (text, Asked)
        self.left = []       # read outside of every call: what raises there is not seen
        origins.outside = self.left.append

    def settle_left(self):
        while self.left:
            self.settle([self.left.pop(0)], "in a compiled function")

    @contextlib.contextmanager
    def of_call(self, name, arguments, given, owner, is_leaf):
        """A recorded call of the model."""
        self.settle_left()
        with self.origins.aside():
            call = Call(self, name, given, owner, is_leaf)
        self.origins.call, call.ignores = call, name == "one_hot" and tells_classes(arguments)
        before, self.origins.is_literal = self.origins.is_literal, not is_leaf and is_literal(name, arguments)
        try:
            yield call
        finally:
            self.origins.call, self.origins.is_literal = None, before

    def end(self, call, result, arguments, notes):
        """Of a recorded call. `notes`: whether it has left numbers elsewhere than in its result."""
        with self.origins.aside():
            for tensor in tensors_in(result):
                self.origins.slot_of(tensor).is_cast = False
        if call.is_leaf:
            if notes or call.is_own and not isinstance(result, torch.Tensor):
                self.settle(call.reads + call.unguarded + call.shapes, call.name, strictly=True)
        elif not tensors_in(result) or call.name in ALL_AT_ONCE:
            if result is not None:
                self.of_function(call, call.name, arguments)
        elif has_numbers(result):
            self.settle(call.reads + ordered(call.handed_sizes()), call.name)
        elif call.name in PARTS:
            self.settle(ordered(call.sizes), call.name, as_shape=True)

    def inside(self, function, name, args, kwargs):
        """A function in a module that is one call."""
        call = self.origins.call
        if call is None or not call.is_leaf:
            return function(*args, **kwargs)
        first = len(call.reads)
        literal, self.origins.is_literal = self.origins.is_literal, is_literal(name, (args, kwargs))
        ignores, call.ignores = call.ignores, call.ignores or name == "one_hot" and tells_classes((args, kwargs))
        result = function(*args, **kwargs)
        self.origins.is_literal, call.ignores = literal, ignores
        if (tensors_in(result) or result is None) and name not in ALL_AT_ONCE:
            return result
        own, found = self.is_own(), call.reads[first:]
        call.is_own |= own
        del call.reads[first:]
        whole = self.whole_of(name, (args, kwargs))
        numbers = [] if name in NOT_JUDGED_INSIDE else whole or found
        if call.is_blind and name in NUMBERS:
            numbers = [self.origins.asked(None, ((), {}), [], None, False)]
            numbers[0].why = UNSEEN
        if own and not all(map(self.is_constant, numbers)):
            self.settle(numbers, name)
        else:
            call.unguarded += numbers
        if not whole and not numbers and name not in NO_SHAPE:
            call.shapes += self.sizes_of((args, kwargs))
        return result

    def blindly(self, function, args, kwargs):
        """A call that dispatch modes do not stand: whatever it is handed and makes follows from what nobody has seen."""
        call = self.origins.call
        call.is_blind = True
        with without_dispatch_mode():
            result = function(*args, **kwargs)
        with self.origins.aside():
            for tensor in tensors_in((args, kwargs, result)):
                slot = self.origins.slot_of(tensor, made=True)
                slot.why, slot.sizes = UNSEEN, frozenset([unknown_sizes(UNSEEN)])
        return result

    def is_constant(self, asked):
        """Whether it is a number of a tensor that was there before the run."""
        return asked.why != UNSEEN and not of_inputs(asked.inputs) and not any(self.origins.by_number[slot].made for slot in asked.reads if slot >= 0)

    def of_function(self, call, name, arguments):
        """A function that gives Python no tensor."""
        read = self.whole_of(name, arguments) or call.reads
        if read:
            self.settle(read + ordered(call.sources), name)
        elif name not in NO_SHAPE:
            self.settle(ordered(call.handed_sizes()), name, as_shape=True)

    def whole_of(self, name, arguments):
        with self.origins.aside():
            found = [self.origins.whole(tensor) for tensor in tensors_in(arguments)] if name in ALL_AT_ONCE else []
            for tensor in tensors_in(arguments) if name in LENT else ():
                self.origins.lend(tensor, "memory that is handed out")
        return found

    def sizes_of(self, arguments):
        with self.origins.aside():
            return ordered(union(self.origins.slot_of(tensor).sizes for tensor in tensors_in(arguments)))

    def settle(self, found, name, strictly=False, as_shape=False):
        """Asks, or refuses. `as_shape`: a shape was read that follows from the numbers. What torch's modules read of what was there before is
        asked."""
        for asked in found:
            is_shape, there = asked.is_shape or as_shape, [one for one in asked.inputs if isinstance(one, There)]
            if asked.why or there and (self.is_own() or strictly):
                what = "a shape that follows from data" if is_shape else "numbers"
                raise Refused(f"{self.here()}: its forward reads {what} out of a tensor ({name}), so its course depends on the data: "
                              f"{'it follows' if is_shape else 'they follow'} from {asked.why or there[0]}")
            if asked.inputs:
                names = [*(f"'{one}'" for one in sorted(of_inputs(asked.inputs))), *sorted(there)]
                self.questions.append((f"{self.here()}: its forward reads {'a shape' if is_shape else 'a number'} ({name}) that follows from "
                                       + " and ".join(names), asked))


def ordered(sizes):
    """The same from run to run."""
    return sorted(sizes, key=lambda asked: (asked.position, repr(asked.answer)))


def has_numbers(result):
    """Whether something leaves a call that no tensor carries."""
    children = children_of(result)
    if children is not None:
        return any(map(has_numbers, children))
    return not isinstance(result, (torch.Tensor, type(None), torch.dtype, torch.device, torch.layout))


def is_literal(name, arguments):
    """Whether what a function makes of arguments that are no tensors is made of Python's numbers. What numpy and others hold may change."""
    args, kwargs = arguments
    data = (args[:1], kwargs.get("data")) if name in ("tensor", "as_tensor", "asarray") else \
        (args[1:2], kwargs.get("data")) if name == "new_tensor" else ()
    return not tensors_in(data) and is_plain(arguments)


def is_plain(value):
    children = children_of(value)
    return all(map(is_plain, children)) if children is not None else isinstance(value, (torch.Tensor, torch.Generator, *PLAIN))


def tells_classes(arguments):
    args, kwargs = arguments
    return (args[1] if len(args) > 1 else kwargs.get("num_classes", -1)) >= 0
