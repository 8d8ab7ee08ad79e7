"""Ranks of a measurement: processes of its own script, which find each other by a file and answer in JSON.

    found = measured_ranks.answers(__file__, task, folder, environment)     # task["ranks"] of them
    if measured_ranks.is_one(): return measured_ranks.answer(arguments, of_rank)
"""

import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

from plimsoll.trace import exporter

RANK = "PLIMSOLL_MEASURED_RANK"


def is_one():
    return RANK in os.environ


def answers(script, task, folder, environment):
    """By rank. The files between the processes are gone afterwards."""
    with tempfile.TemporaryDirectory(dir=folder) as between:
        given, store = os.path.join(between, "task.json"), os.path.join(between, "ranks")
        results = [os.path.join(between, f"{rank}.json") for rank in range(task["ranks"])]
        with open(given, "w", encoding="utf-8") as file:
            json.dump(task, file)
        environment = {"GLOO_SOCKET_IFNAME": "lo"} | environment
        running = [subprocess.Popen([sys.executable, os.path.abspath(script), given, result, store], env=environment | {RANK: str(rank)})
                   for rank, result in enumerate(results)]
        codes = [one.wait() for one in running]
        if any(codes):
            raise exporter.MeasurementError(f"the ranks ended with exit codes {codes}")
        return [json.load(open(result, encoding="utf-8")) for result in results]


def answer(arguments, of_rank):
    """of_rank(task, rank) as this rank's answer; the exit code. On GPUs a rank has the one of its number."""
    given, result, store = arguments
    task, rank = json.load(open(given, encoding="utf-8")), int(os.environ[RANK])
    torch.set_num_threads(1)
    if task["device"] == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if task["device"] == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{os.path.abspath(store)}", rank=rank, world_size=task["ranks"])
    found = of_rank(task, rank)
    dist.barrier()
    dist.destroy_process_group()
    with open(result, "w", encoding="utf-8") as file:
        json.dump(found, file)
    return 0
