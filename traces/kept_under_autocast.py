#!/usr/bin/env python3
"""What autograd keeps under torch.autocast in bf16, and what a step dispatches: of torchvision's residual networks, all and
each kind of op; of a layer of Hugging Face's models (kept_by_models.py), and its conversions of numbers there and back. Tests
compare the formulas with `dtype=amp` with these figures.

    python3 traces/kept_under_autocast.py

It needs PyTorch 2, torchvision, transformers and peft. Two images of 64 by 64, two samples of 32 tokens. Kept tensors are
counted by storage, without parameters, buffers, images and labels.
"""

import collections

import kept_by_models as models
import torch
import torchvision
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from kept_tensors import kept_by

# What no kernel is launched for, or only for a CPU's order of a weight's gradient; batches are counted as whole numbers.
SILENT = {"detach", "t", "view", "squeeze", "as_strided", "as_strided_", "expand", "empty", "new_empty_strided", "copy_", "new_zeros"}


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = collections.Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        made = op(*args, **(kwargs or {}))
        name = op.name().split("::")[1].split(".")[0]
        counts = isinstance(made, torch.Tensor) and not made.is_floating_point()
        if name not in SILENT and not counts:
            self.ops[name] += 1
        return made


class Conversions(TorchDispatchMode):
    """From one type of numbers to another."""

    count = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        made = op(*args, **(kwargs or {}))
        if op.name().startswith("aten::_to_copy") and args[0].is_floating_point() and made.is_floating_point():
            self.count += args[0].dtype != made.dtype and made.numel() > 0
        return made


class GpusGelu(torch.nn.Module):
    """Of transformers' gelu_new: a GPU's autocast computes powers in fp32, a CPU's does not."""

    def forward(self, x):
        root = (2 / torch.pi) ** 0.5
        return 0.5 * x * (1.0 + torch.tanh(root * (x + 0.044715 * torch.pow(x.float(), 3.0))))


def as_on_a_gpu(model):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, transformers.activations.NewGELUActivation):
                setattr(module, name, GpusGelu())
    return model


def of_model(model):
    """Bytes kept, conversions there, conversions back."""
    tokens = torch.randint(0, models.SIZES["vocab_size"], (models.SAMPLES, models.TOKENS))
    model = as_on_a_gpu(model.to(torch.float32))

    def loss():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(input_ids=tokens, labels=tokens)

    kept_bytes = kept_by(loss, model.parameters())
    with Conversions() as there:
        made = loss().loss
    with Conversions() as back:
        made.backward()
    return kept_bytes, there.count, back.count


def print_layers():
    for model in (models.llama, models.gpt2, models.bert, models.phi, models.vit, models.qwen2, models.qwen3, models.gemma, models.gemma2,
                  models.gemma3, models.phi3, models.deepseek_v3, models.lora_of_llama):
        one, two = (of_model(model(layers)) for layers in (1, 2))
        print(f"{model.__name__}: a layer keeps {two[0] - one[0]} B, converts {two[1] - one[1]} times, back {two[2] - one[2]}")
    for model in (models.whisper, models.t5, models.t5_gated):
        one, heard, said = (of_model(model(*layers)) for layers in ((1, 1), (2, 1), (1, 2)))
        for stack, more in (("encoder", heard), ("decoder", said)):
            print(f"{model.__name__}: a layer of the {stack} keeps {more[0] - one[0]} B, converts {more[1] - one[1]} times, "
                  f"back {more[2] - one[2]}")


def loss_of(model, images, labels):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.nn.functional.cross_entropy(model(images), labels)


def kept(model, images, labels):
    return kept_by(lambda: loss_of(model, images, labels), (*model.parameters(), *model.buffers(), images, labels))


def main():
    images, labels = torch.randn(2, 3, 64, 64), torch.tensor([1, 2])
    for name in ("resnet18", "resnet50"):
        for layout in (torch.contiguous_format, torch.channels_last):
            model = getattr(torchvision.models, name)().train().to(memory_format=layout)
            with Dispatched() as step:
                loss_of(model, images, labels).backward()
            print(f"{name}, {layout}: kept {kept(model, images.to(memory_format=layout), labels)} B; {dict(step.ops)}")
    print_layers()


if __name__ == "__main__":
    main()
