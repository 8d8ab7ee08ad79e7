"""Small models of transformers and timm with random weights, as the exporter and plans get them: NAME(batch) -> (model, loss, inputs, targets).

  python3 traces/export_pytorch.py --model validate/pytorch/huggingface.py:albert --batch 2 -o albert.json

Drop-outs are off, so that runs of different order draw no different numbers; what is left of them is named in the table.
"""

import torch
from torch.nn import functional

WORDS, LENGTH, SIDE, CLASSES = 96, 12, 32, 6
WIDE = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64)
TEXT = dict(vocab_size=WORDS, pad_token_id=0, bos_token_id=1, eos_token_id=2, **WIDE)
WITHOUT_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, hidden_dropout=0.0, attention_dropout=0.0, dropout=0.0,
                       activation_dropout=0.0, classifier_dropout=0.0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, dropout_rate=0.0,
                       seq_classif_dropout=0.0, drop_path_rate=0.0, use_cache=False)

# {name: (kind of configuration, its class for a task, its own sizes)}
CAUSAL = {
    "falcon": ("falcon", dict(alibi=False, new_decoder_architecture=False, multi_query=True)),
    "bloom": ("bloom", dict(n_layer=3, n_head=4)),
    "mpt": ("mpt", dict(d_model=32, n_heads=4, n_layers=3, expansion_ratio=2, max_seq_len=LENGTH)),
    "gptj": ("gptj", dict(n_embd=32, n_layer=3, n_head=4, n_inner=64, rotary_dim=4)),
    "codegen": ("codegen", dict(n_embd=32, n_layer=3, n_head=4, n_inner=64, rotary_dim=4)),
    "gpt_bigcode": ("gpt_bigcode", dict(n_embd=32, n_layer=3, n_head=4, n_inner=64)),
    "olmo2": ("olmo2", {}), "starcoder2": ("starcoder2", dict(num_key_value_heads=2)), "stablelm": ("stablelm", dict(num_key_value_heads=2)),
    "granite": ("granite", dict(num_key_value_heads=2)), "cohere": ("cohere", dict(num_key_value_heads=2)),
    "gemma3_text": ("gemma3_text", dict(num_key_value_heads=2, head_dim=8)), "phi": ("phi", {}), "persimmon": ("persimmon", {}),
    "qwen2_moe": ("qwen2_moe", dict(num_key_value_heads=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                                    shared_expert_intermediate_size=32)),
    "olmoe": ("olmoe", dict(num_key_value_heads=2, num_experts=4, num_experts_per_tok=2)),
    "mamba": ("mamba", dict(state_size=4)), "rwkv": ("rwkv", dict(attention_hidden_size=32, context_length=LENGTH)),
    "xglm": ("xglm", dict(d_model=32, ffn_dim=64, attention_heads=4, num_layers=3)),
}
MASKED = {
    "albert": ("albert", dict(embedding_size=16)), "electra": ("electra", dict(embedding_size=16)),
    "roberta": ("roberta", dict(max_position_embeddings=LENGTH + 2)), "mpnet": ("mpnet", dict(max_position_embeddings=LENGTH + 2)),
    "distilbert": ("distilbert", dict(dim=32, n_layers=3, n_heads=4, hidden_dim=64)),
    "deberta_v2": ("deberta-v2", dict(relative_attention=True, position_buckets=4, pos_att_type=["p2c", "c2p"], pooler_hidden_size=32)),
    "convbert": ("convbert", dict(embedding_size=16)), "squeezebert": ("squeezebert", dict(embedding_size=32)),
    "nystromformer": ("nystromformer", dict(segment_means_seq_len=LENGTH, num_landmarks=4)), "fnet": ("fnet", dict(tpu_short_seq_length=LENGTH)),
    "modernbert": ("modernbert", dict(global_attn_every_n_layers=2)),
}
SEQUENCES = {
    "bart": ("bart", {}), "pegasus": ("pegasus", {}), "marian": ("marian", {}), "mbart": ("mbart", {}), "blenderbot": ("blenderbot", {}),
    "led": ("led", dict(attention_window=4)), "m2m_100": ("m2m_100", {}), "mt5": ("mt5", dict(d_kv=8, num_layers=3, num_heads=4)),
}
BY_LAYERS = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
                 decoder_ffn_dim=64, d_ff=64, decoder_start_token_id=1, encoder_layerdrop=0.0, decoder_layerdrop=0.0)
PICTURES = {
    "deit": ("deit", dict(architectures=["DeiTForImageClassification"])), "beit": ("beit", {}), "convnext": ("convnext", dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 2, 1], patch_size=2)),
    "resnet": ("resnet", dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="basic")),
    "regnet": ("regnet", dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], groups_width=4)),
    "mobilenet_v2": ("mobilenet_v2", dict(depth_multiplier=0.25)), "poolformer": ("poolformer", dict(hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1])),
    "segformer": ("segformer", dict(hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16)),
    "swin": ("swin", dict(embed_dim=8, depths=[1, 2], num_heads=[2, 2], window_size=4, patch_size=2)),
    "focalnet": ("focalnet", dict(embed_dim=8, depths=[1, 2], patch_size=2)),
    "dinov2": ("dinov2", {}), "bit": ("bit", dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], num_groups=4)),
    "mobilevit": ("mobilevit", dict(hidden_sizes=[16, 16, 16], neck_hidden_sizes=[8, 8, 8, 8, 8, 8, 16], image_size=SIDE * 2)),
    "pvt_v2": ("pvt_v2", dict(hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2], mlp_ratios=[2, 2, 2, 2])),
}
TIMM = {
    "mobilenetv3": "mobilenetv3_small_050", "resnet10t": "resnet10t", "regnety": "regnety_002", "ghostnet": "ghostnet_050", "mnasnet": "mnasnet_small",
    "edgenext": "edgenext_xx_small", "xcit": "xcit_nano_12_p16_224", "coat": "coat_lite_tiny", "levit_timm": "levit_128s",
}


def own_loss(output, targets=None):
    return output.loss


def tokens(batch, length=LENGTH):
    return torch.randint(3, WORDS, (batch, length))


def configured(kind, *sizes):
    """The configuration of that kind, with what of the sizes it knows."""
    from transformers import AutoConfig
    plain = AutoConfig.for_model(kind)
    others = getattr(plain, "attribute_map", {})  # names that transformers takes for its models' own
    known = {name for name in {*plain.to_dict(), *others} if others.get(name) not in sizes[-1]}
    given = {name: value for of in sizes[:-1] for name, value in of.items() if name in known}
    return AutoConfig.for_model(kind, **given | sizes[-1])


def of_transformers(task, kind, *sizes):
    import transformers
    torch.manual_seed(0)
    return getattr(transformers, f"AutoModelFor{task}").from_config(configured(kind, WITHOUT_DROPOUT, *sizes))


def language(task, kind, own):
    def build(batch=2):
        model, words = of_transformers(task, kind, TEXT, own), tokens(batch)
        return model, own_loss, {"input_ids": words, "labels": words.clone()}, None
    return build


def sequences(kind, own):
    def build(batch=2):
        model = of_transformers("Seq2SeqLM", kind, TEXT, BY_LAYERS, own)
        return model, own_loss, {"input_ids": tokens(batch), "labels": tokens(batch, 8)}, None
    return build


def pictures(kind, own):
    def build(batch=2):
        sizes = dict(image_size=SIDE, patch_size=8, num_labels=CLASSES)
        side = own.get("image_size", SIDE)
        model = of_transformers("ImageClassification", kind, WIDE, sizes, own)
        return model, own_loss, {"pixel_values": torch.randn(batch, 3, side, side), "labels": torch.arange(batch) % CLASSES}, None
    return build


def of_timm(name):
    def build(batch=2):
        import timm
        torch.manual_seed(0)
        side = dict(img_size=64) if name.startswith(("xcit", "coat", "levit")) else {}
        model = timm.create_model(name, num_classes=CLASSES, **side)
        return model, functional.cross_entropy, torch.randn(batch, 3, 64, 64), torch.arange(batch) % CLASSES
    return build


def clip(batch=2):
    from transformers import CLIPModel
    torch.manual_seed(0)
    text, picture = dict(TEXT, max_position_embeddings=LENGTH), dict(WIDE, image_size=SIDE, patch_size=8)
    model = CLIPModel(configured("clip", dict(text_config=text, vision_config=picture, projection_dim=16)))
    inputs = {"input_ids": tokens(batch), "pixel_values": torch.randn(batch, 3, SIDE, SIDE), "return_loss": True}
    return model, own_loss, inputs, None


def wav2vec2(batch=2):
    from transformers import Wav2Vec2ForCTC
    torch.manual_seed(0)
    sizes = dict(WITHOUT_DROPOUT, **TEXT, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=8,
                 num_conv_pos_embedding_groups=2, mask_time_prob=0.0, layerdrop=0.0, feat_proj_dropout=0.0, final_dropout=0.0)
    return Wav2Vec2ForCTC(configured("wav2vec2", sizes)), own_loss, {"input_values": torch.randn(batch, 400), "labels": tokens(batch, 6)}, None


def router_loss(batch=2):
    """A mixture of experts whose router's outputs hooks collect, for a loss of their own."""
    model, loss, inputs, targets = MODELS["qwen2_moe"](batch)
    return model, loss, {**inputs, "output_router_logits": True}, targets


def hidden_states(batch=2):
    model, _, inputs, targets = MODELS["olmo2"](batch)
    loss = lambda output, targets: output.loss + sum(one.pow(2).mean() for one in output.hidden_states)
    return model, loss, {**inputs, "output_hidden_states": True}, targets


def with_cache(batch=2):
    """A loss of one's own, and a cache of keys and values in the output beside the logits."""
    model, _, inputs, _ = MODELS["starcoder2"](batch)
    loss = lambda output, targets: functional.cross_entropy(output.logits.flatten(0, -2), targets.flatten())
    return model, loss, {"input_ids": inputs["input_ids"], "use_cache": True}, inputs["labels"]


def checkpointed(batch=2):
    """Checkpoints itself, which is refused: none of MODELS."""
    model, loss, inputs, targets = MODELS["stablelm"](batch)
    model.gradient_checkpointing_enable()
    return model, loss, inputs, targets


def padded(batch=2):
    model, loss, inputs, targets = MODELS["roberta"](batch)
    mask = torch.ones(batch, LENGTH, dtype=torch.long)
    mask[-1, LENGTH // 2:] = 0
    return model, loss, {**inputs, "attention_mask": mask}, targets


MODELS = {name: language("CausalLM", *of) for name, of in CAUSAL.items()}
MODELS |= {name: language("MaskedLM", *of) for name, of in MASKED.items()}
MODELS |= {name: sequences(*of) for name, of in SEQUENCES.items()}
MODELS |= {name: pictures(*of) for name, of in PICTURES.items()}
MODELS |= {name: of_timm(name_there) for name, name_there in TIMM.items()}
MODELS |= {made.__name__: made for made in (clip, wav2vec2, router_loss, hidden_states, with_cache, padded)}
globals().update(MODELS)
