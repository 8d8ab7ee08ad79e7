#!/usr/bin/env python3
"""What autograd keeps of torchvision's residual networks under torch.autocast in bf16, and how many ops of each kind a step
dispatches: tests compare the formulas `resnet18:dtype=amp` ... with these figures.

    python3 traces/kept_under_autocast.py

It needs PyTorch 2 and torchvision. Two images of 64 by 64. Kept tensors are counted by storage, without parameters, buffers,
images and labels.
"""

import collections

import torch
import torchvision
from torch.utils._python_dispatch import TorchDispatchMode

from kept_tensors import kept_by

# What no kernel is launched for, or only for a CPU's order of a weight's gradient; batches are counted as whole numbers.
SILENT = {"detach", "t", "view", "squeeze", "as_strided", "as_strided_", "expand", "empty", "new_empty_strided", "copy_", "new_zeros"}


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = collections.Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        made = op(*args, **(kwargs or {}))
        name = op.name().split("::")[1].split(".")[0]
        counts = isinstance(made, torch.Tensor) and not made.is_floating_point()
        if name not in SILENT and not counts:
            self.ops[name] += 1
        return made


def loss_of(model, images, labels):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.nn.functional.cross_entropy(model(images), labels)


def kept(model, images, labels):
    return kept_by(lambda: loss_of(model, images, labels), (*model.parameters(), *model.buffers(), images, labels))


def main():
    images, labels = torch.randn(2, 3, 64, 64), torch.tensor([1, 2])
    for name in ("resnet18", "resnet50"):
        for layout in (torch.contiguous_format, torch.channels_last):
            model = getattr(torchvision.models, name)().train().to(memory_format=layout)
            with Dispatched() as step:
                loss_of(model, images, labels).backward()
            print(f"{name}, {layout}: kept {kept(model, images.to(memory_format=layout), labels)} B; {dict(step.ops)}")


if __name__ == "__main__":
    main()
