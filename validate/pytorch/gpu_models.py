"""Models of the size that a GPU is bought for: function(batch) -> (model, loss, inputs, targets), as in models.py, for measure.py.

  python3 validate/pytorch/measure.py validate/pytorch/gpu_models.py:gpt2_small --device cuda --amp bf16 --batch 8 -o out/gpu

Attention is torch's own where it has one (2.0 and later). `small=True` is the same model as small as a test on a CPU asks for.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from models import Lstm, UNet, cross_entropy


def attention(q, k, v):
    """Each of (batch, heads, length, width of a head); no token reads a later one."""
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    length = q.shape[-2]
    mask = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(mask, -math.inf).softmax(-1) @ v


def heads_of(x, heads):
    batch, length, _ = x.shape
    return x.view(batch, length, heads, -1).transpose(1, 2)


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.projection(attention(q, k, v).transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, length, words):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([GptBlock(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


class LlamaBlock(nn.Module):
    """Rotary positions, several heads of queries for one of keys, a gated wide layer."""

    def __init__(self, width, heads, key_heads):
        super().__init__()
        self.heads, self.key_heads, own = heads, key_heads, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, own * count, bias=False) for count in (heads, key_heads, key_heads))
        self.projection = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 8 * width // 3, bias=False) for _ in range(2))
        self.down = nn.Linear(8 * width // 3, width, bias=False)

    def forward(self, x, cosine, sine):
        def turned(y):
            first, second = y.chunk(2, -1)
            return y * cosine + torch.cat([-second, first], -1) * sine

        y = self.norm1(x)
        q, k, v = turned(heads_of(self.q(y), self.heads)), turned(heads_of(self.k(y), self.key_heads)), heads_of(self.v(y), self.key_heads)
        k, v = (part.repeat_interleave(self.heads // self.key_heads, 1) for part in (k, v))
        x = x + self.projection(attention(q.to(v.dtype), k.to(v.dtype), v).transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers, width, heads, key_heads, length, words):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([LlamaBlock(width, heads, key_heads) for _ in range(layers)])
        self.norm, self.head = RmsNorm(width), nn.Linear(width, words, bias=False)
        own = width // heads
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, own, 2) / own)).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.head(self.norm(x))


def of_words(model, batch, length, words):
    return model, cross_entropy, torch.randint(words, (batch, length)), torch.randint(words, (batch, length))


def gpt2_small(batch=8, small=False):
    torch.manual_seed(0)
    layers, width, heads, length, words = (2, 32, 2, 16, 97) if small else (12, 768, 12, 1024, 50257)
    return of_words(Gpt2(layers, width, heads, length, words), batch, length, words)


def gpt2_medium(batch=8, small=False):
    torch.manual_seed(0)
    layers, width, heads, length, words = (3, 32, 2, 16, 97) if small else (24, 1024, 16, 1024, 50257)
    return of_words(Gpt2(layers, width, heads, length, words), batch, length, words)


def llama(batch=4, small=False):
    torch.manual_seed(0)
    layers, width, heads, keys, length, words = (2, 24, 4, 2, 16, 97) if small else (12, 1536, 16, 4, 2048, 32000)
    return of_words(Llama(layers, width, heads, keys, length, words), batch, length, words)


def resnet50(batch=64, small=False):
    import torchvision
    torch.manual_seed(0)
    side = 64 if small else 224
    return (torchvision.models.resnet50(weights=None), cross_entropy, torch.randn(batch, 3, side, side), torch.randint(1000, (batch,)))


def lstm(batch=64, small=False):
    torch.manual_seed(0)
    width, length = (16, 8) if small else (1024, 256)
    model = Lstm(layers=4, width=width)
    return of_words(model, batch, length, model.words.num_embeddings)


def unet(batch=16, small=False):
    torch.manual_seed(0)
    widths, side = ((4, 8), 16) if small else ((32, 64, 128, 256), 256)
    return UNet(widths), functional.cross_entropy, torch.randn(batch, 3, side, side), torch.randint(2, (batch, side, side))


MODELS = {made.__name__: made for made in (gpt2_small, gpt2_medium, llama, resnet50, lstm, unet)}
