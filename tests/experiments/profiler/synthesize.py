#!/usr/bin/env python3
"""Made-up profiler traces of which it is known what every kernel is for. External ids and threads' numbers are such
that whoever relies on them is wrong: external ids name other operators, three host threads work at once, devices run
late. Standard library only.

usage: synthesize.py --iterations N [--seed S] [--style current|amd|2021] > trace.json     the truth on stderr
"""
import argparse
import collections
import json
import random
import statistics
import sys

NODE = "autograd::engine::evaluate_function: "
MAIN, AUTOGRAD, LOADER = 4000, 4017, 4093
WORDS = {
    "current": {"op": "cpu_op", "label": "user_annotation", "launch": "cuda_runtime", "kernel": "kernel",
                "copy": "gpu_memcpy", "memset": "gpu_memset", "external": "External id", "name": "cudaLaunchKernel"},
    "amd": {"op": "cpu_op", "label": "user_annotation", "launch": "cuda_runtime", "kernel": "kernel",
            "copy": "gpu_memcpy", "memset": "gpu_memset", "external": "External id", "name": "hipLaunchKernel"},
    "2021": {"op": "Operator", "label": "Operator", "launch": "Runtime", "kernel": "Kernel", "copy": "Memcpy",
             "memset": "Memset", "external": "external id", "name": "cudaLaunchKernel"},
}


class Trace:
    """One iteration after the other; times in nanoseconds."""

    def __init__(self, seed, style, emit):
        self.random, self.style, self.words, self.emit = random.Random(seed), style, WORDS[style], emit
        self.unit = 1000 if style == "2021" else 1  # integer microseconds then, three decimals since
        self.base = 1_712_195_495_501_688_000 if style == "current" else 4_203_669_603_018_000
        self.sequence, self.correlation, self.external = 0, 10_000_000, 0
        self.device = {7: 0, 20: 0}  # when each stream is free
        self.truth, self.steps = collections.Counter(), []
        self.live, self.peaks = 0, []
        # A thread after its nodes does no backward pass; but the engine's own thread does nothing else.
        self.after_nodes = "backward" if style == "2021" else "forward"

    def micro(self, time):
        whole, rest = divmod(self.base + time, 1000)
        return whole if rest == 0 else float(f"{whole}.{rest:03}") if whole < 10**12 else Decimal(whole, rest)

    def slice(self, what, name, pid, tid, start, end, **args):
        tid = str(tid) if self.style == "2021" else tid
        if what == "op":
            self.external += 1
            args = {self.words["external"]: self.external, **args}
        self.emit({"ph": "X", "cat": self.words[what], "name": name, "pid": pid, "tid": tid, "ts": self.micro(start),
                   "dur": (end - start) // 1000 if (end - start) % 1000 == 0 else (end - start) / 1000, "args": args})

    def tick(self, low=2, high=9):
        return self.random.randint(low, high) * (1000 if self.unit == 1000 else self.random.randint(500, 1500))

    def launch(self, thread, time, kind, name="gemm", stream=7, launcher=None, what="kernel"):
        """A launch at a date, its work whenever the stream is free, later by a lot."""
        self.correlation += self.random.randint(1, 3)
        wrong = {self.words["external"]: self.random.randint(1, self.external + 40)}
        if self.style == "2021":
            wrong = {}
        duration = self.tick(3, 40)
        self.slice("launch", launcher or self.words["name"], MAIN, thread, time, time + self.unit,
                   correlation=self.correlation, **wrong)
        start = max(time, self.device[stream]) + self.tick(20, 90)
        self.device[stream] = start + duration
        self.slice(what, name, 0, "stream 7" if self.style == "2021" else stream, start, start + duration,
                   correlation=self.correlation, device=0, stream=stream, **wrong)
        if self.style != "2021":
            place = {"id": self.correlation, "cat": "ac2g", "name": "ac2g"}
            self.emit({"ph": "s", "pid": MAIN, "tid": thread, "ts": self.micro(time), **place})
            self.emit({"ph": "f", "pid": 0, "tid": stream, "ts": self.micro(start), "bp": "e", **place})
        self.truth[kind] += duration
        if self.steps:
            step = self.steps[-1]
            step["kinds"][kind] += duration
            step["device"] = [min(step["device"][0], start), max(step["device"][1], start + duration)]

    def memory(self, thread, time, change):
        self.live += change
        self.steps[-1]["peak"] = max(self.steps[-1]["peak"], self.live)
        self.emit({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": MAIN, "tid": thread,
                   "ts": self.micro(time), "args": {"Device Type": 1, "Device Id": 0, "Addr": 7, "Bytes": change,
                                                    "Total Allocated": self.live, "Total Reserved": 1 << 34}})

    def op(self, thread, time, kind, recorded=False, **launching):
        """An operator in an operator with a launch; returns when it ends."""
        inner, end = time + self.tick(), 0
        at = inner + self.tick()
        end_inner = at + self.tick()
        end = end_inner + self.tick()
        args = {}
        if recorded:
            self.sequence += 1
            args = {"Sequence number": self.sequence, "Fwd thread id": 0}
        self.slice("op", "aten::linear", MAIN, thread, time, end, **args)
        self.slice("op", "aten::addmm", MAIN, thread, inner, end_inner)
        self.launch(thread, at, kind, **launching)
        return end

    def node(self, time, name, body):
        """Autograd runs a node; body(start) returns when it is done."""
        done = body(time + self.tick()) + self.tick()
        args = {"Sequence number": self.random.randint(1, self.sequence), "Fwd thread id": 1}
        self.slice("op", name, MAIN, AUTOGRAD, time + self.unit, done, **args)
        if self.style != "2021":  # when the engine was silent
            self.slice("op", NODE + name, MAIN, AUTOGRAD, time, done + self.unit, **args)
        return done + self.unit + self.tick(0, 3)

    def backward(self, time):
        run = lambda kind, **how: (lambda t: self.op(AUTOGRAD, t, kind, **how))
        for layer in range(self.random.randint(2, 4)):
            time = self.node(time, "AddmmBackward0", run("backward"))

        def checkpoint(t):
            t = self.op(AUTOGRAD, t, "recompute", recorded=True)
            t = self.op(AUTOGRAD, t, "recompute")
            t = self.node(t, "ReluBackward0", run("backward"))
            return self.node(t, "AddmmBackward0", run("backward"))

        def hook(t):
            t = self.op(AUTOGRAD, t, "recompute", recorded=True)
            return self.op(AUTOGRAD, t, "backward")

        def reduce(t):
            end = t + self.tick()
            self.slice("label", "nccl:all_reduce", MAIN, AUTOGRAD, t, end)
            self.launch(AUTOGRAD, t, "collective", stream=20, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclArgs)")
            return end

        time = self.node(time, "CheckpointFunctionBackward", checkpoint)
        time = self.node(time, "MulBackward0", hook)
        time = self.node(time, "torch::autograd::AccumulateGrad", reduce)
        time = self.node(time, "GraphedBackward", run("backward", launcher="cudaGraphLaunch"))
        return self.op(AUTOGRAD, time, self.after_nodes)

    def iteration(self, number, time):
        begin = time
        self.steps.append({"name": f"ProfilerStep#{number}", "kinds": collections.Counter(), "peak": self.live,
                           "device": [1 << 62, 0]})
        self.launch(MAIN, time + self.unit, "prefetch", name="Memcpy HtoD (Pinned -> Device)",
                    launcher="cudaMemcpyAsync", what="copy")
        time += self.tick(10, 20)
        zero = self.op(MAIN, time + self.tick(), "zero_grad")
        self.slice("label", "Optimizer.zero_grad#SGD.zero_grad", MAIN, MAIN, time, zero + self.unit)
        time = zero + self.tick()
        for layer in range(self.random.randint(2, 5)):
            end = self.op(MAIN, time, "forward", recorded=True)
            self.memory(MAIN, end, 1 << 20)
            time = end + self.tick(0, 4)
        self.launch(MAIN, time, "memset", name="Memset (Device)", launcher="cudaMemsetAsync", what="memset")
        during = time + self.tick()
        time = self.backward(time + self.tick())
        while during < time:  # another thread evaluates something meanwhile
            during = self.op(LOADER, during, "forward") + self.tick(20, 60)
        self.memory(AUTOGRAD, time, -self.live)
        update = self.op(MAIN, time + self.tick(), "update")
        aside = self.op(AUTOGRAD, time + self.tick(), self.after_nodes)  # while the optimizer steps
        self.launch(MAIN, update, "device_copy", name="Memcpy DtoD (Device -> Device)", launcher="cudaMemcpyAsync",
                    what="copy")
        self.launch(MAIN, update, "offload", name="Memcpy DtoH (Device -> Pinned)", launcher="cudaMemcpyAsync",
                    what="copy")
        self.slice("label", "Optimizer.step#SGD.step", MAIN, MAIN, time, update + self.unit)
        end = max(update, aside, during) + self.tick()
        self.slice("label", f"ProfilerStep#{number}", MAIN, MAIN, begin, end)
        first, last = self.steps[-1]["device"]
        alone = max(end - begin, last - first)
        self.steps[-1]["whole"] = last - self.steps[-2]["device"][1] if len(self.steps) > 1 else alone
        return end + self.unit


class Decimal(float):
    """A number that JSON writes with three decimals, whatever a double can hold."""

    def __new__(cls, whole, rest):
        made = super().__new__(cls, whole)
        made.text = f"{whole}.{rest:03}"
        return made

    def __repr__(self):
        return self.text


def synthesize(iterations, seed, style, emit):
    """Calls emit(event) for each event; returns the truth in seconds."""
    trace, time = Trace(seed, style, emit), 0
    for number in range(iterations):
        time = trace.iteration(number + 11, time)
    counted = trace.steps[1:]
    while len(counted) > 2 and counted[0]["whole"] > 1.5 * statistics.median(s["whole"] for s in counted[1:]):
        counted = counted[1:]
    return {"recorded": {kind: time * 1e-9 for kind, time in trace.truth.items()},
            "median": {kind: statistics.median(s["kinds"][kind] for s in counted) * 1e-9 for kind in trace.truth},
            "whole": statistics.median(s["whole"] for s in counted) * 1e-9, "steps": len(counted),
            "peak": max(s["peak"] for s in counted)}


def text_of(event):
    """As json.dumps, with decimals kept."""
    return json.dumps({k: f"@{v!r}@" if isinstance(v, Decimal) else v for k, v in event.items()}) \
        .replace('"@', "").replace('@"', "")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--iterations", type=int, required=True)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--style", choices=list(WORDS), default="current")
    options = options.parse_args()
    sys.stdout.write('{"schemaVersion": 1, "traceEvents": [\n')
    first = True

    def emit(event):
        nonlocal first
        sys.stdout.write(text_of(event) if first else ",\n" + text_of(event))
        first = False

    truth = synthesize(options.iterations, options.seed, options.style, emit)
    sys.stdout.write('\n], "traceName": "made up"}\n')
    print(json.dumps(truth), file=sys.stderr)


if __name__ == "__main__":
    main()
