#!/usr/bin/env python3
"""What autograd keeps for a layer of models of Hugging Face, how many parameters they have, and what the ops of a mixture of
experts move: tests compare the formulas with these figures.

    python3 traces/kept_by_models.py

It needs PyTorch 2, transformers and peft. A layer keeps what a model of two layers keeps more than one of one layer, counted by
storage, without parameters (kept_by_llama.py).
"""

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.mixtral import modeling_mixtral
from transformers.models.phi import modeling_phi

from kept_by_llama import SAMPLES, TOKENS, kept_of, moved, tensors_in

SIZES = {"vocab_size": 96, "use_cache": False, "attn_implementation": "sdpa"}
DECODER = {**SIZES, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 160,
           "max_position_embeddings": TOKENS, "tie_word_embeddings": False}
ENCODER = {"vocab_size": 96, "hidden_size": 64, "num_attention_heads": 8, "intermediate_size": 160,
           "max_position_embeddings": TOKENS, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
           "attn_implementation": "sdpa"}
ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
# Heads whose queries have as many numbers as values, for which PyTorch 2.6 has fused attention on a CPU.
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}


def llama(layers):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER, num_hidden_layers=layers))


def gpt2(layers):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        **SIZES, n_embd=64, n_head=8, n_layer=layers, n_positions=TOKENS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def bert(layers):
    return transformers.BertForMaskedLM(transformers.BertConfig(**ENCODER, num_hidden_layers=layers))


def roberta(layers):
    return transformers.RobertaForMaskedLM(transformers.RobertaConfig(
        **{**ENCODER, "max_position_embeddings": TOKENS + 2}, num_hidden_layers=layers, type_vocab_size=1))


def distilbert(layers, dropout=0.0):
    return transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(
        vocab_size=96, dim=64, n_layers=layers, n_heads=8, hidden_dim=160, max_position_embeddings=TOKENS, dropout=dropout,
        attention_dropout=0.0, attn_implementation="sdpa"))


def distilbert_dropped(layers):
    return distilbert(layers, dropout=0.1).train()


def phi_dropped(layers):
    return phi(layers, resid_pdrop=0.1).train()


def phi(layers, **others):
    """Positions turn half of a head's numbers."""
    return transformers.PhiForCausalLM(transformers.PhiConfig(**DECODER, num_hidden_layers=layers, **others))


def vit(layers):
    """Of images of 32 by 32 in 16 patches, and a class token: 17 positions."""
    model = transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=layers, num_attention_heads=8, intermediate_size=160, image_size=32, patch_size=8,
        num_labels=10, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="sdpa"))

    class OfImages(torch.nn.Module):
        def to(self, dtype):
            self.model, self.images = model.to(dtype), torch.randn(SAMPLES, 3, 32, 32, dtype=dtype)
            return self

        def forward(self, input_ids, labels):
            return self.model(pixel_values=self.images, labels=labels[:, 0] % 10)

    return OfImages()


def mistral(layers):
    """With a window of 8 tokens, for which a CPU keeps a mask."""
    return transformers.MistralForCausalLM(transformers.MistralConfig(**DECODER, num_hidden_layers=layers, sliding_window=8))


def mixtral(layers):
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**DECODER, num_hidden_layers=layers, num_local_experts=4,
                                                                      num_experts_per_tok=2))


def qwen2(layers):
    """Biases of queries, keys and values; the head's weight is the table of tokens."""
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**{**DECODER, "tie_word_embeddings": True}, num_hidden_layers=layers))


def qwen2_experts(layers):
    """Two of four experts a token with what shares a softmax gives them, and one for all behind a gate."""
    return transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(
        **DECODER, num_hidden_layers=layers, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48,
        shared_expert_intermediate_size=96))


def qwen3(layers):
    """Norms of heads, which have twice as many numbers as the width gives them."""
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**DECODER, num_hidden_layers=layers, head_dim=16))


def gemma(layers):
    return transformers.GemmaForCausalLM(transformers.GemmaConfig(
        **{**DECODER, "tie_word_embeddings": True}, num_hidden_layers=layers, head_dim=16, hidden_act="gelu_pytorch_tanh"))


def gemma2(layers):
    """With full attention in each layer, and a cap of logits."""
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **{**DECODER, "tie_word_embeddings": True}, num_hidden_layers=layers, head_dim=16,
        layer_types=["full_attention"] * layers))


def phi3(layers):
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(**DECODER, num_hidden_layers=layers, pad_token_id=0))


def gemma3(layers):
    """With full attention in each layer."""
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        **{**DECODER, "tie_word_embeddings": True}, num_hidden_layers=layers, head_dim=16,
        layer_types=["full_attention"] * layers))


def qwen3_experts(layers):
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        **DECODER, num_hidden_layers=layers, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48,
        norm_topk_prob=True))


def deepseek_v3(layers):
    """Layers with an MLP."""
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        **DECODER, **LATENT, num_hidden_layers=layers, first_k_dense_replace=layers, n_group=1, topk_group=1))


def deepseek_v3_experts(layers):
    """Two of four experts a token, and one for all."""
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        **DECODER, **LATENT, num_hidden_layers=layers, first_k_dense_replace=0, n_group=1, topk_group=1, n_routed_experts=4,
        num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=48))


def lora_of_llama(layers):
    """Adapters of rank 4 on attention's projections, in fp32."""
    import peft
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER, num_hidden_layers=layers))
    config = peft.LoraConfig(r=4, lora_dropout=0.0, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])

    class Adapted(torch.nn.Module):
        def to(self, dtype):
            self.model = peft.get_peft_model(model.to(dtype), config)
            self.model.enable_input_require_grads()
            return self

        def forward(self, **inputs):
            return self.model(**inputs)

    return Adapted()


# Attention's projections, by the ends of their names.
PROJECTIONS = {"gpt2": r".*attn\.(c_attn|c_proj)", "bert": r".*attention\.(self\.(query|key|value)|output\.dense)",
               "distilbert": r".*attention\.(q|k|v|out)_lin", "vit": r".*attention\.(q|k|v|o)_proj",
               "phi": r".*self_attn\.((q|k|v)_proj|dense)", "whisper": r".*attn\.(q|k|v|out)_proj", "t5": r".*Attention\.(q|k|v|o)",
               "t5_gated": r".*Attention\.(q|k|v|o)"}


def with_adapters(module, name):
    """The same adapters; the first layer's input has no gradient."""
    import peft
    return peft.get_peft_model(module, peft.LoraConfig(r=4, lora_dropout=0.0, target_modules=PROJECTIONS[name]))


def lora_of(build, *layers):
    class Adapted(torch.nn.Module):
        def to(self, dtype):
            self.model = build(*layers).to(dtype)
            if len(layers) == 1:
                self.model = with_adapters(self.model, build.__name__)
            else:  # what gives it its sound or words
                self.model.model = with_adapters(self.model.model, build.__name__)
            return self

        def forward(self, **inputs):
            return self.model(**inputs)

    return Adapted()


class PackedProduct(torch.autograd.Function):
    """As bitsandbytes' MatMul4Bit: what is kept is the packed weight, which is unpacked again in the backward."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.tensors = (None, weight)
        return torch.nn.functional.linear(x, weight.clone())

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.tensors[1].clone(), None


class PackedLinear(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.weight = torch.nn.Parameter(linear.weight.data, requires_grad=False)

    def forward(self, x):
        return PackedProduct.apply(x, self.weight)


class AdaptedLinear(torch.nn.Module):
    """The lines of peft's Linear4bit.forward without autocast."""

    def __init__(self, layer):
        super().__init__()
        self.base = PackedLinear(layer.get_base_layer())
        self.down, self.up, self.scaling = layer.lora_A["default"], layer.lora_B["default"], layer.scaling["default"]

    def forward(self, x):
        result = self.base(x).clone()
        return result + (self.up(self.down(x.to(self.down.weight.dtype))) * self.scaling).to(result.dtype)


def qlora_of_llama(layers):
    """The same, of packed weights of all products in layers."""
    adapted = lora_of_llama(layers)

    class Packed(torch.nn.Module):
        def to(self, dtype):
            self.model = adapted.to(dtype)
            for module in list(self.model.modules()):
                for name, child in list(module.named_children()):
                    if hasattr(child, "lora_A"):
                        setattr(module, name, AdaptedLinear(child))
                    elif name in ("gate_proj", "up_proj", "down_proj"):
                        setattr(module, name, PackedLinear(child))
            return self

        def forward(self, **inputs):
            return self.model(**inputs)

    return Packed()


def in_float8(x):
    """Scaled by the largest of its numbers and rounded to 8 bits, as torchao does where no GPU multiplies such."""
    scale = 448 / x.abs().max().float().clamp(min=1e-12)
    return (x.float() * scale).to(torch.float8_e4m3fn).float() / scale


class Float8Product(torch.autograd.Function):
    """As torchao's matmul_with_hp_or_float8_args: what is kept are the operands as they came."""

    @staticmethod
    def forward(ctx, x, transposed):
        ctx.save_for_backward(x, transposed)
        return (in_float8(x) @ in_float8(transposed)).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        x, transposed = ctx.saved_tensors
        rows, columns = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        dx = (in_float8(gradient) @ in_float8(transposed).t()).to(x.dtype)
        return dx, (in_float8(columns).t() @ in_float8(rows)).t().to(transposed.dtype)


class Float8Linear(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.weight = linear.weight

    def forward(self, x):
        return Float8Product.apply(x, self.weight.t())


def llama_in_float8(layers):
    """Products of layers; the head's stays as it is."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER, num_hidden_layers=layers))

    class Swapped(torch.nn.Module):
        def to(self, dtype):
            self.model = model.to(dtype)
            for module in list(self.model.model.modules()):
                for name, child in list(module.named_children()):
                    if isinstance(child, torch.nn.Linear):
                        setattr(module, name, Float8Linear(child))
            return self

        def forward(self, **inputs):
            return self.model(**inputs)

    return Swapped()


def whisper(encoder_layers, decoder_layers):
    """Of 24 positions of sound."""
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        **SIZES, d_model=64, num_mel_bins=16, encoder_layers=encoder_layers, decoder_layers=decoder_layers,
        encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=160, decoder_ffn_dim=160, max_source_positions=24,
        max_target_positions=TOKENS, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1))

    class OfSound(torch.nn.Module):
        def to(self, dtype):
            self.model, self.sound = model.to(dtype), torch.randn(SAMPLES, 16, 48, dtype=dtype)
            return self

        def forward(self, input_ids, labels):
            return self.model(input_features=self.sound, labels=labels)

    return OfSound()


def t5(encoder_layers, decoder_layers, **others):
    """Of 24 words."""
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=96, use_cache=False, d_model=64, d_kv=8, num_heads=8, d_ff=160, num_layers=encoder_layers,
        num_decoder_layers=decoder_layers, pad_token_id=0, decoder_start_token_id=0, **{"dropout_rate": 0.0, **others}))

    class OfWords(torch.nn.Module):
        def to(self, dtype):
            self.model = model.to(dtype)
            return self

        def forward(self, input_ids, labels):
            return self.model(input_ids=input_ids[:, :24], labels=labels)

    return OfWords()


def t5_gated(encoder_layers, decoder_layers):
    return t5(encoder_layers, decoder_layers, feed_forward_proj="gated-gelu", tie_word_embeddings=False)


def t5_dropped(encoder_layers, decoder_layers):
    return t5(encoder_layers, decoder_layers, dropout_rate=0.1).train()


def eager(config, **others):
    """Attention from kernels, with dropout of one tenth."""
    config._attn_implementation = "eager"
    for key, value in others.items():
        setattr(config, key, value)
    return config


def gpt2_eager(layers):
    return transformers.GPT2LMHeadModel(eager(transformers.GPT2Config(
        vocab_size=96, use_cache=False, n_embd=64, n_head=8, n_layer=layers, n_positions=TOKENS)))


def bert_eager(layers):
    return transformers.BertForMaskedLM(eager(transformers.BertConfig(
        vocab_size=96, hidden_size=64, num_hidden_layers=layers, num_attention_heads=8, intermediate_size=160,
        max_position_embeddings=TOKENS)))


def opt_eager(layers):
    return transformers.OPTForCausalLM(eager(transformers.OPTConfig(
        vocab_size=96, use_cache=False, hidden_size=64, ffn_dim=160, num_hidden_layers=layers, num_attention_heads=8,
        max_position_embeddings=TOKENS, word_embed_proj_dim=64)))


def print_parameters():
    """Of T5's version 1.1, transformers 5 counts a head tied to the table; its files have one of its own."""
    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    wanted = ((transformers.BertForMaskedLM, transformers.BertConfig()),
              (transformers.BertForSequenceClassification, transformers.BertConfig(**large)),
              (transformers.ViTForImageClassification, transformers.ViTConfig(num_labels=1000)),
              (transformers.ViTForImageClassification, transformers.ViTConfig(num_labels=1000, **large)),
              (transformers.OPTForCausalLM, transformers.OPTConfig(hidden_size=2048, ffn_dim=8192, num_hidden_layers=24,
                                                                   num_attention_heads=32, word_embed_proj_dim=2048)),
              (transformers.DistilBertForMaskedLM, transformers.DistilBertConfig()),
              (transformers.RobertaForMaskedLM, transformers.RobertaConfig(**ROBERTA)),
              (transformers.RobertaForMaskedLM, transformers.RobertaConfig(**ROBERTA, **large)),
              (transformers.PhiForCausalLM, transformers.PhiConfig()),
              (transformers.PhiForCausalLM, transformers.PhiConfig(hidden_size=2560, intermediate_size=10240, num_hidden_layers=32,
                                                                   partial_rotary_factor=0.4)),
              (transformers.Qwen2MoeForCausalLM, transformers.Qwen2MoeConfig()),
              (transformers.Qwen2MoeForCausalLM, transformers.Qwen2MoeConfig(
                  hidden_size=3584, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4, num_experts=64,
                  num_experts_per_tok=8, moe_intermediate_size=2560, shared_expert_intermediate_size=20480)),
              (transformers.MixtralForCausalLM, transformers.MixtralConfig(tie_word_embeddings=False)),
              (transformers.DeepseekV3ForCausalLM, transformers.DeepseekV3Config(tie_word_embeddings=False)))
    for model, config in wanted:
        with torch.device("meta"):
            print(f"{model.__name__}: {sum(each.numel() for each in model(config).parameters())} parameters")
    gated = {"feed_forward_proj": "gated-gelu", "num_heads": 12, "num_layers": 12, "d_model": 768, "d_ff": 2048}
    with torch.device("meta"):
        flan = transformers.T5ForConditionalGeneration(transformers.T5Config(**gated))
        numbers = sum(each.numel() for each in flan.parameters()) + flan.lm_head.weight.numel()
    print(f"T5ForConditionalGeneration: {numbers} parameters with a head of its own")


class MovedBeside(TorchDispatchMode):
    """Bytes that ops read and write that are no products; views move nothing, what fills new memory only writes."""

    bytes = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        inputs = [(each.untyped_storage().data_ptr(), min(each.numel() * each.element_size(), each.untyped_storage().nbytes()))
                  for each in tensors_in(args)]
        made = op(*args, **(kwargs or {}))
        outputs = tensors_in(made)
        read, name = {place for place, _ in inputs}, op.name().split("::")[1].split(".")[0]
        is_view = any(each.untyped_storage().data_ptr() in read for each in outputs) and not name.endswith("_")
        if is_view or name in ("mm", "grouped_mm_fallback", "zeros_like", "empty_like"):
            return made  # zeros are what the stand-in for products of groups fills
        written = sum(min(each.numel() * each.element_size(), each.untyped_storage().nbytes()) for each in outputs)
        self.bytes += written + (0 if name == "new_zeros" else sum(size for _, size in inputs))
        return made


def rotated_part(tables_type, turned):
    """PhiAttention's rotation of the first numbers of each head, and what joins them to the others, under autocast where types
    differ."""
    def rotate(q, k, cos, sin):
        parts = modeling_phi.apply_rotary_pos_emb(q[..., :turned], k[..., :turned], cos, sin)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=tables_type != q.dtype):
            return [torch.cat((part, each[..., turned:]), -1) for part, each in zip(parts, (q, k))]
    return rotate


def print_rotated(dtype, tables_type, turned=16):
    q, k = (torch.randn(2, 8, 256, 64, dtype=dtype, requires_grad=True) for _ in range(2))
    tables = [torch.randn(1, 256, turned, dtype=tables_type) for _ in range(2)]
    there, back = (each / (2 * q.numel()) for each in moved(rotated_part(tables_type, turned), (q, k, *tables)))
    print(f"{dtype} with tables of {tables_type}: a rotation of {turned} numbers in 64 moves {there} B a number, back {back}")


def print_moved(dtype):
    config = transformers.MixtralConfig(hidden_size=256, intermediate_size=320, num_local_experts=8, num_experts_per_tok=2,
                                        num_attention_heads=8)
    config._experts_implementation = "grouped_mm"
    block = modeling_mixtral.MixtralSparseMoeBlock(config).to(dtype)
    for each in block.parameters():
        torch.nn.init.normal_(each, 0, 0.02)
    x = torch.randn(1, 2048, 256, dtype=dtype, requires_grad=True)
    with MovedBeside() as there:
        y = block(x)
    given = torch.ones_like(y)
    with MovedBeside() as back:
        torch.autograd.grad([y], [x, *block.parameters()], [given])
    rows = 2 * x.numel()
    print(f"{dtype}: experts move {there.bytes / rows:.2f} B a number of their rows without products, back {back.bytes / rows:.2f} B")


def main():
    tokens = torch.randint(0, SIZES["vocab_size"], (SAMPLES, TOKENS))
    for model in (gpt2, bert, roberta, distilbert, vit, mistral, mixtral, qwen2, qwen2_experts, qwen3, gemma, gemma2, gemma3,
                  phi, phi3, qwen3_experts, deepseek_v3, deepseek_v3_experts, lora_of_llama, qlora_of_llama, llama_in_float8):
        for dtype in (torch.bfloat16, torch.float32):
            one, two = (kept_of(model(layers).to(dtype), tokens) for layers in (1, 2))
            print(f"{model.__name__}, {dtype}: kept by a layer {two - one} B")
    for model in (whisper, t5, t5_gated, t5_dropped):  # a CPU's dropout as below
        for dtype in (torch.bfloat16, torch.float32):
            one, heard, said = (kept_of(model(*layers).to(dtype), tokens) for layers in ((1, 1), (2, 1), (1, 2)))
            print(f"{model.__name__}, {dtype}: kept by a layer of the encoder {heard - one} B, of the decoder {said - one} B")
    for model in (gpt2, bert, distilbert, vit, phi):
        for dtype in (torch.bfloat16, torch.float32):
            one, two = (kept_of(lora_of(model, layers).to(dtype), tokens) for layers in (1, 2))
            print(f"{model.__name__} with adapters, {dtype}: kept by a layer {two - one} B")
    for model in (whisper, t5, t5_gated):
        for dtype in (torch.bfloat16, torch.float32):
            one, heard, said = (kept_of(lora_of(model, *layers).to(dtype), tokens) for layers in ((1, 1), (2, 1), (1, 2)))
            print(f"{model.__name__} with adapters, {dtype}: kept by a layer of the encoder {heard - one} B, of the decoder {said - one} B")
    for dtype in (torch.bfloat16, torch.float32):
        capped, plain = gemma2(1), gemma2(1)
        plain.config.final_logit_softcapping = None
        more = kept_of(capped.to(dtype), tokens) - kept_of(plain.to(dtype), tokens)
        print(f"gemma2, {dtype}: kept for its cap {more} B")
    for dtype, tables_type in ((torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32), (torch.float32, torch.float32)):
        print_rotated(dtype, tables_type)
    for model in (gpt2_eager, bert_eager, opt_eager, distilbert_dropped, phi_dropped):  # a CPU's dropout keeps factors, 4 bytes each, a GPU's bools
        one, two = (kept_of(model(layers).train(), tokens) for layers in (1, 2))
        print(f"{model.__name__}, torch.float32: kept by a layer {two - one} B")
    for dtype in (torch.bfloat16, torch.float32):
        print_moved(dtype)
    print_parameters()


if __name__ == "__main__":
    main()
