"""What the commands of plimsoll answer, as dicts and NumPy arrays. Times are in seconds, sizes in bytes.

Each call plans and simulates in a process of its own, while other threads of this one go on. Ctrl-C ends it at once.
"""

import json
import os
import re
import tempfile
import warnings

import numpy as np

from plimsoll import errors

try:
    from plimsoll import _core
except ImportError as missing:
    raise ImportError(f"the compiled part of plimsoll is not here: build it, or install it by cmake --install (docs/python.md): "
                      f"{missing}", name="plimsoll._core") from missing


class Simulation(dict):
    """A simulated schedule: the fields that `plimsoll simulate --json` prints, by their names (experiments/README.md).

    `steps`: a dict of columns, a row for each step in issue order: `device`, `lane`, `kind`, `name` (words), `op` (-1: none),
        `micro_batch`, `start_s`, `finish_s` (seconds), `moved_bytes`, `workspace_bytes` (bytes).
    `memory`: by the name of a memory `date_s` (seconds) and `live_bytes` (bytes, from that date on), a row for each change.
    """

    def __init__(self, head, arrays):
        super().__init__(head["result"])
        self.steps = _group(arrays, "steps")
        self.memory = {name: _group(arrays, f"memory.{number}") for number, name in enumerate(head.get("memories", ()))}

    def __repr__(self):
        return (f"<{type(self).__name__}: {self['trace']} with {self['strategy']} on {self['platform']}, "
                f"{self['makespan_s']:.6g} s, peak {self['peak_bytes']} B>")


class Plan(Simulation):
    """A plan with its simulation. `text`: what its file holds; `save` writes it. `simulate` and `explain` take it as `schedule`."""

    def __init__(self, head, arrays):
        super().__init__(head, arrays)
        self.text = arrays["text"].tobytes().decode()

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)


def simulate(trace=None, platform=None, strategy=None, *, schedule=None, memory=None, timeout=None, **options):
    """Plans a schedule and simulates it, or simulates one that is given.

    `trace`: a shipped trace's or a model's name, a formula such as 'gpt2:layers=24', or a file. `platform`: a name or a file.
    `strategy`: a strategy, or several as 'rotor|offload_greedy'. `schedule`: a Plan or a file of one, instead of a strategy.
    `memory`: the budget of each device: bytes, '16 GB', or '50 %' of the peak of storing everything (None: its capacity).
    `timeout`: seconds after which the search of 'cluster' ends with its best. Further options are those of the command:
    `micro_batches`, `optimizer`, `states`, `update_kernels`, `parameter_groups`, `ema`, `clip_norm`, `evaluate`, `gradients`,
    `engine`, `allocator`, `within`, `transfers` (experiments/README.md).

    Returns a Simulation. Raises InputError, Illegal (a given schedule breaks rules), and Infeasible where nothing fits.
    """
    return Simulation(*_asked(_core.simulate, trace, platform, strategy, schedule, memory, timeout, options))


def plan(trace, platform, strategy, *, memory=None, made_for=None, timeout=None, **options):
    """Plans a schedule, verifies that it is legal and keeps its promises, and returns it as a Plan.

    `made_for`: 'pytorch' for a plan that plimsoll.torch runs. All else is as of `simulate`."""
    return Plan(*_asked(_core.plan, trace, platform, strategy, None, memory, timeout, options, made_for or ""))


def explain(trace=None, platform=None, strategy=None, *, schedule=None, memory=None, better=True, timeout=None, **options):
    """Where an iteration's time goes, which steps make it, and what memories hold at their peaks: the dict that
    `plimsoll explain --json` prints, times in seconds and sizes in bytes.

    `better`: also what a little more memory would buy. All else is as of `simulate`."""
    head, _ = _asked(_core.explain, trace, platform, strategy, schedule, memory, timeout, options, bool(better))
    return head["explanation"]


def fits(model, platform, *, changes=True, **options):
    """Whether a model's training fits a device, what takes the memory (bytes), and what makes it fit: the dict that
    `plimsoll fits --json` prints.

    `changes`: False looks for none. Options are those of the command: `batch`, `sequence`, `precision`, `optimizer`, `train`,
    `memory`, `context`, `margin` and so on (docs/fits.md)."""
    words = [os.fspath(model), "--platform", os.fspath(platform), "--json"] + ([] if changes else ["--no-changes"])
    for name, value in options.items():
        words += _words_of_option(name, value)
    head, _ = _replied(*_core.fits(words))
    return json.loads(head["printed"])


def sweep(experiment, *, jobs=1, output=None, settings=None, preset=None, resume=False):
    """Answers every point of an experiment and returns a dict of columns, a row for each point: pandas.DataFrame takes it.

    `experiment`: a file, or a dict of what such a file holds (experiments/README.md). `jobs`: processes, 0: one for each core.
    `output`: a folder for the results, which `plimsoll report` reads (None: they are not kept); `resume`: keep what is there.
    `settings`: keys of the experiment to change, as {'memory': ['8 GB', '16 GB']}. `preset`: the name of one of its presets.

    Columns are those of results.csv and lists: numbers as NumPy arrays (NaN: null), seconds in those that end with `_s`, bytes
    in those that end with `_bytes`. Infeasible points are rows."""
    if not (isinstance(jobs, int) and 0 <= jobs <= 4096):
        raise errors.InputError(f"--jobs: expected a whole number from 0 to 4096, found '{jobs}'")
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(experiment, dict):
            path = os.path.join(folder, "experiment.yaml")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"format": "plimsoll.experiment.v1", "name": "python", **experiment}, file, indent=1)
            experiment = path
        changed = [f"{key}={json.dumps(value)}" for key, value in (settings or {}).items()]
        head, arrays = _replied(*_core.sweep(os.fspath(experiment), os.fspath(output or os.path.join(folder, "results")),
                                             jobs or os.cpu_count(), changed, preset or "", bool(resume)))
    rows = [json.loads(line) for line in arrays["rows"].tobytes().decode().splitlines()]
    if head["exit_code"] == 130:
        raise KeyboardInterrupt
    units = dict(head["fields"])
    names = ["point", *(name for name in units if any(name in row for row in rows))]
    return {name: _column([row.get(name) for row in rows], units.get(name, "number")) for name in names}


def version():
    """The program's name, version and build."""
    return _core.version()


def _column(values, unit):
    """Of a result's field, whose unit is as experiments/README.md has it."""
    is_whole, has_nulls = unit in ("number", "B"), None in values
    if is_whole and not has_nulls:
        return np.array(values, dtype=np.int64)
    if is_whole or unit in ("ratio", "s"):
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    if unit == "true or false" and not has_nulls:
        return np.array(values, dtype=bool)
    return values


def _group(arrays, group):
    return {name[len(group) + 1:]: array for name, array in arrays.items() if name.startswith(group + ".")}


def _size(value):
    return f"{int(value)} B" if isinstance(value, (int, np.integer)) else str(value)


def _seconds(value):
    return f"{value!r} s" if isinstance(value, (int, float)) else str(value)


def _words_of_option(name, value):
    option = "--" + name.replace("_", "-")
    if name == "parameter_groups":
        return [word for each in _groups(value) for word in ("--parameter-group", each)]
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    return [option, _size(value) if name in ("memory", "context", "communicator") else str(value)]


def _groups(value):
    return [f"{pattern}={optimizer}" for pattern, optimizer in value.items()] if isinstance(value, dict) else list(value)


def _asked(task, trace, platform, strategy, schedule, memory, timeout, options, *further):
    """The reply to a question, with a Plan's text in a file as long as it is asked."""
    words = [(name, os.fspath(value)) for name, value in (("trace", trace), ("platform", platform), ("strategy", strategy)) if value]
    if schedule is None and len(words) < 3:
        raise TypeError("expected a trace, a platform and a strategy, or a schedule")
    if schedule is not None and (strategy or memory is not None or timeout is not None):
        raise TypeError("a schedule says itself what strategy, memory and timeout would")
    if memory is not None:
        words.append(("memory", _size(memory)))
    if timeout is not None:
        words.append(("timeout", _seconds(timeout)))
    for name, value in options.items():
        if name == "parameter_groups":
            words += [("parameter_group", each) for each in _groups(value)]
        elif value is not None and value is not False:
            words.append((name, str(value)))
    if schedule is None:
        return _replied(*task(words, *further))
    with tempfile.TemporaryDirectory() as folder:
        path = schedule
        if isinstance(schedule, Plan):
            path = os.path.join(folder, "plan.json")
            schedule.save(path)
        return _replied(*task([*words, ("schedule", os.fspath(path))], *further))


def _replied(head, numbers):
    """A reply's head and arrays; raises and warns what it says."""
    head = json.loads(head)
    said = head.get("notes", "")
    if "error" in head:
        raise _error(head["error"], head["message"], said)
    for note in re.split(r"(?m)^(?=note: )", said):  # one may have several lines
        if note.strip():
            warnings.warn(" ".join(note.removeprefix("note: ").split()), errors.Note, stacklevel=4)
    if "infeasible" in head:
        raise errors.Infeasible(head["infeasible"]["message"], head["infeasible"]["least_bytes"],
                                head["infeasible"]["least_is_proven"], head.get("result"))
    arrays, offset = {}, 0
    for name, kind, count in head.get("arrays", ()):
        arrays[name] = np.frombuffer(numbers, kind, count, offset).copy()
        offset += arrays[name].nbytes
    for name, table in head.get("words", {}).items():
        arrays[name] = np.array(table, dtype=object)[arrays[name]] if table else np.array([], dtype=object)
    return head, arrays


def _error(kind, message, said):
    if kind == "input":
        return errors.InputError(message)
    if kind == "illegal":
        file = message.removesuffix("breaks rules")
        return errors.Illegal("\n".join(line for line in said.splitlines() if line.startswith(file)))
    if kind == "memory":
        return MemoryError(message)
    if kind == "interrupted":
        return KeyboardInterrupt(message)
    return {"unavailable": errors.Unavailable, "output": errors.OutputError}.get(kind, errors.Defect)(message)
