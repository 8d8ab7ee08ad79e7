"""Small networks: skip connections in tuples, state and outputs in dicts and lists, shared weights, a gradient made late.

  for m in unet lstm encoder_decoder dicts; do
    /usr/bin/python3 traces/export_pytorch.py --model tests/strategies/measured/networks.py:$m --batch 2 --repetitions 3 \
      --memory-counter malloc -o tests/strategies/measured/$m.json; done
  /usr/bin/python3 traces/export_pytorch.py --model gpt --layers 2 --width 64 --heads 4 --sequence 32 --vocabulary 3000 \
    --batch 2 --repetitions 3 --memory-counter malloc -o tests/strategies/measured/tied_gpt.json
  /usr/bin/python3 traces/export_pytorch.py --model tests/strategies/measured/networks.py:late_gradient --batch 64 --repetitions 3 \
    --memory-counter malloc -o tests/strategies/measured/late_gradient.json
"""

import torch
from torch import nn


# --- a U-Net: (x, skips) ------------------------------------------------------------------------------------------------

def convolution(narrow, wide):
    return nn.Sequential(nn.Conv2d(narrow, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU())


class Down(nn.Module):
    def __init__(self, narrow, wide):
        super().__init__()
        self.convolution = convolution(narrow, wide)
        self.pool = nn.MaxPool2d(2)

    def forward(self, boundary):
        x, skips = boundary
        y = self.convolution(x)
        return self.pool(y), skips + (y,)


class Bottom(nn.Module):
    def __init__(self, narrow, wide):
        super().__init__()
        self.convolution = convolution(narrow, wide)

    def forward(self, boundary):
        return self.convolution(boundary[0]), boundary[1]


class Up(nn.Module):
    def __init__(self, wide, narrow):
        super().__init__()
        self.up = nn.ConvTranspose2d(wide, narrow, 2, 2)
        self.convolution = convolution(2 * narrow, narrow)

    def forward(self, boundary):
        x, skips = boundary
        return self.convolution(torch.cat([self.up(x), skips[-1]], 1)), skips[:-1]


class PixelHead(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.classify = nn.Conv2d(width, 2, 1)

    def forward(self, boundary):
        return self.classify(boundary[0])


def unet(batch=2):
    widths = [8, 16, 32, 64]
    stages, width = [], 3
    for i, wide in enumerate(widths):
        stages.append((f"down{i}", Down(width, wide)))
        width = wide
    stages.append(("bottom", Bottom(width, 128)))
    width = 128
    for i, narrow in enumerate(reversed(widths)):
        stages.append((f"up{i}", Up(width, narrow)))
        width = narrow
    return stages + [("head", PixelHead(width))], lambda y: y.pow(2).mean(), (torch.randn(batch, 3, 64, 64), ())


# --- an LSTM unrolled in time, the weights shared by all stretches -------------------------------------------------------------

class Words(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.table = nn.Embedding(words, width)

    def forward(self, tokens):  # (T, B) -> (T, B, C)
        x = self.table(tokens)
        zero = x.new_zeros(x.shape[1:])
        return {"x": x, "state": (zero, zero.clone()), "outputs": []}


class Stretch(nn.Module):
    def __init__(self, cell, times):
        super().__init__()
        self.cell = cell
        self.times = times

    def forward(self, boundary):
        h, c = boundary["state"]
        outputs = list(boundary["outputs"])
        for t in self.times:
            h, c = self.cell(boundary["x"][t], (h, c))
            outputs.append(h)
        return {"x": boundary["x"], "state": (h, c), "outputs": outputs}


class WordHead(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.to_words = nn.Linear(width, words)

    def forward(self, boundary):
        return self.to_words(torch.stack(boundary["outputs"]))


def lstm(batch=2):
    width, words, stretches, steps = 96, 500, 5, 3
    cell = nn.LSTMCell(width, width)
    stages = [("words", Words(words, width))]
    stages += [(f"steps{i}", Stretch(cell, range(steps * i, steps * (i + 1)))) for i in range(stretches)]
    tokens = torch.randint(words, (steps * stretches, batch))
    return stages + [("head", WordHead(width, words))], lambda y: y.logsumexp(-1).mean(), tokens


# --- an encoder and a decoder, whose stages all read what the encoder made ------------------------------------------------

class Tables(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.source = nn.Embedding(words, width)
        self.target = nn.Embedding(words, width)

    def forward(self, tokens):
        return {"source": self.source(tokens[0]), "target": self.target(tokens[1])}


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)

    def forward(self, boundary):
        return {**boundary, "source": self.layer(boundary["source"])}


class Decoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)

    def forward(self, boundary):
        return {**boundary, "target": self.layer(boundary["target"], boundary["source"])}


class TargetHead(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.to_words = nn.Linear(width, words)

    def forward(self, boundary):
        return self.to_words(boundary["target"])


def encoder_decoder(batch=2):
    width, words = 32, 300
    stages = [("tables", Tables(words, width))]
    stages += [(f"encoder{i}", Encoder(width)) for i in range(3)]
    stages += [(f"decoder{i}", Decoder(width)) for i in range(3)]
    tokens = [torch.randint(words, (batch, 112)), torch.randint(words, (batch, 96))]
    return stages + [("head", TargetHead(width, words))], lambda y: y.logsumexp(-1).mean(), tokens


# --- nested dicts and lists, a mask without gradient, a tensor that some stages read and others pass by ---------------------------

class Open(nn.Module):
    def forward(self, x):
        return {"main": x * 3, "list": [torch.sigmoid(x)], "mask": x > 0}


class Step(nn.Module):
    def __init__(self, width, reads, adds):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.reads, self.adds = reads, adds

    def forward(self, boundary):
        x = boundary["main"]
        more = [{"deep": x * 2}] if self.adds else []
        main = torch.tanh(self.linear(x)) + (boundary["list"][0] if self.reads else 0)
        return {**boundary, "main": main, "list": boundary["list"] + more}


class Close(nn.Module):
    def forward(self, boundary):
        return boundary["main"] * boundary["mask"] + boundary["list"][1]["deep"]


def dicts(batch=2):
    width = 40
    stages = [("linear", nn.Linear(width, width)), ("open", Open())]
    stages += [(f"step{i}", Step(width, reads=i % 2 == 1, adds=i == 1)) for i in range(4)]
    return stages + [("close", Close())], lambda y: y.pow(2).mean(), torch.randn(64 * batch, width)


# --- a large weight below many activations: their backward has let go of them when its gradient is made ---------------------

def activations():
    return [layer for _ in range(4) for layer in (nn.SiLU(), nn.Tanh(), nn.Sigmoid())]


def late_gradient(batch=64):
    narrow, wide = 128, 1024
    stages = [("first", nn.Sequential(nn.Linear(narrow, narrow), nn.Tanh())),
              ("wide", nn.Sequential(nn.Linear(narrow, wide), *activations(), nn.Linear(wide, wide), *activations())),
              ("last", nn.Linear(wide, 10))]
    return stages, lambda y: y.logsumexp(-1).mean(), torch.randn(batch, narrow)
