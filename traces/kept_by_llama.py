#!/usr/bin/env python3
"""What autograd keeps for a layer of Hugging Face's LlamaForCausalLM, beside what the formula `llama` says, and what
PyTorch's ops move for a norm and for a rotation.

    python3 traces/kept_by_llama.py

It needs PyTorch 2 and transformers. Kept tensors are counted by storage, without parameters, in a model of one layer and
in one of two: a layer keeps the difference.
"""

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.llama import modeling_llama

from kept_tensors import kept_by

SIZES = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 160, "vocab_size": 96}
SAMPLES, TOKENS = 2, 32


def kept_of(model, tokens):
    return kept_by(lambda: model(input_ids=tokens, labels=tokens), model.parameters())


def kept(layers, dtype):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_hidden_layers=layers, max_position_embeddings=TOKENS, use_cache=False,
                                      tie_word_embeddings=False, attn_implementation="sdpa")
    model = transformers.LlamaForCausalLM(config).to(dtype)
    return kept_of(model, torch.randint(0, SIZES["vocab_size"], (SAMPLES, TOKENS)))


def tensors_in(values):
    if isinstance(values, (tuple, list)):
        return [tensor for value in values for tensor in tensors_in(value)]
    return [values] if isinstance(values, torch.Tensor) else []


class Moved(TorchDispatchMode):
    """Bytes that ops read and write; views move nothing."""

    bytes = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        made = op(*args, **(kwargs or {}))
        inputs, outputs = tensors_in(args), tensors_in(made)
        read = {each.untyped_storage().data_ptr() for each in inputs}
        if not any(each.untyped_storage().data_ptr() in read for each in outputs):
            self.bytes += sum(min(each.numel() * each.element_size(), each.untyped_storage().nbytes())
                              for each in inputs + outputs)
        return made


def moved(forward, inputs):
    """There, and back."""
    with Moved() as there:
        outputs = tensors_in(forward(*inputs))
    given = [torch.randn_like(each) for each in outputs]
    with Moved() as back:
        torch.autograd.grad(outputs, [each for each in inputs if each.requires_grad], given)
    return there.bytes, back.bytes


def print_moved(dtype, element):
    norm = modeling_llama.LlamaRMSNorm(512).to(dtype)
    x = torch.randn(2, 256, 512, dtype=dtype, requires_grad=True)
    there, back = moved(lambda given, _: norm(given), (x, norm.weight))
    print(f"{dtype}: a norm moves {there / x.numel():.2f} B a number, its backward {back / x.numel():.2f} B")
    q, k = (torch.randn(2, 8, 256, 64, dtype=dtype, requires_grad=True) for _ in range(2))
    tables = [torch.randn(1, 256, 64, dtype=dtype) for _ in range(2)]
    there, back = (each / (element * 2 * q.numel()) for each in moved(modeling_llama.apply_rotary_pos_emb, (q, k, *tables)))
    print(f"{dtype}: a rotation moves {there:.2f} numbers a number, its backward {back:.2f}")


def main():
    numbers, width, inner, heads = SAMPLES * TOKENS, SIZES["hidden_size"], SIZES["intermediate_size"], 8
    for dtype, element in ((torch.bfloat16, 2), (torch.float32, 4)):
        norm = width * (4 + 2 * element) + 4
        formula = numbers * (2 * norm + 4 * width * element + 4 * heads + 4 * inner * element)
        print(f"{dtype}: kept by a layer {kept(2, dtype) - kept(1, dtype)} B, by formula {formula} B")
        print_moved(dtype, element)


if __name__ == "__main__":
    main()
