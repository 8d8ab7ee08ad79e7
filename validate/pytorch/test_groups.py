#!/usr/bin/env python3
"""Groups of parameters against real optimizers: the states that torch keeps for a model are those that the program plans for its shipped trace.

  /usr/bin/python3 validate/pytorch/test_groups.py build/plimsoll
"""

import importlib.util
import json
import pathlib
import subprocess
import sys
import unittest

import left_out

ROOT = pathlib.Path(__file__).resolve().parents[2]

if importlib.util.find_spec("torch") is None:
    left_out.end(f"{sys.executable} has no torch {left_out.TO_INSTALL}")

import torch

from plimsoll.torch.errors import Refused
from plimsoll.torch.groups import optimizer_words
from plimsoll.trace.gpt import gpt_stages

PROGRAM, TRACE = "build/plimsoll", "gpt4_ops_w256_t128_b4_cpu"


def model():
    """That of the trace."""
    parts = torch.nn.ModuleDict()
    for name, stage in gpt_stages(4, 256, 4, 128, 8192, 0.0, False, True):
        outer, _, inner = name.partition(".")
        if not inner:
            parts[outer] = stage
            continue
        if outer not in parts:
            parts[outer] = torch.nn.ModuleDict()
        parts[outer][inner] = stage
    return parts


def stepped(optimizers, of):
    """Bytes of all states after one step; numbers of steps are no states here."""
    for parameter in of.parameters():
        parameter.grad = torch.ones_like(parameter)
    for optimizer in optimizers:
        optimizer.step()
    return sum(tensor.numel() * tensor.element_size() for optimizer in optimizers for state in optimizer.state.values()
               for tensor in state.values() if isinstance(tensor, torch.Tensor) and tensor.dim() > 0)


def planned(words):
    command = [PROGRAM, "simulate", "-t", TRACE, "-p", "cpu_host", "-s", "store_all", "--engine", "event", "--json", *words]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout)


class Groups(unittest.TestCase):
    def test_states_are_those_of_real_optimizers(self):
        for split in (lambda name, p: p.dim() > 1 and "embedding" not in name, lambda name, p: "norm" in name, lambda name, p: name.endswith("bias")):
            of = model()
            first = [p for name, p in of.named_parameters() if split(name, p)]
            rest = [p for name, p in of.named_parameters() if not split(name, p)]
            for optimizers in ([torch.optim.SGD(first, lr=0.1, momentum=0.9), torch.optim.AdamW(rest)], [torch.optim.SGD(first, lr=0.1), torch.optim.Adam(rest)],
                               [torch.optim.SGD([{"params": first}, {"params": rest, "momentum": 0.9}], lr=0.1)], [torch.optim.Adam(first + rest)]):
                self.assertEqual(planned(optimizer_words(of, *optimizers))["state_bytes"], stepped(optimizers, of))

    def test_what_has_no_name_here_is_refused(self):
        of = torch.nn.Linear(2, 2)
        for optimizers, why in (([torch.optim.SGD([of.weight], lr=0.1)], "'bias' needs a gradient, and no optimizer has it"),
                                ([torch.optim.Adam(of.parameters(), amsgrad=True)], "optimizer amsgrad"),
                                ([torch.optim.RMSprop(of.parameters())], "optimizer RMSprop: Plimsoll has SGD, Adam and AdamW")):
            with self.assertRaisesRegex(Refused, why):
                optimizer_words(of, *optimizers)
        self.assertEqual(optimizer_words(of, torch.optim.SGD(of.parameters(), lr=0.1)), ["--optimizer", "sgd"])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else PROGRAM
    unittest.main()
