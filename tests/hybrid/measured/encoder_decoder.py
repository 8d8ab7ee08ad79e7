"""The model of encoder_decoder_ops.json, whose `source` has the command: an encoder and a decoder, whose attentions keep samples first."""
import math
import torch
from torch import nn
from torch.nn import functional

class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(dropout)
    def forward(self, x, memory, mask=None):
        b, n, w = x.shape
        q, k, v = (layer(y).view(b, -1, self.heads, w // self.heads).transpose(1, 2) for layer, y in ((self.q, x), (self.k, memory), (self.v, memory)))
        scores = q @ k.transpose(-2, -1) / math.sqrt(w // self.heads)
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        return self.out((self.dropout(scores.softmax(-1)) @ v).transpose(1, 2).reshape(b, n, w))

class Layer(nn.Module):
    def __init__(self, width, heads, dropout, cross):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3 if cross else 2)])
        self.attention = Attention(width, heads, dropout)
        self.cross = Attention(width, heads, dropout) if cross else None
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)
    def forward(self, x, memory=None, mask=None):
        y = self.norms[0](x)
        x = x + self.dropout(self.attention(y, y, mask))
        if self.cross is not None:
            x = x + self.dropout(self.cross(self.norms[1](x), memory))
        return x + self.dropout(self.mlp(self.norms[-1](x)))

class Model(nn.Module):
    def __init__(self, width, heads, layers, words, dropout):
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = nn.ModuleList([Layer(width, heads, dropout, False) for _ in range(layers)])
        self.decoder = nn.ModuleList([Layer(width, heads, dropout, True) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)
    def forward(self, source, target):
        memory, y = self.source(source), self.target(target)
        n = target.shape[1]
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        for layer in self.encoder:
            memory = layer(memory)
        memory = self.norm(memory)
        for layer in self.decoder:
            y = layer(y, memory, mask)
        return self.head(y)

def build(batch=2, source=6, target=4, width=8):
    torch.manual_seed(0)
    tokens = [torch.randint(12, (batch, length)) for length in (source, target, target)]
    return Model(width, 2, 1, 12, 0.1), lambda y, t: functional.cross_entropy(y.flatten(0, -2), t.flatten()), (tokens[0], tokens[1]), tokens[2]
