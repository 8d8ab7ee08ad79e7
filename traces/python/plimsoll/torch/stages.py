"""Cuts a model into stages in a row, each of which can be run by itself on the tensors that stand on the boundary before it.

    staged = split(model, example_inputs, how="auto")

    staged.boundaries[j]      names of the values alive between stages j-1 and j; 0: the model's inputs
    staged.stages[i].reads    those of boundary i that the stage reads
    staged.stages[i].makes    those of boundary i+1 that it makes; what it does not make passes it by
    staged.stages[i](values)  runs it: a tuple in the order of `reads` in, one in the order of `makes` out

The computation is the model's own, with its own modules and parameters, in its own order. The last stage is the loss, which makes one
number and alone may read the targets. A stage never overwrites what stands on its boundaries.
"""

import inspect

import torch

from .again import device_of, forget_casts, random_state
from .calls import written_out
from .cuts import Cuts
from .errors import Refused
from .hooks import with_others_hooks
from .modes import ops_named_in
from .outside import Outside
from .ran import draws_are
from .recorder import Recorder, Ref, attributes_of, constants_in, loss_of, named_inputs, nothing_saved, refs_in, state_of, undone
from .refusals import refuse_what_cannot_be_cut
from .values import form_of, map_leaves, tensors_in
from .versions import autocast_now, is_constructor_under_a_mode, keep_saved_whole, storage_of, why_no_compile
from .watch import ASKS_FOR_GRADIENT, NUMBERS_AND_WORDS, Surroundings, Watch
ANOTHER_SHAPE = " (a plan is for one: leave a smaller last batch out, or give a plan for each shape, or otherwise='at most' or 'plain')"
WANTED = "the loss must be one number that some parameter's gradient flows to"


def split(model, example_inputs, how="auto", loss=None, targets=None, check=True, hooks_are_own=False):
    """A Staged. `model`: an nn.Module, or a list of modules or (name, module) in a row.

    example_inputs: a tensor, a tuple (arguments in order) or a dict (arguments by name); of a list or nn.Sequential the one argument
    how: "auto" where few tensors are alive; [paths...] before these modules (before their second call: "path#2"); None: a stage for each
        module of a list or nn.Sequential, "auto" for other models
    loss: function of (outputs, targets); default: the model's own, its `.loss` or ["loss"], else the one number in its output that a gradient
        flows to
    check: whether the stages are run once, to see that they make what the model makes
    hooks_are_own: whether the model's forward itself has registered the hooks that are there, so that stages run without them
    """
    whole = model if isinstance(model, torch.nn.Module) else InARow(model)
    refuse_what_cannot_be_cut(whole)
    inputs = named_arguments(whole, example_inputs)
    children = [name for name, _ in whole.named_children()] if is_in_a_row(whole) else []
    if how is None:
        how = children if is_in_a_row(whole) else "auto"
    hooked = set() if hooks_are_own else with_others_hooks(whole)
    with undone(whole):
        recorder, given, output = recorded(whole, inputs, children if how == children else [], hooked, loss, targets)
    return Staged(whole, how, recorder, given, output, example_inputs, loss, targets, check)


class InARow(torch.nn.Module):
    """Modules one behind the other; pairs (name, module) give names."""

    def __init__(self, modules):
        super().__init__()
        for number, item in enumerate(modules):
            name, module = item if isinstance(item, tuple) else (f"stage{number}", item)
            if not isinstance(module, torch.nn.Module):
                raise Refused(f"stage '{name}' is not an nn.Module but {type(module).__name__}")
            self._modules[name] = module  # names may have dots, which add_module refuses

    def forward(self, x):
        for module in self._modules.values():
            x = module(x)
        return x


def is_in_a_row(model):
    """Whether the model is its children one behind the other; a class of its own may do something else with them."""
    return isinstance(model, InARow) or isinstance(model, torch.nn.Sequential) and type(model).forward is torch.nn.Sequential.forward


def named_arguments(model, example):
    """({name: value}, {name: value}) of arguments by place and by name."""
    if is_in_a_row(model):
        return {"input": example}, {}
    if isinstance(example, dict):
        return {}, dict(example)
    args = example if isinstance(example, tuple) else (example,)
    try:
        names = list(inspect.signature(model.forward).bind(*args).arguments)
    except TypeError as error:
        raise Refused(f"the model cannot be called with {len(args)} arguments: {error}") from error
    return {names[i] if i < len(names) else f"argument{i}": value for i, value in enumerate(args)}, {}


# --- recording ----------------------------------------------------------------------------------------------------------------

def recorded(model, inputs, leaves, hooked, loss, targets):
    """Modules in which something is not to be seen are taken as a whole."""
    blind = set()
    while True:
        recorder = Recorder(model, leaves, hooked, blind)
        try:
            return (recorder, *recorder.record(inputs, loss, targets))
        except Refused:
            path = recorder.path()
            if not recorder.can_be_whole or not path or path in leaves:
                raise
            leaves = [*leaves, path]
        except Exception as error:  # whatever the model's own code raises is the user's
            path = recorder.path()
            if is_constructor_under_a_mode(error) and path not in {"", *blind}:
                leaves, blind = [*leaves, path], blind | {path}
                continue
            raise Refused(f"{recorder.here()} does not run on the example: {type(error).__name__}: {first_line(error)}") from error


def first_line(error):
    return (str(error).splitlines() or [""])[0]


# --- what comes of it -----------------------------------------------------------------------------------------------------------

class Stage:
    """Operations in a row. `reads`, `makes`: names; see the top of this file."""

    def __init__(self, name, modules, operations, reads, makes, values, is_last, hooked):
        self.name, self.modules, self.is_last = name, modules, is_last
        self.reads, self.makes = [values[v].name for v in reads], [values[v].name for v in makes]
        self.operations = operations
        self.needs_gradients = [values[v].needs_gradient for v in reads]
        self.keeps = set()   # names of what it reads and makes that its backward reads
        self.runs_once = ""  # why it must not run again, in words
        self.draws_numbers = self.draws_on_host = True  # whether it moves on the state of the random numbers
        self.is_other_without_gradients = False  # whether a function in it takes another kernel where no gradients are followed
        self._run = written_out(operations, last_reads(operations, makes), reads, makes, hooked)

    def __call__(self, values, targets=None):
        if self.is_other_without_gradients and not torch.is_grad_enabled():
            with torch.enable_grad(), nothing_saved():
                return tuple(tensor.detach() for tensor in self._run(self.followed(values), targets))
        return self._run(values, targets)

    def compile(self):
        """By torch.compile, for one shape. Without gradients it would be compiled another way, with other bits."""
        self._run = torch.compile(self._run, dynamic=False)
        self.is_other_without_gradients = True

    def followed(self, values):
        """The same tensors; those that have a gradient in training ask for one."""
        return tuple(tensor.detach().requires_grad_() if needs else tensor for tensor, needs in zip(values, self.needs_gradients))

    def parameters(self):
        """Each once, in the order of first use; frozen ones too."""
        found = {}
        for operation in self.operations:
            own = operation.function.parameters() if isinstance(operation.function, torch.nn.Module) else ()
            for tensor in [*own, *constants_in(operation.arguments)]:
                if isinstance(tensor, torch.nn.Parameter):
                    found.setdefault(id(tensor), tensor)
        return list(found.values())


def last_reads(operations, makes):
    """For each operation the values that nobody needs behind it."""
    dies, seen = [[] for _ in operations], set(makes)
    for number in reversed(range(len(operations))):
        touched = {v for v in [*operations[number].reads, *operations[number].outputs] if v is not None}
        dies[number] = sorted(touched - seen)
        seen |= touched
    return dies


class Staged:
    def __init__(self, model, how, recorder, given, output, inputs, loss, targets, check):
        self.model, self.how, self.loss = model, how, loss
        self.device = device_of(model)
        self.values = recorder.values
        loss = refs_in(output)
        if len(loss) != 1 or not isinstance(output, Ref) or numbers_of(self.values[loss[0]]) != 1:
            raise Refused(f"{WANTED}, found {described(self.values, output)}")
        if not self.values[loss[0]].needs_gradient:
            raise Refused(f"{WANTED}, found one that needs no gradient")
        self.values[loss[0]].name = "loss"
        self.questions = recorder.questions
        self.given, self.only_name = [value for value in self.values if value.made_by < 0], None
        self.outside = []  # tensors that stages save and that were there before, beside parameters and buffers
        self._cut(Cuts(recorder, given, loss), loss, recorder.hooked)
        self._note_what_runs_once()
        if recorder.code.draws:
            self._refuse_draws(recorder, inputs, targets)
        if check:
            self._check(recorder, inputs, targets)
        self.form, self.autocast = form_of(inputs, ASKS_FOR_GRADIENT), autocast_now()
        called = [*(call.module for call in recorder.calls), *(module for stage in self.stages for module in modules_of(stage))]
        self.watch = Watch(model, list({id(module): module for module in called}.values()), recorder.code.ran | recorder.code.in_whole, objects_in(inputs))
        self.surroundings = Surroundings(model, recorder.code.ran)

    def _cut(self, cuts, loss, hooked):
        positions = set(cuts.found() if self.how == "auto" else cuts.at_paths(self.how))
        if cuts.before_loss() is not None:
            positions = {p for p in positions if p <= cuts.before_loss()} | {cuts.before_loss()}
        ends = [0, *sorted(positions), cuts.count]
        alive = [cuts.given, *(cuts.alive(p) for p in ends[1:-1]), loss]
        self.stages = []
        for i, (begin, end) in enumerate(zip(ends, ends[1:])):
            operations = cuts.operations[begin:end]
            read = {v for operation in operations for v in operation.reads}
            last = i == len(ends) - 2
            makes = [v for v in alive[i + 1] if v not in alive[i]]
            self.stages.append(Stage("loss" if last else cuts.name_of(begin, end), cuts.modules_of(begin, end), operations,
                                     [v for v in alive[i] if v in read], makes, self.values, last, hooked))
        self.boundaries = [[self.values[v].name for v in of] for of in alive]

    def _note_what_runs_once(self):
        """Stages that change what the model keeps from step to step, or read what is changed behind them: a second run would find it changed."""
        state = state_of(self.model)
        operations = [(stage, operation) for stage in self.stages for operation in stage.operations]
        last = {}  # {name: number of the last operation that changes it}
        for number, (_, operation) in enumerate(operations):
            statistics = operation.function.buffers() if is_norm(operation.function) and operation.function.training else ()
            last.update(dict.fromkeys([*operation.changes, *(state[at] for at in map(address_of, statistics) if at in state)], number))
        for number, (stage, operation) in enumerate(operations):
            for name in operation.changes:
                stage.runs_once = f"its forward changes the buffer '{name}'"
            for name in [] if stage.runs_once or is_norm(operation.function) else [state.get(address_of(tensor)) for tensor in held_by(operation)]:
                if last.get(name, -1) > number:
                    stage.runs_once = f"its forward reads the buffer '{name}', which the model changes behind it"

    def _check(self, recorder, inputs, targets):
        """The recorded calls give the loss that the model gave, and so does the model once more; with gradients followed, as in training, for
        without them a function may take another kernel, and which stages have such is found out too, which draw random numbers, and what is saved
        that was there before."""
        first = recorder.result[0]
        outside = Outside([*self.model.parameters(), *self.model.buffers(), *tensors_in((inputs, targets))])
        for run in (lambda: self._run_both_ways(self.values_of(inputs), targets, outside), lambda: self.whole(inputs, targets)):
            with undone(self.model), torch.enable_grad(), nothing_saved(outside.look):
                if not is_same(run().detach(), first):
                    raise Refused("run a second time on the same input, it gives another loss: the model's forward takes another course from run "
                                  "to run")
        self.outside = list(outside.found.values())

    def _refuse_draws(self, recorder, inputs, targets):
        """Random numbers of Python and numpy, unless they decide nothing: a layer is left out where one is below 0."""
        for number in (0.0, 0.5, 1 - 2**-53):
            with undone(self.model), torch.enable_grad(), nothing_saved(), draws_are(number) as others:
                try:
                    found = self.whole(inputs, targets).detach()
                except TypeError as error:  # of what is asked for more numbers at once
                    raise Refused(recorder.code.draws) from error
            if others or not is_same(found, recorder.result[0]):
                raise Refused(recorder.code.draws)

    def _run_both_ways(self, values, targets, outside):
        """As `run`, each stage without gradients before."""
        for stage in self.stages:
            stage.is_other_without_gradients = False

        def both(stage, given):
            without, kernels = [], []
            forget_casts()
            with undone(self.model, any(operation.changes or is_norm(operation.function) for operation in stage.operations)), torch.no_grad(), ops_named_in(without):
                other = stage(given, targets)
            given, before = stage.followed(given), random_state(self.device)
            forget_casts()
            outside.saved.clear()
            with ops_named_in(kernels):
                made = stage(given, targets)
            stage.keeps = {name for name, tensor in zip([*stage.reads, *stage.makes], [*given, *made]) if outside.is_saved(tensor)}
            after = random_state(self.device)
            stage.draws_numbers, stage.draws_on_host = after != before, after[0] != before[0]
            stage.is_other_without_gradients = without != kernels or not all(map(is_same, other, made))
            return [tensor.detach() for tensor in made]
        return self.run(values, targets, both)

    def compile(self):
        """Each stage by itself, after it has been seen to be the model's as it is written."""
        reason = why_no_compile()
        if reason is not None:
            raise Refused(f"stages cannot be compiled: {reason}")
        keep_saved_whole()
        for stage in self.stages:
            stage.compile()
        return self

    def is_course_of(self, inputs):
        """Whether all that decides which calls the model makes beside numbers in tensors is as it was: what is no tensor in its inputs, what its code
        reads, which parameters are trained, and autocast."""
        return (self.surroundings.are_same() and self.form == form_of(inputs, ASKS_FOR_GRADIENT) and self.autocast == autocast_now()
                and self.watch.is_same())

    def values_of(self, inputs):
        """The tensors of boundary 0 of other inputs of the same form, for which the model's code reads what it read in the example."""
        found = dict(named_inputs(*self.named(inputs)))
        expected = self.given
        for value in expected:
            if value.name not in found:
                raise Refused(f"input '{value.name}' is missing")
            tensor = found[value.name]
            if list(tensor.shape) != value.shape or tensor.dtype != value.dtype:
                raise Refused(f"input '{value.name}': expected {value.dtype} {value.shape}, found {tensor.dtype} {list(tensor.shape)}{ANOTHER_SHAPE}")
        self.questions.ask({value.name: found[value.name] for value in expected})
        return tuple(found[value.name] for value in expected)

    def named(self, inputs):
        """As named_arguments, whose question for the names takes longer than a small kernel."""
        if isinstance(inputs, torch.Tensor) and self.only_name is not None:
            return {self.only_name: inputs}, {}
        named = named_arguments(self.model, inputs)
        self.only_name = next(iter(named[0])) if isinstance(inputs, torch.Tensor) else None
        return named

    def run(self, values, targets=None, call=None):
        """The loss: all stages one after the other, each boundary let go when it is past. `call`: (stage, its values), in place of the stage."""
        at_hand = dict(zip(self.boundaries[0], values))
        for i, stage in enumerate(self.stages):
            given = tuple(at_hand[name] for name in stage.reads)
            made = stage(given, targets) if call is None else call(stage, given)
            at_hand = {name: tensor for name, tensor in [*at_hand.items(), *zip(stage.makes, made)] if name in self.boundaries[i + 1]}
        return at_hand["loss"]

    def whole(self, inputs, targets=None):
        """The loss, by the model as it is."""
        args, kwargs = named_arguments(self.model, inputs)
        return loss_of(self.model(*args.values(), **kwargs), self.loss, targets)

    def input_shapes(self):
        return {value.name: {"shape": value.shape, "dtype": str(value.dtype).replace("torch.", "")}
                for value in self.values if value.made_by < 0}


def modules_of(stage):
    """What it runs as a whole, and what is inside."""
    return [module for operation in stage.operations if isinstance(operation.function, torch.nn.Module) for module in operation.function.modules()]


def objects_in(inputs):
    """What is no tensor, number or word in them."""
    found = []
    map_leaves(inputs, lambda leaf: found.append(leaf) if not isinstance(leaf, (torch.Tensor, *NUMBERS_AND_WORDS)) else None)
    return found


def is_norm(function):
    """A batch norm runs again without its statistics."""
    return isinstance(function, torch.nn.modules.batchnorm._BatchNorm)


def address_of(tensor):
    return storage_of(tensor).data_ptr()


def held_by(operation):
    """Tensors that it is handed or, a module, has: those that were there before the run."""
    function = operation.function
    own = [*function.buffers(), *(tensor for _, _, tensor in attributes_of(function))] if isinstance(function, torch.nn.Module) else []
    return [*constants_in(operation.arguments), *own]


def is_same(again, first):
    """To the bit; on other devices than a CPU kernels may add in another order each time."""
    if again.device.type == "cpu":
        return torch.equal(torch.nan_to_num(again), torch.nan_to_num(first))
    return torch.allclose(again, first, rtol=1e-3, equal_nan=True)


def numbers_of(value):
    count = 1
    for side in value.shape:
        count *= side
    return count


def described(values, output):
    return f"a tensor of shape {values[output.value].shape}" if isinstance(output, Ref) else f"a {type(output).__name__}"
