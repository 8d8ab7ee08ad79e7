"""Eight small models on which exporter and executor are tested: name -> function(batch) that returns (model, loss, inputs, targets).

  /usr/bin/python3 traces/export_pytorch.py --model validate/pytorch/models.py:unet --stages auto --batch 2 -o unet.json

`inputs` are what the model is called with: a tensor, a tuple of arguments, or a dict of arguments by name. `loss` is a function of (outputs,
targets), or None where the model computes its own. All have their weights from a fixed seed.
"""

import dataclasses
import math
from functools import partial
from typing import Optional

import torch
from torch import nn
from torch.nn import functional

CLASSES, WORDS = 10, 97


def cross_entropy(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def mean_square(outputs, _=None):
    return outputs.pow(2).mean()


# --- pictures -----------------------------------------------------------------------------------------------------------------

def pictures(model, batch, side):
    return model, cross_entropy, torch.randn(batch, 3, side, side), torch.randint(CLASSES, (batch,))


def resnet18(batch=2, side=64):
    import torchvision
    torch.manual_seed(0)
    return pictures(torchvision.models.resnet18(weights=None, num_classes=CLASSES), batch, side)


def vgg11(batch=2, side=32):
    from torchvision.models import vgg

    class SmallVgg(vgg.VGG):
        """With a classifier that has not 120 million weights, which take a second to be drawn."""

        def __init__(self):
            nn.Module.__init__(self)
            self.features, self.avgpool = vgg.make_layers(vgg.cfgs["A"]), nn.AdaptiveAvgPool2d(1)
            self.classifier = nn.Sequential(nn.Linear(512, 128), nn.ReLU(True), nn.Dropout(), nn.Linear(128, CLASSES))

    torch.manual_seed(0)
    return pictures(SmallVgg(), batch, side)


def densenet(batch=2, side=64):
    import torchvision
    torch.manual_seed(0)
    return pictures(torchvision.models.DenseNet(8, (3, 4, 3), 16, num_classes=CLASSES, drop_rate=0.1), batch, side)


class Twice(nn.Module):
    def __init__(self, narrow, wide):
        super().__init__()
        layers = []
        for i in range(2):
            layers += [nn.Conv2d(wide if i else narrow, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class UNet(nn.Module):
    def __init__(self, widths=(8, 16, 32)):
        super().__init__()
        self.down = nn.ModuleList([Twice(narrow, wide) for narrow, wide in zip((3,) + widths, widths)])
        self.bottom = Twice(widths[-1], 2 * widths[-1])
        self.widen = nn.ModuleList([nn.ConvTranspose2d(2 * wide, wide, 2, 2) for wide in reversed(widths)])
        self.up = nn.ModuleList([Twice(2 * wide, wide) for wide in reversed(widths)])
        self.classify = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        skips = []
        for down in self.down:
            skips.append(down(x))
            x = functional.max_pool2d(skips[-1], 2)
        x = self.bottom(x)
        for widen, up in zip(self.widen, self.up):
            x = up(torch.cat([widen(x), skips.pop()], 1))
        return self.classify(x)


def unet(batch=2, side=32):
    torch.manual_seed(0)
    return UNet(), lambda y, wanted: functional.cross_entropy(y, wanted), torch.randn(batch, 3, side, side), torch.randint(2, (batch, side, side))


# --- words --------------------------------------------------------------------------------------------------------------------

class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        scores = (q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)).masked_fill(mask, -math.inf)
        mixed = self.dropout(scores.softmax(-1)) @ v
        x = x + self.dropout(self.projection(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class Gpt(nn.Module):
    """Dropout, the output matrix that of the embedding, positions and mask made in the forward."""

    def __init__(self, layers=3, width=32, heads=4, length=24, dropout=0.1):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(WORDS, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.dropout(self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device)))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def gpt(batch=2, length=24, width=32):
    torch.manual_seed(0)
    return Gpt(length=length, width=width), cross_entropy, torch.randint(WORDS, (batch, length)), torch.randint(WORDS, (batch, length))


class EncoderDecoder(nn.Module):
    """Two inputs; all decoder layers read what the encoder made."""

    def __init__(self, layers=2, width=32, heads=4, dropout=0.1):
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, width), nn.Embedding(WORDS, width)
        self.encoder = nn.ModuleList([nn.TransformerEncoderLayer(width, heads, 2 * width, dropout, batch_first=True) for _ in range(layers)])
        self.decoder = nn.ModuleList([nn.TransformerDecoderLayer(width, heads, 2 * width, dropout, batch_first=True) for _ in range(layers)])
        self.head = nn.Linear(width, WORDS)

    def forward(self, source, target):
        memory, y = self.source(source), self.target(target)
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            y = layer(y, memory)
        return self.head(y)


def encoder_decoder(batch=2, source=28, target=20, width=32):
    torch.manual_seed(0)
    tokens = [torch.randint(WORDS, (batch, length)) for length in (source, target, target)]
    return EncoderDecoder(width=width), cross_entropy, (tokens[0], tokens[1]), tokens[2]


class Lstm(nn.Module):
    """The state goes from layer to layer as a tuple; a layer's weights are used at every step."""

    def __init__(self, layers=3, width=32):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList([nn.LSTM(width, width, batch_first=True) for _ in range(layers)])
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens):
        x, state = self.words(tokens), None
        for layer in self.layers:
            x, state = layer(self.dropout(x), state)
        return self.head(x)


def lstm(batch=2, length=20, width=32):
    torch.manual_seed(0)
    return Lstm(width=width), cross_entropy, torch.randint(WORDS, (batch, length)), torch.randint(WORDS, (batch, length))


# --- in the style of Hugging Face: arguments by name, a dataclass out, the loss the model's own ---------------------------------------

@dataclasses.dataclass
class Output:
    loss: Optional[torch.Tensor] = None
    logits: Optional[torch.Tensor] = None
    hidden: Optional[tuple] = None


class Tagger(nn.Module):
    """A frozen embedding, a buffer, an attention mask, a pooled branch that stays alive to the end."""

    def __init__(self, layers=3, width=32, heads=4, length=24):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.words.weight.requires_grad_(False)
        self.register_buffer("position", torch.randn(length, width))
        self.blocks = nn.ModuleList([Block(width, heads, 0.1) for _ in range(layers)])
        self.pool, self.classify = nn.Linear(width, width), nn.Linear(2 * width, CLASSES)

    def forward(self, input_ids=None, attention_mask=None, labels=None, return_hidden=False):
        x = self.words(input_ids) + self.position[:input_ids.size(1)]
        mask = (attention_mask == 0)[:, None, None, :]
        hidden, pooled = (x,), None
        for i, block in enumerate(self.blocks):
            x = block(x, mask)
            hidden += (x,)
            if i == 0:
                pooled = torch.tanh(self.pool(x.mean(1, keepdim=True)))
        logits = self.classify(torch.cat([x, pooled.expand_as(x)], -1))
        loss = None if labels is None else functional.cross_entropy(logits.view(-1, CLASSES), labels.view(-1))
        return Output(loss=loss, logits=logits, hidden=hidden if return_hidden else None)


def tagger(batch=2, length=24, width=32):
    torch.manual_seed(0)
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, length // 2:] = 0
    return Tagger(length=length, width=width), None, {"input_ids": torch.randint(WORDS, (batch, length)), "attention_mask": mask,
                                         "labels": torch.randint(CLASSES, (batch, length))}, None


MODELS = {made.__name__: made for made in (resnet18, vgg11, densenet, gpt, encoder_decoder, lstm, unet, tagger)}

# The same with more to compute, for times: a stage's own cost in Python is then little of it.
large_resnet18, large_vgg11, large_densenet = partial(resnet18, side=96), partial(vgg11, side=64), partial(densenet, side=224)
large_gpt, large_lstm = partial(gpt, length=128, width=128), partial(lstm, length=64, width=192)
large_encoder_decoder = partial(encoder_decoder, source=160, target=128, width=128)
large_unet, large_tagger = partial(unet, side=96), partial(tagger, length=128, width=128)
