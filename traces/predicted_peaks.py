#!/usr/bin/env python3
"""Predicted against measured peaks of plain training, for plain chains and for modules that the exporter cuts: each network is measured by export_pytorch.py,
and `plimsoll simulate --strategy store_all` predicts the peak from the trace, with new and with existing gradients.

  /usr/bin/python3 traces/predicted_peaks.py build/plimsoll                  # all networks below, a Markdown table
  /usr/bin/python3 traces/predicted_peaks.py build/plimsoll mlp resnet18     # some
  /usr/bin/python3 traces/predicted_peaks.py build/plimsoll --shipped        # the chains of traces/data, as they are

Peaks are above parameters, buffers and input; those with existing gradients also above these. Of a module that is cut the peak is that of
its calls one after the other; what its own forward's names hold beside is a column of its own. Exit code 1 where a
prediction is off by more than 1 %.
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NETWORKS = os.path.join(HERE, "peak_networks.py")
GPT = ("--model", "gpt", "--layers", "4", "--width", "128", "--heads", "4", "--sequence", "64", "--vocabulary", "5000")
IMAGES = ("--image-size", "96", "--batch", "4")
CHAINS = {
    "mlp": ("--model", "mlp", "--layers", "6", "--width", "512"),
    "gpt, tied": (*GPT, "--batch", "4"),
    "gpt, untied": (*GPT, "--batch", "4", "--untied"),
    "gpt, dropout": (*GPT, "--batch", "4", "--dropout", "0.1"),
    "resnet18": ("--model", "resnet18", *IMAGES),
    "resnet50": ("--model", "resnet50", *IMAGES),
    "vgg16": ("--model", "vgg16", "--image-size", "64", "--batch", "4"),
    "densenet121": ("--model", "densenet121", *IMAGES),
} | {name: ("--model", f"{NETWORKS}:{name}", "--batch", "2" if name in ("convnext_tiny", "wide_resnet50_2") else "4")
     for name in ("alexnet", "vgg11_bn", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0",
                  "convnext_tiny", "mnasnet1_0", "regnet_y_400mf", "shufflenet_v2_x1_0", "googlenet", "inception_v3",
                  "wide_resnet50_2")}
# Modules that are no chain, cut by the exporter.
MODELS = os.path.join(HERE, "..", "validate", "pytorch", "models.py")
CHAINS |= {f"{name}, cut": ("--model", f"{MODELS}:{name}", "--stages", "auto", "--batch", "2")
           for name in ("resnet18", "vgg11", "densenet", "gpt", "encoder_decoder", "lstm", "unet", "tagger")}
CHAINS |= {f"{name}, cut": ("--model", f"{MODELS}:{name}", "--stages", "auto", "--batch", "8") for name in ("large_gpt", "large_tagger")}
WORST = 0.01


def measured(name, folder):
    path = os.path.join(folder, f"{name.replace(', ', '_')}.json")
    command = [sys.executable, os.path.join(HERE, "export_pytorch.py"), *CHAINS[name], "--repetitions", "1",
               "--warm-up", "1", "--memory-counter", "malloc", "-o", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"predicted_peaks.py: {name}: {done.stderr.strip().splitlines()[-1]}")
    return path


def predicted(program, path, trace, gradients):
    command = [program, "simulate", "--trace", path, "--platform", "ideal", "--strategy", "store_all", "--engine", "event",
               "--gradients", gradients, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"predicted_peaks.py: {' '.join(command)}: {done.stderr.strip()}")
    parameters = sum(parameter["bytes"] for parameter in trace["parameters"])
    apart = parameters + trace["input_bytes"] + (gradient_bytes(trace) if gradients == "existing" else 0)
    return json.loads(done.stdout)["peak_bytes"] - apart


def gradient_bytes(trace):
    """Of all parameters that are trained."""
    total, seen = 0, set()
    for stage in trace["stages"]:
        new = [trace["parameters"][i]["bytes"] for i in stage["parameters"] if i not in seen]
        seen |= set(stage["parameters"])
        total += min(sum(new), stage.get("parameter_gradient_bytes", sum(new)))
    return total


def row(program, name, path):
    """The errors of the two predictions; prints a line of the table."""
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    cells, errors = [name, str(len(trace["stages"]))], []
    check = trace["source"]["check"]
    for gradients, key in (("new", "plain_iteration_peak_bytes"), ("existing", "plain_accumulate_peak_bytes")):
        truth = check.get(key.replace("plain_iteration", "calls").replace("plain", "calls"), check[key])
        guess = predicted(program, path, trace, gradients)
        errors.append(guess / truth - 1)
        cells += [str(truth), str(guess), f"{errors[-1]:+.2%}", f"{check[key] - truth}"]
    print("| " + " | ".join(cells) + " |", flush=True)
    return errors


def main(arguments):
    words = [argument for argument in arguments if argument != "--shipped"]
    unknown = [name for name in words[1:] if name not in CHAINS]
    if not words or unknown:
        what = f"unknown network '{unknown[0]}'; known are {', '.join(CHAINS)}" if unknown else "no program named"
        print(f"predicted_peaks.py: {what}\n{__doc__}", file=sys.stderr)
        return 2
    print("| network | stages | peak (B) | predicted | error | held by names | accumulated (B) | predicted | error | held by names |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    errors = []
    if "--shipped" in arguments:
        for file in sorted(os.listdir(os.path.join(HERE, "data"))):
            if not file.endswith(".json"):
                continue
            path = os.path.join(HERE, "data", file)
            with open(path, encoding="utf-8") as opened:
                trace = json.load(opened)
            if trace["kind"] == "chain" and "plain_accumulate_peak_bytes" in trace["source"].get("check", {}):
                errors += row(words[0], file.removesuffix(".json"), path)
    with tempfile.TemporaryDirectory() as folder:
        for name in words[1:] or ([] if "--shipped" in arguments else CHAINS):
            errors += row(words[0], name, measured(name, folder))
    sizes = [abs(error) for error in errors]
    print(f"\n{len(errors)} peaks: mean error {sum(sizes) / len(sizes):.2%}, largest {max(sizes):.2%}")
    return 1 if max(sizes) > WORST else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
