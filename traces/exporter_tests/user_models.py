"""A user's file of models: shapes are small enough for sums by hand."""
USER_MODEL = """
import torch
from torch import nn

def mean_square(y):
    return y.pow(2).mean()

class Residual(nn.Module):
    def forward(self, x):
        return x + 1

class Frozen(nn.Linear):
    def __init__(self, n):
        super().__init__(n, n)
        for parameter in self.parameters():
            parameter.requires_grad_(False)

def small():
    torch.manual_seed(0)
    stages = [("first", nn.Sequential(nn.Linear(10, 20), nn.ReLU())),
              ("second", nn.Sequential(nn.Linear(20, 5), nn.Sigmoid(), nn.Tanh()))]
    return stages, lambda y: y.exp().sum(), torch.randn(3, 10)

def tied():
    first, last = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    last.weight = first.weight
    return [first, nn.Tanh(), last], mean_square, torch.randn(4, 8)

def early():
    layers = [layer for _ in range(4) for layer in (nn.Tanh(), nn.Sigmoid())]
    return [nn.Sequential(nn.Linear(8, 256), nn.Linear(256, 256), *layers), nn.Tanh()], mean_square, torch.randn(64, 8)

def kept_weight():
    return [nn.Sequential(nn.utils.weight_norm(nn.Linear(8, 8)), nn.Tanh())], mean_square, torch.randn(4, 8)

def frozen():
    return [nn.Linear(8, 8), Frozen(8), Residual()], mean_square, torch.randn(4, 8)

class Adapted(nn.Module):
    # A frozen layer, and a product of low rank beside it.
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))

def adapted():
    return [nn.Embedding(16, 8).requires_grad_(False), Adapted()], lambda y: y.pow(2).mean(), torch.arange(4)

class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))

def twice():
    return [nn.Linear(8, 8), Twice()], mean_square, torch.randn(4, 8)

class Split(nn.Module):
    def forward(self, x):
        return torch.tanh(x), torch.sigmoid(x)

class Join(nn.Module):
    def forward(self, pair):
        return pair[0] * pair[1]

def pair():
    return [nn.Linear(8, 8), Split(), Join()], mean_square, torch.randn(4, 8)

class Halves(nn.Module):
    def forward(self, x):
        return tuple(torch.tanh(x).chunk(2, dim=1))

def halves():
    return [nn.Linear(8, 8), Halves(), Join()], mean_square, torch.randn(4, 8)

class Fork(nn.Module):
    def forward(self, x):
        return {"main": torch.tanh(x), "more": [torch.sigmoid(x)]}

class Pass(nn.Module):
    def forward(self, boundary):
        return {**boundary, "main": -boundary["main"]}

class Meet(nn.Module):
    def forward(self, boundary):
        return boundary["main"] * boundary["more"][0]

def skip():
    return [nn.Linear(8, 8), Fork(), Pass(), Meet()], mean_square, torch.randn(4, 8)

HIDDEN = []

class Hidden(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        HIDDEN.append(x.clone())  # neither autograd nor the function's ctx knows of it
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * HIDDEN.pop() * gradient

class Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.kept, ctx.input = {"doubled": [2 * x]}, x  # not by save_for_backward
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return (ctx.kept["doubled"][0] + 0 * ctx.input) * gradient

class Keeps(nn.Module):
    def forward(self, x):
        return 0.3 * Keeping.apply(x)

def keeping():
    return [nn.Linear(8, 8), Keeps()], mean_square, torch.randn(4, 8)

class Secret(nn.Module):
    def forward(self, x):
        return Hidden.apply(x)

def hidden():
    return [nn.Linear(8, 8), Secret()], mean_square, torch.randn(4, 8)

class Aside(nn.Module):
    def forward(self, x):
        self.aside = torch.tanh(x)  # saved by a node that no gradient reaches
        return 2 * x

def unseen():
    return [nn.Linear(8, 8), Aside()], mean_square, torch.randn(4, 8)

def pictures():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 5, 1))
    head = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5 * 4 * 4, 6))
    targets = torch.tensor([1, 2])
    return [body, head], lambda y: nn.functional.cross_entropy(y, targets), torch.randn(2, 3, 8, 8)

def no_loss():
    return [nn.Linear(8, 8)], lambda y: y, torch.randn(4, 8)

def none_given():
    return nn.Sequential(nn.Linear(8, 8)), None, torch.randn(4, 8)

def broken():
    raise KeyError("weights")

class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x

def branching():
    return [nn.Linear(8, 8), Branches()], mean_square, torch.randn(4, 8)

def two_arguments():
    return [nn.Linear(8, 8), nn.Bilinear(8, 8, 8)], mean_square, torch.randn(4, 8)

class LateTrouble(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("no such\\ngradient")

class Late(nn.Module):
    def forward(self, x):
        return LateTrouble.apply(x)

def late():
    return [nn.Linear(8, 8), Late()], mean_square, torch.randn(4, 8)

class Backwards(nn.Sequential):
    def forward(self, x):
        return self[0](self[1](x))

def backwards():
    return Backwards(nn.Linear(6, 4), nn.Linear(8, 6)), mean_square, torch.randn(4, 8)

def again():
    layer = nn.Linear(8, 8)
    return nn.Sequential(layer, nn.Tanh(), layer), mean_square, torch.randn(4, 8)

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(100)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def many():
    return Deep(), mean_square, torch.randn(4, 16)

def in_place():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True)), mean_square, torch.randn(4, 8)

class Moving(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(8))
        self.register_buffer("factor", torch.full((8,), 0.5))
        self.own = torch.Generator()

    def forward(self, x):
        y = torch.tanh(x) * self.mean.clone() * self.factor
        self.mean.mul_(0.9)
        return y.exp() + torch.rand(8, generator=self.own.manual_seed(1))

def once():
    noise = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Dropout(0.5))
    return [("norm", nn.BatchNorm1d(8)), ("noise", noise), ("more", nn.Dropout(0.5)), ("moving", Moving())], mean_square, torch.randn(4, 8)

class Chosen(nn.Module):
    def __init__(self, strict):
        super().__init__()
        self.strict = strict
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 8)

    def forward(self, x):
        if self.strict and (x.abs().sum(1) < 3).any():
            raise ValueError("small rows")
        return self.second(torch.tanh(self.first(x))[x[:, 0] > 0])

def chosen(strict=False):
    x = torch.ones(10, 4)
    x[7:, 0] = -1
    return Chosen(strict), mean_square, x

def chosen_strictly():
    return chosen(True)

def none_chosen():
    x = torch.randn(10, 4)
    x[:, 0] = -x[:, 0].abs()
    return Chosen(False), lambda y: y.sum(), x

class OneOrOther(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 8) for _ in range(2))

    def forward(self, x):
        y = torch.zeros(x.shape[0], 8)
        for expert, chosen in zip(self.experts, (x[:, 0] == 1, x[:, 0] != 1)):
            rows = chosen.nonzero().squeeze(1)
            y = y.index_add(0, rows, expert(x[rows]).tanh_())
        return y

def one_or_other():
    x = torch.randn(8, 4)
    x[:6, 0] = 1
    return OneOrOther(), mean_square, x

sequential = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
two = (sequential, None)
no_model = 3
"""
