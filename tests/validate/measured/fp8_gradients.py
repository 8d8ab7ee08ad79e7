"""Gradients of plimsoll's `mlp` and `gpt:attention=fused` by PyTorch, with the numbers that they begin with and every value rounded as
`values=fp8` rounds it: operands of products by torch.float8_e4m3fn and torch.float8_e5m2 and back, all else to bf16; sums are in double.
What fp8_test.cpp holds its kernels against. Prints a row a parameter: its name, the gradient's length, and its product with sin(1.7 i + 1).
The last column is how far this gradient is from the one with nothing rounded, in its lengths.

Run with PyTorch and transformers, which its neighbour imports (made with PyTorch 2.6.0):
    python3 tests/validate/measured/fp8_gradients.py
"""
import math

import numpy
import torch

from decoder_gradients import WORD, mixed, seed_of

WIDTH, ROWS, CLASSES, LAYERS = 32, 16, 5, 4
HEADS, SEQUENCE, BATCH, VOCABULARY, BLOCKS = 2, 16, 2, 40, 2


def units_of(seed, *shape):
    """validate/networks/initial_values.cpp's, of which its neighbour has those of weights."""
    units = [numpy.float32((mixed((seed + i) & WORD) >> 11) * 2.0**-52 - 1.0) for i in range(math.prod(shape))]
    return torch.tensor(numpy.array(units)).reshape(shape)


class Rounding:
    """What `values=` says, or nothing."""

    def __init__(self, values):
        self.values = values

    def narrow(self, x):
        return x if self.values == "exact" else x.float().bfloat16().double()

    def operand(self, x, dtype):
        """As current scaling of whole tensors has it."""
        if self.values != "fp8":
            return self.narrow(x)
        x = x.float()
        most, largest = torch.finfo(dtype).max, x.abs().max()
        scale = torch.tensor(most) / largest if largest > 0 else torch.tensor(1.0)
        return ((x * scale).clamp(-most, most).to(dtype).float() * (1 / scale)).double()


def value(x, to):
    """A value of the network: it is rounded, and so is its gradient."""

    class Value(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return to.narrow(x)

        @staticmethod
        def backward(ctx, gradient):
            return to.narrow(gradient)

    return Value.apply(x)


def linear(x, weight, bias, to, is_head=False):
    """Rows of x. A head multiplies in bf16."""
    kind = Rounding("bf16") if is_head and to.values == "fp8" else to

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            product = kind.operand(x, torch.float8_e4m3fn) @ kind.operand(weight, torch.float8_e4m3fn)
            return to.narrow(product + to.narrow(bias))

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            gradient = to.narrow(gradient)
            narrow = kind.operand(gradient, torch.float8_e5m2)
            dx = to.narrow(narrow @ kind.operand(weight, torch.float8_e4m3fn).T)
            rows = kind.operand(x, torch.float8_e4m3fn).reshape(-1, x.shape[-1])
            return dx, rows.T @ narrow.reshape(-1, gradient.shape[-1]), gradient.reshape(-1, gradient.shape[-1]).sum(0)

    return Linear.apply(x, weight, bias)


def heads_of(x, parts):
    """(parts, batch, heads, sequence, size)"""
    return x.reshape(BATCH, SEQUENCE, HEADS, parts, WIDTH // HEADS).permute(3, 0, 2, 1, 4)


def rows_of(parts):
    return torch.stack(parts).permute(1, 3, 2, 0, 4).reshape(BATCH, SEQUENCE, -1)


def attend(q, kv, to):
    """Causal, as fused kernels compute it: scores and weights are not rounded, the backward finds them again."""

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, kv):
            (q,), (k, v) = heads_of(q, 1), heads_of(kv, 2)
            mask = torch.full((SEQUENCE, SEQUENCE), float("-inf"), dtype=torch.float64).triu(1)
            weights = torch.softmax(q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5 + mask, dim=3)
            made = to.narrow(weights @ v)
            ctx.save_for_backward(q, k, v, weights, made)
            return rows_of([made])

        @staticmethod
        def backward(ctx, gradient):
            q, k, v, weights, made = ctx.saved_tensors
            (gradient,) = heads_of(to.narrow(gradient), 1)
            inner = weights * (gradient @ v.transpose(2, 3) - (gradient * made).sum(3, keepdim=True)) / (WIDTH // HEADS) ** 0.5
            dkv = [inner.transpose(2, 3) @ q, weights.transpose(2, 3) @ gradient]
            return to.narrow(rows_of([inner @ k])), to.narrow(rows_of(dkv))

    return Attention.apply(q, kv)


class Parameters:
    def __init__(self):
        self.made = {}

    def __call__(self, name, *shape):
        if name not in self.made:
            summed = 100 if len(shape) == 1 else math.prod(shape) // shape[-1]
            numbers = units_of(seed_of(name), *shape) * torch.tensor(math.sqrt(3.0 / summed), dtype=torch.float32)
            self.made[name] = (torch.ones(shape) if name.endswith(".scale") else numbers).double().requires_grad_()
        return self.made[name]

    def layer(self, name, x, outputs, to, is_head=False):
        return linear(x, self(name + ".weight", x.shape[-1], outputs), self(name + ".bias", outputs), to, is_head)

    def norm(self, name, x, to):
        scale, shift = self(name + ".scale", x.shape[-1]), self(name + ".shift", x.shape[-1])
        return value(torch.nn.functional.layer_norm(value(x, to), x.shape[-1:], scale, shift, 1e-5), to)


def mlp(of, to):
    x = to.narrow(units_of(mixed(seed_of("input")), ROWS, WIDTH).double())
    for k in range(LAYERS):
        is_last = k + 1 == LAYERS
        x = of.layer(f"layer{k}", x, CLASSES if is_last else WIDTH, to, is_last)
        if not is_last:
            x = torch.relu(x)
    return x


def gpt(of, to):
    seed = mixed(seed_of("input"))
    tokens = torch.tensor([mixed((seed + i) & WORD) % VOCABULARY for i in range(BATCH * SEQUENCE)]).reshape(BATCH, SEQUENCE)
    x = value(of("embedding.table", VOCABULARY, WIDTH)[tokens] + of("embedding.positions", SEQUENCE, WIDTH), to)
    for k in range(BLOCKS):
        attention, inner = f"layer{k}.attention", f"layer{k}.mlp"
        normed = of.norm(attention + ".norm", x, to)
        q, kv = of.layer(attention + ".query", normed, WIDTH, to), of.layer(attention + ".keys", normed, 2 * WIDTH, to)
        mixed_values = attend(q, kv, to)
        x = value(of.layer(attention + ".projection", mixed_values, WIDTH, to) + x, to)
        wide = of.layer(inner + ".expand", of.norm(inner + ".norm", x, to), 4 * WIDTH, to)
        gelu = value(torch.nn.functional.gelu(value(wide, to)), to)
        x = value(of.layer(inner + ".contract", gelu, WIDTH, to) + x, to)
    return of.layer("head.linear", of.norm("head.norm", x, to), VOCABULARY, to, True)


def gradients(network, values):
    of, to = Parameters(), Rounding(values)
    logits = value(network(of, to), to)
    logits = logits.reshape(-1, logits.shape[-1])
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(logits)) % logits.shape[1])
    loss.backward()
    return loss.item(), {name: p.grad for name, p in of.made.items()}


def main():
    print("// torch", torch.__version__)
    for network in mlp, gpt:
        loss, made = gradients(network, "fp8")
        all_exact = gradients(network, "exact")[1]
        errors = sum((made[n] - all_exact[n]).square().sum() for n in made), sum(g.square().sum() for g in all_exact.values())
        print(f"// {network.__name__}: {(errors[0] / errors[1]).sqrt().item():.4f} of all gradients' length from those with nothing rounded")
        print(f'{{"loss", {loss:.8g}, 0}},')
        for name, gradient in made.items():
            flat, exact = gradient.reshape(-1), all_exact[name].reshape(-1)
            waves = torch.sin(1.7 * torch.arange(flat.numel(), dtype=torch.float64) + 1)
            print(f'{{"{name}", {flat.norm().item():.6g}, {flat.dot(waves).item():.6g}}},  // {((flat - exact).norm() / exact.norm()).item():.3f}')


if __name__ == "__main__":
    main()
