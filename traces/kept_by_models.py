#!/usr/bin/env python3
"""What autograd keeps for a layer of models of Hugging Face, which tests compare with what the formulas say.

    python3 traces/kept_by_models.py

It needs PyTorch 2 and transformers. A layer keeps what a model of two layers keeps more than one of one layer, counted by
storage, without parameters (kept_by_llama.py).
"""

import torch
import transformers

from kept_by_llama import SAMPLES, TOKENS, kept_of

SIZES = {"vocab_size": 96, "use_cache": False, "attn_implementation": "sdpa"}


def gpt2(layers):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        **SIZES, n_embd=64, n_head=8, n_layer=layers, n_positions=TOKENS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def main():
    tokens = torch.randint(0, SIZES["vocab_size"], (SAMPLES, TOKENS))
    for model in (gpt2,):
        for dtype in (torch.bfloat16, torch.float32):
            one, two = (kept_of(model(layers).to(dtype), tokens) for layers in (1, 2))
            print(f"{model.__name__}, {dtype}: kept by a layer {two - one} B")


if __name__ == "__main__":
    main()
