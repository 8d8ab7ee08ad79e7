#!/usr/bin/env python3
"""Plans run in PyTorch and held against their predictions: each model is exported, planned at several budgets by several strategies, and each
plan trains a few steps, each between two of plain training. One JSON file, of which `plimsoll compare --pytorch FILE` makes a table and a figure.

  /usr/bin/python3 validate/pytorch/measure.py resnet18 gpt --plans 4 -o out/pytorch
  /usr/bin/python3 validate/pytorch/measure.py my_model.py:build --batch 8 -o out/pytorch
  /usr/bin/python3 validate/pytorch/measure.py my_model.py:build --quick -o out/pytorch

MODEL is a name in models.py, or file.py:function as traces/export_pytorch.py takes it. --plans N: rotor at N budgets between the least and that of
plain training, and at the budget in the middle the other strategies. On a CPU times are process CPU time with one thread, copies are not
beside the computation, and peaks are counted by the exporter's preloaded counter; on CUDA times are events and peaks the caching allocator's
(allocated, and reserved beside it), and beside each time stands when the host had issued all: from 0.9 of the time on, the host binds the row.
Losses, gradients and parameters are compared with kernels that add in a fixed order, where PyTorch has them; plain training is compared with itself first.
What trains is other batches than the one that was exported, of other numbers or other rows, where the model takes the same course with them.
"""

import argparse
import contextlib
import datetime
import gc
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

from plimsoll.trace import exporter
from plimsoll.trace.user_code import load_file

try:
    import torch
    from plimsoll.torch import Refused, apply
except ModuleNotFoundError as missing:
    print(f"measure.py: {sys.executable} has no {missing.name} (Debian: apt-get install python3-torch, then /usr/bin/python3)", file=sys.stderr)
    sys.exit(2)

OTHERS = ("chen_sqrt", "selective", "dtr", "save_on_cpu", "rotor|offload_greedy(chunks=1)", "pofo(chunks=1)")


def command_line():
    parser = exporter.OneLineParser(prog="measure.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    positive = exporter.positive
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--quick", action="store_true", help="one plan of rotor at half the range of budgets and plain training, 3 rounds")
    parser.add_argument("--plans", type=positive, default=4, metavar="N", help="budgets of rotor (default 4)")
    parser.add_argument("--strategies", default=",".join(OTHERS), metavar="A,B,...", help=f"in addition to rotor (default {','.join(OTHERS)})")
    parser.add_argument("--batch", type=positive, default=8, metavar="N", help="samples of a micro-batch (default 8)")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="timed rounds of all plans (default 5)")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="of parameters and activations (default fp32)")
    parser.add_argument("--amp", choices=("bf16", "fp16"), help="autocast")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--replicas", action="store_true", help="as one of several replicas, whose buckets of gradients are in the peak (no others are there)")
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "plimsoll"), metavar="FILE", help="plimsoll (default build/plimsoll)")
    parser.add_argument("--prepare", action="store_true", help="export and plan only: what --prepared takes")
    parser.add_argument("--prepared", metavar="FOLDER", help="traces and plans of --prepare, where FOLDER has them")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER")
    return parser


def main(arguments):
    try:
        if exporter.CHILD in os.environ:
            return run_child(arguments)
        options = command_line().parse_args(arguments)
        if options.quick:
            options.plans, options.strategies, options.rounds = 1, "", 3
        if not os.access(options.program, os.X_OK):
            raise exporter.UsageError(f"--program {options.program}: no such program; './dev build' makes it")
        if options.prepared is not None and not os.path.isdir(options.prepared):
            raise exporter.UsageError(f"--prepared {options.prepared}: no such folder; --prepare -o {options.prepared or 'FOLDER'} makes it")
        from plimsoll.trace.models import refuse_missing
        refuse_missing(options)
        measure_all(options)
    except (exporter.UsageError, exporter.MeasurementError, Refused) as error:
        print(f"measure.py: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def measure_all(options):
    os.makedirs(options.output, exist_ok=True)
    rows, sources = [], {}
    for model in options.models:
        name = model.rpartition(":")[2]
        folder = os.path.join(options.output, name)
        os.makedirs(folder, exist_ok=True)
        reference = model if ":" in model else f"{os.path.join(HERE, 'models.py')}:{model}"
        trace = os.path.join(folder, "trace.json")
        plans = prepared_plans(options, name, folder)
        if plans is None:
            plans = exported_and_planned(options, reference, folder, trace)
            keep_plans(options, folder, plans)
        sources[name] = json.load(open(trace, encoding="utf-8"))["source"]
        if options.prepare:
            say(f"{name}: {len(plans)} plans")
            continue
        task = {"model": reference, "batch": options.batch, "rounds": options.rounds, "device": options.device, "dtype": options.dtype, "amp": options.amp,
                "replicas": options.replicas,
                "plans": plans, "folder": folder, "plain_s": sources[name]["check"]["plain_iteration_s"]}
        done = in_child(options, task)
        rows += [{"model": name} | row for row in done["rows"]]
        say(f"{name}: {len(done['rows'])} plans, plain training {done['plain_s'] * 1e3:.1f} ms and {done['plain_peak_bytes']} B")
    if options.prepare:
        return
    of = next(iter(sources.values()))
    result = {"format": "plimsoll.pytorch_measurement.v1", "device": of["device"], "device_detail": of.get("device_detail", ""),
              "versions": of["versions"], "date": datetime.date.today().isoformat(), "clock": of["clock"], "memory_counter": of["memory_counter"],
              "command": "python3 validate/pytorch/measure.py " + " ".join(sys.argv[1:]), "rounds": options.rounds,
              "load_average": list(os.getloadavg()), "rows": rows}
    path = os.path.join(options.output, "measurement.json")
    with open(path, "w", encoding="utf-8") as file:  # a line a run
        head = json.dumps({key: value for key, value in result.items() if key != "rows"}, indent=1)
        file.write(head[:-2] + ',\n "rows": [\n  ' + ",\n  ".join(map(json.dumps, rows)) + "\n ]\n}\n")
    say(f"wrote {path}; next: plimsoll compare --pytorch {path}")


def say(text):
    print(text, file=sys.stderr, flush=True)


def checked(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line and not line.startswith(" ")]  # excerpts of files are indented
        error = exporter.UsageError((said or ["no word"])[-1])
        error.exit_code = done.returncode
        raise error
    return done.stdout


# --- plans ------------------------------------------------------------------------------------------------------------------------

def exported_and_planned(options, reference, folder, trace):
    repetitions = options.rounds if options.quick or options.device == "cuda" else 3 * options.rounds  # a kernel's time varies less than a CPU's
    checked([sys.executable, os.path.join(ROOT, "traces", "export_pytorch.py"), "--model", reference, "--batch", str(options.batch),
             "--repetitions", str(repetitions), "--stages", "auto", "--device", options.device, "--dtype", options.dtype, *(["--amp", options.amp] if options.amp else []), "-o", trace])
    return planned(options, folder, trace, json.load(open(trace, encoding="utf-8"))["source"])


def asked_of(options):
    """What plans are made for."""
    return {"batch": options.batch, "dtype": options.dtype, "amp": options.amp, "device": options.device}


def keep_plans(options, folder, plans):
    own = [plan | {"file": os.path.basename(plan["file"])} for plan in plans]
    with open(os.path.join(folder, "plans.json"), "w", encoding="utf-8") as file:
        json.dump({"asked": asked_of(options), "plans": own}, file, indent=1)


def prepared_plans(options, name, folder):
    """Those of --prepared, copied here with their trace; None where it has none of the model."""
    source = os.path.join(options.prepared or "", name)
    path = os.path.join(source, "plans.json")
    if not options.prepared or not os.path.isfile(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        plans = [plan | {"file": os.path.join(folder, plan["file"])} for plan in kept["plans"]]
        wrong = [f"{what} {kept['asked'].get(what)}, not {asked}" for what, asked in asked_of(options).items() if kept["asked"].get(what) != asked]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise exporter.UsageError(f"{path}: not what --prepare writes: {error}") from error
    if wrong:
        raise exporter.UsageError(f"{path}: made for {wrong[0]}")
    if not plans:
        raise exporter.UsageError(f"{path}: has no plans")
    if os.path.realpath(source) == os.path.realpath(folder):
        return plans
    shutil.copytree(source, folder, dirs_exist_ok=True)
    return plans


def planned(options, folder, trace, source):
    """[{strategy, budget_bytes, file}]; a strategy that refuses the model is left out, with a word."""
    platform = os.path.join(folder, "platform.yaml")
    with open(platform, "w", encoding="utf-8") as file:
        file.write(platform_text(source, options.device))
    question = ["-t", trace, "-p", platform]
    plain = json.loads(checked([options.program, "simulate", *question, "-s", "store_all", "--json"]))["peak_bytes"]
    plans = [plan_file(options, folder, question, "store_all", None, 0)]
    least = smallest(options, question, "rotor")
    if least is None:
        raise exporter.UsageError(f"{trace}: rotor cannot plan it")
    budgets = [(least + plain) // 2] if options.quick else [least + (plain - least) * k // options.plans for k in range(options.plans)]
    plans += [plan_file(options, folder, question, "rotor", budget, len(plans) + k) for k, budget in enumerate(budgets)]
    for strategy in filter(None, options.strategies.split(",")):
        own = smallest(options, question, strategy) or 0
        refusal = None
        for budget in [*budgets[len(budgets) // 2:], plain]:  # copies beside the computation may need more where none run beside it
            try:
                plans.append(plan_file(options, folder, question, strategy, max(budget, own), len(plans)))
                break
            except exporter.UsageError as error:
                refusal = refusal or error
        else:
            say(f"left out: {strategy}: {refusal}")
    return plans


def smallest(options, question, strategy):
    """The least budget that the strategy can plan for."""
    done = subprocess.run([options.program, "simulate", *question, "-s", strategy, "-m", "1 kB", "--json"], capture_output=True, text=True,
                          check=False)
    return json.loads(done.stdout)["smallest_feasible_bytes"] if done.returncode == 1 else None


def plan_file(options, folder, question, strategy, budget, number):
    path = os.path.join(folder, f"plan{number}.json")
    memory = ["-m", f"{budget} B"] if budget is not None else []
    checked([options.program, "plan", *question, "-s", strategy, *memory, "--for", "pytorch", "-o", path])
    return {"strategy": strategy, "budget_bytes": budget, "file": path}


def platform_text(source, device):
    """The device that the trace was measured on, so that its times hold, with a host behind a link as fast as copies are here."""
    rate, latency = copy_rate(device)
    return f"""format: plimsoll.platform.v1
name: measured_here
source: "measure.py: the device of the trace; the link is a copy of 32 MB and one of 64 bytes by torch"
devices:
  - name: {device}
    model: {json.dumps(source["device"])}
    memory: 1 TB
memories:
  - name: host
    size: 1 TB
links:
  - name: copies
    between: [{device}, host]
    bandwidth: {rate / 1e9:.4g} GBps
    latency: {latency * 1e6:.3g} us
"""


def copy_rate(device):
    """Bytes a second of a large copy to the host, and seconds of a small one."""
    torch.set_num_threads(1)

    def seconds(count):
        source = torch.ones(count, dtype=torch.uint8, device=device)
        to = torch.empty(count, dtype=torch.uint8, pin_memory=device == "cuda")
        to.copy_(source)
        times = []
        for _ in range(9):
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter() if device == "cuda" else time.process_time()
            to.copy_(source)
            times.append((time.perf_counter() if device == "cuda" else time.process_time()) - start)
        return statistics.median(times)

    return 32e6 / seconds(32_000_000), seconds(64)


# --- the runs, in a process of their own with the counter loaded and threads fixed ---------------------------------------------------

def environment_of_runs(device):
    """With the counter loaded, and one thread."""
    library = exporter.built_counter(SimpleNamespace(device=device, memory_counter="auto"))
    environment = dict(os.environ) | {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    environment |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "68719476736", "MALLOC_TOP_PAD_": "268435456",
                    exporter.CHILD: library, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # the last for `differences`
    if library:
        environment["LD_PRELOAD"] = " ".join(filter(None, [library, os.environ.get("LD_PRELOAD", "")]))
    return environment


def in_child(options, task):
    environment = environment_of_runs(options.device)
    given, taken = (os.path.join(task["folder"], name) for name in ("task.json", "result.json"))
    with open(given, "w", encoding="utf-8") as file:
        json.dump(task, file)
    checked([sys.executable, os.path.abspath(__file__), given, taken], environment)
    return json.load(open(taken, encoding="utf-8"))


def run_child(arguments):
    exporter.leave_no_preload()
    task = json.load(open(arguments[0], encoding="utf-8"))
    result = Runs(task).result()
    with open(arguments[1], "w", encoding="utf-8") as file:
        json.dump(result, file)
    return 0


class Runs:
    def __init__(self, task):
        from plimsoll.trace.clocks import clock_for
        from plimsoll.trace.live_bytes import counter_for
        from plimsoll.torch.versions import autocast_for
        self.task = task
        torch.set_num_threads(1)
        self.model, self.loss, *example = load(task)
        self.clock, self.counter = clock_for(task["device"], 1), counter_for(task["device"])
        self.plans = [json.load(open(plan["file"], encoding="utf-8")) for plan in task["plans"]]
        self.precision = autocast_for(task["device"], task["amp"])
        if task.get("replicas"):
            store = os.path.join(task["folder"], f"{os.getpid()}.ranks")
            torch.distributed.init_process_group("nccl" if task["device"] == "cuda" else "gloo", init_method=f"file://{store}", rank=0, world_size=1)
        self.steps = [self.step_of(self.model, plan) for plan in self.plans]
        self.batches, self.why = self.other_batches(example)
        self.take(0)

    def take(self, number):
        """From now on this batch is trained."""
        self.inputs, self.targets = self.batches[number % len(self.batches)]

    def other_batches(self, example):
        """(batches that are not the exported one, "") as far as plans are for them; else (that one, why)."""
        from plimsoll.trace.other_batch import other_batches
        found, why = [], ""
        for batch in other_batches(*example):
            self.batches = [batch]
            self.take(0)
            try:
                self.plain_on(self.model)
                self.steps[0]()
                found.append(batch)
            except Exception as error:  # of the model's own code, which need not take any numbers; or the plan is not for them
                why = why or f"{type(error).__name__}: {error}"
            self.clear()
        return (found, "") if found else ([example], why)

    def step_of(self, model, plan):
        step = apply(model, plan, loss=self.loss, replicas=self.task.get("replicas", False))

        def run(watch=None):
            step.watch = watch
            with self.precision():
                return step(self.inputs, self.targets)
        run.peak_with_ranks = lambda: step.peak_with_ranks() if step.exchanges else 0
        return run

    def plain_on(self, model):
        from plimsoll.torch.recorder import loss_of
        args, kwargs = ((), self.inputs) if isinstance(self.inputs, dict) else (
            self.inputs if isinstance(self.inputs, tuple) else (self.inputs,), {})
        with self.precision():
            loss = loss_of(model(*args, **kwargs), self.loss, self.targets)
        loss.backward()
        return loss.detach()

    def result(self):
        same = Sameness(self).of_plans()
        self.settle()
        runs = [lambda: self.plain_on(self.model), *self.steps]
        for run in runs:
            self.clear()
            run()
        seconds, issues, beside = ([[] for _ in runs] for _ in range(3))  # beside: of the plain iterations right before and behind

        def timed(number):
            taken, issue = self.seconds_of(runs[number])
            seconds[number].append(taken)
            issues[number].append(issue)
            return taken

        gc.collect()
        gc.disable()  # as the exporter does
        for _ in range(self.task["rounds"]):
            before = timed(0)
            for number in range(1, len(runs)):
                timed(number)
                behind = timed(0)
                beside[number].append((before + behind) / 2)
                before = behind
        gc.enable()
        plain = {"rise_bytes": self.peak(runs[0])} | self.reserved() | self.issue_of(seconds[0], issues[0])
        rows = [self.row(*of) for of in zip(self.task["plans"], self.plans, self.steps, same, runs[1:])]
        for number, row in enumerate(rows, 1):
            own = seconds[number]
            row["measured"] |= {"seconds": own} | self.issue_of(own, issues[number]) | self.relative(own, beside[number])
            row["plain"] = {"seconds": beside[number]} | plain
        return {"rows": rows, "plain_s": statistics.median(seconds[0]), "plain_peak_bytes": plain["rise_bytes"] + self.resident(self.plans[0])}

    def seconds_of(self, run):
        """Of an iteration that follows one of its kind, as in training: the first behind another plan's finds memory in other places. And within how
        many the host had issued it: the less of both, since the second may wait for room in the device's queue."""
        self.clear()
        first = self.issue(run)
        self.clear()
        start = self.clock.mark()
        second = self.issue(run)
        finish = self.clock.mark()
        self.clock.settle()
        return self.clock.seconds(start, finish), min(first, second)

    @staticmethod
    def issue(run):
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    def issue_of(self, seconds, issues):
        """Where a device works apart from the host: the host's time, and of that of the iteration."""
        if not self.clock.runs_apart:
            return {}
        return {"issue_seconds": issues, "issue_share": statistics.median(issue / taken for issue, taken in zip(issues, seconds))}

    def settle(self):
        """As before any iteration: nothing of an earlier one is alive or under way."""
        self.clear()
        gc.collect()
        self.clock.settle()

    def clear(self):
        for parameter in self.model.parameters():
            parameter.grad = None

    def resident(self, plan):
        return plan["predicted"]["resident_bytes"] + plan["predicted"]["input_bytes"]

    def peak(self, run):
        self.clear()
        run()
        self.settle()
        if self.task["device"] == "cuda":
            torch.cuda.empty_cache()  # what is reserved counts from here
        with self.counter.counting():
            self.counter.reset_peak()
            start = self.counter.live()
            run()
            return self.counter.peak() - start

    def reserved(self):
        return {"reserved_bytes": torch.cuda.max_memory_reserved()} if self.task["device"] == "cuda" else {}

    def row(self, of, plan, step, same, run):
        predicted = plan["predicted"]
        measured = {"peak_bytes": self.peak(run) + self.resident(plan)} | self.reserved()
        profile = self.profile(step, plan) if plan["backward"] == "by_stage" and not self.task.get("replicas") else None
        on_cpu = self.task["device"] == "cpu"
        time_ = predicted["one_after_the_other_s" if on_cpu else "makespan_s"]
        peak = max(predicted["one_after_the_other_peak_bytes" if on_cpu else "peak_bytes"], step.peak_with_ranks())
        row = {"strategy": of["strategy"], "budget_bytes": of["budget_bytes"], **same,
               "predicted": {"seconds": time_, "relative": 1.0 if plan["backward"] == "in_one_call" else time_ / self.task["plain_s"],
                             "peak_bytes": peak},
               "measured": measured, "batches": f"the exported one ({self.why})" if self.why else f"{len(self.batches)} others"}
        return row | ({"profile": profile} if profile else {})

    def relative(self, seconds, plain):
        """The median over rounds of the plan's time by that of plain training right before and behind it, and half the distance of the quartiles."""
        ratios = [own / other for own, other in zip(seconds, plain)]
        spread = (lambda q: (q[2] - q[0]) / 2)(statistics.quantiles(ratios, n=4)) if len(ratios) > 2 else 0.0
        return {"relative": statistics.median(ratios), "spread": spread}

    def profile(self, step, plan):
        """By action: predicted and measured peak while it runs, in bytes above parameters and input."""
        peaks = []

        def watch(number, _):
            if number != 0:
                peaks.append(self.counter.peak() - start)
            self.counter.reset_peak()

        self.clear()
        step()
        self.settle()
        with self.counter.counting():
            start = self.counter.live()
            step(watch)
        resident = self.resident(plan)
        return {"predicted_bytes": [action["peak_bytes"] - resident for action in plan["actions"]], "measured_bytes": peaks,
                "seconds": [action["seconds"] for action in plan["actions"]]}


# --- what is the same ---------------------------------------------------------------------------------------------------------------

KERNELS = ({"name": "deterministic", "warn_only": False, "math": False},
           {"name": "deterministic, attention by the math kernel", "warn_only": False, "math": True},
           {"name": "deterministic where PyTorch has them, attention by the math kernel", "warn_only": True, "math": True},
           {"name": "as they are", "warn_only": None, "math": False})


@contextlib.contextmanager
def kernels(warn_only, math_attention):
    """PyTorch takes kernels that give the same bits each time; refuses others, or only warns of them (None: takes any)."""
    names = [name for name in ("flash", "mem_efficient", "cudnn") if math_attention and hasattr(torch.backends.cuda, f"enable_{name}_sdp")]
    before = {name: getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in names}
    torch.use_deterministic_algorithms(warn_only is not None, warn_only=bool(warn_only))
    for name in names:
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        for name, was in before.items():
            getattr(torch.backends.cuda, f"enable_{name}_sdp")(was)


class Sameness:
    """Two steps of training with an optimizer, each on a batch of its own, by each plan and plainly, and plainly once more: the control."""

    def __init__(self, runs):
        self.runs = runs
        self.model = load(runs.task)[0]  # not a deep copy, which weights made of others (weight_norm) refuse
        self.start = {name: value.clone() for name, value in runs.model.state_dict().items()}
        self.controls = {}  # by the name of the kernels

    def of_plans(self):
        """For each plan what is not, bit for bit, as after plain training, how far it is from that, and how far plain training is from itself: by the first
        kernels by which that is itself bit for bit, else by those of which PyTorch only warns. A plan that moves what other kernels save otherwise goes by
        the kernels that it was measured with."""
        return [self.of(plan) for plan in self.runs.plans]

    def of(self, plan):
        for way in KERNELS if self.runs.task["device"] == "cuda" else KERNELS[-1:]:
            with kernels(way["warn_only"], way["math"]):
                found = self.control(way)
                if found is None:
                    continue
                try:
                    differences, deviation = compared(found[0], self.trained(self.runs.step_of(self.model, plan)))
                except (Refused, RuntimeError) as error:
                    if way is KERNELS[-1] or not is_of_kernels(error):
                        raise
                    continue
            return {"differences": differences, "deviation": deviation, "control_deviation": found[1], "kernels": way["name"]}
        return None

    def control(self, way):
        """(what plain training gives, how far it is from itself), None where PyTorch refuses its kernels or where others are better."""
        if way["name"] not in self.controls:
            try:
                plain, *others = self.plain(), self.plain(), self.plain()
                same = all(not compared(plain, other)[0] for other in others)
                found = (plain, max(compared(plain, other)[1] for other in others)) if same or way["warn_only"] is not False else None
            except RuntimeError as error:
                if way["warn_only"] is not False or not is_of_kernels(error):
                    raise
                found = None
            self.controls[way["name"]] = found
        return self.controls[way["name"]]

    def plain(self):
        return self.trained(lambda: self.runs.plain_on(self.model))

    def trained(self, run):
        """{name: tensor} of losses and gradients in both steps, and of the model's state behind them."""
        self.model.load_state_dict(self.start)
        optimizer = torch.optim.SGD([p for p in self.model.parameters() if p.requires_grad], 0.01, momentum=0.9)
        found = {}
        for iteration in range(2):
            optimizer.zero_grad(set_to_none=True)
            self.runs.take(iteration)
            torch.manual_seed(iteration)
            found[f"loss of step {iteration}"] = run().detach().clone()
            found |= {f"gradient of {name} in step {iteration}": None if p.grad is None else p.grad.clone()
                      for name, p in self.model.named_parameters()}
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self.runs.take(0)
        return found | {name: value.clone() for name, value in self.model.state_dict().items()}


def is_of_kernels(error):
    """PyTorch refuses a kernel that adds in any order, or a step refuses what another kernel than when it was measured has saved."""
    return isinstance(error, Refused) or "determinis" in str(error)


def compared(plain, other):
    """Names of what is not the same bit for bit, and the largest distance of a tensor's numbers from plain training's, by the largest of these."""
    differences = [name for name, value in plain.items() if not same_bits(value, other[name])]
    return differences, max((distance(plain[name], other[name]) for name in differences), default=0.0)


def same_bits(a, b):
    return a is b if a is None or b is None else torch.equal(a, b)


def distance(a, b):
    """1 where one is missing or no number."""
    if a is None or b is None:
        return 1.0
    apart = float((a.double() - b.double()).abs().max() / a.double().abs().max())
    return apart if math.isfinite(apart) else 1.0


def load(task):
    """(model, loss, inputs, targets), of which the model is what the exporter measured."""
    from plimsoll.trace.models import Subject, place
    path, _, name = task["model"].rpartition(":")
    made = getattr(load_file(path), name)(batch=task["batch"])
    if not isinstance(made, tuple) or len(made) != 4:
        raise Refused(f"{task['model']} must return (model, loss, inputs, targets)")
    subject = Subject(name, "", made[0], *made[1:])
    place(subject, SimpleNamespace(**task))
    return subject.model, subject.loss, subject.input, subject.targets


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
