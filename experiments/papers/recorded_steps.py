#!/usr/bin/env python3
"""Recorded steps of PyTorch on one H100 (Kineto), pass by pass, beside what the program predicts.

    python3 experiments/papers/recorded_steps.py FOLDER [PROGRAM]

FOLDER has `h100/kineto_gpt2_amp.json.gz` and `h100/kineto_resnet50_tf32.json.gz`: two steps each (H100 80GB HBM3, PyTorch
2.11, 2026-11-26; batch 8 of 1,024 tokens, and 128 images). Kernels, copies and fills count by the thread that launched them:
what autograd's thread launches is the backward, what the optimizer does is left out. PROGRAM is build/plimsoll where none is
given. `h100/steps.json` has a third step whose passes events timed: ResNet-50 under autocast. These have what the GPU waits
for, beside its kernels.
"""
import collections
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

ON_GPU = {"kernel", "gpu_memset", "gpu_memcpy"}
PLATFORM = "h100_sxm_8:host_launch=35us,efficiency=h100_sxm"
STEPS = {"kineto_gpt2_amp": ("gpt2:batch=8,dtype=amp,logits=end", "adam"),
         "kineto_resnet50_tf32": ("resnet50:batch=128,dtype=tf32", "momentum")}
TIMED_BY_EVENTS = {"tv_resnet50_b128_amp_momentum_plain": ("resnet50:batch=128,dtype=amp,layout=channels_last", "momentum")}
PASSES = ("forward", "backward")


def recorded(path):
    """Milliseconds of a step by pass."""
    events = [each for each in json.loads(gzip.open(path).read())["traceEvents"] if each.get("ph") == "X"]
    notes = [each for each in events if each.get("cat") == "user_annotation"]
    steps = sum(each["name"].startswith("ProfilerStep") for each in notes)
    optimizer = [(each["ts"], each["ts"] + each["dur"]) for each in notes if each["name"].startswith("Optimizer")]
    calls = {each["args"]["External id"]: each for each in events if each.get("cat") == "cpu_op"}
    backward = collections.Counter(each["tid"] for each in calls.values() if each["name"].startswith("autograd::")).most_common(1)[0][0]
    sums = collections.Counter()
    for each in events:
        if each.get("cat") not in ON_GPU:
            continue
        call = calls.get(each["args"].get("External id"))
        if call is None or any(start <= call["ts"] < end for start, end in optimizer):
            continue
        sums["backward" if call["tid"] == backward else "forward"] += each["dur"] / 1e3 / steps
    return sums


def timed(path, label):
    """Milliseconds by pass, of CUDA events around them."""
    steps = json.loads(path.read_text(encoding="utf-8"))
    row = next(each for each in steps if each["label"] == label)
    return collections.Counter({each: row[f"ms_{each}"] for each in PASSES})


def predicted(program, trace, optimizer):
    """The same of the program's schedule: what ops take on their own."""
    with tempfile.TemporaryDirectory() as folder:
        schedule = pathlib.Path(folder) / "schedule.json"
        subprocess.run([program, "simulate", "-t", trace, "-p", PLATFORM, "-s", "store_all", "--optimizer", optimizer, "--states",
                        "as_parameters", "--engine", "event", "--schedule-out", schedule], check=True, capture_output=True)
        steps = json.loads(schedule.read_text(encoding="utf-8"))["steps"]
    sums = collections.Counter()
    for step in steps:
        if step["kind"] in PASSES:
            sums[step["kind"]] += 1e3 * step["work_s"]
    return sums


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    program = sys.argv[2] if len(sys.argv) == 3 else "build/plimsoll"
    folder = pathlib.Path(sys.argv[1]) / "h100"
    for name, (trace, optimizer) in {**STEPS, **TIMED_BY_EVENTS}.items():
        of_gpu = timed(folder / "steps.json", name) if name in TIMED_BY_EVENTS else recorded(folder / f"{name}.json.gz")
        ours = predicted(program, trace, optimizer)
        for sums in (of_gpu, ours):
            sums["both"] = sum(sums[each] for each in PASSES)
        for each in (*PASSES, "both"):
            print(f"{name:<35} {each:<9} recorded {of_gpu[each]:6.2f} ms, predicted {ours[each]:6.2f} ms, {ours[each] / of_gpu[each] - 1:+.1%}")


if __name__ == "__main__":
    main()
