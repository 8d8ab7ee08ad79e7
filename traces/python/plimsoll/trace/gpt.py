"""A hand-written GPT (Radford et al. 2019: pre-norm, tanh GELU, learned positions) as a list of stages."""

import math

import torch
from torch import nn
from torch.nn import functional


class Embedding(nn.Module):
    def __init__(self, vocabulary, sequence, width, dropout):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(sequence, width)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("position", torch.arange(sequence))

    def forward(self, tokens):  # (B, T) -> (B, T, C)
        return self.dropout(self.tokens(tokens) + self.positions(self.position[:tokens.shape[1]]))


class Attention(nn.Module):
    """x + attention(norm(x)), with the scores written out, or fused where torch has it (2.x)."""

    def __init__(self, width, heads, sequence, dropout, fused):
        super().__init__()
        self.heads = heads
        self.fused = fused
        self.norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        if not fused:
            self.register_buffer("future", torch.ones(sequence, sequence, dtype=torch.bool).triu(1))

    def forward(self, x):  # (B, T, C)
        batch, length, width = x.shape
        q, k, v = self.query_key_value(self.norm(x)).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout.p, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)  # (B, heads, T, T)
            scores = scores.masked_fill(self.future[:length, :length], -math.inf)
            mixed = self.dropout(torch.softmax(scores, dim=-1)) @ v
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        return x + self.dropout(self.projection(mixed))


class Mlp(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        hidden = functional.gelu(self.expand(self.norm(x)), approximate="tanh")
        return x + self.dropout(self.contract(hidden))


class Head(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.to_vocabulary = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        return self.to_vocabulary(self.norm(x))


def gpt_stages(layers, width, heads, sequence, vocabulary, dropout, fused, tied):
    embedding = Embedding(vocabulary, sequence, width, dropout)
    head = Head(width, vocabulary)
    nn.init.normal_(embedding.tokens.weight, std=0.02)
    if tied:
        head.to_vocabulary.weight = embedding.tokens.weight
    stages = [("embedding", embedding)]
    for i in range(layers):
        stages.append((f"block{i}.attention", Attention(width, heads, sequence, dropout, fused)))
        stages.append((f"block{i}.mlp", Mlp(width, dropout)))
    return stages + [("head", head)]
