#!/usr/bin/env python3
"""Measured iterations of Megatron and ZeRO-3 on clusters of A100, and steps of four models on an H100, beside simulated ones.

    python3 experiments/papers/measured_iterations.py build/plimsoll FOLDER [--rooflines] [--steps]

FOLDER has `measured_iterations/vtrain_multi_node.csv.gz` (VIA-Research/vTrain f8dda84, data/ground_truth_multi.csv, MIT),
`measured_iterations/published_clusters.json` (rows of published papers: id, model, gpus, batch, tensor, pipeline, data,
micro_batch, zero, iteration_s) and `h100/steps.json` (label, model, batch, mode, precision, tf32, optimizer, lora, ms_step, ms_issue, peak_allocated). Kernels and collectives are timed
by the efficiencies `a100_sxm` and `h100_sxm`, with `--rooflines` by data sheets; `--steps` leaves the clusters out. No
constant is fitted on these runs.
"""

import collections
import csv
import gzip
import itertools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

SHIPPED = pathlib.Path(__file__).resolve().parents[2] / "platforms" / "a100_sxm_64.yaml"
CARD = "bandwidth: 25 GBps                 # DGX A100"  # of the network, one for each device


def platform(nodes, card_gbytes, by_rooflines):
    """Nodes of eight A100, each with so much of the node's network."""
    text = SHIPPED.read_text()
    efficiency = "" if by_rooflines else "    efficiency: a100_sxm\n"
    for old, new in ((r"nodes: \d+", f"nodes: {nodes}"), (re.escape(CARD), CARD.replace("25", f"{card_gbytes}", 1)),
                     (r"    launch_overhead", efficiency + "    launch_overhead")):
        text, found = re.subn(old, new, text)
        if found == 0:
            sys.exit(f"{SHIPPED}: no place for {new}")
    return text


def seconds(program, platform_text, trace, strategy, micro_batches):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "platform.yaml"
        file.write_text(platform_text)
        done = subprocess.run([program, "simulate", "-t", trace, "-p", str(file), "-s", strategy, "--optimizer", "adam",
                               "--micro-batches", str(micro_batches), "--engine", "event", "--json"],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, (done.stderr + done.stdout).strip().splitlines()[-1]
    return json.loads(done.stdout)["makespan_s"], ""


def transformer(layers, width, heads, sequence, batch, vocabulary, tensor, dtype):
    padded = -(-vocabulary // (128 * tensor)) * 128 * tensor
    return (f"transformer:layers={layers},width={width},heads={heads},sequence={sequence},batch={batch},"
            f"vocabulary={padded},view=graph,dropout=yes,dtype={dtype}")


def megatron(tensor, data, pipeline, chunks=1):
    """Gradients are summed after the backward, every layer is recomputed."""
    parts = [f"megatron(tensor={tensor})"] if tensor > 1 else []
    parts += [f"data_parallel(ranks={data},overlap=no)"] if data > 1 else []
    if pipeline > 1:
        parts.append("1f1b(sends=blocking)" if chunks == 1 else f"interleaved(chunks={chunks},sends=blocking)")
    return "|".join(parts + ["full_recompute"])


def vtrain_runs(folder):
    """Megatron-DeepSpeed, gradients in 16 bits; four HDR cards a node."""
    with gzip.open(folder / "vtrain_multi_node.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            of = {key: int(row[key]) for key in row if key not in ("parameters_billion", "iteration_ms")}
            name = "{}B, tensor {tensor}, data {data}, pipeline {pipeline}, micro-batch {micro_batch}".format(
                row["parameters_billion"], **of)
            yield {"set": "vTrain", "name": name, "nodes": of["gpus"] // 8, "card": 12.5,
                   "trace": transformer(of["layers"], of["width"], of["heads"], of["sequence"], of["micro_batch"], 50257,
                                        of["tensor"], "fp16"),
                   "strategy": megatron(of["tensor"], of["data"], of["pipeline"]),
                   "micro_batches": of["global_batch"] // of["micro_batch"], "measured": float(row["iteration_ms"]) / 1e3,
                   "stages": of["pipeline"]}


def published_runs(folder):
    """Megatron-LM at SC 2021: tables 1 and 2, with eight HDR cards a node."""
    rows = json.loads((folder / "published_clusters.json").read_text())
    for row in rows if isinstance(rows, list) else rows["rows"]:
        if not row["id"].startswith("sc21"):
            continue
        model, is_zero = row["model"], row["zero"] == 3
        strategy = ("zero3(prefetch=0,collectives=ring)|full_recompute" if is_zero else
                    megatron(row["tensor"], row["data"], row["pipeline"], row.get("chunks", 1)))
        yield {"set": "SC 2021, ZeRO-3" if is_zero else "SC 2021", "name": row["id"], "nodes": row["gpus"] // 8, "card": 25,
               "trace": transformer(model["layers"], model["width"], model["heads"], model["sequence"], row["micro_batch"],
                                    model["vocabulary"], row["tensor"], "fp16"),
               "strategy": strategy, "micro_batches": row["batch"] // row["micro_batch"], "measured": row["iteration_s"],
               "stages": row["pipeline"]}


LLAMA_1B = "layers=22,width=2048,heads=32,kv_heads=4,inner=5632,sequence=2048,batch=4,vocabulary=32000,"
# By model: what makes its trace of a row's precision. The caller of the model keeps its logits to the end.
MODELS = {"hf_gpt2": lambda row: f"gpt2:batch={row['batch']},dtype={row['precision']},logits=end",
          "llama3_8b_s4096": lambda row: f"llama:batch={row['batch']},logits=end",
          "llama_1b_s2048": lambda row: f"llama:{LLAMA_1B}logits=end",
          "tv_resnet50": lambda row: f"resnet50:batch={row['batch']},dtype={'tf32' if row['tf32'] else 'fp32'}"}
MODES = {"plain": "store_all", "ckpt": "policy(rule=torchtitan.full)"}  # `ckpt`: inputs of layers are kept


def inexpressible(row):
    """Why no model by formula gives a row of steps, or nothing."""
    if row["mode"] == "save_on_cpu":
        return "each copy to the host blocks, weights are copied as well: no strategy does that"
    if row["model"] == "tv_resnet50" and row["mode"] == "ckpt":
        return "blocks overwrite what they read: no strategy runs them again"
    if row["model"] == "tv_resnet50" and row["precision"] == "amp":
        return "the formula has no autocast and no channels_last"
    return ""


def step_runs(folder):
    """Whole steps on one H100, measured by the authors: plain PyTorch, states in the parameters' type."""
    for row in json.loads((folder / "steps.json").read_text()):
        if row["model"] not in MODELS or row["mode"] not in (*MODES, "save_on_cpu") or row["lora"]:
            continue
        name, _, kernels = row["optimizer"].partition("_")
        yield {"set": "steps on an H100", "name": row["label"], "why": inexpressible(row), "trace": MODELS[row["model"]](row),
               "strategy": MODES.get(row["mode"]), "optimizer": "adam" if name == "adamw" else name,
               "kernels": kernels or "fused", "binds": "host" if row["ms_issue"] >= 0.9 * row["ms_step"] else "GPU",
               "measured": row["ms_step"] / 1e3, "peak": row["peak_allocated"]}


def step(program, run, by_rooflines):
    """Seconds and bytes."""
    reference = "h100_sxm_8" + ("" if by_rooflines else ":efficiency=h100_sxm")
    done = subprocess.run([program, "simulate", "-t", run["trace"], "-p", reference, "-s", run["strategy"], "--optimizer",
                           run["optimizer"], "--states", "as_parameters", "--update-kernels", run["kernels"], "--engine",
                           "event", "--json"], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    return result["makespan_s"], result["peak_bytes"]


def tau_and_regret(pairs):
    """Of (predicted, measured): Kendall's tau-a, and by how much the run that is predicted to be the fastest is slower
    than the fastest."""
    agreeing = [(p - q) * (m - n) > 0 for (p, m), (q, n) in itertools.combinations(pairs, 2)]
    chosen = min(pairs)[1]
    return 2 * sum(agreeing) / len(agreeing) - 1, chosen / min(measured for _, measured in pairs) - 1


def main():
    arguments = [word for word in sys.argv[1:] if word not in ("--rooflines", "--steps")]
    if len(arguments) != 2:
        sys.exit(__doc__)
    program, folder, by_rooflines = arguments[0], pathlib.Path(arguments[1]), "--rooflines" in sys.argv
    errors, groups = collections.defaultdict(list), collections.defaultdict(list)

    def compare(run, found):
        error = found / run["measured"] - 1
        errors[run["set"]].append(error)
        print(f"{run['set']:<16} {run['name']:<60} {found:8.3f} s, measured {run['measured']:8.3f}: {error:+7.1%}", end="")

    clusters = [] if "--steps" in sys.argv else [*published_runs(folder / "measured_iterations"),
                                                 *vtrain_runs(folder / "measured_iterations")]
    for run in clusters:
        text = platform(run["nodes"], run["card"], by_rooflines)
        found, why = seconds(program, text, run["trace"], run["strategy"], run["micro_batches"])
        if found is None:
            print(f"{run['set']:<16} {run['name']:<60} {why}")
            continue
        compare(run, found)
        print()
        if run["set"] == "vTrain":
            errors[f"vTrain, {run['stages']} stages"].append(found / run["measured"] - 1)
            groups[f"{run['name'].split(',')[0]} on {8 * run['nodes']} devices"].append((found, run["measured"]))
    for run in step_runs(folder / "h100"):
        if run["why"]:
            print(f"{run['set']:<16} {run['name']:<60} not expressed: {run['why']}")
            continue
        found, peak = step(program, run, by_rooflines)
        compare(run, found)
        errors[f"steps, the {run['binds']} binds"].append(found / run["measured"] - 1)
        errors["peaks of steps"].append(peak / run["peak"] - 1)
        print(f"; peak {peak / 1e9:.2f} GB, measured {run['peak'] / 1e9:.2f}: {peak / run['peak'] - 1:+.2%}")
    for name, of in errors.items():
        sizes = [abs(error) for error in of]
        print(f"{name:<20} {len(of):3} runs: error {statistics.mean(sizes):5.1%} in the mean, "
              f"{statistics.median(sizes):5.1%} in the middle, {max(sizes):5.1%} at worst, {statistics.mean(of):+5.1%} with signs")
    for name, pairs in groups.items():
        tau, regret = tau_and_regret(pairs)
        print(f"vTrain, {name}: order of {len(pairs)} runs, Kendall's tau {tau:.2f}; the one chosen is {regret:.1%} slower "
              "than the fastest")


if __name__ == "__main__":
    main()
