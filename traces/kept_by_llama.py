#!/usr/bin/env python3
"""What autograd keeps for a layer of Hugging Face's LlamaForCausalLM, beside what the formula `llama` says.

    python3 traces/kept_by_llama.py

It needs PyTorch 2 and transformers. Kept tensors are counted by storage, without parameters, in a model of one layer and
in one of two: a layer keeps the difference.
"""

import torch
import transformers

SIZES = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 160, "vocab_size": 96}
SAMPLES, TOKENS = 2, 32


def kept(layers, dtype):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_hidden_layers=layers, max_position_embeddings=TOKENS, use_cache=False,
                                      tie_word_embeddings=False, attn_implementation="sdpa")
    model = transformers.LlamaForCausalLM(config).to(dtype)
    parameters = {each.untyped_storage().data_ptr() for each in model.parameters()}
    found = {}

    def pack(saved):
        storage = saved.untyped_storage()
        if storage.data_ptr() not in parameters:
            found[storage.data_ptr()] = (storage.nbytes(), saved)  # with the tensor, so that its address stays its own
        return saved

    tokens = torch.randint(0, SIZES["vocab_size"], (SAMPLES, TOKENS))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        model(input_ids=tokens, labels=tokens)
    return sum(size for size, _ in found.values())


def main():
    numbers, width, inner, heads = SAMPLES * TOKENS, SIZES["hidden_size"], SIZES["intermediate_size"], 8
    for dtype, element in ((torch.bfloat16, 2), (torch.float32, 4)):
        norm = width * (4 + 2 * element) + 4
        formula = numbers * (2 * norm + 4 * width * element + 4 * heads + 4 * inner * element)
        print(f"{dtype}: kept by a layer {kept(2, dtype) - kept(1, dtype)} B, by formula {formula} B")


if __name__ == "__main__":
    main()
