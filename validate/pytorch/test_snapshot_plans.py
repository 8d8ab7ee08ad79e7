#!/usr/bin/env python3
"""Plans of `snapshot` train as plain training does, bit for bit, with copies and without. Skipped where this Python has no torch; half a minute.

  /usr/bin/python3 validate/pytorch/test_snapshot_plans.py build/plimsoll
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import left_out

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "models.py")
EXPORTER = os.path.join(HERE, "..", "..", "traces", "export_pytorch.py")

# Model, strategy, share of plain training's memory, what the plan does beside each forward and backward once.
CASES = (("gpt", "snapshot(offload=no)", "75 %", "recomputes"), ("gpt", "snapshot", "75 %", "copies"),
         ("unet", "snapshot(offload=no)", "85 %", "recomputes"), ("unet", "snapshot", "85 %", "copies"))


def finished(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def what_it_does(plan):
    kinds = [action["do"] for action in plan["actions"]]
    found = set()
    if kinds.count("forward") > kinds.count("backward"):
        found.add("recomputes")
    if "copy" in kinds:
        found.add("copies")
    return found


def main(program):
    if importlib.util.find_spec("torch") is None:
        left_out.end(f"{sys.executable} has no torch {left_out.TO_INSTALL}")
    from beside_plain import built, differences
    with tempfile.TemporaryDirectory() as folder:
        file = lambda name: os.path.join(folder, name)
        for model in dict.fromkeys(case[0] for case in CASES):
            finished([sys.executable, EXPORTER, "--model", f"{MODELS}:{model}", "--stages", "auto", "--batch", "2", "--repetitions", "1", "--warm-up", "1",
                      "-o", file(f"{model}.json")])
        for model, strategy, memory, does in CASES:
            finished([program, "plan", "--trace", file(f"{model}.json"), "--platform", "cpu_host", "--strategy", strategy, "--memory", memory,
                      "--for", "pytorch", "-o", file("plan.json")])
            plan = json.load(open(file("plan.json"), encoding="utf-8"))
            assert does in what_it_does(plan), f"{model} by {strategy}: {what_it_does(plan)}"
            found = differences(*built(f"{MODELS}:{model}", 2), file("plan.json"), batches=2)
            assert not found, f"{model} by {strategy}: {found}"
    print(f"ok: {len(CASES)} plans of snapshot train as plain training does, bit for bit")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
