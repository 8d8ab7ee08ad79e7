"""Traces of data/ that the exporter measured."""

import json
import os
import unittest

from .peaks import freed_after_last_use_peak, plain_peak, store_all_peak
from .support import HERE


def measured_traces(kind):
    """Traces of data/ that this exporter measured, recognizable by the peaks in source.check."""
    for name in sorted(os.listdir(os.path.join(HERE, "data"))):
        if name.endswith("_cpu.json"):
            with open(os.path.join(HERE, "data", name), encoding="utf-8") as file:
                trace = json.load(file)
            if trace["kind"] == kind and "plain_iteration_peak_bytes" in trace["source"].get("check", {}):
                yield name, trace


class ShippedTraces(unittest.TestCase):
    def test_the_tensors_of_each_measured_graph_give_back_its_measured_peak(self):
        for name, trace in measured_traces("graph"):
            with self.subTest(trace=name):
                measured = trace["source"]["check"]["plain_iteration_peak_bytes"]
                self.assertAlmostEqual(freed_after_last_use_peak(trace), measured, delta=64)

    def test_the_fields_of_each_measured_chain_give_back_its_measured_peak(self):
        for name, trace in measured_traces("chain"):
            with self.subTest(trace=name):
                promised, measured = store_all_peak(trace), trace["source"]["check"]["stagewise_peak_bytes"]
                self.assertGreaterEqual(promised, measured)
                if not trace["source"]["workspaces_clamped_to_zero"]:
                    self.assertEqual(promised, measured)
                check = trace["source"]["check"]
                self.assertEqual(trace["plain_iteration_s"], check["plain_iteration_s"])
                self.assertEqual(plain_peak(trace, True), check["plain_iteration_peak_bytes"])
                self.assertEqual(plain_peak(trace, False), check["plain_accumulate_peak_bytes"])

    def test_stages_that_a_library_s_model_has_are_named_for_plans(self):
        """resnet50 and vgg16: each stage has the parameters of the modules that PyTorch's names say."""
        named = {name: trace for name, trace in measured_traces("chain") if "pytorch" in trace["source"]}
        self.assertEqual(sorted(named), ["resnet50_b8_cpu.json", "vgg16_b8_cpu.json"])
        for name, trace in named.items():
            source = trace["source"]["pytorch"]
            self.assertEqual(len(source["stages"]), len(trace["stages"]))
            owners = {path: shapes for path, _, shapes in source["fingerprint"]}
            for stage, own in zip(source["stages"], trace["stages"]):
                with self.subTest(trace=name, stage=own["name"]):
                    self.assertEqual(stage.get("in_trace", stage["name"]), own["name"])
                    inside = [path for path in owners if any(f"{path}.".startswith(f"{module}.") for module in stage["modules"])]
                    kinds = ("weight", "bias")
                    parameters = [p for p in own.get("parameters", []) if trace["parameters"][p]["name"].rsplit(".", 1)[1] in kinds]
                    self.assertEqual(sum(len(owners[path]) for path in inside), len(parameters))
