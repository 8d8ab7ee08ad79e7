"""What a model's Python code reads beside tensors, watched from step to step: where something is another than when the model was recorded, it is recorded
anew.

The code is that which has run while the model was recorded (ran.py). All that it can reach is looked at: attributes of the modules whose code it is,
globals that its functions name, closures, defaults, and from there containers, classes and other objects, of these the attributes that the code has
a name for (all, where it makes names itself). Python and torch do not change. What cannot be watched is refused. Modules that run as a whole read
all of it anew in each step; they are looked at too, since a plan has to know whether they draw random numbers.

A look makes a *course*, by which values are compared, and flat lists of what was where. Whether all is still where it was, object by object, is a few
loops in C; only where something is not is the look repeated and are courses compared.
"""

import array
import collections
import collections.abc
import contextvars
import ctypes
import dis
import enum
import functools
import itertools
import operator
import os
import random
import sys
import types
import weakref

import torch

from .errors import Refused
from .hooks import is_of_library
from .ran import LANGUAGE, package_of
from .refusals import place_of
from .values import is_dataclass
from .versions import HOOKS_OF_MODULES, has_hook_on_gradient

OF_TORCH = set(vars(torch.nn.Module())) - {"training"}  # attributes of every module
INNER = ("_modules", "_parameters", "_buffers")
ASKS_FOR_GRADIENT, HOOKS = operator.attrgetter("requires_grad"), operator.attrgetter("_backward_hooks")
MOST_BYTES = 1 << 20   # of numbers in an array that are compared in each step
MOST_LOOKS = 100_000
NUMBERS_AND_WORDS = (bool, int, float, complex, str, bytes, type(None), type(...), range, slice)
MAKES_NAMES = {"getattr", "vars", "__dict__", "__getattribute__", "__getattr__", "attrgetter", "asdict", "astuple", "fields", "copy", "deepcopy"}
NOT_FOLLOWED = {"logging", "typing", "abc", "importlib", "re", "warnings"}  # what they hold decides nothing
NOT_SEEN_INTO = {"multiprocessing", "queue", "_queue", "mmap", "_io", "shelve", "sqlite3", "socket", "subprocess", "weakref", "_weakrefset"}
WITHOUT_STATE = {"builtins", "abc", "typing", "enum", "collections"}  # classes of Python whose objects have nothing that their methods alone name


def is_of_language(thing):
    return package_of(thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None)) in LANGUAGE


@functools.lru_cache(maxsize=None)
def globals_in(code):
    """Names that it looks up in its globals."""
    return tuple({one.argval: None for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")})


@functools.lru_cache(maxsize=None)
def words_in(code):
    """Names of attributes that it may read."""
    return {code.co_name, *code.co_names, *(one for of in code.co_consts for one in (of if isinstance(of, tuple) else (of,)) if isinstance(one, str))}


class Watch:
    """`modules`: those whose code has run; `ran`: {code: the globals of its function}; `model`: its modules stand for themselves; `given`: objects among
    its inputs."""

    def __init__(self, model, modules, ran, given=()):
        self.of = model, modules, ran, given
        self.own = {id(module) for module in model.modules()}
        self.names = set().union(*map(words_in, ran))
        self.makes_names = bool(MAKES_NAMES & self.names)
        self.course, self.seen, self.kept, self.rest = [], {}, [], []
        self.spaces, self.keys, self.values = [], [], []  # what is in dictionaries of attributes and globals, by name
        self.kinds, self.words, self.meant = [], [], []   # the same of classes
        self.owners, self.places, self.held = [], [], []  # what is in cells and slots, and defaults
        self.containers, self.sized, self.readers = [], [], []
        self.look_at_roots()
        while self.rest:
            self.look_inside(*self.rest.pop())
        self.elements, self.lengths = list(itertools.chain.from_iterable(self.containers)), list(map(len, self.containers + self.sized))
        self.numbers = [read() for read in self.readers]

    def is_same(self):
        if self.is_untouched():
            return True
        now = Watch(*self.of)
        if now.course != self.course:
            return False
        vars(self).update(vars(now))
        return True

    def is_untouched(self):
        """Whether all is where it was, object by object."""
        try:
            return (all(map(operator.is_, map(dict.get, self.spaces, self.keys), self.values))
                    and all(map(operator.is_, map(types.MappingProxyType.get, self.kinds, self.words), self.meant))
                    and all(map(operator.is_, map(getattr, self.owners, self.places), self.held))
                    and list(map(len, self.containers + self.sized)) == self.lengths
                    and all(map(operator.is_, itertools.chain.from_iterable(self.containers), self.elements))
                    and [read() for read in self.readers] == self.numbers)
        except (AttributeError, ValueError):  # a slot or a cell is empty now
            return False

    # --- the look ---

    def look_at_roots(self):
        model, modules, ran, given = self.of
        code = {id(module) for module in modules}
        for path, module in model.named_modules():
            if id(module) in code and is_of_language(type(module)) and not module._modules:
                self.look_at_what_draws(module)
            elif id(module) in code:
                self.look_at_module(module, f"{place_of(path)}: ")
        for code, space in ran.items():
            self.look_at_names(space, [name for name in globals_in(code) if name in space], f"{space.get('__name__')}.")
        for value in given:
            self.look(value, "an input of the model: ")
        if {"environ", "getenv"} & self.names:
            self.look(vars(os.environ)["_data"], "os.environ")

    def look(self, value, where):
        """Writes down what it is; what is inside comes later."""
        kind = type(value)
        if isinstance(value, NUMBERS_AND_WORDS) and not isinstance(value, enum.Enum):
            self.course.append((kind, value))
        elif id(value) in self.seen:
            self.course.append((kind, self.seen[id(value)]))
        else:
            self.seen[id(value)] = len(self.seen)
            self.kept.append(value)  # so that nothing else gets its id
            self.rest.append((value, where))
            if len(self.seen) > MOST_LOOKS:
                raise Refused(f"{where}: the model's code can reach more than {MOST_LOOKS} objects from there, too many to be watched")

    def look_inside(self, value, where):
        for kinds, look in LOOKS:
            if isinstance(value, kinds):
                return look(self, value, where)
        kind = type(value)
        if isinstance(value, collections.abc.Iterator) and not has_attributes(value):
            raise Refused(f"{where} is an iterator ({kind.__name__}), which gives the model's code something else each time")
        if package_of(kind.__module__) in NOT_SEEN_INTO or isinstance(value, random.Random) or kind.__module__.startswith("numpy.random"):
            raise Refused(f"{where} is a {kind.__module__}.{kind.__name__}, and what it gives the model's code nobody can watch")
        self.course.append(kind if has_attributes(value) else id(value))
        if package_of(kind.__module__) not in NOT_FOLLOWED:
            self.look_at_attributes(value, where)

    def look_at_itself(self, value, _):
        """What does not change, or is read anew each time."""
        self.course.append(id(value))

    def look_at_module(self, module, where):
        """Of the model: all that it has, for torch's own code reads it too."""
        own = vars(module)
        self.seen[id(module)] = len(self.seen)
        names = [name for name in own if name not in OF_TORCH]
        self.look_at_names(own, names, where, {name for name in names if name in self.names})
        self.sized.append(own)
        for name in INNER:
            self.containers.append(own[name].values())
            self.course.append(list(map(id, own[name].values())))
        self.look_at_class(type(module))

    def look_at_what_draws(self, module):
        """One of torch's, which draws random numbers in training alone, if at all, and where some probability is between 0 and 1."""
        own, words = vars(module), words_in(type(module).forward.__code__)
        for name in [name for name in own if name in words and isinstance(own[name], NUMBERS_AND_WORDS)] if "training" in words else ():
            self.note(own, name)
            self.course.append((name, 0 < own[name] < 1 if isinstance(own[name], float) else own[name]))

    def note(self, space, name):
        self.spaces.append(space)
        self.keys.append(name)
        self.values.append(space[name])

    def look_at_names(self, space, names, where, deep=None):
        """Entries of a dictionary of attributes or globals; `deep`: those that are looked into whatever they are, of others containers alone."""
        for name in names:
            value = space[name]
            self.note(space, name)
            self.course.append(name)
            if deep is None or name in deep or isinstance(value, NUMBERS_AND_WORDS) or is_small(value):
                self.look(value, f"{where}{name}")
            else:
                self.kept.append(value)
                self.course.append(id(value))

    def look_at_sequence(self, value, where):
        self.course.append((type(value), len(value)))
        if not isinstance(value, (tuple, frozenset)):
            self.containers.append(value)
        for number, item in enumerate(value):
            self.look(item, f"{where}[{number}]")
        self.look_at_attributes(value, where)

    def look_at_dict(self, value, where):
        self.course.append((type(value), len(value)))
        self.containers += [value.keys(), value.values()]
        for name, item in value.items():
            self.look(name, where)
            self.look(item, f"{where}[{name!r}]")
        self.look_at_attributes(value, where)

    def look_at_array(self, value, where):
        if value.nbytes > MOST_BYTES or value.dtype.hasobject:
            raise Refused(f"{where} is an array of numpy of {value.nbytes} B, too large to be compared in each step: make it a buffer")
        self.read(value.tobytes)

    def look_at_bytes(self, value, _):
        self.read(functools.partial(bytes, value))

    def read(self, read):
        self.readers.append(read)
        self.course.append(read())

    def look_at_module_of_python(self, value, where):
        self.course.append(id(value))
        if not is_of_language(value):
            self.look_at_names(vars(value), [name for name in vars(value) if name in self.names], f"{where}.")

    def look_at_class_itself(self, value, _):
        self.course.append(id(value))
        self.look_at_class(value)

    def look_at_class(self, kind):
        """Of it and its bases what the code has a name for."""
        for base in kind.__mro__:
            if is_of_language(base) or ("class", base) in self.seen:
                continue
            space, self.seen["class", base] = vars(base), len(self.seen)
            for name in [name for name in space if name in self.names]:
                self.kinds.append(space)
                self.words.append(name)
                self.meant.append(space[name])
                self.course.append(name)
                self.look(space[name], f"{base.__name__}.{name}")

    def look_at_function(self, value, where):
        """Of one that has run, what it brings with it."""
        self.course.append(id(value.__code__))
        if value.__code__ in self.of[2]:
            self.look_at_places(value, [name for name in ("__defaults__", "__kwdefaults__") if getattr(value, name) is not None], f"{where}: ")
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
                self.look_at_places(cell, ["cell_contents"] * (cell != types.CellType()), f"{where}: {name}: ")
            self.look_at_names(vars(value), [name for name in vars(value) if name in self.names], f"{where}.")

    def look_at_places(self, value, names, where):
        for name in names:
            self.owners.append(value)
            self.places.append(name)
            self.held.append(getattr(value, name))
            self.look(self.held[-1], f"{where}{name}")

    def look_at_attributes(self, value, where):
        """Of an object, and of its class."""
        if not has_attributes(value):
            return
        kind, own = value.__class__ if isinstance(value, weakref.ProxyTypes) else type(value), getattr(value, "__dict__", None)
        own = own if isinstance(own, dict) else {}
        bases = [base for base in kind.__mro__ if not is_of_language(base)]
        is_whole = any(package_of(base.__module__) in LANGUAGE - WITHOUT_STATE for base in kind.__mro__)  # has methods that nobody has seen
        deep = {name for name in own if is_whole or name in self.names}
        self.look_at_names(own, [name for name in own if self.makes_names or name in deep], f"{where}.", deep)
        self.sized.append(own)
        slots = [name for base in bases for of in [vars(base).get("__slots__", ())] for name in ([of] if isinstance(of, str) else of)]
        self.look_at_places(value, [name for name in slots if name in self.names and hasattr(value, name)], f"{where}.")
        self.look_at_class(kind)


def is_small(value):
    """Whether it is looked into where the code does not name it: no table."""
    return is_dataclass(value) or isinstance(value, CONTAINERS) and len(value) < 100


def has_attributes(value):
    return hasattr(value, "__dict__") or any(vars(base).get("__slots__") for base in type(value).__mro__)


def of_parts(*names):
    """The look at what has others inside that it cannot let go of."""
    def look(watch, value, where):
        watch.course.append(type(value))
        for name in names:
            watch.look(getattr(value, name), where)
    return look


def look_behind(watch, value, where):
    """What a weak reference leads to."""
    watch.course.append(type(value))
    watch.look(value(), where)


def look_at_variable(watch, value, where):
    """Of a context: what it is outside of a forward."""
    watch.course.append(id(value))
    watch.readers.append(lambda: id(value.get(None)))  # no other's, as long as the first is kept
    watch.look(value.get(None), where)


def look_at_proxy(watch, value, where):
    watch.course.append(type(value))
    watch.look_at_attributes(value, where)


def look_at_module_of_torch(watch, value, where):
    """One of the model stands for itself; others are objects."""
    if id(value) in watch.own:
        return watch.look_at_itself(value, where)
    watch.look_at_module(value, f"{where}.")


CONTAINERS = (dict, types.MappingProxyType, list, tuple, set, frozenset, collections.deque)
LOOKS = [
    (torch.Tensor, Watch.look_at_itself), (torch.nn.Module, look_at_module_of_torch), (enum.Enum, Watch.look_at_itself),
    (contextvars.ContextVar, look_at_variable), (weakref.ProxyTypes, look_at_proxy), (weakref.ReferenceType, look_behind),
    ((collections.UserDict, collections.UserList), of_parts("data")),
    (types.ModuleType, Watch.look_at_module_of_python), (type, Watch.look_at_class_itself),
    (types.FunctionType, Watch.look_at_function), (types.MethodType, of_parts("__func__", "__self__")),
    ((staticmethod, classmethod), of_parts("__func__")), (property, of_parts("fget")), (functools.cached_property, of_parts("func")),
    (functools.partial, of_parts("func", "args", "keywords")), (functools._lru_cache_wrapper, of_parts("__wrapped__")),
    ((dict, types.MappingProxyType), Watch.look_at_dict), (CONTAINERS, Watch.look_at_sequence),
    ((bytearray, memoryview, array.array, ctypes._SimpleCData, ctypes.Array, ctypes.Structure), Watch.look_at_bytes),
]
if "numpy" in sys.modules:
    import numpy
    LOOKS[:0] = [(numpy.ndarray, Watch.look_at_array), (numpy.generic, lambda watch, value, _: watch.course.append((type(value), value.tobytes())))]


class Surroundings:
    """Of a model, beside what its code reads: its modules and parameters, which of these are trained, and hooks."""

    def __init__(self, model, ran):
        self.model, self.ran = model, ran
        self.views = [dict.values(of) for module in model.modules() for of in (module._modules, module._parameters) if of]  # faster than an OrderedDict's
        self.parts, self.lengths = list(itertools.chain.from_iterable(self.views)), list(map(len, self.views))
        self.parameters = list(model.parameters())
        self.trained = list(map(ASKS_FOR_GRADIENT, self.parameters))
        hooks = [getattr(module, kind) for module in model.modules() for kind in HOOKS_OF_MODULES if hasattr(module, kind)]
        self.without_hooks, self.hooks = [of for of in hooks if not of], [of for of in hooks if of]
        self.counts = list(map(len, self.hooks))

    def are_same(self):
        if any(self.without_hooks) or list(map(len, self.hooks)) != self.counts or any(map(HOOKS, self.parameters)):
            self.refuse_hooks_of_others()
            self.counts = list(map(len, self.hooks))
        return (list(map(len, self.views)) == self.lengths and all(map(operator.is_, itertools.chain.from_iterable(self.views), self.parts))
                and list(map(ASKS_FOR_GRADIENT, self.parameters)) == self.trained)

    def refuse_hooks_of_others(self):
        """Those that the model's own code registers have run when it was recorded."""
        for path, module in self.model.named_modules():
            for kind in HOOKS_OF_MODULES:
                if any(not is_of_library(hook) and getattr(hook, "__code__", None) not in self.ran for hook in getattr(module, kind, {}).values()):
                    raise Refused(f"{place_of(path)} has {kind.strip('_').replace('_', ' ')}, which would run again with each recomputation")
        for name, parameter in self.model.named_parameters():
            if has_hook_on_gradient(parameter):
                raise Refused(f"parameter '{name}' has a hook on its gradient, which would see parts of it")
