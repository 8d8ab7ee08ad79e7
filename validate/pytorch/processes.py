"""Tests in two processes, which find each other by gloo: what a task of the test's file returns on each rank.

    processes.results_of(__file__, "task")     # def task(rank): ...
    processes.end_as_rank(globals())           # before unittest.main()
"""

import os
import pickle
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

RANKS = 2
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # of the processes too: a machine may not know its own name


def join(rank, ranks, folder):
    """By a file: torch as Debian builds it has not every kind of store."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=ranks)


def part_of(tensor, rank):
    """Another batch on each rank."""
    return tensor.roll(rank + 1, 0) if tensor.dtype == torch.int64 else tensor + rank


def results_of(file, task):
    with tempfile.TemporaryDirectory() as folder:
        running = [subprocess.Popen([sys.executable, file, "--rank", str(rank), task, folder]) for rank in range(RANKS)]
        codes = [one.wait(timeout=120) for one in running]
        if any(codes):
            raise AssertionError(f"{task}: exit codes {codes}")
        found = []
        for rank in range(RANKS):
            with open(f"{folder}/{rank}", "rb") as result:
                found.append(pickle.load(result))
        return found


def end_as_rank(tasks):
    """Where this process is a rank: runs its task, and ends."""
    if sys.argv[1:2] != ["--rank"]:
        return
    rank, (task, folder) = int(sys.argv[2]), sys.argv[3:]
    join(rank, RANKS, folder)
    result = tasks[task](rank)
    dist.destroy_process_group()
    with open(f"{folder}/{rank}", "wb") as output:
        pickle.dump(result, output)
    sys.exit(0)
