#!/usr/bin/env python3
"""Imports 300,000 operators of a made-up graph, and 1 GB of a recording, and prints the CPU time and the memory that each takes.

tests/program/large_imports.py PROGRAM [RECORDING.json.gz]     # default: the shipped one

A recording is repeated, each time as one step more, until it is 1 GB. No test: docs/performance.md has what it printed.
"""
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile

OPS, BYTES, APART_US, NUMBERS = 300_000, 10**9, 10**6, 10**7


def write_graph(path):
    random.seed(1)
    edges = [(source, op) for op in range(1, OPS) for source in {op - 1, max(0, op - random.randrange(1, 200))}]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"# dag1 {OPS} {len(edges)}\n")
        for op in range(OPS):
            file.write(f"{op} {'F' if op < OPS // 2 else 'B'} {random.randrange(1, 100)} {4096 if op % 10 == 0 else 0} {random.randrange(1000, 100_000)} -1\n")
        file.writelines(f"{source} {op}\n" for source, op in edges)


def moved(event, times):
    """The event, so many steps later."""
    made = dict(event)
    if "ts" in made:
        made["ts"] += times * APART_US
    if "correlation" in made.get("args", {}):
        made["args"] = {**made["args"], "correlation": made["args"]["correlation"] + times * NUMBERS}
    if made.get("name", "").startswith("ProfilerStep#"):
        made["name"] = f"ProfilerStep#{int(made['name'][13:]) + times}"
    return made


def write_recording(recording, path):
    with gzip.open(recording, "rt") as file:
        read = json.load(file)
    events = read.pop("traceEvents")
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(read)[:-1] + ', "traceEvents": [\n')
        times = 0
        while file.tell() < BYTES:
            file.writelines(("," if times or k else "") + json.dumps(moved(event, times)) + "\n" for k, event in enumerate(events))
            times += 1
        file.write("]}")


def import_one(program, importer, path, folder):
    run = subprocess.Popen([program, "import", importer, path, "-o", os.path.join(folder, "trace.json")])
    _, status, used = os.wait4(run.pid, 0)
    if status != 0:
        sys.exit(f"{importer}: exit status {status}")
    print(f"{importer}: {os.path.getsize(path) / 1e6:,.0f} MB in {used.ru_utime + used.ru_stime:.1f} s of CPU, {used.ru_maxrss / 1e3:,.0f} MB", flush=True)


def main(program, recording="tests/traces/foreign/kineto_gpt2_h100.json.gz"):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file")
        write_graph(path)
        import_one(program, "pardnn-dag", path, folder)
        write_recording(recording, path)
        import_one(program, "kineto", path, folder)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
