"""Where a recorded run can be cut into stages.

Position p lies before operation p. What is alive there, made before and read after, stands on the boundary between two stages. No position
is allowed between the making of a tensor and an operation that overwrites its storage: a boundary is what a stage can be run from again.
"""

import difflib

from .errors import Refused
from .recorder import constants_in

ABOUT = 1.5     # times the fewest bytes alive at a position nearby
MOST_ALIVE = 8  # tensors of floating point between blocks of one class in a row


class Cuts:
    def __init__(self, recorder, given, result):
        """`given`: values of the inputs; `result`: those that the run is for, alive to its end."""
        self.values, self.operations, self.calls = recorder.values, recorder.operations, recorder.calls
        self.modules = dict(recorder.model.named_modules())
        self.given, self.count = given, len(self.operations)
        self.last_cut = max(self.values[v].made_by for v in result)  # what the run is for is made behind it
        self.last_use = dict.fromkeys(range(len(self.values)), -1)
        for number, operation in enumerate(self.operations):
            self.last_use.update(dict.fromkeys(operation.reads, number))
        self.last_use.update(dict.fromkeys(result, self.count))
        self.begins = self.modules_by_beginning()
        self.refuse_overwritten_input()
        self.overwritten = self.positions_before_writes()

    def alive(self, position):
        return [v for v, value in enumerate(self.values) if value.made_by < position <= self.last_use[v]]

    # --- what is overwritten ---

    def born(self, storage):
        return min(value.made_by for value in self.values if value.storage == storage)

    def refuse_overwritten_input(self):
        for operation in self.operations:
            for storage in operation.writes:
                if self.born(storage) < 0:
                    name = next(value.name for value in self.values if value.storage == storage)
                    raise Refused(f"{described(operation)} overwrites the model's input '{name}' in place, so it cannot be run again")

    def positions_before_writes(self):
        """{position: the operation behind it that overwrites what was made before it}."""
        found = {}
        for number, operation in enumerate(self.operations):
            for storage in operation.writes:
                found.update((p, operation) for p in range(self.born(storage) + 1, number + 1))
        return found

    # --- by names of modules ---

    def at_paths(self, paths):
        found = set()
        for path in paths:
            name, _, number = path.partition("#")
            begins = self.calls_of(name)
            if not begins or (number and not 0 < int(number if number.isdigit() else 0) <= len(begins)):
                raise Refused(self.no_such(name, number))
            for position in begins if not number else [begins[int(number) - 1]]:
                if position > self.last_cut:
                    raise Refused(f"module '{name}' runs behind the loss, where nothing is to be cut")
                if position in self.overwritten:
                    raise Refused(f"{described(self.overwritten[position])} overwrites its input in place, so the model cannot be cut before "
                                  f"'{name}': cut elsewhere (--stages auto, in Python how='auto') or make that operation out of place")
                found.add(position)
        return sorted(found - {0})

    def calls_of(self, path):
        """Where the module's calls begin."""
        return sorted(p for p, calls in self.begins.items() if any(path == one for one, _, _ in calls))

    def no_such(self, name, number):
        if number:
            return f"no call {number} of module '{name}'"
        if name in self.modules:
            return f"module '{name}' is not called by itself, so nothing can be cut before it"
        near = difflib.get_close_matches(name, self.modules, 1)
        return f"no module '{name}'" + (f"; did you mean '{near[0]}'?" if near else "")

    # --- found ---

    def found(self):
        """Where no tensor is alive whose shape follows from data (which expert gets which rows), unless next to nothing is left then."""
        steady = self.found_where(lambda values: not any(self.values[v].varies for v in values))
        return steady if len(steady) > 1 else self.found_where(lambda _: True)

    def found_where(self, suits):
        """Between two operations with weights the last of the positions where about as few bytes are alive as anywhere there."""
        positions, last, begin = [], self.alive(0), 0
        for end in [p for p, operation in enumerate(self.operations[:self.last_cut + 1]) if self.has_weight(operation)]:
            has_weight_before = begin > 0 or self.has_weight(self.operations[0])
            window = [p for p in range(begin + 1, end + 1) if has_weight_before and self.is_good(p)]
            alive = {p: self.alive(p) for p in window}
            alive = {p: values for p, values in alive.items()
                     if suits(values) and self.is_few(p, values) and not self.is_view_of(last, values) and not self.has_two_views(values)}
            if alive:
                least = min(map(self.bytes_of, alive.values()))
                positions.append(max(p for p, values in alive.items() if self.bytes_of(values) <= ABOUT * least))
                last = alive[positions[-1]]
            begin = end
        return positions

    def is_good(self, p):
        """Whether a module with parameters begins here that reads what has a gradient, and nothing made before is overwritten behind."""
        return p not in self.overwritten and self.begins_module(p) and any(
            self.values[v].needs_gradient and self.values[v].made_by < p for v in self.read_first(p))

    def read_first(self, p):
        """By the operations of the outermost module that begins here."""
        return {v for operation in self.operations[p:self.beginning(p)[0][2]] for v in operation.reads}

    def before_loss(self):
        """Before the function that is the loss; of a model that computes its own, behind the last module with parameters. None where
        nothing is left behind it."""
        if not self.operations[-1].path and self.operations[-1].name == "loss" and self.count - 1 not in self.overwritten:
            return self.count - 1 or None
        last = max((p for p in range(self.count) if self.parameters_of(self.operations[p])), default=self.count - 1) + 1
        last = max([last, *(call.end for call in self.calls if call.parent is not None and call.begin < last < call.end)])
        while last < self.count and last in self.overwritten:
            last += 1
        return last if last <= self.last_cut else None

    def parameters_of(self, operation):
        if hasattr(operation.function, "parameters"):
            return list(operation.function.parameters())
        return [tensor for tensor in constants_in(operation.arguments) if tensor.requires_grad]

    def has_weight(self, operation):
        return any(parameter.dim() > 1 for parameter in self.parameters_of(operation))

    def modules_by_beginning(self):
        found = {}
        for call in self.calls:
            if call.begin < call.end and call.parent is not None:
                found.setdefault(call.begin, []).append((call.path, call.module, call.end))
        for p, operation in enumerate(self.operations):
            if operation.function is self.modules.get(operation.path):
                found.setdefault(p, []).append((operation.path, operation.function, p + 1))
        return found

    def beginning(self, p):
        """Calls that begin here, from the outermost in; the last may be a module that is an operation itself: (path, module, end)."""
        return self.begins.get(p, [])

    def begins_module(self, p):
        return any(any(True for _ in module.parameters()) for _, module, _ in self.beginning(p))

    def around(self, p):
        """The innermost call that goes on from before the position to behind it."""
        return next(call for call in reversed(self.calls) if call.begin < p < call.end)  # later calls are inside earlier ones

    def is_few(self, p, alive):
        large = [v for v in alive if self.values[v].needs_gradient or self.values[v].dtype.is_floating_point]
        outer = self.around(p)
        if len(large) <= 1 or self.bytes_of(alive) <= max(self.bytes_of(self.alive(end)) for end in (outer.begin, outer.end)):
            return True
        path, module, _ = self.beginning(p)[0]
        siblings = {call.path: type(call.module) for call in self.calls if call.parent is not None and self.calls[call.parent] is outer}
        alike = [other for other, kind in siblings.items() if kind is type(module)]
        return len(alike) > 1 and path in alike and len(large) <= MOST_ALIVE

    def bytes_of(self, values):
        return sum({self.values[v].storage: self.values[v].bytes for v in values}.values())

    def is_view_of(self, before, after):
        """Whether a tensor of the later boundary is another view of a storage that the earlier one has."""
        old = {self.values[v].storage for v in before}
        return any(self.values[v].storage in old and v not in before for v in after)

    def has_two_views(self, alive):
        """Whether two tensors share a storage (halves of one): their gradients do not."""
        storages = [self.values[v].storage for v in alive if self.values[v].needs_gradient]
        return len(set(storages)) < len(storages)

    # --- names ---

    def name_of(self, begin, end):
        """The outermost module that begins with the stage and ends in it; where it is called again, with the number of the call."""
        calls = [(path, module) for path, module, until in self.beginning(begin) if until <= end]
        if not calls:
            return next((path for path in self.modules_of(begin, end) if path), "model")
        path = calls[0][0]
        begins = self.calls_of(path)
        return path if len(begins) == 1 else f"{path}#{begins.index(begin) + 1}"

    def modules_of(self, begin, end):
        """Outermost modules that are called between the two positions, in order; "" for the model's own functions alone."""
        found, p = [], begin
        while p < end:
            inside = [(path, until) for path, _, until in self.beginning(p) if until <= end]
            if inside:
                found.append(inside[0][0])
            p = inside[0][1] if inside else p + 1
        return found or [""]


def described(operation):
    is_module = hasattr(operation.function, "parameters") and operation.path
    return f"module '{operation.path}'" if is_module else f"'{operation.name}'" + (f" in module '{operation.path}'" if operation.path else "")
