#!/usr/bin/env python3
"""How recording_torch113_cpu.json.gz was made: a small network with one checkpointed block, trained on the CPU under
torch.profiler. Debian's torch 1.13.1 is built without Kineto, so the file is the bare list of the older profiler.

usage: /usr/bin/python3 record.py OUT.json.gz
"""
import gzip
import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.kept = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
        self.recomputed = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.kept(self.stem(x))
        x = checkpoint(self.recomputed, x)  # reentrant, the default of 1.13
        return self.head(x.mean((2, 3)))


def main(out):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network, loss = Network(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)

    def write(profiler):
        plain = out.removesuffix(".gz")
        profiler.export_chrome_trace(plain)
        with open(plain, "rb") as file, open(out, "wb") as compressed:
            compressed.write(gzip.compress(file.read(), 9, mtime=0))

    steps = schedule(wait=1, warmup=1, active=5)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps, profile_memory=True, record_shapes=True,
                 on_trace_ready=write) as profiler:
        for _ in range(7):
            optimizer.zero_grad()
            loss(network(torch.randn(16, 3, 32, 32)), torch.randint(0, 10, (16,))).backward()
            optimizer.step()
            profiler.step()


if __name__ == "__main__":
    main(sys.argv[1])
