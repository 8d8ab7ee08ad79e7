#!/usr/bin/env python3
"""A second reader of PyTorch profiler traces, to hold `plimsoll compare` against. Standard library only.

It shares no method with the program. Kernels find their launches by the arrows that are drawn in the trace (ac2g flows,
from a place on a host thread to a place on a stream), not by correlation ids; what a launch is for is asked of the set
of all ranges that contain it (a centred interval tree for each thread), not of a walk with a stack; a thread's time is
cut at every boundary and each piece asked in its middle.

usage: independent_reader.py TRACE[.gz]...      one line of JSON for each, seconds by kind
"""
import collections
import gzip
import json
import re
import statistics
import sys

ENGINE = "autograd::engine::evaluate_function"
NODE = re.compile(r"autograd::engine::evaluate_function.*|torch::autograd::\w+|\w+Backward\d*")
NOT_MODEL = ("Optimizer.step", "Optimizer.zero_grad", "gloo:", "mpi:", "ucc:")


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    data = json.loads(data)
    return data if isinstance(data, list) else data["traceEvents"]


class IntervalTree:
    """All intervals [start, end) that contain a point, in O(log n + answers)."""

    def __init__(self, intervals):  # (start, end, what)
        self.centre = None
        intervals = [i for i in intervals if i[0] < i[1]]
        if not intervals:
            return
        self.centre = sorted(i[0] for i in intervals)[len(intervals) // 2]
        here = [i for i in intervals if i[0] <= self.centre < i[1]]
        self.by_start = sorted(here, key=lambda i: i[0])
        self.by_end = sorted(here, key=lambda i: -i[1])
        self.left = IntervalTree([i for i in intervals if i[1] <= self.centre])
        self.right = IntervalTree([i for i in intervals if i[0] > self.centre])

    def containing(self, point):
        if self.centre is None:
            return []
        found = []
        if point < self.centre:
            for interval in self.by_start:
                if interval[0] > point:
                    break
                found.append(interval)
            return found + self.left.containing(point)
        for interval in self.by_end:
            if interval[1] <= point:
                break
            found.append(interval)
        return found + self.right.containing(point)


def category(event):
    known = {"cpu_op": "op", "operator": "op", "user_annotation": "annotation", "kernel": "kernel",
             "gpu_memcpy": "copy", "memcpy": "copy", "gpu_memset": "memset", "memset": "memset"}
    if "cat" not in event and event.get("pid") == "CPU functions":
        return "op"
    return known.get(event.get("cat", "").lower())


def is_annotation(event):
    name = event["name"]
    return category(event) == "annotation" or name.split("#")[0] in ("ProfilerStep", "enumerate(DataLoader)") or \
        name.startswith(("Optimizer.", "nn.Module: "))


def is_node(event):
    return category(event) == "op" and NODE.fullmatch(event["name"]) is not None


def purpose(ranges, otherwise="forward"):
    """What work is for that is asked for within these ranges, and whether an operator is among them."""
    busy = any(not is_annotation(r) or r["name"].startswith(("gloo:", "mpi:", "ucc:")) for _, _, r in ranges)
    speaking = [(s, -e, r) for s, e, r in ranges
                if is_node(r) or r["name"].startswith(NOT_MODEL)]
    if not speaking:
        return otherwise, busy
    start, minus_end, decides = max(speaking, key=lambda each: each[:2])
    if decides["name"].startswith("Optimizer.step"):
        return "update", busy
    if decides["name"].startswith("Optimizer.zero_grad"):
        return "zero_grad", busy
    if not is_node(decides):
        return "collective", busy
    if "CheckpointFunctionBackward" in decides["name"]:
        return "recompute", busy
    within = [r for s, e, r in ranges if r is not decides and (s, -e) >= (start, minus_end)]
    recorded = any("Sequence number" in r.get("args", {}) and not r["args"].get("Fwd thread id", 0) and
                   not is_annotation(r) for r in within)
    return ("recompute" if recorded else "backward"), busy


def kind_of_copy(name):
    for letters, kind in (("DtoH", "offload"), ("HtoD", "prefetch"), ("DtoD", "device_copy"), ("PtoP", "send")):
        if letters in name:
            return kind
    return "unmatched"


def engine_threads(threads):
    """Threads of autograd's engine in recordings in which it does not say what it evaluates: they run nodes, and outside
    of these nothing that autograd records or an optimizer does."""
    if any(r["name"].startswith(ENGINE) for ranges in threads.values() for _, _, r in ranges):
        return set()
    found = set()
    for thread, ranges in threads.items():
        nodes = IntervalTree([r for r in ranges if is_node(r[2])])
        others = [r for r in ranges if not is_node(r[2]) and not nodes.containing((r[0] + r[1]) / 2)]
        model = [r for _, _, r in others if r["name"].startswith(NOT_MODEL) or
                 "Sequence number" in r.get("args", {}) and not is_annotation(r)]
        if nodes.centre is not None and not model:
            found.add(thread)
    return found


def place_of(event):
    """A thread or stream: in 2021 slices wrote its number as a word, arrows did not."""
    return str(event["pid"]), str(event["tid"])


def launches(events):
    """The place and date of the launch for each place and date on a stream, by the arrows between them."""
    starts, ends = {}, collections.defaultdict(list)
    for event in events:
        if event.get("cat") not in ("ac2g", "async"):
            continue
        place = (place_of(event), event["ts"])
        if event["ph"] == "s":
            starts[event["id"]] = place
        elif event["ph"] == "f":
            ends[place].append(event["id"])
    found = collections.defaultdict(collections.deque)
    for place, ids in ends.items():
        for one in sorted(ids):
            if one in starts and starts[one][0] != place[0]:
                found[place].append(starts[one])
    return found


def work_of_devices(events, trees, engines):
    arrows = launches(events)
    work = []  # (kind, launched, start, duration)
    for event in events:
        what = category(event)
        if what not in ("kernel", "copy", "memset"):
            continue
        origin = arrows[(place_of(event), event["ts"])]
        launch = origin.popleft() if origin else None
        if what == "kernel" and ("nccl" in event["name"] or "rccl" in event["name"]):
            kind = "send" if "SendRecv" in event["name"] else "collective"
        elif what == "kernel":
            kind = "unmatched"
            if launch and launch[0] in trees:
                kind, busy = purpose(trees[launch[0]].containing(launch[1]),
                                     "backward" if launch[0] in engines else "forward")
        else:
            kind = "memset" if what == "memset" else kind_of_copy(event["name"])
        work.append((kind, launch[1] if launch else event["ts"], event["ts"], event["dur"]))
    return work


def work_of_threads(threads, trees, engines):
    work = []
    for thread, ranges in threads.items():
        cuts = sorted({x for r in ranges for x in r[:2]})
        for start, end in zip(cuts, cuts[1:]):
            kind, busy = purpose(trees[thread].containing((start + end) / 2),
                                 "backward" if thread in engines else "forward")
            if busy:
                work.append((kind, start, start, end - start))
    return work


def steps_that_count(steps):
    steps = [s for s in steps if s["kinds"]][:]
    skipped = 0
    while len(steps) > 1 and (skipped == 0 or
                              len(steps) > 2 and steps[0]["whole"] > 1.5 * statistics.median(s["whole"] for s in steps[1:])):
        steps, skipped = steps[1:], skipped + 1
    return steps


def read(path):
    events = [e for e in load(path) if isinstance(e, dict)]
    threads, marks = collections.defaultdict(list), []
    for event in events:
        if event.get("ph") == "X" and category(event) in ("op", "annotation"):
            interval = (event["ts"], event["ts"] + event["dur"], event)
            if event["name"].startswith("ProfilerStep#"):
                marks.append(interval)
            else:
                threads[place_of(event)].append(interval)
    trees = {thread: IntervalTree(ranges) for thread, ranges in threads.items()}
    devices = any(category(e) in ("kernel", "copy", "memset") for e in events)
    engines = engine_threads(threads)
    work = work_of_devices(events, trees, engines) if devices else work_of_threads(threads, trees, engines)
    recorded = collections.Counter()
    for kind, _, _, duration in work:
        recorded[kind] += duration * 1e-6
    steps = []
    before = None  # when the devices were done with the step before
    for begin, end, mark in sorted(marks, key=lambda m: m[0]):
        own = [w for w in work if begin <= w[1] < end]
        kinds = collections.Counter()
        for kind, _, _, duration in own:
            kinds[kind] += duration * 1e-6
        done = max(s + d for _, _, s, d in own) if own and devices else None
        if before is not None and done is not None:
            whole = done - before
        else:
            whole = max(end - begin, done - min(s for _, _, s, _ in own) if done is not None else 0)
        before = done
        steps.append({"name": mark["name"], "kinds": kinds, "whole": whole * 1e-6})
    counted = steps_that_count(steps)
    median = {kind: statistics.median(s["kinds"][kind] for s in counted) for kind in recorded} if counted else {}
    ours = sum(d for k, _, _, d in work if k not in ("collective", "send")) if devices else 0
    return {"recorded": dict(recorded), "median": median,
            "whole": statistics.median(s["whole"] for s in counted) if counted else None,
            "steps": [s["name"] for s in counted],
            "unmatched_share": recorded["unmatched"] / (ours * 1e-6) if ours else 0}


if __name__ == "__main__":
    for trace in sys.argv[1:]:
        print(json.dumps(read(trace)))
