"""A stage's calls as one Python function, written out once: what each call costs beside itself is then a few names.

    def run(values, targets):
        v0, v3, = values
        v5 = o0.function(v0, v3, keep=True)
        del v3
        v6, v7, = tensors_in(o1.function(v5, 2))
        return v5, v7,
"""

import itertools
import linecache
import weakref

from .hooks import has_around_forward
from .modes import entered
from .recorder import Ref, Targets, refs_in
from .values import map_leaves, tensors_in


NUMBERS = itertools.count()


def written_out(operations, dies, reads, makes, hooked=()):
    """A function of (values in the order of `reads`, targets) that gives a tuple in the order of `makes`. `dies`: for each operation the
    values that nobody needs behind it. `hooked`: ids of modules that run with their hooks."""
    writer = Writer(hooked)
    writer.lines += [f"{tuple_of(reads)} = values"] if reads else []
    for operation, dying in zip(operations, dies):
        writer.call(operation)
        if dying:
            writer.lines.append(f"del {', '.join(map(name_of, dying))}")
    writer.lines.append(f"return {tuple_of(makes) if makes else '()'}")
    text = "def run(values, targets):\n" + "".join(f"    {line}\n" for line in writer.lines)
    name = f"<the calls of stage {next(NUMBERS)}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name  # for tracebacks, and torch.compile takes no function without a source
    exec(compile(text, name, "exec"), writer.known)  # nothing in it but names made here
    weakref.finalize(writer.known["run"], linecache.cache.pop, name, None)
    return writer.known["run"]


def name_of(value):
    return f"v{value}"


def tuple_of(values):
    return "".join(f"{name_of(value)}, " for value in values)


class Writer:
    def __init__(self, hooked):
        self.hooked, self.lines, self.known = hooked, [], {"tensors_in": tensors_in, "entered": entered, "filled": filled}

    def name(self, thing):
        """A name for what stands for itself."""
        name = f"k{len(self.known)}"
        self.known[name] = thing
        return name

    def call(self, operation):
        args, kwargs = operation.arguments
        written = [self.argument(value) for value in args] + [f"{name}={self.argument(value)}" for name, value in kwargs.items()]
        call = f"{self.called(operation)}({', '.join(written)})"
        outputs = "".join(f"{name_of(value) if value is not None else '_'}, " for value in operation.outputs)
        if operation.is_tensor:
            line = f"{outputs.rstrip(', ')} = {call}"
        else:
            line = f"{outputs}= tensors_in({call})" if operation.outputs else call
        without_gradients, autocast = operation.state
        if without_gradients or autocast is not None:
            line = f"with entered({self.name(operation.state)}): {line}"
        self.lines.append(line)
        if None in operation.outputs:
            self.lines.append("del _")

    def called(self, operation):
        is_without_hooks = hasattr(operation.function, "forward") and has_around_forward(operation.function) and id(operation.function) not in self.hooked
        return self.name(operation.function.forward) if is_without_hooks else f"{self.name(operation)}.function"

    def argument(self, value):
        if isinstance(value, Ref):
            return name_of(value.value)
        if value is Targets:
            return "targets"
        if type(value) in (bool, int, str, type(None)):
            return repr(value)
        refs = refs_in(value)
        if not refs:
            return self.name(value)
        if type(value) in (tuple, list):
            inner = "".join(f"{self.argument(item)}, " for item in value)
            return f"({inner})" if type(value) is tuple else f"[{inner}]"
        return f"filled({self.name(value)}, {{{', '.join(f'{ref}: {name_of(ref)}' for ref in refs)}}})"


def filled(form, tensors):
    """The form with a tensor for each Ref."""
    return map_leaves(form, lambda leaf: tensors[leaf.value] if isinstance(leaf, Ref) else leaf)
