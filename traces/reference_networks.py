"""Networks on patches of pictures as their papers define them: DeiT (Touvron et al., ICML 2021) and ResMLP (Touvron et
al., arXiv 2105.03404, 2021), and what autograd keeps of them. traces/imports/framework_graphs.cpp has the same as graphs.

  /usr/bin/python3 traces/reference_networks.py resmlp_s24 --batch 2 --size 224
"""

import argparse

import torch
from torch import nn

CLASSES = 1000
PATCH = 16
RESMLP_LAYERS = {"resmlp_s12": 12, "resmlp_s24": 24, "resmlp_s36": 36}
DEIT_WIDTHS = {"deit_ti": (192, 3), "deit_s": (384, 6), "deit_b": (768, 12)}


class Patches(nn.Conv2d):
    def __init__(self, width):
        super().__init__(3, width, PATCH, PATCH)

    def forward(self, x):
        return super().forward(x).flatten(2).transpose(1, 2)


def perceptron(width):
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Affine(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return self.alpha * x + self.beta


class ResmlpBlock(nn.Module):
    """Equations 2 and 3 of the paper: a layer across patches, a perceptron across channels, each scaled and added."""

    def __init__(self, width, patches):
        super().__init__()
        self.norm_1, self.norm_2 = Affine(width), Affine(width)
        self.across_patches, self.across_channels = nn.Linear(patches, patches), perceptron(width)
        self.gamma_1, self.gamma_2 = nn.Parameter(torch.full((width,), 0.1)), nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        x = x + self.gamma_1 * self.across_patches(self.norm_1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.gamma_2 * self.across_channels(self.norm_2(x))


class Resmlp(nn.Module):
    def __init__(self, name, size):
        super().__init__()
        width = 384
        blocks = [ResmlpBlock(width, (size // PATCH) ** 2) for _ in range(RESMLP_LAYERS[name])]
        self.body = nn.Sequential(Patches(width), *blocks, Affine(width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean(dim=1))


class DeitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads, self.qkv, self.projection = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = perceptron(width)

    def attention(self, x):
        batch, rows, width = x.shape
        parts = self.qkv(x).reshape(batch, rows, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (parts[0] @ parts[1].transpose(-2, -1)) * (width // self.heads) ** -0.5
        return self.projection((scores.softmax(dim=-1) @ parts[2]).transpose(1, 2).reshape(batch, rows, width))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.perceptron(self.norm_2(x))


class Deit(nn.Module):
    def __init__(self, name, size):
        super().__init__()
        width, heads = DEIT_WIDTHS[name]
        self.patches = Patches(width)
        self.class_row = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (size // PATCH) ** 2 + 1, width))
        self.blocks = nn.Sequential(*[DeitBlock(width, heads) for _ in range(12)], nn.LayerNorm(width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.patches(x)
        x = torch.cat((self.class_row.expand(len(x), -1, -1), x), dim=1) + self.positions
        return self.head(self.blocks(x)[:, 0])


def network(name, size=224):
    return Resmlp(name, size) if name in RESMLP_LAYERS else Deit(name, size)


def numbers_of(model):
    return sum(parameter.numel() for parameter in model.parameters())


def kept_bytes(model, batch, size=224):
    """Bytes of the storages that autograd keeps after a forward, each once, without parameters and targets."""
    x, target = torch.randn(batch, 3, size, size), torch.randint(CLASSES, (batch,))
    apart = {tensor.storage().data_ptr() for tensor in [*model.parameters(), target]}
    kept, storages = [], {}

    def pack(tensor):
        kept.append(tensor)  # so that no address is used twice
        if tensor.storage().data_ptr() not in apart:
            storages[tensor.storage().data_ptr()] = tensor.storage().nbytes()
        return tensor
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = nn.functional.cross_entropy(model(x), target)
    del loss
    return sum(storages.values())


def main():
    options = argparse.ArgumentParser(description="What autograd keeps of a reference network, counted by hooks.")
    options.add_argument("name", choices=[*RESMLP_LAYERS, *DEIT_WIDTHS])
    options.add_argument("--batch", type=int, default=2)
    options.add_argument("--size", type=int, default=224)
    asked = options.parse_args()
    model = network(asked.name, asked.size)
    print(f"{asked.name}: {numbers_of(model)} parameters, {kept_bytes(model, asked.batch, asked.size)} bytes kept")


if __name__ == "__main__":
    main()
