"""Plans (plimsoll.plan.v1, validate/plan_format.md): read from a file, judged, and ready to be run."""

import copy
import dataclasses
import json
import os

from .errors import Refused

FORMAT = "plimsoll.plan.v1"


class WrongPlan(Refused):
    """The plan is malformed, or of another model or of other inputs; says the place in its file. Nothing has been done."""


class LimitExceeded(Refused):
    """An action of the plan needs more bytes than the caller's limit; says which, and both numbers. Raised by apply, or by a step before that action; the step
    then leaves no gradient where there was none."""


@dataclasses.dataclass(frozen=True)
class Value:
    """What actions name: a value between stages (by storage), what a stage saves, or the gradient of a value."""

    kind: str    # boundary, saved or gradient
    bytes: int
    names: tuple  # of a boundary value and of a gradient: what the model's tensors in that storage are called
    stage: int    # of what a stage saves; else -1
    is_at_most: bool  # whether its size follows from data


@dataclasses.dataclass(frozen=True)
class Action:
    do: str  # forward, backward, copy or wait
    micro_batch: int
    stage: int          # of forward and backward; else -1
    saves: bool         # of forward
    again: bool         # of forward: it has run before for this micro-batch
    makes: frozenset    # of forward: boundary values that appear
    value: str          # of copy
    to_host: bool       # of copy
    range: tuple        # of copy: first byte and number of bytes; None: all of it
    drops: tuple
    drops_on_host: tuple
    waits: tuple        # numbers of earlier actions
    peak_bytes: int
    after_bytes: int


class Plan:
    def __init__(self, text, where):
        self.where = where
        self.model = field(text, "model", dict, where)
        self.fingerprint = field(self.model, "fingerprint", list, f"{where}: model")
        self.stages = [field(stage, "name", str, f"{where}: model.stages[{k}]")
                       for k, stage in enumerate(field(self.model, "stages", list, f"{where}: model"))]
        self.how = self.model.get("how", self.stages[:-1])  # as stages.split takes it
        self.is_compiled = self.model.get("compiled", False)
        self.micro_batches = field(text, "micro_batches", int, where)
        self.in_one_call = field(text, "backward", str, where) == "in_one_call"
        self.predicted = field(text, "predicted", dict, where)
        self.strategy = text.get("strategy", "")
        self.has_gradients = text.get("gradients", "new") == "existing"  # counted as there before the step
        self.is_at_most = False  # whether it is run for smaller inputs than it was made for
        self.values = {}
        for k, value in enumerate(field(text, "values", list, where)):
            place = f"{where}: values[{k}]"
            self.values[field(value, "name", str, place)] = self.value(value, place)
        self.actions = []
        for k, action in enumerate(field(text, "actions", list, where)):
            self.actions.append(self.action(action, k, f"{where}: actions[{k}]"))
        self.moved = {action.value for action in self.actions if action.do == "copy"}
        self.stays = self.copies_of_what_stays()
        self.run_again = {action.stage for action in self.actions if action.do == "forward" and action.again}

    def value(self, value, place):
        kind = one_of(value, "kind", ("boundary", "saved", "gradient"), place)
        names, stage = (), -1
        if kind == "saved":
            stage = number_below(value, "stage", len(self.stages), place)
        else:
            names = self.names_of(field(value, "tensor", int, place))
        at_most = self.model.get("at_most", {})
        varies = self.stages[stage] in at_most.get("stages", ()) if kind == "saved" else any(name in at_most.get("values", ()) for name in names)
        return Value(kind, field(value, "bytes", int, place), names, stage, varies)

    def for_smaller(self, shapes):
        """The same for inputs of these shapes, of which none is larger: what it says of bytes and seconds holds at most."""
        smaller = copy.copy(self)
        smaller.is_at_most, smaller.model = True, self.model | {"input_shapes": shapes}
        smaller.values = {name: dataclasses.replace(value, is_at_most=True) for name, value in self.values.items()}
        return smaller

    def refuse_other_values(self, numbers, keeps):
        """`numbers`: {name: number of its storage} of the values between stages; `keeps`: by stage, names of those that its backward reads. For smaller inputs
        or under another autocast what was a copy may be a view, and the other way round."""
        boundary = {own: value for own, value in self.values.items() if value.kind == "boundary"}
        named = {name: own for own, value in boundary.items() for name in value.names}
        for value in boundary.values():
            if len({numbers[name] for name in value.names}) > 1:
                raise WrongPlan(f"{self.where}: {' and '.join(value.names)} share their memory by the plan, and not for these inputs")
        there = {(k, named[name]) for k in range(self.micro_batches) for name in self.model["boundaries"][0] if name in named}
        for action in self.actions:
            for name in sorted(keeps[action.stage] & named.keys()) if action.do == "backward" else ():
                if (action.micro_batch, named[name]) not in there:
                    raise WrongPlan(f"{self.where}: for these inputs the backward of stage '{self.stages[action.stage]}' reads '{name}', which the plan "
                                    "has dropped by then")
            there |= {(action.micro_batch, name) for name in action.makes}
            there |= {(action.micro_batch, action.value)} if action.do == "copy" else set()
            there -= {(action.micro_batch, name) for name in action.drops}

    def names_of(self, tensor):
        names = {}
        for of_boundary, tensors in zip(field(self.model, "boundaries", list, self.where),
                                        field(self.model, "tensors", list, self.where)):
            names |= {name: None for name, number in zip(of_boundary, tensors) if number == tensor}
        return tuple(names)

    def action(self, action, number, place):
        do = one_of(action, "do", ("forward", "backward", "copy", "wait"), place)
        micro_batch = number_below(action, "micro_batch", self.micro_batches, place)
        of_stage = do in ("forward", "backward")
        drops, drops_on_host = (self.known(action.get(key, []), f"{place}: {key}") for key in ("drops", "drops_on_host"))
        waits = tuple(action.get("waits", ()))
        if any(type(wait) is not int or not 0 <= wait < number for wait in waits):
            raise WrongPlan(f"{place}: waits: expected numbers of earlier actions, found {list(waits)}")
        is_copy = do == "copy"
        value = self.known([field(action, "value", str, place)], f"{place}: value")[0] if is_copy else ""
        if is_copy and {one_of(action, end, ("device", "host"), place) for end in ("from", "to")} != {"device", "host"}:
            raise WrongPlan(f"{place}: to: expected the host or the device, whichever 'from' is not")
        return Action(do, micro_batch, number_below(action, "stage", len(self.stages), place) if of_stage else -1,
                      field(action, "saves", bool, place) if do == "forward" else False,
                      field(action, "again", bool, place) if do == "forward" else False,
                      frozenset(self.known(action.get("makes", []), f"{place}: makes")),
                      value, is_copy and action["to"] == "host",
                      (field(action, "first_byte", int, place), field(action, "bytes", int, place)) if "first_byte" in action else None,
                      drops, drops_on_host, waits,
                      field(action, "peak_bytes", int, place), field(action, "after_bytes", int, place))

    def copies_of_what_stays(self):
        """Copies to the device of what has not been dropped there: of what is moved in part, the tensor stays, for no part of one can be freed."""
        dropped, found = set(), set()
        for number, action in enumerate(self.actions):
            key = action.micro_batch, action.value
            if action.do == "copy" and action.to_host:
                dropped.discard(key)
            elif action.do == "copy" and key not in dropped:
                found.add(number)
            dropped |= {(action.micro_batch, name) for name in action.drops}
        return found

    def known(self, names, place):
        for name in names:
            if name not in self.values:
                raise WrongPlan(f"{place}: no value of the plan is called {name!r}")
        return tuple(names)

    def name_of(self, number):
        """For messages: `action 17 (forward of layer1.0)`."""
        action = self.actions[number]
        what = f"{action.do} of {self.stages[action.stage]}" if action.stage >= 0 else f"{action.do} {action.value}".strip()
        return f"action {number} ({what})"


def field(of, key, kind, where):
    found = of.get(key) if isinstance(of, dict) else None
    if type(found) is not kind:
        words = {dict: "an object", list: "a list", int: "a whole number", str: "a string", bool: "true or false"}
        raise WrongPlan(f"{where}: {key}: expected {words[kind]}, found {'nothing' if found is None else repr(found)[:60]}")
    return found


def one_of(of, key, words, where):
    found = field(of, key, str, where)
    if found not in words:
        raise WrongPlan(f"{where}: {key}: expected {', '.join(words[:-1])} or {words[-1]}, found {found!r}")
    return found


def number_below(of, key, limit, where):
    found = field(of, key, int, where)
    if not 0 <= found < limit:
        raise WrongPlan(f"{where}: {key}: expected a number below {limit}, found {found}")
    return found


def read_plan(source):
    """`source`: the path of a file, or what json.load makes of one."""
    if isinstance(source, dict):
        text, where = source, "plan"
    else:
        where = os.fspath(source)
        try:
            with open(source, encoding="utf-8") as file:
                text = json.load(file)
        except (OSError, ValueError) as error:
            raise WrongPlan(f"{where}: {error}") from error
    if not isinstance(text, dict) or text.get("format") != FORMAT:
        found = repr(text.get("format"))[:60] if isinstance(text, dict) else "no object"
        raise WrongPlan(f"{where}: format: expected {FORMAT!r}, found {found} (write plans with 'plimsoll plan --for pytorch')")
    return Plan(text, where)
