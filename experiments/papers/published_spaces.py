#!/usr/bin/env python3
"""The table "Spaces of published searches" of docs/papers.md: `cluster` in the spaces of others, on the same costs.

    python3 experiments/papers/published_spaces.py build/plimsoll [80GB 40GB ...]

Exit code 1 where a space within the whole has a faster plan: it refutes the whole one's proof, or shows what its search missed.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

TRACE = "transformer:layers=32,width=4096,heads=32,sequence=2048,vocabulary=51200,view=graph"
SPACES = (("all of it", "offload=auto,updates=auto"),
          ("Mist", "schedule=none+1f1b,saver=none+full,offload=none+offload_fractional,updates=device+twinflow+deep_optimizer_states"),
          ("Galvatron", "z=0+3,schedule=none+1f1b+gpipe,saver=none+full"),
          ("Calculon", "z=0-1,schedule=none+1f1b+interleaved,offload=none+offload_greedy,updates=device+deep_optimizer_states"),
          ("replicas alone, states shared out", "t=1,p=1,z=0-1"))
TOLERANCE = 1e-9  # of two simulations of one plan


def memory_of(text):
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([MGT]i?B)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"expected a size such as 80GB, found '{text}'")
    return f"{found[1]} {found[2]}"


def bytes_of(memory):
    number, unit = memory.split()
    return int(float(number) * (1024 if "i" in unit else 1000) ** (2 + "MGT".index(unit[0])))


def arguments_of(words, about):
    parser = argparse.ArgumentParser(description=about.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("memory", nargs="*", type=memory_of, default=["80 GB", "40 GB"], help="of a device (default: 80GB 40GB)")
    parser.add_argument("--trace", default=TRACE, help="a model by formula (default: a GPT of 6.6 billion parameters)")
    parser.add_argument("--platform", default="a100_sxm_8")
    parser.add_argument("--samples", type=int, default=32, help="of an iteration (default: 32)")
    parser.add_argument("--options", default=SPACES[0][1], help=f"of cluster, which peers are compared with (default: {SPACES[0][1]})")
    given = parser.parse_args(words)
    if not given.program.is_file():
        parser.error(f"no program '{given.program}': build it first")
    if given.samples < 1:
        parser.error(f"--samples: expected a number above 0, found {given.samples}")
    return given


def simulated(program, trace, platform, strategy, micro_batches, *words):
    """What `simulate --json` says; exit code 1 is an answer, too: nothing fits."""
    command = [str(program), "simulate", "--json", "-t", trace, "-p", platform, "-s", strategy, "--micro-batches", str(micro_batches),
               "--optimizer", "adam", "--engine", "event", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{' '.join(command)}\nexit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def of_space(given, options, memory):
    """Seconds of the best plan, None where nothing fits; the plan; and whether it is proven."""
    said = simulated(given.program, given.trace, given.platform, f"cluster({options})", given.samples, "-m", memory)
    if not said["feasible"]:
        return None, "", True
    taken = next(each["strategy"] for each in said["candidates"] if each["taken"])
    return said["makespan_s"], taken, not said["gap"]


def cell(seconds, whole, proven):
    if seconds is None:
        return "nothing fits"
    more = "" if whole is None or seconds <= whole * 1.0005 else f", +{100 * (seconds / whole - 1):.1f} %"
    return f"{seconds:#.4g} s{more}{'' if proven else ', not proven'}"


def table(given, answer=of_space):
    """Lines of markdown, and what is wrong."""
    lines = [f"| space | options of `cluster` | {' | '.join(given.memory)} |", f"|---|---|{'--:|' * len(given.memory)}"]
    wrong, whole = [], {}
    for name, options in SPACES:
        cells = []
        for memory in given.memory:
            seconds, plan, proven = answer(given, options, memory)
            best, best_proven = whole.setdefault(memory, (seconds, proven))
            print(f"{name}, {memory}: {plan}", file=sys.stderr)
            if seconds is not None and (best is None or seconds < best * (1 - TOLERANCE)):
                found = "has nothing" if best is None else f"{best:.6g} s{'' if best_proven else ', not proven'}"
                wrong.append(f"{name} within {memory}: {seconds:.6g} s, the whole space {found}")
            cells.append(cell(seconds, best, proven))
        lines.append(f"| {name} | `{options}` | {' | '.join(cells)} |")
    return lines, wrong


def main():
    lines, wrong = table(arguments_of(sys.argv[1:], __doc__))
    print("\n".join(lines))
    if wrong:
        raise SystemExit("\n".join(["a part of the space is faster than all of it:", *wrong]))


if __name__ == "__main__":
    main()
