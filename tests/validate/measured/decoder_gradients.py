"""Gradients of Hugging Face's Llama with the numbers that plimsoll's `decoder` begins with, and scales of 1 + sin(i) / 4:
what gradient_test.cpp holds its kernels against. Prints a row a parameter: its name, the gradient's length, and its product with sin(1.7 i + 1).

With `experts` behind it: of its Mixtral, and `decoder:experts=4,top_k=2`. With `experts balance`: with half of its loss
for unequal numbers of tokens, of one layer: `decoder:layers=1,experts=4,top_k=2,balance=0.5`. With `tied`: of
`decoder:tied=yes`.

Run with PyTorch and transformers (made with 2.6.0 and the version that the first line names):
    python3 tests/validate/measured/decoder_gradients.py [experts [balance]|tied]
"""
import math
import sys

import numpy
import torch
import transformers

LAYERS, WIDTH, HEADS, KV_HEADS, INNER, SEQUENCE, BATCH, VOCABULARY, BASE = 2, 16, 4, 2, 24, 6, 2, 20, 100
SIZE = WIDTH // HEADS
EXPERTS, TOP = 4, 2
BALANCE = 0.5 if "balance" in sys.argv else 0
if BALANCE:
    LAYERS = 1  # of several it takes the choices of all together
WORD = (1 << 64) - 1


def mixed(x):
    """splitmix64, as validate/networks/initial_values.cpp has it."""
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def seed_of(name):
    seed = 1469598103934665603
    for c in name.encode():
        seed = ((seed ^ c) * 1099511628211) & WORD
    return seed


def initial(name, *shape):
    count = math.prod(shape)
    if name.endswith(".scale"):
        return 1 + torch.sin(torch.arange(count, dtype=torch.float64)).reshape(shape) / 4
    summed = count / shape[-1] / (shape[0] if name.endswith(".experts") else 1)
    scale = numpy.float32(math.sqrt(3.0 / summed))
    seed = seed_of(name)
    units = [numpy.float32((mixed((seed + i) & WORD) >> 11) * 2.0**-52 - 1.0) for i in range(count)]
    return torch.tensor(numpy.array([scale * u for u in units], dtype=numpy.float32)).reshape(shape)


def heads_apart(kv):
    """From a head's key and value one after the other to all keys, all values."""
    parts = kv.reshape(WIDTH, KV_HEADS, 2, SIZE)
    return parts[:, :, 0].reshape(WIDTH, -1), parts[:, :, 1].reshape(WIDTH, -1)


def heads_together(keys, values):
    both = torch.stack((keys.reshape(WIDTH, KV_HEADS, SIZE), values.reshape(WIDTH, KV_HEADS, SIZE)), dim=2)
    return both.reshape(WIDTH, -1)


def main(has_experts, is_tied):
    print("# torch", torch.__version__, "transformers", transformers.__version__)
    kinds = {False: (transformers.LlamaConfig, transformers.LlamaForCausalLM),
             True: (transformers.MixtralConfig, transformers.MixtralForCausalLM)}
    of_experts = {"num_local_experts": EXPERTS, "num_experts_per_tok": TOP, "experts_implementation": "eager"}
    make_config, make_model = kinds[has_experts]
    config = make_config(
        **(of_experts if has_experts else {}), hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, vocab_size=VOCABULARY, rope_theta=float(BASE), rms_norm_eps=1e-5,
        tie_word_embeddings=is_tied, attn_implementation="eager", pad_token_id=None)
    model = make_model(config).to(torch.float64)
    weights = model.state_dict()

    def put(of, value):
        assert weights[of].shape == value.shape, of
        weights[of].copy_(value)

    def put_transposed(of, name, *shape):
        put(of + ".weight", initial(name + ".weight", *shape).T)

    put("model.norm.weight", initial("head.norm.scale", WIDTH))
    put("model.embed_tokens.weight", initial("embedding.table", VOCABULARY, WIDTH))
    for k in range(LAYERS):
        there, attention, mlp = f"model.layers.{k}.", f"layer{k}.attention", f"layer{k}.mlp"
        put(there + "input_layernorm.weight", initial(attention + ".norm.scale", WIDTH))
        put(there + "post_attention_layernorm.weight", initial(mlp + ".norm.scale", WIDTH))
        put_transposed(there + "self_attn.q_proj", attention + ".query", WIDTH, WIDTH)
        keys, values = heads_apart(initial(attention + ".keys.weight", WIDTH, 2 * KV_HEADS * SIZE))
        put(there + "self_attn.k_proj.weight", keys.T)
        put(there + "self_attn.v_proj.weight", values.T)
        put_transposed(there + "self_attn.o_proj", attention + ".projection", WIDTH, WIDTH)
        if has_experts:
            put_transposed(there + "mlp.gate", mlp + ".router", WIDTH, EXPERTS)
            gate_up = [initial(mlp + f".{which}.experts", EXPERTS, WIDTH, INNER) for which in ("gate", "up")]
            put(there + "mlp.experts.gate_up_proj", torch.cat(gate_up, dim=2).transpose(1, 2))
            put(there + "mlp.experts.down_proj",
                initial(mlp + ".down.experts", EXPERTS, INNER, WIDTH).transpose(1, 2))
            continue
        put_transposed(there + "mlp.gate_proj", mlp + ".gate", WIDTH, INNER)
        put_transposed(there + "mlp.up_proj", mlp + ".up", WIDTH, INNER)
        put_transposed(there + "mlp.down_proj", mlp + ".down", INNER, WIDTH)
    if not is_tied:
        put_transposed("lm_head", "head.linear", WIDTH, VOCABULARY)

    seed = mixed(seed_of("input"))
    tokens = torch.tensor([mixed((seed + i) & WORD) % VOCABULARY for i in range(BATCH * SEQUENCE)])
    made = model(tokens.reshape(BATCH, SEQUENCE), **({"output_router_logits": True} if BALANCE else {}))
    labels = torch.arange(BATCH * SEQUENCE) % VOCABULARY
    loss = torch.nn.functional.cross_entropy(made.logits.reshape(-1, VOCABULARY), labels)
    (loss + BALANCE * made.aux_loss if BALANCE else loss).backward()
    gradient = {name: p.grad for name, p in model.named_parameters()}

    rows = {"embedding.table": gradient["model.embed_tokens.weight"], "head.norm.scale": gradient["model.norm.weight"]}
    if not is_tied:
        rows["head.linear.weight"] = gradient["lm_head.weight"].T
    for k in range(LAYERS):
        there, attention, mlp = f"model.layers.{k}.", f"layer{k}.attention", f"layer{k}.mlp"
        rows[attention + ".norm.scale"] = gradient[there + "input_layernorm.weight"]
        rows[attention + ".query.weight"] = gradient[there + "self_attn.q_proj.weight"].T
        rows[attention + ".keys.weight"] = heads_together(gradient[there + "self_attn.k_proj.weight"].T,
                                                          gradient[there + "self_attn.v_proj.weight"].T)
        rows[attention + ".projection.weight"] = gradient[there + "self_attn.o_proj.weight"].T
        rows[mlp + ".norm.scale"] = gradient[there + "post_attention_layernorm.weight"]
        if has_experts:
            rows[mlp + ".router.weight"] = gradient[there + "mlp.gate.weight"].T
            gate, up = gradient[there + "mlp.experts.gate_up_proj"].transpose(1, 2).chunk(2, dim=2)
            rows[mlp + ".gate.experts"], rows[mlp + ".up.experts"] = gate, up
            rows[mlp + ".down.experts"] = gradient[there + "mlp.experts.down_proj"].transpose(1, 2)
            continue
        for ours, theirs in ("gate", "gate_proj"), ("up", "up_proj"), ("down", "down_proj"):
            rows[mlp + f".{ours}.weight"] = gradient[there + f"mlp.{theirs}.weight"].T
    print(f'{{"loss", {loss.item():.8g}, 0}},')
    for name, value in rows.items():
        flat = value.reshape(-1).double()
        waves = torch.sin(1.7 * torch.arange(flat.numel(), dtype=torch.float64) + 1)
        print(f'{{"{name}", {flat.norm().item():.8g}, {flat.dot(waves).item():.8g}}},')


if __name__ == "__main__":
    main("experts" in sys.argv, "tied" in sys.argv)
