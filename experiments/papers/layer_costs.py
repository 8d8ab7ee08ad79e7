"""What a layer costs by the program's own figures: the tables that published_searches.py plans on.

Every number is of a run of `simulate --json` on few layers: times of its timeline, bytes at its peak, seconds of its
exchanges. All are linear in the number of layers (tests/experiments/published_searches_test.py holds that against other runs).
"""
import collections
import dataclasses
import functools
import json
import math
import pathlib
import re
import subprocess
import tempfile

import published_spaces

SAVERS = {"none": ("", ""), "core": ("recompute_ops", ""), "full": ("", "full_recompute")}
LEVELS = ("data_parallel", "zero1", "zero2", "zero3")


def spec_of(*passes):
    """The pass pipeline; what plans stages asks for them where nothing before it cuts the graph."""
    passes = [each for each in passes if each]
    plans_stages = ("full_recompute", "1f1b", "interleaved")
    if passes and not any(each.startswith(("megatron", "zero", "data_parallel")) for each in passes):
        at = next((at for at, each in enumerate(passes) if each.startswith(plans_stages)), None)
        if at is not None:
            passes.insert(at, "chain")
    return "|".join(passes) or "store_all"


def tensor_pass(ranks, more=""):
    return f"megatron(sequence=yes,tensor={ranks}{more})" if ranks > 1 else ""


@dataclasses.dataclass(frozen=True)
class Layer:
    """Of one micro-batch: seconds and kept bytes of an inner layer, of what stands before the first one, and behind the last."""
    forward: float
    backward: float  # with what runs again
    tensor_forward: float  # of `forward`, exchanges of tensor ranks
    tensor_backward: float
    first: float  # forward and backward of the embedding
    last: float  # of head and loss
    kept: int  # from a layer's forward to its backward
    other: int  # what else is there at the peak: logits, workspaces, values that run again


@dataclasses.dataclass(frozen=True)
class States:
    """Bytes of a device without replicas: of a layer, and of all else."""
    parameters: int
    gradients: int
    states: int
    other_parameters: int
    other_gradients: int
    other_states: int
    update: float  # seconds of a layer's
    other_update: float


@dataclasses.dataclass(frozen=True)
class Exchange:
    """Seconds that replicas exchange: once an iteration and for each micro-batch, of a layer and of all else."""
    once: float
    each: float
    other_once: float
    other_each: float


class Costs:
    def __init__(self, program, trace, platform):
        self.program, self.trace, self.platform = program, trace, platform
        numbers = dict(option.split("=") for option in trace.split(":", 1)[1].split(","))
        self.layers = int(numbers["layers"])
        described = subprocess.run([str(program), "describe", platform], capture_output=True, text=True, check=True).stdout
        self.devices = len(re.findall(r"^  device ", described, re.M))
        rates = [(ends, float(rate) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit] if rate else math.inf) for ends, rate, unit
                 in re.findall(r"^  link \S+ +(.+?): (?:unlimited|([\d.]+) ([kMGT]?)B/s)", described, re.M)]
        own = [rate for ends, rate in rates if ends.startswith("gpu0 ")] or [math.inf]
        self.link_rate = max(own)
        self.host_rate = min(*own, sum(rate for ends, rate in rates if ends.endswith("- host")) / self.devices)  # 0: there is none

    def run(self, layers, samples, strategy, micro_batches=1, *words):
        trace = re.sub(r"layers=\d+", f"layers={layers}", self.trace) + f",batch={samples}"
        return published_spaces.simulated(self.program, trace, self.platform, strategy, micro_batches, "--gradients", "existing", "-m", "900 TB", *words)

    @functools.lru_cache(maxsize=None)
    def layer(self, tensor, samples, saver, more=""):
        """Of a micro-batch of `samples` on `tensor` ranks."""
        before, behind = SAVERS[saver]
        strategy = spec_of(before, tensor_pass(tensor, more), behind)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "timeline.json"
            few = self.run(3, samples, strategy, 1, "--timeline", str(file))
            events = [event for event in json.loads(file.read_text(encoding="utf-8"))["traceEvents"] if event["ph"] == "X"]
        many = self.run(4, samples, strategy)
        seconds = collections.Counter()
        for event in (event for event in events if event["cat"] != "update"):
            name, turn = event["name"], "forward" if event["cat"] == "forward" else "backward"
            seconds["all"] += event["dur"] * 1e-6
            if "layer1." in name:
                seconds[turn] += event["dur"] * 1e-6
                if " over tensor " in name:
                    seconds[f"tensor {turn}"] += event["dur"] * 1e-6
            elif "embedding" in name:
                seconds["first"] += event["dur"] * 1e-6
        if behind:  # stages are timed as wholes; their exchanges and the embedding are those of plain training
            plain = self.layer(tensor, samples, "none", more)
            seconds["tensor forward"], seconds["first"] = plain.tensor_forward, plain.first
            seconds["tensor backward"] = plain.tensor_backward + plain.tensor_forward
        seconds["last"] = seconds["all"] - seconds["first"] - 3 * (seconds["forward"] + seconds["backward"])
        kinds = ("activation", "gradient", "workspace", "input")
        there = [sum(said["peak"]["bytes_by_kind"][kind] for kind in kinds) for said in (few, many)]
        kept = there[1] - there[0]
        return Layer(seconds["forward"], seconds["backward"], seconds["tensor forward"], seconds["tensor backward"], seconds["first"],
                     seconds["last"], kept, there[0] - 3 * kept)

    @functools.lru_cache(maxsize=None)
    def states(self, tensor):
        few, many = (self.run(layers, 1, spec_of(tensor_pass(tensor))) for layers in (3, 4))
        sizes = []
        for kind in ("parameter", "parameter_gradient", "optimizer_state"):
            at = [said["peak"]["bytes_by_kind"][kind] for said in (few, many)]
            sizes.append((at[1] - at[0], 4 * at[0] - 3 * at[1]))
        updates = [next(part["time_s"] for part in said["time_parts"] if part["part"] == "updates") for said in (few, many)]
        return States(*(size[0] for size in sizes), *(size[1] for size in sizes), updates[1] - updates[0], 4 * updates[0] - 3 * updates[1])

    @functools.lru_cache(maxsize=None)
    def exchange(self, tensor, replicas, level):
        """Of ZeRO's level 0 to 3."""
        if replicas == 1:
            return Exchange(0, 0, 0, 0)
        found = {}
        for layers in (3, 4):
            for micro_batches in (1, 2):
                said = self.run(layers, 1, spec_of(tensor_pass(tensor), f"{LEVELS[level]}(ranks={replicas})"), replicas * micro_batches)
                found[layers, micro_batches] = sum(each["exchange_s"] for each in said["exchanges"] if each["axes"] == "data")
        each = {layers: found[layers, 2] - found[layers, 1] for layers in (3, 4)}
        once = {layers: found[layers, 1] - each[layers] for layers in (3, 4)}
        return Exchange(once[4] - once[3], each[4] - each[3], 4 * once[3] - 3 * once[4], 4 * each[3] - 3 * each[4])

    def send(self, tensor, samples):
        """From a stage to the next one: the input of an attention, as an MLP's one of the two that a layer keeps if it runs again."""
        return self.layer(tensor, samples, "full").kept / 2 / self.link_rate


def share_of_level(level, replicas):
    """Which share of parameters, gradients and states a device has."""
    return tuple(1 / replicas if level >= least else 1.0 for least in (3, 2, 1))
