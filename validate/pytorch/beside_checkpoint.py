#!/usr/bin/env python3
"""Plans beside torch.utils.checkpoint at the same measured peak: whole training steps with AdamW, plain, with every block under a checkpoint
of its own (not reentrant), and by plans whose budget is the peak that the checkpoints were measured to take.

  python3 validate/pytorch/beside_checkpoint.py validate/pytorch/gpu_models.py:gpt2_small --amp bf16 --batch 8 --device cuda -o out/beside

Blocks are the modules of the model's largest list of modules. Steps are taken by turns, each behind an unmeasured one of its kind; times are
medians. On CUDA they are events, `issue` is when the host had issued the step (at 0.9 of the time and more the host bounds it); on a CPU
process CPU time of one thread.
"""

import argparse
import contextlib
import gc
import json
import os
import statistics
import sys
import time

import measure
from plimsoll.trace import exporter

BOUND_BY_HOST = 0.9


def command_line():
    parser = exporter.OneLineParser(prog="beside_checkpoint.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    positive = exporter.positive
    parser.add_argument("model", metavar="FILE.py:FUNCTION")
    parser.add_argument("--strategies", default="rotor,rotor|offload_greedy(chunks=1)", metavar="A,B,...", help="(default %(default)s)")
    parser.add_argument("--batch", type=positive, default=8, metavar="N", help="samples (default 8)")
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="timed steps of each (default 7)")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="of parameters and activations (default fp32)")
    parser.add_argument("--amp", choices=("bf16", "fp16"), help="autocast")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--program", default=os.path.join(measure.ROOT, "build", "plimsoll"), metavar="FILE", help="plimsoll (default build/plimsoll)")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER")
    return parser


def main(arguments):
    try:
        options = command_line().parse_args(arguments)
        if not os.access(options.program, os.X_OK):
            raise exporter.UsageError(f"--program {options.program}: no such program; './dev build' makes it")
        if exporter.CHILD not in os.environ:
            start_again(options, arguments)
        exporter.leave_no_preload()
        os.makedirs(options.output, exist_ok=True)
        made = Comparison(options)
        rows = made.rows()
    except (exporter.UsageError, exporter.MeasurementError, measure.Refused) as error:
        print(f"beside_checkpoint.py: {error}", file=sys.stderr)
        return error.exit_code
    path = os.path.join(options.output, "beside_checkpoint.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"format": "plimsoll.beside_checkpoint.v1", "command": "python3 validate/pytorch/beside_checkpoint.py " + " ".join(arguments),
                   **exporter.device_names(options.device), "versions": exporter.versions(), "trace_check": made.check, "rows": rows}, file, indent=1)
    print(table(rows))
    print(f"wrote {path}")
    return 0


def start_again(options, arguments):
    """With the counter of live bytes loaded; measure.py's settings, which are read when a process begins."""
    environment = measure.environment_of_runs(options.device)
    os.execve(sys.executable, [sys.executable, os.path.abspath(__file__), *arguments], environment)


def table(rows):
    plain = rows[0]["median_s"]
    lines = [f"{'':36} {'time':>10} {'over plain':>10} {'issue':>10} {'peak':>10} {'promised':>10}"]
    for row in rows:
        issue = f"{row['issue_s'] * 1e3:7.2f} ms" if row["issue_s"] is not None else "-"
        bound = "  bound by the host" if (row["issue_s"] or 0) >= BOUND_BY_HOST * row["median_s"] else ""
        promised = f"{row['promised_peak_bytes'] / 1e9:7.3f} GB" if row["promised_peak_bytes"] is not None else "-"
        lines.append(f"{row['name']:36} {row['median_s'] * 1e3:7.2f} ms {row['median_s'] / plain - 1:+10.1%} {issue:>10} "
                     f"{row['peak_bytes'] / 1e9:7.3f} GB {promised:>10}{bound}")
    return "\n".join(lines)


def largest_list(model):
    """The blocks of the model: of its lists of modules, that with the most parameters."""
    import torch
    lists = [module for module in model.modules() if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) and len(module) > 1]
    if not lists:
        raise measure.Refused("the model has no list of modules to put under checkpoints")
    return list(max(lists, key=lambda of: sum(p.numel() for p in of.parameters())))


@contextlib.contextmanager
def under_checkpoints(blocks):
    from torch.utils.checkpoint import checkpoint
    for block in blocks:
        inner = block.forward
        block.forward = lambda *args, inner=inner, **kwargs: checkpoint(inner, *args, use_reentrant=False, **kwargs)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


class Comparison:
    def __init__(self, options):
        import torch
        self.torch, self.options = torch, options
        if options.device == "cpu":
            torch.set_num_threads(1)
        self.trace = os.path.join(options.output, "trace.json")
        measure.checked([sys.executable, os.path.join(measure.ROOT, "traces", "export_pytorch.py"), "--model", options.model, "--batch", str(options.batch),
                         "--stages", "auto", "--device", options.device, "--dtype", options.dtype, *(["--amp", options.amp] if options.amp else []),
                         "-o", self.trace])
        self.source = json.load(open(self.trace, encoding="utf-8"))["source"]
        self.check = {key: self.source["check"].get(key) for key in ("sum_of_stage_times_s", "plain_iteration_s", "plain_issue_s")}
        from plimsoll.torch.versions import autocast_for
        from plimsoll.trace.clocks import clock_for
        from plimsoll.trace.live_bytes import counter_for
        self.model, self.loss, self.inputs, self.targets = measure.load(vars(options))
        self.precision = autocast_for(options.device, options.amp)
        self.clock, self.counter = clock_for(options.device, 1), counter_for(options.device)
        more = {"fused": True} if options.device == "cuda" else {}
        self.optimizer = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=1e-6, **more)

    def rows(self):
        kinds = [("plain", self.plain, None), ("checkpoint of each block", self.checkpointed(), None)]
        for name, gradients, _ in kinds:
            self.step(gradients)
        peaks = [self.peak(gradients) for _, gradients, _ in kinds]
        first = [[self.seconds_of(gradients) for _ in range(3)] for _, gradients, _ in kinds]  # a plan must not make them slower
        for strategy, path in self.plans(peaks[1]):
            plan = measure.apply(self.model, path, loss=self.loss)
            promised = json.load(open(path, encoding="utf-8"))["predicted"]["peak_bytes"] + self.beside_the_plan
            kinds.append((strategy, lambda plan=plan: plan(self.inputs, self.targets), promised))
            self.step(kinds[-1][1])
            self.step(kinds[-1][1])
            peaks.append(self.peak(kinds[-1][1]))
        seconds, issues = [[] for _ in kinds], [[] for _ in kinds]
        gc.collect()
        gc.disable()
        for _ in range(self.options.rounds):
            for k, (_, gradients, _) in enumerate(kinds):
                took, issue = self.seconds_of(gradients)
                seconds[k].append(took)
                issues[k].append(issue)
        gc.enable()
        rows = [{"name": name, "median_s": statistics.median(took), "issue_s": statistics.median(issue) if self.options.device == "cuda" else None,
                 "seconds": took, "peak_bytes": peak, "promised_peak_bytes": promised}
                for (name, _, promised), took, issue, peak in zip(kinds, seconds, issues, peaks)]
        for row, before in zip(rows, first):
            row["before_plans"] = {"seconds": [took for took, _ in before], "issue_s": [issue for _, issue in before]}
        return rows

    # --- steps ---

    def plain(self):
        from plimsoll.torch.recorder import loss_of
        args, kwargs = ((), self.inputs) if isinstance(self.inputs, dict) else (
            self.inputs if isinstance(self.inputs, tuple) else (self.inputs,), {})
        loss = loss_of(self.model(*args, **kwargs), self.loss, self.targets)
        with self.torch.autocast(self.options.device, enabled=False):
            loss.backward()

    def checkpointed(self):
        blocks = largest_list(self.model)

        def gradients():
            with under_checkpoints(blocks):
                self.plain()
        return gradients

    def step(self, gradients):
        with self.precision():
            gradients()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def seconds_of(self, gradients):
        self.step(gradients)
        self.clock.settle()
        before = time.perf_counter()
        start = self.clock.mark()
        self.step(gradients)
        finish = self.clock.mark()
        issue = time.perf_counter() - before
        self.clock.settle()
        return self.clock.seconds(start, finish), issue

    def peak(self, gradients):
        """Bytes above what is alive without a step, and that."""
        gc.collect()
        with self.counter.counting():
            self.counter.reset_peak()
            self.step(gradients)
            return self.counter.peak()

    # --- plans ---

    def plans(self, peak):
        """[(strategy, file)] for the budget at which the whole step takes `peak`."""
        options = self.options
        platform = os.path.join(options.output, "platform.yaml")
        with open(platform, "w", encoding="utf-8") as file:
            file.write(measure.platform_text(self.source, options.device))
        question = ["-t", self.trace, "-p", platform]
        plain = os.path.join(options.output, "plan.json")
        measure.checked([options.program, "plan", *question, "-s", "store_all", "--for", "pytorch", "-o", plain])
        predicted = json.load(open(plain, encoding="utf-8"))["predicted"]
        self.beside_the_plan = self.counter.live() - predicted["resident_bytes"] - predicted["input_bytes"]  # states of the optimizer
        made = []
        for number, strategy in enumerate(options.strategies.split(",")):
            path = os.path.join(options.output, f"plan{number}.json")
            try:
                measure.checked([options.program, "plan", *question, "-s", strategy, "-m", f"{peak - self.beside_the_plan} B", "--for", "pytorch", "-o", path])
                made.append((strategy, path))
            except exporter.UsageError as refusal:
                print(f"left out: {strategy}: {refusal}", file=sys.stderr)
        return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
