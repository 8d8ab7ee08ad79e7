#!/usr/bin/env python3
"""Selective checkpointing by policies, as torch does it: gradients, buffers and random numbers are those of plain training, to the bit. Skipped where
this Python has no torch 2.4; a minute. What the program writes, tests/experiments/export/pytorch_plan_test.cpp has; here ops are chosen at random.

  python3 validate/pytorch/test_policies.py
"""

import contextlib
import copy
import io
import json
import os
import random
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

import left_out

try:
    import torch

    from plimsoll.trace import exporter
    from plimsoll.torch import policies
    from plimsoll.torch.versions import selective_checkpointing
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint
except ModuleNotFoundError as error:
    left_out.end_without(error, "policies were not run")
if selective_checkpointing() is None:
    left_out.end(f"torch {torch.__version__} has no selective checkpointing: policies were not run")

torch.set_num_threads(1)


class Convolutions(nn.Module):
    """In place: ReLU, what is added, the noise of a dropout, the counter of a norm."""

    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 1)
        self.norm, self.relu, self.drop = nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.Dropout(0.3)

    def forward(self, x):
        y = self.drop(self.relu(self.norm(self.one(x))))
        y = self.drop(self.two(y))
        y += x
        return y


class Attention(nn.Module):
    """One kernel that may draw random numbers and does not; then three that do."""

    def __init__(self, width):
        super().__init__()
        self.mix, self.out, self.drop = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Dropout(0.2)

    def forward(self, x):
        x = x.flatten(2).transpose(1, 2)
        q, k, v = (part.unsqueeze(1) for part in self.mix(self.drop(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v).squeeze(1)
        return F.dropout(self.out(self.drop(y)), 0.1).transpose(1, 2).unflatten(2, (4, 4))


class Codebook(nn.Module):
    """Reads what it moves on behind that."""

    def __init__(self, width):
        super().__init__()
        self.inner = nn.Conv2d(width, width, 1)
        self.register_buffer("code", torch.randn(width, 1, 1))

    def forward(self, x):
        y = torch.tanh(self.inner(x)) * self.code.clone()
        with torch.no_grad():
            self.code.mul_(0.9).add_(0.1 * y.mean((0, 2, 3)).reshape(-1, 1, 1))
        return y.exp()


class ReadBefore(nn.Module):
    """What is read of a value before it is overwritten."""

    def __init__(self, width):
        super().__init__()
        self.inner = nn.Conv2d(width, width, 1)

    def forward(self, x):
        y = self.inner(x)
        twice = y * 2
        return y.relu_() + torch.sigmoid(twice)


class Routed(nn.Module):
    """Each pixel goes to one of two experts by the sign of its first number; one may get none."""

    def __init__(self, width):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x):
        pixels = x.movedim(1, -1).reshape(-1, x.shape[1])
        y = torch.zeros_like(pixels)
        for positive, expert in enumerate(self.experts):
            chosen = ((pixels[:, 0] > 0) == bool(positive)).nonzero().squeeze(1)
            y = y.index_add(0, chosen, torch.tanh(expert(pixels[chosen])))
        return y.reshape(x.movedim(1, -1).shape).movedim(-1, 1)


class Network(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.blocks = nn.Sequential(*(block(8) for _ in range(3)))

    def forward(self, x):
        return self.blocks(x).square().mean()


BLOCKS = (Convolutions, Attention, Codebook, ReadBefore, Routed)


def example(block):
    torch.manual_seed(0)
    return Network(block), None, torch.randn(2, 8, 4, 4)


def graph_of(block):
    """What the exporter writes of it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        model, path = os.path.join(folder, "model.py"), os.path.join(folder, "trace.json")
        with open(model, "w", encoding="utf-8") as file:
            file.write("import test_policies\n"
                       f"def build(): return test_policies.example(test_policies.{block.__name__})\n")
        exporter.export(exporter.command_line().parse_args(
            ["--model", f"{model}:build", "--graph", "--stages", "blocks.0,blocks.1,blocks.2", "--repetitions", "1", "--warm-up", "1",
             "--memory-counter", "sweep", "-o", path]))
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def policy_of(trace, wanted):
    """The choice, less what cannot run again, as experiments/export/pytorch_plan.cpp has it; and how many ops do."""
    ops = [op for op in trace["ops"] if op["phase"] == "forward"]
    again = {number for number in wanted if ops[number].get("recomputable", True)}
    maker = {tensor: number for number, op in enumerate(ops) for tensor in op["outputs"]}
    again -= {maker[tensor] for op in ops for tensor in op["inputs"] if tensor in maker and ops[maker[tensor]]["stage"] != op["stage"]}
    storage = [tensor["storage"] for tensor in trace["tensors"]]
    writers = {}
    for number, op in enumerate(ops):
        for tensor in op["outputs"]:
            writers.setdefault(storage[tensor], []).append(number)
    stale = [(number, writers[storage[tensor]]) for number, op in enumerate(ops) for tensor in op["inputs"]
             if storage[tensor] in writers and tensor not in ops[writers[storage[tensor]][-1]]["outputs"]]
    for _ in ops:
        for numbers in writers.values():
            again -= set() if again.issuperset(numbers) else set(numbers)
        again -= {number for number, numbers in stale if numbers[-1] not in again}
    stages = [{"name": name, "ops": [{"op": op["kind"], "save": number not in again} for number, op in enumerate(ops) if op["stage"] == at]}
              for at, name in enumerate(trace["source"]["stages"])]
    return {"format": "plimsoll.policy.v1", "stages": [stage for stage in stages if not all(op["save"] for op in stage["ops"])]}, len(again)


def trained(network, x, contexts):
    """Two forwards before two backwards; gradients, buffers, and the next random number."""
    torch.manual_seed(7)
    losses = []
    for _ in range(2):
        y = x
        for number, block in enumerate(network.blocks):
            of = contexts.get(f"blocks.{number}")
            y = block(y) if of is None else checkpoint(block, y, use_reentrant=False, context_fn=of)
        losses.append(y.square().mean())
    sum(losses).backward()
    return [*(parameter.grad for parameter in network.parameters()), *network.buffers(), torch.rand(1)]


class Policies(unittest.TestCase):
    def test_each_choice_trains_as_plainly(self):
        for block in BLOCKS:
            trace = graph_of(block)
            count = sum(op["phase"] == "forward" for op in trace["ops"])
            network, _, x = example(block)
            plain = trained(copy.deepcopy(network), x, {})
            most = 0
            for seed in range(9):
                chosen = random.Random(seed)
                policy, again = policy_of(trace, {number for number in range(count) if chosen.random() < (0.3, 0.7, 1.1)[seed % 3]})
                most = max(most, again)
                with self.subTest(block.__name__, seed=seed, again=again):
                    found = trained(copy.deepcopy(network), x, policies(policy))
                    self.assertTrue(all(torch.equal(a, b) for a, b in zip(found, plain)))
            self.assertGreater(most, 0, block.__name__)

    def test_choices_hold_where_other_rows_are_chosen_and_where_none_are(self):
        trace = graph_of(Routed)
        self.assertGreater(len(trace["source"]["at_most"]["tensors"]), 9)
        policy, again = policy_of(trace, set(range(sum(op["phase"] == "forward" for op in trace["ops"]))))
        self.assertGreater(again, 9)
        network, _, x = example(Routed)
        for other in (-x, x.abs(), x.flip(0)):
            found = [trained(copy.deepcopy(network), other, contexts) for contexts in (policies(policy), {})]
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(*found)))


if __name__ == "__main__":
    unittest.main(verbosity=0)
