#!/usr/bin/env python3
"""Five families of networks: what snapshot proves of its plans, as the tables of docs/strategies/rematerialization/snapshot.md.

    /usr/bin/python3 experiments/papers/frontier_families.py build/plimsoll out/families

Exports the networks of traces/frontier_networks.py to out/families where they are not there yet (needs PyTorch), and prints the two tables:
by share of plain training's memory, the time above plain training and the gap, in percent.
"""
import json
import pathlib
import subprocess
import sys

NETWORKS = {"experts": 16, "unet": 16, "encoder_decoder": 16, "vision_transformer": 16, "unrolled_lstm": 256}  # name: batch
SHARES = (90, 80, 70, 60, 50, 40, 30)
ROOT = pathlib.Path(__file__).resolve().parents[2]


def export(name, batch, trace):
    exporter, networks = ROOT / "traces/export_pytorch.py", ROOT / "traces/frontier_networks.py"
    subprocess.run([sys.executable, exporter, "--graph", "--model", f"{networks}:{name}", "--batch", str(batch),
                    "--repetitions", "1", "--warm-up", "1", "-o", trace], check=True, stdout=subprocess.DEVNULL)


def simulated(plimsoll, trace, *options):
    command = [plimsoll, "simulate", "--trace", trace, "--platform", "h200", "--engine", "event", "--json", *options]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode > 1:
        sys.exit(answer.stderr)
    return json.loads(answer.stdout) if answer.returncode == 0 else None


def cell(result, plain):
    return "none" if result is None else f"{100 * (result['makespan_s'] / plain - 1):.1f} ({100 * result['gap']:.2f})"


def main(plimsoll, out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for name, batch in NETWORKS.items():
        if not (out / f"{name}.json").exists():
            export(name, batch, out / f"{name}.json")
    for strategy in ("snapshot(offload=no)", "snapshot"):
        print(f"\n`{strategy}`\n\n| network |" + "".join(f" {share} % |" for share in SHARES))
        print("|---|" + "--:|" * len(SHARES))
        for name in NETWORKS:
            trace = out / f"{name}.json"
            plain = simulated(plimsoll, trace, "--strategy", "store_all")["makespan_s"]
            results = [simulated(plimsoll, trace, "--strategy", strategy, "--memory", f"{share} %") for share in SHARES]
            print(f"| `{name}` |" + "".join(f" {cell(result, plain)} |" for result in results), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
