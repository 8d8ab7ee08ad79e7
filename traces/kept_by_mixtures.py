#!/usr/bin/env python3
"""What autograd keeps for a mixture of experts, with a capacity or under torch.autocast in bf16.

    python3 traces/kept_by_mixtures.py

It needs PyTorch 1.13 or later. The module is written out here, op by op as transformers' MixtralExperts in its loop over experts
("eager"): a product of gate and up, a product down, two indices of rows. Rows of all experts are gathered at once. With a
capacity an expert takes the first rows that come, as many as Megatron-LM rounds it to; padded ones are products in a batch, and
rows that are missing read the first token and count nothing. Tokens are routed by a router that favours some experts, so that
rows are dropped. Printed are bytes that are kept, counted by storage, without parameters, and how many rows experts have.
"""
import math

import torch

from kept_tensors import kept_by

WIDTH, INNER, EXPERTS, TOP_K, SAMPLES, TOKENS = 64, 160, 4, 2, 2, 32


class Mixture(torch.nn.Module):
    def __init__(self, capacity, is_padded):
        super().__init__()
        self.router = torch.nn.Parameter(torch.randn(EXPERTS, WIDTH) / 8)
        self.bias = 2 * torch.arange(EXPERTS)  # of the choice alone
        self.up = torch.nn.Parameter(torch.randn(EXPERTS, 2 * INNER, WIDTH) / 8)
        self.down = torch.nn.Parameter(torch.randn(EXPERTS, WIDTH, INNER) / 8)
        self.capacity, self.is_padded, self.rows = capacity, is_padded, []

    def routed(self, x):
        logits = torch.nn.functional.linear(x, self.router)
        scores = torch.nn.functional.softmax(logits, dim=-1, dtype=torch.float)
        chosen = torch.topk(scores.detach() * (1.0 + self.bias), TOP_K, dim=-1)[1]
        best = scores.gather(-1, chosen)
        return chosen, best / best.sum(dim=-1, keepdim=True)

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, WIDTH)
        chosen, shares = self.routed(x)
        with torch.no_grad():
            of_expert = [(chosen == expert).nonzero() for expert in range(EXPERTS)]
            if self.capacity:
                limit = math.ceil(len(x) * TOP_K / EXPERTS * self.capacity)
                of_expert = [rows[:limit] for rows in of_expert]
                if self.is_padded:
                    none = torch.tensor([[0, TOP_K]])
                    of_expert = [torch.cat([rows, none.expand(limit - len(rows), 2)]) for rows in of_expert]
            self.rows = [len(rows) for rows in of_expert]
            token, place = torch.cat(of_expert).unbind(1)
            token, place = token.contiguous(), place.contiguous()
        taken = x[token]
        if self.is_padded:
            made = taken.view(EXPERTS, -1, WIDTH)
            gate, up = torch.bmm(made, self.up.transpose(1, 2)).chunk(2, dim=-1)
            downs = torch.bmm(torch.nn.functional.silu(gate) * up, self.down.transpose(1, 2)).view(-1, WIDTH)
            shares = torch.cat([shares, shares.new_zeros(len(shares), 1)], dim=1)
        else:
            parts, made = taken.split(self.rows), []
            for expert, part in enumerate(parts):
                gate, up = torch.nn.functional.linear(part, self.up[expert]).chunk(2, dim=-1)
                made.append(torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, self.down[expert]))
            downs = torch.cat(made)
        scaled = downs * shares[token, place, None]
        return torch.zeros_like(x).index_add(0, token, scaled.to(x.dtype)).view(shape)


def kept(dtype, capacity, is_padded, is_mixed=False):
    torch.manual_seed(0)
    mixture = Mixture(capacity, is_padded).to(dtype)
    x = torch.randn(SAMPLES, TOKENS, WIDTH, dtype=dtype, requires_grad=True)

    def forward():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_mixed):
            return mixture(x)

    bytes_kept = kept_by(forward, [x, *mixture.parameters()])
    forward().sum().backward()
    return bytes_kept, mixture.rows


def main():
    for dtype in (torch.bfloat16, torch.float32):
        for capacity, is_padded in ((0, False), (1, False), (1.25, False), (1.25, True)):
            print(f"{dtype}, capacity {capacity}{', padded' if is_padded else ''}: %d B, rows %s" % kept(dtype, capacity, is_padded))
    for capacity, is_padded in ((0, False), (1.25, False), (1.25, True)):
        print(f"autocast, capacity {capacity}{', padded' if is_padded else ''}: %d B, rows %s" %
              kept(torch.float32, capacity, is_padded, True))


if __name__ == "__main__":
    main()
