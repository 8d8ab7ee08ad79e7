"""Runs a model once and writes down what it calls: leaf modules, and functions on tensors between them.

The model really runs on the example, so its Python code may do what it likes with shapes, dicts and dataclasses; where it reads numbers out
of tensors, or shapes that follow from numbers, the course that it takes may hold for this example only (reads.py). Nothing is kept for a
backward while it runs, and buffers and random state are afterwards what they were.
"""

import contextlib
import dataclasses
import sys
import threading
import types
import weakref

import torch
import torch.utils.checkpoint
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from .errors import Refused
from .hooks import AROUND_FORWARD, has_around_forward, is_of_library
from .modes import difference
from .origins import Origins
from .questions import Questions
from .ran import CodeThatRuns
from .reads import Reads
from .refusals import place_of
from .values import children_of, form_of, map_leaves, named_tensors_in, tensors_in
from .versions import autocast_now, is_inside_transform, storage_of

OF_TORCH = set(vars(torch.nn.Module())) - {"training"}  # attributes of every module


SET_DATA = torch.Tensor.data.__set__
ON_GRADIENTS = {"register_hook": "registers a hook on a tensor's gradient (register_hook)",
                "register_post_accumulate_grad_hook": "registers a hook on a parameter's gradient (register_post_accumulate_grad_hook)",
                "retain_grad": "keeps the gradient of an inner tensor (retain_grad)"}


class Ref:
    """Stands for a value in the arguments of an operation. No dataclass: those are containers."""

    def __init__(self, value):
        self.value = value


class Targets:
    """Stands for the targets in the arguments of the loss."""


class NotHandedOn:
    """Stands for an object in the model's output that a loss function cannot be given."""

    def __init__(self, kind):
        vars(self)["kind"] = kind

    def refuse(self, *_):
        raise Refused(f"the loss function reads a {vars(self)['kind']} in the model's output, an object with tensors inside, which no stage hands on: "
                      "let the model return the tensors, or none (use_cache=False)")

    __getattr__ = __getitem__ = __iter__ = __len__ = __call__ = __bool__ = refuse


@dataclasses.dataclass
class Value:
    """A tensor of the run: an input of the model, or what an operation made."""

    name: str
    made_by: int  # number of the operation; -1: an input
    bytes: int    # of its storage
    storage: int  # equal for tensors that share one
    shape: list
    dtype: torch.dtype
    needs_gradient: bool
    varies: object = frozenset()  # whether its shape follows from data and nobody asks about it; while the model runs, what it follows from


@dataclasses.dataclass
class Call:
    """One call of a module that has operations of its own: those from `begin` up to `end`."""

    path: str
    module: object
    parent: int
    begin: int
    end: int = 0


@dataclasses.dataclass
class Operation:
    function: object  # a module or a function
    path: str         # of the module that is called, or in whose forward the function is
    name: str
    arguments: object  # (args, kwargs) with a Ref for each value
    outputs: list      # values, in the order of the tensors of the result
    writes: set        # storages of values that are overwritten
    changes: list      # names of buffers and of tensors in attributes that it overwrites, beside running statistics of batch norms
    call: int          # the innermost Call
    state: tuple       # whether gradients are followed, and autocast, where these differ from the caller's
    reads: list        # values
    is_tensor: bool    # whether the result is one tensor


@contextlib.contextmanager
def undone(model, changes_buffers=True):
    """Buffers, tensors that are attributes, and random state are afterwards as before."""
    buffers = [(module, name, buffer, buffer.detach().clone()) for _, module, name, buffer in buffers_of(model) if changes_buffers]
    attributes = [(tensor, tensor.clone()) for _, _, tensor in attributes_of(model) if changes_buffers]
    devices = sorted({tensor.device.index for tensor in [*model.parameters(), *model.buffers()] if tensor.is_cuda})
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.no_grad():
            for module, name, buffer, before in buffers:
                module._buffers[name] = buffer
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
            for tensor, before in attributes:
                if not torch.equal(tensor, before):
                    tensor.copy_(before)


def nothing_saved(look=lambda tensor: None):
    """Gradients are followed, and what a backward would read is looked at and let go."""
    def no_backward(_):
        raise Refused("the model's forward runs a backward, which cannot be recorded")
    return torch.autograd.graph.saved_tensors_hooks(look, no_backward)


def are_equal(a, b):
    return torch.equal(a, b) or a.is_floating_point() and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))


def buffers_of(model):
    """[(path, module, name, buffer)]"""
    return [(path, module, name, buffer) for path, module in model.named_modules() for name, buffer in module._buffers.items()
            if buffer is not None]


def attributes_of(model):
    """[(path, name, tensor)] of tensors that a module keeps as a plain attribute."""
    return [(path, name, value) for path, module in model.named_modules() for name, value in vars(module).items()
            if isinstance(value, torch.Tensor) and not value.requires_grad and value.layout == torch.strided]


def state_of(model):
    """{address: name} of what a forward may keep from step to step, beside parameters."""
    named = [(path, name, buffer) for path, _, name, buffer in buffers_of(model)] + attributes_of(model)
    return {storage_of(tensor).data_ptr(): f"{path}.{name}".lstrip(".") for path, name, tensor in named if tensor.numel() > 0}


# --- the run ----------------------------------------------------------------------------------------------------------------------

class Recorder(TorchFunctionMode):
    """`leaves`: paths of modules whose inside is not looked at, beside those without children and those with hooks of others, of which `hooked`
    has the ids; `blind`: those of the leaves whose operations are not seen either."""

    def __init__(self, model, leaves=(), hooked=(), blind=()):
        super().__init__()
        self.model, self.leaves, self.hooked, self.blind = model, set(leaves), hooked, blind
        self.paths = {}
        for path, module in model.named_modules():
            self.paths.setdefault(id(module), path)
        self.values, self.operations, self.calls = [], [], []
        self.known = {}     # id of a tensor -> (weak reference, value)
        self.storages = {}  # address of a storage's head -> (weak reference, number)
        self.fixed = set()  # numbers of the storages of tensors that stand for themselves, since they are the same in every run
        self.names = {}
        self.call, self.stack, self.suspended, self.modules = None, [], 0, dict(model.named_modules())
        self.origins = Origins(model)
        self.reads = Reads(self.origins, self.here, self.is_own)
        self.code = CodeThatRuns(self)
        self.can_be_whole = False  # after a refusal: whether the module can be taken as one call
        norms = {storage_of(buffer).data_ptr() for _, module, _, buffer in buffers_of(model) if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)}
        self.state = {address: name for address, name in state_of(model).items() if address not in norms}
        self.constants = {id(tensor): tensor for module in model.modules() for tensor in tensors_in(vars(module))}

    def record(self, inputs, loss, targets):
        """`inputs`: (args, kwargs) with names. Returns (input values, output of the model or of the loss with Refs)."""
        args, kwargs = apart(inputs)
        self.outer, self.given = autocast_now(), {}
        for name, tensor in named_inputs(args, kwargs):
            self.add_value(tensor, name, -1)
            self.given[self.values[-1].name] = self.origins.given(self.values[-1].name, tensor)
        given, buffers = range(len(self.values)), buffers_of(self.model)
        with undone(self.model), torch.enable_grad(), nothing_saved(), watching(self), self.origins, self, self.code.noted():
            output = self.model(*args.values(), **kwargs)
            if loss is not None:
                output = self.loss_of_run(loss, output, targets)
            else:
                with self.aside():
                    output = own_loss(output)
            self.reads.settle_left()
            for path, module, name, buffer in buffers:
                if module._buffers.get(name) is not buffer:
                    raise Refused(f"{place_of(path)} puts another tensor in place of its buffer '{name}' in its forward; let it overwrite "
                                  "the one that is there")
        self.questions = Questions(self.origins, self.given, self.reads.questions)
        asked = {one for _, one in self.reads.questions}
        for value in self.values:
            value.varies = not value.varies <= asked
        self.reads = self.origins = None  # which refer back to here
        self.result = [tensor.detach() for tensor in tensors_in(output)]
        return list(given), map_leaves(output, self.reference)

    def loss_of_run(self, loss, output, targets):
        """By a function of outputs and targets; one that only takes the model's own loss out of its output is no call of a run."""
        before, output = len(self.operations), map_leaves(output, self.stand_in)
        self.code.is_loss = True
        found = self.run(loss, "", "loss", (output, Targets), {}, (output, targets))
        self.code.is_loss = False
        for operation in self.operations[before:]:
            if operation.outputs and not operation.writes and all(v is not None and self.values[v].made_by < before for v in operation.outputs):
                self.operations.remove(operation)
                self.code.ran |= self.code.in_loss  # does not run in a step
        return found

    def stand_in(self, leaf):
        """For an object in the output with tensors of the run inside, such as a cache of keys and values: in a step it would be that of this
        run, and keep them alive for ever."""
        return NotHandedOn(type(leaf).__name__) if not isinstance(leaf, torch.Tensor) and self.holds_values(leaf) else leaf

    def holds_values(self, thing, depth=4):
        """Whether tensors of the run are in an object that is no container."""
        if isinstance(thing, torch.Tensor):
            return self.value_of(thing) is not None
        inner = children_of(thing)
        if inner is None:
            inner = [] if isinstance(thing, (type, torch.nn.Module)) else list(getattr(thing, "__dict__", {}).values())
        return depth > 0 and any(self.holds_values(one, depth - 1) for one in inner)

    # --- what is called ---

    def call_module(self, original, module, args, kwargs):
        path = self.paths.get(id(module))
        if self.suspended or path is None:
            return self.within(path, lambda: original(module, *args, **kwargs))
        if path and self.is_leaf(path, module):
            call = self.run if id(module) in self.hooked or not has_around_forward(module) else self.run_between_hooks
            return self.within(path, lambda: call(module, path, path, args, kwargs))
        self.calls.append(Call(path, module, self.call, len(self.operations)))
        outer, self.call = self.call, len(self.calls) - 1
        call = self.calls[-1]
        result = self.within(path, lambda: original(module, *args, **kwargs))
        call.end, self.call = len(self.operations), outer
        return result

    def aside(self):
        """What the recorder itself does with tensors."""
        return self.origins.aside()

    def is_leaf(self, path, module):
        if path in self.leaves:
            self.refuse_hooks_inside(path, module)
        is_norm = isinstance(module, torch.nn.modules.batchnorm._BatchNorm)  # whose running statistics stay when it runs again as a module
        return path in self.leaves or is_norm or not any(True for _ in module.children()) or id(module) in self.hooked

    def refuse_hooks_inside(self, path, module):
        for one in module.modules():
            own = [hook for kind in AROUND_FORWARD for hook in getattr(one, kind).values() if not is_of_library(hook)]
            if own and one is not module and id(one) not in self.hooked:
                raise Refused(f"{place_of(path)}: not all that it calls can be seen, and hooks that the model's forward has registered inside of it "
                              f"(on '{self.paths[id(one)]}') would run again with each recomputation")

    def within(self, path, function):
        self.stack.append(path if path is not None else self.path())
        result = function()
        self.stack.pop()
        return result

    def path(self):
        return self.stack[-1] if self.stack else ""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.origins.is_aside or any(map(is_inside_transform, tensors_in((args, kwargs)))):
            return func(*args, **kwargs)
        if function_name(func) in ON_GRADIENTS:
            raise Refused(f"{self.here()}: its forward {ON_GRADIENTS[function_name(func)]}, which runs when it is recorded and in no step")
        if func == SET_DATA:
            self.origins.refuse_parameter(args[0], "data")
        if function_name(func) == "grad_fn":
            return seen_node(self, func(*args, **kwargs))
        if self.suspended:
            return self.reads.inside(func, function_name(func), args, kwargs)
        return self.run(func, self.path(), function_name(func), args, kwargs)

    def is_own(self):
        """Whether it is the model's own code that runs, not that of torch's modules."""
        return not type(self.modules.get(self.path())).__module__.startswith("torch.nn.")

    def here(self):
        return place_of(self.path()) if self.path() else "the model itself"

    # --- what is written down ---

    def run_between_hooks(self, module, path, name, args, kwargs):
        """The module's own hooks, which are code beside its call."""
        forward, is_own = module.forward, "forward" in vars(module)
        module.forward = lambda *given, **named: self.run(module, path, name, given, named, called=forward)
        try:
            return self.original(module, *args, **kwargs)
        finally:
            del module.forward
            if is_own:
                module.forward = forward

    def run(self, function, path, name, args, kwargs, real_args=None, called=None):
        """Calls and writes it down; `real_args` are handed over in place of `args`, which may have stand-ins, to `called` in place of a module."""
        self.suspended += 1  # not undone where something is raised: the recorder is of no use then
        is_module = isinstance(function, torch.nn.Module) and bool(path)
        with self.aside():
            own = [*function.buffers(), *(tensor for _, _, tensor in attributes_of(function))] if is_module else []
            given, before = [*tensors_in((args, kwargs)), *own], [buffer.detach().clone() for buffer in own]
            versions = [tensor._version for tensor in given]
            notes = notes_of(function) if is_module else None
        if called is None:
            called = (lambda *a, **k: self.original(function, *a, **k)) if is_module else function
        real_args = args if real_args is None else real_args
        has_own_code = is_module or not is_of_torch(function)
        with self.reads.of_call(name, (real_args, kwargs), tensors_in((real_args, kwargs)), function, has_own_code) as call:
            result = called(*real_args, **kwargs) if path not in self.blind else self.reads.blindly(called, real_args, kwargs)
        self.reads.end(call, result, (real_args, kwargs), is_module and notes != notes_of(function))
        with self.aside():
            written = [tensor for tensor, version in zip(given, versions) if tensor._version != version]
            written += [buffer for buffer, value in zip(own, before) if not are_equal(buffer, value)]  # by way of `.data`
            if tensors_in(result) or written:
                self.write_down(function, path, name, (args, kwargs), result, written, is_module)
        if not call.is_handed_all:
            raise Refused(f"{self.here()}: '{name}' uses a tensor that it is not handed as an argument, so that it cannot run again by itself")
        self.suspended -= 1
        return result

    def write_down(self, function, path, name, arguments, result, written, is_module):
        arguments = map_leaves(arguments, self.reference)
        if any(self.storage(tensor) in self.fixed for tensor in written):
            self.can_be_whole = True
            raise Refused(f"{self.here()}: '{name}' overwrites a tensor that no recorded call has made")
        writes = {self.storage(tensor) for tensor in written if self.value_of(tensor) is not None}
        changes = sorted({self.state[at] for at in (storage_of(tensor).data_ptr() for tensor in written) if at in self.state})
        operation = Operation(function, path, name, arguments, [], writes, changes, self.call or 0, difference(self.outer), refs_in(arguments),
                              isinstance(result, torch.Tensor))
        self.operations.append(operation)
        for inner, tensor in named_tensors_in(result):
            value = self.value_of(tensor)
            if value is None and id(tensor) not in self.constants:
                own = path if is_module else ".".join(filter(None, [path, name]))
                value = self.add_value(tensor, f"{own}.{inner}" if inner else own, len(self.operations) - 1)
            elif value is not None:
                self.values[value].needs_gradient |= tensor.requires_grad  # by requires_grad_()
            operation.outputs.append(value)

    def reference(self, leaf):
        """A Ref to a tensor of the run; a tensor that was there before stands for itself."""
        if not isinstance(leaf, torch.Tensor):
            if self.holds_values(leaf):
                self.can_be_whole = True
                raise Refused(f"{self.here()}: is handed a {type(leaf).__name__} with tensors inside that are not seen")
            return leaf
        value = self.value_of(leaf)
        if value is not None:
            return Ref(value)
        if id(leaf) in self.constants:
            return leaf
        if self.is_fixed(leaf):
            self.constants[id(leaf)] = leaf
            self.fixed.add(self.storage(leaf))
            return leaf
        self.can_be_whole = True
        raise Refused(f"{self.here()}: uses a tensor of shape {list(leaf.shape)} that no recorded call has made")

    def is_fixed(self, tensor):
        """Whether a tensor that no recorded call has made (but what runs in a vmap) follows from shapes and constants alone, so that it may stand for
        itself."""
        if self.origins is None or tensor.requires_grad:
            return False
        slot = self.origins.slot_of(tensor)
        return slot.made and not (slot.inputs or slot.why or slot.sizes)

    def value_of(self, tensor):
        entry = self.known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def add_value(self, tensor, name, operation):
        self.names[name] = self.names.get(name, 0) + 1
        name = name if self.names[name] == 1 else f"{name}#{self.names[name]}"
        self.values.append(Value(name, operation, storage_of(tensor).nbytes(), self.storage(tensor), list(tensor.shape), tensor.dtype,
                                 tensor.requires_grad, self.origins.slot_of(tensor).sizes if operation >= 0 else frozenset()))
        self.known[id(tensor)] = (weakref.ref(tensor), len(self.values) - 1)
        return len(self.values) - 1

    def storage(self, tensor):
        reference = StorageWeakRef(storage_of(tensor))
        return self.storages.setdefault(reference.cdata, (reference, len(self.storages)))[1]


def own_loss(output):
    """Of a model that computes its loss itself: what it calls so, or the one number in its output that a gradient flows to."""
    named = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    found = {id(tensor): tensor for tensor in ([named] if isinstance(named, torch.Tensor) else tensors_in(output))
             if tensor.numel() == 1 and tensor.requires_grad}
    if len(found) != 1:
        raise Refused("no loss function is given, and the model returns " + (f"{len(found)} numbers that gradients flow to" if found else
                      "no number that some parameter's gradient flows to") + ": give a loss, a function of (outputs, targets)")
    return next(iter(found.values()))


def loss_of(output, loss, targets):
    """As `split` defines it."""
    return loss(output, targets) if loss is not None else own_loss(output)


def apart(inputs):
    """Each tensor with memory of its own: two that share theirs (labels that are the tokens) may differ the next time, and what the model's
    code finds elsewhere (in a global) is no input."""
    def own(leaf):
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided:
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)
    return map_leaves(inputs, own)


def named_inputs(args, kwargs):
    return [pair for name, value in [*args.items(), *kwargs.items()] for pair in named_tensors_in(value, name)]


def refs_in(arguments):
    found = set()
    map_leaves(arguments, lambda leaf: found.add(leaf.value) if isinstance(leaf, Ref) else None)
    return sorted(found)


def constants_in(arguments):
    """Tensors that stand for themselves: parameters, buffers, attributes."""
    found = []
    map_leaves(arguments, lambda leaf: found.append(leaf) if isinstance(leaf, torch.Tensor) else None)
    return found


def notes_of(module):
    """What is no tensor in the attributes of a module."""
    return [(name, form_of(value, lambda _: None)) for name, value in vars(module).items() if name not in OF_TORCH]


def is_of_torch(function):
    """Whether it has no code of the model in it: torch lets a mode see its own functions, whose code it does not see then."""
    return isinstance(function, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
                                 torch._ops.OpOverload, torch._ops.OpOverloadPacket)) \
        or (getattr(function, "__module__", None) or "").split(".")[0] == "torch"


def function_name(function):
    name = getattr(function, "__name__", type(function).__name__)
    if name == "__get__":  # of a property such as x.T
        return getattr(getattr(function, "__self__", None), "__name__", name)
    return name


def is_called_by(module):
    """Whether code of this file runs now."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != module.__file__:
        frame = frame.f_back
    return frame is not None


class SeenNode:
    """A node of autograd's graph as a forward may see it."""

    def __init__(self, recorder, node):
        self._recorder, self._node = recorder, node

    def __getattr__(self, name):
        if name in ("register_hook", "register_prehook"):
            raise Refused(f"{self._recorder.here()}: its forward puts a hook on a node of autograd's graph (grad_fn.{name}), which runs when it is "
                          "recorded and in no step")
        found = getattr(self._node, name)
        return tuple((seen_node(self._recorder, node), place) for node, place in found) if name == "next_functions" else found

    def __eq__(self, other):
        return self._node is getattr(other, "_node", other)

    def __hash__(self):
        return hash(self._node)


def seen_node(recorder, node):
    return node if node is None else SeenNode(recorder, node)


@contextlib.contextmanager
def watching(recorder):
    """Calls go through the recorder that a function mode does not see: of modules, of autograd functions, of scripted ones, and in torch 1.13
    most of x[i] and x[i] = y. A thread that the model's code starts is refused, and so are hooks on what autograd saves, which a stage's graph would not
    have, and what lends memory by DLPack: whoever holds it may write there unseen."""
    call, own = torch.nn.Module.__call__, torch.autograd.Function.__dict__.get("apply")
    inherited = [name for name in ("__getitem__", "__setitem__") if name not in torch.Tensor.__dict__]
    places = {name: getattr(torch.Tensor, name) for name in inherited}

    def apply_seen(cls, *args, **kwargs):
        if cls.__name__ == "CheckpointFunction" and not isinstance(args[0], types.BuiltinFunctionType):
            raise Refused(f"{recorder.here()}: recomputes a part of itself (torch.utils.checkpoint), whose parameters are not seen; switch that off, "
                          "for plans recompute")
        plain = own.__get__(None, cls) if own is not None else super(torch.autograd.Function, cls).apply
        return plain(*args, **kwargs) if recorder.suspended else recorder.run(plain, recorder.path(), cls.__name__, args, kwargs)

    def starts(thread):
        if threading.get_ident() == own_thread:
            raise Refused(f"{recorder.here()}: its forward starts a thread, in which nothing is seen")
        return start(thread)

    def keeps_otherwise(_):
        if is_called_by(torch.utils.checkpoint):
            raise Refused(f"{recorder.here()}: recomputes a part of itself (torch.utils.checkpoint, use_reentrant=False), which stages would run without; "
                          "switch that off, for plans recompute")
        raise Refused(f"{recorder.here()}: its forward has hooks on what autograd saves (saved_tensors_hooks), without which stages would run")

    def lends(*_, **__):
        raise Refused(f"{recorder.here()}: its forward lends a tensor's memory by DLPack, where writes are not seen")

    lenders = [(place, name, getattr(place, name)) for place in (torch, torch.utils.dlpack) for name in ("to_dlpack", "from_dlpack") if hasattr(place, name)]
    recorder.original, own_thread, start = call, threading.get_ident(), threading.Thread.start
    threading.Thread.start = starts
    hooks, entered = torch.autograd.graph.saved_tensors_hooks, torch.autograd.graph.saved_tensors_hooks.__enter__
    hooks.__enter__ = keeps_otherwise
    for place, name, _ in lenders:
        setattr(place, name, lends)
    torch.nn.Module.__call__ = lambda module, *args, **kwargs: recorder.call_module(call, module, args, kwargs)
    for name, function in places.items():
        setattr(torch.Tensor, name, lambda *args, name=name, function=function:
                recorder.reads.inside(function, name, args, {}) if recorder.suspended else recorder.run(function, recorder.path(), name, args, {}))
    torch.autograd.Function.apply = classmethod(apply_seen)
    scripted = torch.jit.ScriptFunction.__call__
    torch.jit.ScriptFunction.__call__ = lambda function, *args, **kwargs: (
        scripted(function, *args, **kwargs) if recorder.suspended else recorder.run(function, recorder.path(), function.name, args, kwargs))
    try:
        yield
    finally:
        torch.nn.Module.__call__, torch.jit.ScriptFunction.__call__, threading.Thread.start = call, scripted, start
        hooks.__enter__ = entered
        for place, name, function in lenders:
            setattr(place, name, function)
        for name in places:
            delattr(torch.Tensor, name)
        if own is not None:
            torch.autograd.Function.apply = own
        else:
            del torch.autograd.Function.apply
