#!/usr/bin/env python3
"""How far `plimsoll import onnx` is from the exporter, on models that PyTorch writes to ONNX.

  python3 traces/onnx_models.py write DIR [NAME...]  NAME.onnx and the exporter's NAME.json of each model (PyTorch 2)
  python3 traces/onnx_models.py compare DIR PROGRAM  imports each, and prints the table

The two halves may run on different machines. Models of libraries that are not there are left out, and named.
"""

import json
import pathlib
import subprocess
import sys

BATCH = 4


def perceptron():
    import torch
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)), torch.randn(BATCH, 64)


def resnet18():
    import torch
    from torchvision import models
    return models.resnet18(), torch.randn(BATCH, 3, 224, 224)


def mobilenet_v3():
    import torch
    from torchvision import models
    return models.mobilenet_v3_small(), torch.randn(BATCH, 3, 224, 224)


def densenet121():
    import torch
    from torchvision import models
    return models.densenet121(), torch.randn(BATCH, 3, 64, 64)


def convnext_tiny():
    import torch
    from torchvision import models
    return models.convnext_tiny(stochastic_depth_prob=0), torch.randn(BATCH, 3, 64, 64)


def vit():
    import torch
    from torchvision.models import VisionTransformer
    return VisionTransformer(32, 8, 2, 4, 64, 128), torch.randn(BATCH, 3, 32, 32)


def swin():
    import torch
    from torchvision.models.swin_transformer import SwinTransformer
    return SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0), torch.randn(BATCH, 3, 64, 64)


def causal(kind, **more):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    sizes = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "use_cache": False}
    config = AutoConfig.for_model(kind, **{**sizes, **more})
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "attention_dropout", "hidden_dropout"):
        if hasattr(config, name):
            setattr(config, name, 0.0)
    return logits_of(AutoModelForCausalLM.from_config(config)), torch.randint(0, 128, (BATCH, 16))


def logits_of(model):
    import torch

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, words):
            return self.model(words, attention_mask=torch.ones_like(words)).logits

    return Logits()


def parts():
    """Small, of what the importer has rules for: tests/traces/foreign/parts.onnx."""
    import torch
    from torch.nn import functional

    class Parts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = torch.nn.Conv2d(3, 16, 4, stride=4)
            self.scale = torch.nn.Parameter(torch.ones(16))
            self.queries, self.key_values = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
            self.gate, self.up, self.down = (torch.nn.Linear(16, 32, bias=False), torch.nn.Linear(16, 32, bias=False),
                                             torch.nn.Linear(32, 16, bias=False))
            self.none, self.some = torch.nn.Dropout(0.0), torch.nn.Dropout(0.1)
            self.wide = torch.nn.ConvTranspose2d(16, 4, 2, stride=2)
            self.head = torch.nn.Linear(4, 10)

        def heads(self, x, count):
            return x.view(x.shape[0], -1, count, 4).transpose(1, 2)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
            keys, values = (self.heads(half, 2) for half in self.key_values(normed).split(8, -1))
            keys, values = (each[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2) for each in (keys, values))
            mixed = functional.scaled_dot_product_attention(self.heads(self.queries(normed), 4), keys, values)
            x = x + self.none(mixed.transpose(1, 2).flatten(2))
            x = x + self.some(self.down(functional.silu(self.gate(x)) * self.up(x)))
            x = torch.where(x > 0, x.abs(), x.sin())
            x = functional.pad(x.transpose(1, 2).unflatten(2, (4, 4)), (0, 2, 0, 2))
            x = functional.avg_pool2d(self.wide(x), 2)
            return self.head(x.amax(-1).cumsum(-1)[:, :, 1::2].mean(-1))

    return Parts(), torch.randn(BATCH, 3, 16, 16)


def gpt2():
    return causal("gpt2", n_embd=64, n_layer=2, n_head=4)


def llama():
    return causal("llama", intermediate_size=128, num_key_value_heads=2)


def bert():
    import torch
    from transformers import BertConfig, BertForMaskedLM
    config = BertConfig(vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return logits_of(BertForMaskedLM(config)), torch.randint(0, 128, (BATCH, 16))


MODELS = (perceptron, resnet18, mobilenet_v3, densenet121, convnext_tiny, vit, swin, gpt2, llama, bert, parts)


def loss(output, targets):
    import torch
    return torch.nn.functional.cross_entropy(output.flatten(0, -2), targets)


def write_one(build, folder):
    import torch
    torch.manual_seed(0)
    model, given = build()
    model.train()
    file = folder / f"{build.__name__}.onnx"
    torch.onnx.export(model, (given,), str(file), opset_version=17, training=torch.onnx.TrainingMode.TRAINING,
                      do_constant_folding=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}}, dynamo=False)


def write(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    exporter = pathlib.Path(__file__).with_name("export_pytorch.py")
    for build in MODELS:
        if names and build.__name__ not in names:
            continue
        try:
            write_one(build, folder)
        except ImportError as missing:
            print(f"{build.__name__}: left out: {missing}")
            continue
        subprocess.run([sys.executable, str(exporter), "--model", f"{__file__}:for_exporter_{build.__name__}", "--graph", "--repetitions", "1",
                        "-o", str(folder / f"{build.__name__}.json")], check=True)


def exported(build):
    def made():
        import torch
        model, given = build()
        with torch.no_grad():
            rows = model(given).flatten(0, -2).shape[0]
        return model, loss, given, torch.randint(0, 10, (rows,))
    return made


for _build in MODELS:
    globals()[f"for_exporter_{_build.__name__}"] = exported(_build)


def numbers_of(trace):
    """Flops forward and backward, bytes of parameters, bytes that the forward makes and the backward reads."""
    tensors = trace["tensors"]

    def storage(t):
        return tensors[t].get("storage", -1 - t)

    own = {storage(t) for t, tensor in enumerate(tensors) if tensor["kind"] in ("parameter", "input")}
    made, kept = {}, set()
    flops = {"forward": 0, "backward": 0}
    for op in trace["ops"]:
        phase = op.get("phase", "forward")
        flops[phase] += op.get("flops", 0)
        if phase == "forward":
            for t in op.get("outputs", []):
                if storage(t) not in own:
                    made.setdefault(storage(t), tensors[t]["bytes"])
        else:
            kept.update(storage(t) for t in op.get("inputs", []) if storage(t) in made)
    parameters = sum(tensor["bytes"] for tensor in tensors if tensor["kind"] == "parameter")
    return flops["forward"], flops["backward"], parameters, sum(made[each] for each in kept)


def peak_of(program, trace):
    run = subprocess.run([program, "simulate", "-t", str(trace), "-p", "h100_sxm_8", "-s", "store_all", "--json"],
                         capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["peak_bytes"]


def compare(folder, program):
    print("| model | flops forward | flops backward | parameters | saved | peak |\n|---|---|---|---|---|---|")
    for build in MODELS:
        file = folder / f"{build.__name__}.onnx"
        theirs = folder / f"{build.__name__}.json"
        if not file.exists() or not theirs.exists():
            print(f"| {build.__name__} | not written | | | | |")
            continue
        ours = folder / f"{build.__name__}.imported.json"
        run = subprocess.run([program, "import", "onnx", str(file), "--set", f"batch={BATCH}", "-o", str(ours)],
                             capture_output=True, text=True)
        if run.returncode != 0:
            print(f"| {build.__name__} | {run.stderr.strip().splitlines()[-1]} | | | | |")
            continue
        pairs = zip(*((*numbers_of(json.loads(trace.read_text())), peak_of(program, trace)) for trace in (ours, theirs)))
        print(f"| {build.__name__} | " + " | ".join(f"{mine:,.0f} ({mine / other - 1:+.1%})" for mine, other in pairs) + " |")


def main(words):
    if len(words) >= 2 and words[0] == "write":
        return write(pathlib.Path(words[1]), words[2:])
    if len(words) == 3 and words[0] == "compare":
        return compare(pathlib.Path(words[1]), words[2])
    sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
