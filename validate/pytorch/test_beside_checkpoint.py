#!/usr/bin/env python3
"""Plans beside torch.utils.checkpoint, on a small model. Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_beside_checkpoint.py build/plimsoll
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import left_out

HERE = os.path.dirname(os.path.abspath(__file__))


def main(program):
    if importlib.util.find_spec("torch") is None:
        left_out.end(f"{sys.executable} has no torch {left_out.TO_INSTALL}")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, os.path.join(HERE, "beside_checkpoint.py"), os.path.join(HERE, "models.py:gpt"), "--batch", "8", "--rounds", "3",
                               "--strategies", "rotor", "--program", program, "-o", folder], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        rows = json.load(open(os.path.join(folder, "beside_checkpoint.json"), encoding="utf-8"))["rows"]
    plain, checkpoint, rotor = rows
    assert [row["name"] for row in rows] == ["plain", "checkpoint of each block", "rotor"], rows
    assert checkpoint["peak_bytes"] < plain["peak_bytes"], rows
    assert rotor["peak_bytes"] <= checkpoint["peak_bytes"], rows
    assert abs(rotor["peak_bytes"] - rotor["promised_peak_bytes"]) <= 64, rows  # the optimizer's counts of steps
    print("ok: plans beside checkpoints at the same peak")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
