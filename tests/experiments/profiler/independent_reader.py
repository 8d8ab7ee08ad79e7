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
import statistics
import sys

NODE = "autograd::engine::evaluate_function"


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


def purpose(ranges):
    """What work is for that is asked for within these ranges, and whether an operator is among them."""
    busy = any(not is_annotation(r) or r["name"].startswith(("gloo:", "mpi:", "ucc:")) for _, _, r in ranges)
    speaking = [(s, -e, r) for s, e, r in ranges
                if r["name"].startswith((NODE, "Optimizer.step", "Optimizer.zero_grad", "gloo:", "mpi:", "ucc:"))]
    if not speaking:
        return "forward", busy
    start, minus_end, decides = max(speaking, key=lambda each: each[:2])
    if decides["name"].startswith("Optimizer.step"):
        return "update", busy
    if decides["name"].startswith("Optimizer.zero_grad"):
        return "zero_grad", busy
    if not decides["name"].startswith(NODE):
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


def launches(events):
    """The place and date of the launch for each place and date on a stream, by the arrows between them."""
    starts, ends = {}, collections.defaultdict(list)
    for event in events:
        if event.get("cat") not in ("ac2g", "async"):
            continue
        place = ((event["pid"], event["tid"]), event["ts"])
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


def work_of_devices(events, trees):
    arrows = launches(events)
    work = []  # (kind, launched, start, duration)
    for event in events:
        what = category(event)
        if what not in ("kernel", "copy", "memset"):
            continue
        origin = arrows[((event["pid"], event["tid"]), event["ts"])]
        launch = origin.popleft() if origin else None
        if what == "kernel" and ("nccl" in event["name"] or "rccl" in event["name"]):
            kind = "send" if "SendRecv" in event["name"] else "collective"
        elif what == "kernel":
            kind = "unmatched"
            if launch and launch[0] in trees:
                kind, busy = purpose(trees[launch[0]].containing(launch[1]))
        else:
            kind = "memset" if what == "memset" else kind_of_copy(event["name"])
        work.append((kind, launch[1] if launch else event["ts"], event["ts"], event["dur"]))
    return work


def work_of_threads(threads, trees):
    work = []
    for thread, ranges in threads.items():
        cuts = sorted({x for r in ranges for x in r[:2]})
        for start, end in zip(cuts, cuts[1:]):
            kind, busy = purpose(trees[thread].containing((start + end) / 2))
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
                threads[(event["pid"], event["tid"])].append(interval)
    trees = {thread: IntervalTree(ranges) for thread, ranges in threads.items()}
    devices = any(category(e) in ("kernel", "copy", "memset") for e in events)
    work = work_of_devices(events, trees) if devices else work_of_threads(threads, trees)
    recorded = collections.Counter()
    for kind, _, _, duration in work:
        recorded[kind] += duration * 1e-6
    steps = []
    for begin, end, mark in sorted(marks, key=lambda m: m[0]):
        own = [w for w in work if begin <= w[1] < end]
        kinds = collections.Counter()
        for kind, _, _, duration in own:
            kinds[kind] += duration * 1e-6
        on_device = max(s + d for _, _, s, d in own) - min(s for _, _, s, _ in own) if own and devices else 0
        steps.append({"name": mark["name"], "kinds": kinds, "whole": max(end - begin, on_device) * 1e-6})
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
