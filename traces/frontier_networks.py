"""Five networks that are no row of equal decoder layers: training steps of 1,100 to 2,300 operations, for bounds and plans of graphs.

  /usr/bin/python3 traces/export_pytorch.py --graph --model traces/frontier_networks.py:experts --batch 16 -o experts.json
"""

import math

import torch
from torch import nn
from torch.nn import functional

WORDS, CLASSES = 1000, 1000


def cross_entropy(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def tokens(batch, length):
    return torch.randint(WORDS, (batch, length))


class Attention(nn.Module):
    """Explicit, so that scores and probabilities are values of the graph."""

    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key_value, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x, memory=None):
        memory = x if memory is None else memory
        split = lambda y: y.view(y.shape[0], y.shape[1], self.heads, -1).transpose(1, 2)
        key, value = self.key_value(memory).chunk(2, -1)
        scores = split(self.query(x)) @ split(key).transpose(-2, -1) / math.sqrt(x.shape[-1] // self.heads)
        if self.causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(mask, -math.inf)
        mixed = scores.softmax(-1) @ split(value)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


def perceptron(width, inner):
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


# --- a mixture of experts ---------------------------------------------------------------------------------------------

class Experts(nn.Module):
    """Each expert takes the tokens that like it most, always as many (expert choice: Zhou et al., NeurIPS 2022)."""

    def __init__(self, width, experts, share=2):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([perceptron(width, 4 * width) for _ in range(experts)])
        self.share = share

    def forward(self, x):
        rows = x.flatten(0, 1)
        capacity = self.share * len(rows) // len(self.experts)
        weights, chosen = self.gate(rows).softmax(-1).topk(capacity, 0)
        total = torch.zeros_like(rows)
        for k, expert in enumerate(self.experts):
            total = total.index_add(0, chosen[:, k], expert(rows[chosen[:, k]]) * weights[:, k, None])
        return total.view_as(x)


class MixtureOfExperts(nn.Module):
    def __init__(self, layers=8, width=256, heads=4, experts=8):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.attentions = nn.ModuleList([Attention(width, heads, causal=True) for _ in range(layers)])
        self.experts = nn.ModuleList([Experts(width, experts) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers + 1)])
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, x):
        x = self.words(x)
        for k, (attention, experts) in enumerate(zip(self.attentions, self.experts)):
            x = x + attention(self.norms[2 * k](x))
            x = x + experts(self.norms[2 * k + 1](x))
        return self.head(self.norms[-1](x))


def experts(batch=4, length=256):
    torch.manual_seed(0)
    return MixtureOfExperts(), cross_entropy, tokens(batch, length), tokens(batch, length)


# --- a U-Net of a diffusion model (Ho et al., NeurIPS 2020) -------------------------------------------------------------

class Residual(nn.Module):
    def __init__(self, narrow, wide, moment):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, narrow), nn.Conv2d(narrow, wide, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, wide), nn.Conv2d(wide, wide, 3, padding=1)
        self.moment = nn.Linear(moment, wide)
        self.skip = nn.Identity() if narrow == wide else nn.Conv2d(narrow, wide, 1)

    def forward(self, x, moment):
        y = self.conv1(functional.silu(self.norm1(x))) + self.moment(moment)[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(y)))


class Pixels(nn.Module):
    """Attention of all pixels to all."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(8, width), Attention(width, 4)

    def forward(self, x, _):
        return x + self.attention(self.norm(x).flatten(2).transpose(1, 2)).transpose(1, 2).reshape(x.shape)


class Row(nn.ModuleList):
    def forward(self, x, moment):
        for module in self:
            x = module(x, moment)
        return x


class UNet(nn.Module):
    def __init__(self, width=32, factors=(1, 2, 4, 4), blocks=3, attention_from=2):
        super().__init__()
        moment, widths = 4 * width, [width * f for f in factors]
        self.moments = nn.Sequential(nn.Linear(width, moment), nn.SiLU(), nn.Linear(moment, moment), nn.SiLU())
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down, self.up, self.shrink, self.grow = nn.ModuleList(), nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        row = lambda level, narrow, wide: Row([Residual(narrow, wide, moment)] + ([Pixels(wide)] if level >= attention_from else []))
        now, skips = width, [width]
        for level, wide in enumerate(widths):
            for _ in range(blocks):
                self.down.append(row(level, now, wide))
                now = wide
                skips.append(now)
            if level + 1 < len(widths):
                self.shrink.append(nn.Conv2d(now, now, 3, 2, 1))
                skips.append(now)
        self.middle = Row([Residual(now, now, moment), Pixels(now), Residual(now, now, moment)])
        for level, wide in reversed(list(enumerate(widths))):
            for _ in range(blocks + 1):
                self.up.append(row(level, now + skips.pop(), wide))
                now = wide
            if level > 0:
                self.grow.append(nn.Conv2d(now, now, 3, padding=1))
        self.blocks = blocks
        self.last = nn.Sequential(nn.GroupNorm(8, now), nn.SiLU(), nn.Conv2d(now, 3, 3, padding=1))

    def forward(self, x, moment):
        moment, x = self.moments(moment), self.first(x)
        skips = [x]
        for k, row in enumerate(self.down):
            x = row(x, moment)
            skips.append(x)
            if (k + 1) % self.blocks == 0 and k + 1 < len(self.down):
                x = self.shrink[k // self.blocks](x)
                skips.append(x)
        x = self.middle(x, moment)
        for k, row in enumerate(self.up):
            x = row(torch.cat([x, skips.pop()], 1), moment)
            if (k + 1) % (self.blocks + 1) == 0 and k + 1 < len(self.up):
                x = self.grow[k // (self.blocks + 1)](functional.interpolate(x, scale_factor=2.0))
        return self.last(x)


def unet(batch=4, side=64):
    torch.manual_seed(0)
    noise = torch.randn(batch, 3, side, side)
    return UNet(), functional.mse_loss, (torch.randn(batch, 3, side, side), torch.randn(batch, 32)), noise


# --- an encoder with a decoder (Vaswani et al., NeurIPS 2017) ---------------------------------------------------------

class EncoderDecoder(nn.Module):
    def __init__(self, layers=8, width=256, heads=4):
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, width), nn.Embedding(WORDS, width)
        norms = lambda count: nn.ModuleList([nn.LayerNorm(width) for _ in range(count)])
        attentions = lambda causal: nn.ModuleList([Attention(width, heads, causal) for _ in range(layers)])
        inner = lambda: nn.ModuleList([perceptron(width, 4 * width) for _ in range(layers)])
        self.encoder_norms, self.encoder_attention, self.encoder_inner = norms(2 * layers + 1), attentions(False), inner()
        self.decoder_norms, self.decoder_attention, self.decoder_inner = norms(3 * layers + 1), attentions(True), inner()
        self.cross = attentions(False)
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, source, target):
        memory, y = self.source(source), self.target(target)
        for k, (attention, inner) in enumerate(zip(self.encoder_attention, self.encoder_inner)):
            memory = memory + attention(self.encoder_norms[2 * k](memory))
            memory = memory + inner(self.encoder_norms[2 * k + 1](memory))
        memory = self.encoder_norms[-1](memory)
        for k, (attention, cross, inner) in enumerate(zip(self.decoder_attention, self.cross, self.decoder_inner)):
            y = y + attention(self.decoder_norms[3 * k](y))
            y = y + cross(self.decoder_norms[3 * k + 1](y), memory)
            y = y + inner(self.decoder_norms[3 * k + 2](y))
        return self.head(self.decoder_norms[-1](y))


def encoder_decoder(batch=4, source=256, target=192):
    torch.manual_seed(0)
    return EncoderDecoder(), cross_entropy, (tokens(batch, source), tokens(batch, target)), tokens(batch, target)


# --- a vision transformer (Dosovitskiy et al., ICLR 2021) ---------------------------------------------------------------

class VisionTransformer(nn.Module):
    def __init__(self, layers=24, width=256, heads=4, side=224, patch=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first, self.places = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers + 1)])
        self.attentions = nn.ModuleList([Attention(width, heads) for _ in range(layers)])
        self.inner = nn.ModuleList([perceptron(width, 4 * width) for _ in range(layers)])
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        for k, (attention, inner) in enumerate(zip(self.attentions, self.inner)):
            x = x + attention(self.norms[2 * k](x))
            x = x + inner(self.norms[2 * k + 1](x))
        return self.head(self.norms[-1](x[:, 0]))


def vision_transformer(batch=4):
    torch.manual_seed(0)
    return VisionTransformer(), cross_entropy, torch.randn(batch, 3, 224, 224), torch.randint(CLASSES, (batch,))


# --- an unrolled LSTM ---------------------------------------------------------------------------------------------------

class UnrolledLstm(nn.Module):
    def __init__(self, layers=2, width=256):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, width), nn.Linear(width, CLASSES)
        self.cells = nn.ModuleList([nn.LSTMCell(width, width) for _ in range(layers)])

    def forward(self, words):
        states = [None] * len(self.cells)
        for x in self.words(words).unbind(1):
            for k, cell in enumerate(self.cells):
                states[k] = cell(x, states[k])
                x = states[k][0]
        return self.head(x)


def unrolled_lstm(batch=16, length=32):
    torch.manual_seed(0)
    return UnrolledLstm(), cross_entropy, tokens(batch, length), torch.randint(CLASSES, (batch,))
