"""Small transformers as people write them: without biases, with rotated positions; of pictures; of words."""

LOOP_MODELS = '''
import torch
from torch import nn
from torch.nn import functional as F

B, S, W, H, V = 4, 6, 16, 2, 12


class Scale(nn.Module):  # by the root of the mean square
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(W))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def turned(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Rotating(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.behind = Scale(), Scale()
        self.q, self.k, self.v, self.o = (nn.Linear(W, W, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(W, 40, bias=False), nn.Linear(W, 40, bias=False), nn.Linear(40, W, bias=False)
        angles = torch.outer(torch.arange(S).float(), torch.tensor([1.0, 0.1, 0.01, 0.001])).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", torch.full((S, S), float("-inf")).triu(1))

    def forward(self, x):
        h = self.before(x)
        q, k, v = (layer(h).view(-1, S, H, W // H).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k = q * self.cos + turned(q) * self.sin, k * self.cos + turned(k) * self.sin
        shares = F.softmax(q @ k.transpose(2, 3) / 8 ** 0.5 + self.mask, dim=-1)
        x = x + self.o((shares @ v).transpose(1, 2).reshape(-1, S, W))
        h = self.behind(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Words(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.words, self.head = nn.Embedding(V, W), nn.Linear(W, V, bias=False)
        self.blocks = nn.Sequential(block(), block())

    def forward(self, ids):
        return self.head(self.blocks(self.words(ids)))


def of_words(out, targets):
    return F.cross_entropy(out.flatten(0, 1), targets.flatten())


def picked(out, targets):
    return -F.log_softmax(out, -1).gather(-1, targets.unsqueeze(-1)).mean()


def ids():
    return torch.randint(0, V, (B, S))


def rotating():
    return Words(Rotating), of_words, (ids(),), ids()


def gathered():
    return Words(Rotating), picked, (ids(),), ids()


class Block(nn.Module):
    def __init__(self, positions=S, masked=True):
        super().__init__()
        self.before, self.behind = nn.LayerNorm(W), nn.LayerNorm(W)
        self.qkv, self.o, self.inner, self.outer = nn.Linear(W, 3 * W), nn.Linear(W, W), nn.Linear(W, 40), nn.Linear(40, W)
        self.positions, self.masked = positions, masked
        self.register_buffer("mask", torch.tril(torch.ones(positions, positions)))

    def forward(self, x):
        if self.masked:
            q, k, v = (t.view(-1, self.positions, H, W // H).transpose(1, 2) for t in self.qkv(self.before(x)).split(W, dim=2))
            scores = (q @ k.transpose(-2, -1)) * 0.35
            shares = F.softmax(scores.masked_fill(self.mask == 0, float("-inf")), dim=-1)
        else:
            q, k, v = self.qkv(self.before(x)).reshape(-1, self.positions, 3, H, W // H).permute(2, 0, 3, 1, 4).unbind(0)
            shares = ((q * 0.35) @ k.transpose(-2, -1)).softmax(-1)
        x = x + self.o((shares @ v).transpose(1, 2).reshape(-1, self.positions, W))
        return x + self.outer(F.gelu(self.inner(self.behind(x))))


def plain():
    return Words(Block), of_words, (ids(),), ids()


class Fused(Block):
    def forward(self, x):
        q, k, v = (t.view(-1, S, H, W // H).transpose(1, 2) for t in self.qkv(self.before(x)).split(W, dim=2))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(-1, S, W))
        return x + self.outer(F.gelu(self.inner(self.behind(x))))


def fused():
    return Words(Fused), of_words, (ids(),), ids()


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, W, 4, 4), nn.Linear(W, V)
        self.first, self.places = nn.Parameter(torch.zeros(1, 1, W)), nn.Parameter(torch.zeros(1, 5, W))
        self.blocks = nn.Sequential(Block(5, False), Block(5, False))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        return self.head(self.blocks(x)[:, 0])


class Sounds(nn.Module):  # convolutions along time, and in groups
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(3, W, 3, padding=1), nn.Conv1d(W, W, 3, padding=1, groups=W)
        self.block, self.head = Block(S, False), nn.Linear(W, V)

    def forward(self, x):
        return self.head(self.block(self.second(F.gelu(self.first(x))).transpose(1, 2)).mean(1))


def sounds():
    return Sounds(), F.cross_entropy, (torch.randn(B, 3, S),), torch.randint(0, V, (B,))


class Windows(nn.Module):  # attention within each of 2 windows: its products have samples, windows and heads in one row
    def __init__(self):
        super().__init__()
        self.take, self.block, self.head = nn.Linear(3, W), Block(3, False), nn.Linear(W, V)

    def forward(self, x):
        h = self.take(x).view(-1, 2, 3, W)
        return self.head(self.block(h.flatten(0, 1)).view(-1, 2, 3, W).mean((1, 2)))


def windows():
    return Windows(), F.cross_entropy, (torch.randn(B, S, 3),), torch.randint(0, V, (B,))


def pictures():
    return Pictures(), F.cross_entropy, (torch.randn(B, 3, 8, 8),), torch.randint(0, V, (B,))
'''
