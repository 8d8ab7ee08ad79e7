#!/usr/bin/env python3
"""Asks two plimsoll programs the same 1,400 questions: every strategy, some of them composed or with options, on shipped and
made-up chains and graphs, on every shipped platform and on a machine with a disk, within several budgets. Exit codes and the
whole text of `simulate --json` must be equal, apart from versions of the programs and the wall times solve_s and simulate_s.
Prints every difference. Exit code 1 when there are any, or when a strategy has no plan in any of its answers."""

import argparse
import collections
import functools
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile

import readers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = """
  tests/program/same_numbers.py OLD NEW
  tests/program/same_numbers.py OLD NEW --only rotor --list          questions with rotor in them, each with its costs
  tests/program/same_numbers.py OLD NEW --apart-from gap,peak.bytes  keys whose values a named fix changes
"""
WALL_TIMES = {"solve_s", "simulate_s"}
CPU_LIMIT_S = 120

# (trace, platforms that have times for it); MACHINE stands for a platform file that is written when it is needed.
MACHINE = "machine.yaml"
PLATFORMS = ["v100_pcie", "ideal", "h200", "cpu_host", "a100_80g", "rtx_4090_pcie4", "h100_sxm_8", "ib_2x8_h100", MACHINE]
MADE_UP = ["ideal", MACHINE]
CHAINS = [(name, PLATFORMS) for name in ("gpt12_w768_t256_b4_cpu", "densenet121_b8_cpu", "resnet50_b8_cpu", "vgg16_b8_cpu",
                                         "transformer:layers=6,dtype=fp32")] + [("random:12,seed=3", MADE_UP)]
GRAPHS = [(name, PLATFORMS) for name in ("gpt4_ops_w256_t128_b4_cpu", "resnet18_ops_b8_cpu", "gpt:layers=1,view=graph",
                                         "resnet:blocks=2,view=graph", "lstm:steps=3,view=graph")]
# Searches and integer programs are asked about little ones.
SLOW = {"portfolio", "exact", "checkmate", "checkmate_lp", "monet", "offload_exact", "poet", "pofo", "rockmate",
        "rotor_floating"}
LITTLE_CHAINS = [("gpt:layers=1,width=32,vocabulary=64", PLATFORMS), ("mlp:layers=2,width=64", PLATFORMS),
                 ("random:4,seed=2", MADE_UP)]
LITTLE_GRAPHS = [("mlp:layers=2,width=64,view=graph", PLATFORMS), ("mlp:layers=3,width=64,batch=256,view=graph", PLATFORMS)]
# How much of the memory between the lower bound and the need of store_all; None: no budget is given.
SHARES = [0.6, 0.3, None, 0.85, "front", 0.1, 0.95]
SETTINGS = ["--optimizer adam", "--engine event", "--optimizer sgd --micro-batches 2", "--allocator cuda",
            "--optimizer momentum --gradients existing --engine event", "--optimizer adam --states fp32 --engine event"]
QUESTIONS_EACH = 12
# Composed, or with options that are not the defaults: two questions each.
SPECS = """chen_sqrt|offload_greedy
rotor(slots=100)|offload_fractional
revolve|zero_offload
selective(every=2)|vdnn
rotor|offmate
full_recompute|save_on_cpu|demand_layering
sparse_update(train=last:2)|rotor
sparse_update(train=last:1)|dtr
greedy_recompute|offload_greedy
min_cut|capuchin
ap_sqrt|zero_infinity
dtr(heuristic=lru)
knapsack|twinflow
chen_greedy(b=20MB)
periodic(every=3)
offload_dp|deep_optimizer_states""".splitlines()

# What refuses every model above, or needs a platform, micro-batches or a file of its own: strategy, trace, platform, settings, share.
ORDER = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"  # of two devices
ORDER_FILE = "order.csv"
OTHERS = [("recompute_ops", "gpt:layers=1,view=graph", "h200", "--optimizer adam", None),
          ("recompute_ops|rockmate", "gpt:layers=1,view=graph", "h200", "--optimizer adam", 0.6),
          ("shared_norm", "gpt4_ops_w256_t128_b4_cpu", "cpu_host", "--optimizer adam", None),
          ("shared_norm|greedy_recompute", "gpt4_ops_w256_t128_b4_cpu", "cpu_host", "--engine event", 0.6),
          *((f"{pipeline}(stages=4){saver}", "transformer:layers=8", "h100_sxm_8", "--micro-batches 8 --optimizer adam", None)
            for pipeline in ("chimera", "dualpipe") for saver in ("", "|full_recompute", "|quantize")),
          *((f"order(file={ORDER_FILE}){saver}", "transformer:layers=8", "h100_sxm_8", "--micro-batches 2", None)
            for saver in ("", "|full_recompute"))]


class Answer:
    def __init__(self, program, words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
        run = subprocess.run([program, "simulate", "--json", *words], cwd=ROOT, capture_output=True, text=True,
                             preexec_fn=limit)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.code, self.out, self.err = run.returncode, run.stdout, run.stderr
        self.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def flat(self, left_out, version):
        """[(key, value as text)] in the order printed, keys as in peak.kinds.0.bytes; what is not JSON as one value."""
        try:
            told = json.loads(self.out)
        except ValueError:
            return [("standard output", self.out), ("standard error", self.err)]
        return [(key, value.replace(version, "VERSION")) for key, value in flattened(told, "")
                if key not in left_out and key.rpartition(".")[2] not in WALL_TIMES]


def flattened(value, key):
    if value in ({}, []) or not isinstance(value, (dict, list)):
        return [(key, json.dumps(value, ensure_ascii=False))]
    children = value.items() if isinstance(value, dict) else enumerate(value)
    return [leaf for name, child in children for leaf in flattened(child, f"{key}.{name}" if key else str(name))]


def listed(program):
    answer = subprocess.run([program, "list", "strategies", "--json"], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)["strategies"]


@functools.cache
def version(program):
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()


class Questions:
    """Budgets are made of what `program` answers about store_all."""

    def __init__(self, program, folder):
        self.program = program
        self.machine, self.order = os.path.join(folder, MACHINE), os.path.join(folder, ORDER_FILE)
        with open(self.order, "w", encoding="utf-8") as file:
            file.write(ORDER)
        with open(self.machine, "w", encoding="utf-8") as file:
            file.write(readers.MACHINE)
        self.ranges = {}

    def words(self, spec, trace, platform, settings):
        return ["--trace", trace, "--platform", self.machine if platform == MACHINE else platform, "--strategy", spec,
                *settings.split()]

    def within(self, spec, trace, platform, settings, share):
        words = self.words(spec, trace, platform, settings)
        if share is None:
            return words
        return [*words, "--memory", share if share == "front" else f"{self.budget(trace, platform, settings, share)} B"]

    def budget(self, trace, platform, settings, share):
        key = (trace, platform, settings)
        if key not in self.ranges:
            told = json.loads(Answer(self.program, self.words("store_all", *key)).out)
            self.ranges[key] = told["lower_bound_bytes"], told["peak_bytes"] or told["smallest_feasible_bytes"]
        least, most = self.ranges[key]
        return least + round((most - least) * share)

    def about(self, spec, count, start, on_graphs, little):
        """`count` of all combinations, far from each other; a graph every other time where it may be."""
        chains, graphs = (LITTLE_CHAINS, LITTLE_GRAPHS) if little else (CHAINS, GRAPHS)
        settings = [words for words in SETTINGS if "--optimizer" in words] if self.needs_updates(spec) else SETTINGS
        on_shipped = not self.is_refused(spec, PLATFORMS[0], "--optimizer adam")
        for i in range(start, start + count):
            models = graphs if on_graphs and i % 2 else chains
            trace, platforms = models[i // (2 if on_graphs else 1) % len(models)]
            platform = platforms[i * 5 % len(platforms)] if on_shipped else MACHINE
            share = SHARES[i * 3 % len(SHARES)]
            if share == "front" and little:
                share = 0.45
            yield self.within(spec, trace, platform, settings[i * 5 % len(settings)], share)

    def all(self):
        """(strategy or pass pipeline, words)"""
        on_graphs = {entry["name"]: not entry["chains_only"] for entry in listed(self.program)}
        for s, name in enumerate(on_graphs):
            for words in self.about(name, QUESTIONS_EACH, s, on_graphs[name], name in SLOW):
                yield name, words
        for s, spec in enumerate(SPECS):
            names = [part.partition("(")[0] for part in spec.split("|")]
            for words in self.about(spec, 2, s, all(on_graphs[name] for name in names), False):
                yield spec, words
        for spec, trace, platform, settings, share in OTHERS:
            yield spec.partition("(")[0].partition("|")[0], self.within(spec.replace(ORDER_FILE, self.order), trace, platform, settings, share)

    def needs_updates(self, spec):
        return self.is_refused(spec, MACHINE, "") and not self.is_refused(spec, MACHINE, "--optimizer adam")

    def is_refused(self, spec, platform, settings):
        return Answer(self.program, self.words(spec, LITTLE_CHAINS[0][0], platform, settings)).code == 2


def differences(old, new, left_out, versions):
    """Lines that say how two answers differ."""
    lines = [] if old.code == new.code else [f"exit code: {old.code}, now {new.code}: {new.err.strip()[-300:]}"]
    before, after = (answer.flat(left_out, of) for answer, of in zip((old, new), versions))
    one, two = dict(before), dict(after)
    for key in [*one, *(key for key in two if key not in one)]:
        if one.get(key) != two.get(key):
            lines.append(f"{key}: {one.get(key, 'not there')}, now {two.get(key, 'not there')}")
    return lines if lines or before == after else ["keys in another order"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog="examples:" + EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--only", metavar="TEXT", default="", help="questions whose words contain this")
    parser.add_argument("--apart-from", metavar="KEYS", default="", help="keys that are not compared, separated by commas")
    parser.add_argument("--list", action="store_true", help="print every question, its exit code and both CPU times")
    given = parser.parse_args()
    old, new = os.path.abspath(given.old), os.path.abspath(given.new)
    versions = version(old), version(new)
    left_out = set(given.apart_from.split(","))

    asked, unequal, cpu_s = 0, 0, [0, 0]
    ends, plans = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory(prefix="plimsoll_same_numbers_") as folder:
        for spec, words in Questions(old, folder).all():
            if given.only not in shlex.join(words):
                continue
            answers = Answer(old, words), Answer(new, words)
            asked += 1
            cpu_s = [sum(pair) for pair in zip(cpu_s, (answer.cpu_s for answer in answers))]
            ends[answers[0].code] += 1
            plans[spec] += answers[0].code == 0
            if given.list:
                print(answers[0].code, *(f"{answer.cpu_s:6.2f} s" for answer in answers), shlex.join(words), flush=True)
            lines = differences(*answers, left_out, versions)
            if lines:
                unequal += 1
                print(f"simulate --json {shlex.join(words)}\n  " + "\n  ".join(lines), flush=True)
    without = [spec for spec in plans if plans[spec] == 0]
    if without:
        print("without a plan in any answer, so hardly compared:", ", ".join(without))
    print(f"{asked} questions about {len(plans)} strategies and pipelines, answers by exit code {dict(sorted(ends.items()))}: "
          f"{unequal} differ; {cpu_s[0]:.0f} s of CPU time before, {cpu_s[1]:.0f} s now")
    return 1 if unequal or without or not asked else 0


if __name__ == "__main__":
    sys.exit(main())
