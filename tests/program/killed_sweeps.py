#!/usr/bin/env python3
"""Kills a sweep's driver, workers and ranks of mpirun at random, again and again, and lets the sweep go on; fills its disk,
limits the size of its files and makes its folder read-only. No finished row may be lost, doubled or torn, and in the end the
results are those of a sweep that nobody has disturbed. test_machines.py does the same with a few kills.

    tests/program/killed_sweeps.py build/plimsoll [--kills 100] [--seed 1]
"""

import argparse
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

EXPERIMENT = """format: plimsoll.experiment.v1
name: killed
traces: ['random:stages={40..47},seed=1', 'uniform:{6..9}']
platforms: [ideal]
strategies: [store_all, rotor, chen_sqrt, periodic]
memory: {from: 40 %, to: store_all, count: 3}
engine: event
"""
RANKS = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
ON_DISK = """set -e
mount -t tmpfs -o size=%(size)s tmpfs "$1"
"$2" sweep "$3" -o "$1/out" -q || echo "full: $?"
mount -o remount,size=20m "$1"
mount -o remount,ro "$1"
"$2" sweep "$3" -o "$1/out" --resume -q || echo "read-only: $?"
mount -o remount,rw "$1"
"$2" sweep "$3" -o "$1/out" --resume -q || echo "at last: $?"
cp "$1/out/results.jsonl" "$4"
"""


def without_times(text):
    return re.sub(r'"solve_s":[^,}]*,"simulate_s":[^,}]*', "", text)


def rows_of(folder):
    """The whole rows that are there, each of a point of its own."""
    file = folder / "results.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    points = [json.loads(line)["point"] for line in lines]
    assert len(points) == len(set(points)), f"{folder}: a row is there twice"
    return set(lines)


def below(process, names):
    """A process and all that descend from it, with what they are, by generation."""
    found = [(process, names[0])]
    for task in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            found += below(child, names[1:] or names)
    return found


class Killer:
    def __init__(self, program, seed, ranks):
        self.program, self.chance, self.ranks = program, random.Random(seed), ranks
        self.counts, self.finished, self.waiting = {}, 0, 0

    def command(self, experiment, folder):
        words = [self.program, "sweep", experiment, "-o", folder, "--resume", "-q"]
        if self.ranks and self.chance.random() < 0.3:
            return ("mpirun itself", "rank of mpirun", "worker of a rank"), ["mpirun", "--oversubscribe", "-n", "3", *words]
        return ("driver", "worker"), [*words, "-j", "2"]

    def one(self, experiment, folder):
        """Starts the sweep and kills one of its processes, if it is not done before."""
        before = rows_of(folder)
        names, command = self.command(experiment, folder)
        run = subprocess.Popen(list(map(str, command)), env=RANKS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = self.chance.randrange(0, 30)
        until = time.monotonic() + self.chance.choice([0.03, 0.1, 60] if len(names) == 2 else [0.3, 60])
        while run.poll() is None and time.monotonic() < until and len(before) + rows > self.lines(folder):
            time.sleep(0.002)
        if run.poll() is None:
            victim, name = self.chance.choice(below(run.pid, names))
            try:
                os.kill(victim, signal.SIGKILL)
                self.counts[name] = self.counts.get(name, 0) + 1
            except ProcessLookupError:
                pass
        until = time.monotonic() + 60
        while run.poll() is None:
            time.sleep(0.005)
            if time.monotonic() > until - 50 and not self.ranks_live(run.pid):  # Open MPI 4.1.4 may wait for itself
                self.waiting += 1
                run.kill()
            assert time.monotonic() < until, f"the sweep does not end when a {name} is killed at {self.lines(folder)} rows"
        self.wait_for_the_lock(folder)
        after = rows_of(folder)
        assert before <= after, f"{folder}: {len(before - after)} rows are lost"
        return run.returncode == 0

    @staticmethod
    def ranks_live(process):
        try:
            states = [pathlib.Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()[0]
                      for each, _ in below(process, ["mpirun", "rank"])[1:]]
        except OSError:  # one has ended this moment
            return True
        return any(state != "Z" for state in states) or not states

    @staticmethod
    def lines(folder):
        file = folder / "results.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    @staticmethod
    def wait_for_the_lock(folder):
        """Ranks whose mpirun was killed end a moment later."""
        if (folder / "results.jsonl").exists():
            subprocess.run(["flock", "-w", "30", str(folder / "results.jsonl"), "true"], check=True)

    def kill(self, kills, folder, experiment, whole):
        """So many kills, in as many sweeps as that takes."""
        out = folder / "killed"
        while sum(self.counts.values()) < kills or out.exists():
            enough = sum(self.counts.values()) >= kills
            if enough:
                subprocess.run([self.program, "sweep", experiment, "-o", out, "--resume", "-q"], check=True)
            if not enough and not self.one(experiment, out):
                continue
            assert without_times((out / "results.jsonl").read_text()) == whole, f"{out}: other results than undisturbed"
            shutil.rmtree(out)
            self.finished += 1


def limited(size):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    return limit


def small_files(program, folder, experiment, whole):
    """With a limit on the size of files, as a full disk."""
    out = folder / "small"
    words = [program, "sweep", experiment, "-o", out, "-q"]
    end = subprocess.run(words, preexec_fn=limited(250_000), capture_output=True, text=True)
    assert end.returncode == 4, f"files of 250 kB: ended with {end.returncode}: {end.stderr}"
    before = rows_of(out)
    assert before, "no row before the limit"
    subprocess.run([*words, "--resume"], check=True)
    assert before <= rows_of(out), "rows are lost at the limit of a file's size"
    assert without_times((out / "results.jsonl").read_text()) == whole


def own_disk(program, folder, experiment, whole):
    """On a disk of its own that is full and then read-only; says why not where this may not mount one."""
    disk, copy = folder / "disk", folder / "copy.jsonl"
    disk.mkdir()
    words = ["unshare", "-m", "sh", "-c", ON_DISK % {"size": "500k"}, "sh", disk, program, experiment, copy]
    end = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if not copy.exists() and "full" not in end.stdout:
        return f"a disk of its own was not tried: {end.stderr.strip()}"
    assert end.stdout == "full: 4\nread-only: 4\n", end.stdout + end.stderr
    assert without_times(copy.read_text()) == whole
    return "a full and a read-only disk end it with exit code 4, and --resume goes on"


def disturb(program, kills, seed, folder):
    experiment = folder / "e.yaml"
    experiment.write_text(EXPERIMENT)
    subprocess.run([program, "sweep", experiment, "-o", folder / "whole", "-q"], check=True)
    whole = without_times((folder / "whole/results.jsonl").read_text())
    has_ranks = shutil.which("mpirun") and (pathlib.Path(program).resolve().parent / "libplimsoll_mpi.so").exists()
    killer = Killer(program, seed, has_ranks)
    killer.kill(kills, folder, experiment, whole)
    small_files(program, folder, experiment, whole)
    return killer, own_disk(program, folder, experiment, whole)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        killer, said = disturb(words.program, words.kills, words.seed, pathlib.Path(folder))
    print(f"{sum(killer.counts.values())} kills in {killer.finished} sweeps: no row lost or doubled")
    for victim, count in sorted(killer.counts.items()):
        print(f"  {victim}: {count}")
    if killer.waiting:
        print(f"  mpirun had to be ended, too, though its ranks had ended: {killer.waiting}")
    print(said)


if __name__ == "__main__":
    sys.exit(main())
