"""Tests in two processes, which find each other by gloo: what a task of the test's file returns on each rank, and training beside plain training.

    processes.results_of(__file__, "task")     # def task(rank): ...
    processes.end_as_rank(globals())           # before unittest.main()
"""

import contextlib
import copy
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

import hand_plans
import torch
import torch.distributed as dist
from plimsoll.torch import apply
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # of the processes too: a machine may not know its own name


def join(rank, ranks, folder):
    """By a file: torch as Debian builds it has not every kind of store."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=ranks)


def part_of(tensor, rank):
    """Another batch on each rank."""
    return tensor.roll(rank + 1, 0) if tensor.dtype == torch.int64 else tensor + rank


def plainly(model, loss, x, y, share=1):
    value = loss(model(x), y)
    (value / share).backward()
    return value.detach()


def same(a, b):
    return (a is None) == (b is None) and (a is None or torch.equal(a, b))


class Differences:
    """Names of what is not the same bit for bit, and how many things were compared."""

    def __init__(self):
        self.names, self.compared = [], 0

    def compare(self, name, a, b):
        self.compared += 1
        self.names += [] if same(a, b) else [name]

    def beside_ddp(self, rank, name, sequence, exchange, optimizer, iterations=2, part=lambda tensor: tensor, whole=contextlib.nullcontext):
        """Of a model trained by a plan that exchanges what ranks have (an option of `apply`), from plain training under DistributedDataParallel. Of a
        gradient there the rank has a part; all parameters are there within `whole`."""
        steps = hand_plans.SEQUENCES["store all" if sequence == "in one call" else sequence]
        model, plan, loss, inputs, targets = hand_plans.planned(name, steps)
        if sequence == "in one call":
            plan = plan | {"backward": "in_one_call"}
        if rank:  # parameters and buffers come from the first rank
            with torch.no_grad():
                for tensor in model.parameters():
                    tensor.mul_(0.5)
        other = DistributedDataParallel(copy.deepcopy(model), broadcast_buffers="replicas" in exchange)
        step = apply(model, plan, loss=loss, **exchange)
        optimizers = [optimizer(one.parameters()) for one in (other, model)]
        x, y = part_of(inputs, rank), part_of(targets, rank)
        for iteration in range(iterations):
            values = []
            for train in (lambda: plainly(other, loss, x, y), lambda: step(x, y)):
                torch.manual_seed(iteration)
                values.append(train())
            self.compare(f"{name}: loss", *values)
            for (of, p), q in zip(other.module.named_parameters(), model.parameters()):
                self.compare(f"{name}: gradient of {of}", None if p.grad is None else part(p.grad), q.grad)
            for one in optimizers:
                one.step()
                one.zero_grad(set_to_none=True)
        with whole():
            for (of, p), q in zip(other.module.state_dict().items(), model.state_dict().values()):
                self.compare(f"{name}: {of}", p, q)


class OneProcess(unittest.TestCase):
    """A group of this process alone."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        join(0, 1, cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        dist.destroy_process_group()
        cls.folder.cleanup()


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
