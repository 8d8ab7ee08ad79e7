#!/usr/bin/env python3
"""Measures how long a convolution takes with 1, 2, ... channels, as PyTorch runs it on this CPU with one thread, and
prints the table that the transform `channel_prune` ships.

    traces/measure_channels.py [--most 128] [--repetitions 15] > table.txt

A convolution of 3 x 3 on pictures of 28 x 28, 4 at a time, in fp32, forward and backward together; by output channels
with 64 inputs, and by input channels with 64 outputs. The shortest of the repetitions counts: other programs only ever
make it longer. All numbers of channels are measured in turn in each repetition.
"""
import argparse
import platform
import time

import torch


def layer(inputs, outputs):
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    x = torch.randn(4, inputs, 28, 28, requires_grad=True)
    gradient = torch.randn(4, outputs, 28, 28)
    return convolution, x, gradient


def seconds(convolution, x, gradient):
    convolution.weight.grad = x.grad = None
    start = time.perf_counter()
    convolution(x).backward(gradient)
    return time.perf_counter() - start


def table(most, repetitions, make):
    layers = [make(c) for c in range(1, most + 1)]
    best = [float("inf")] * most
    for repetition in range(repetitions + 1):
        for c, each in enumerate(layers):
            taken = seconds(*each)
            if repetition > 0:
                best[c] = min(best[c], taken)
    return best


def processor():
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        if line.startswith("model name"):
            return " ".join(line.split(":", 1)[1].split())
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=15)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"# {processor()}, one thread; torch {torch.__version__}, oneDNN {torch.backends.mkldnn.is_available()}; "
          f"{time.strftime('%Y-%m-%d')}; the shortest of {asked.repetitions}, in microseconds")
    for name, make in (("outputs", lambda c: layer(64, c)), ("inputs", lambda c: layer(c, 64))):
        print(name, *(round(1e6 * t) for t in table(asked.most, asked.repetitions, make)))


if __name__ == "__main__":
    main()
