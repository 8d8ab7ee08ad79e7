"""The networks of frontier_networks.py: as many operations as they say, and what sets each family apart."""

import collections
import os
import unittest

from .support import HERE, NO_TORCH, exporter, torch
from .turns import eleventh

NETWORKS = os.path.join(HERE, "frontier_networks.py")


@unittest.skipIf(torch is None, NO_TORCH)
class FrontierNetworks(unittest.TestCase):
    def recorded(self, name):
        from plimsoll.trace import graph_trace, models
        options = exporter.command_line().parse_args(["--graph", "--model", f"{NETWORKS}:{name}", "--batch", "1", "-o", "none.json"])
        graph = graph_trace.recorded(models.chain_for(options), None, None)
        self.assertGreaterEqual(len(graph.ops), 1000, name)
        return graph

    def kinds(self, graph):
        return collections.Counter(op["kind"] for op in graph.ops)

    def readers(self, graph):
        return collections.Counter(tensor for op in graph.ops if op["phase"] == "forward" for tensor in op["inputs"])

    @eleventh(8)
    def test_each_family_has_what_sets_it_apart(self):
        experts = self.kinds(self.recorded("experts"))
        self.assertEqual(experts["topk"], 8)
        self.assertEqual(experts["index_add"], 8 * 8, "each expert of each layer adds its tokens")
        unet = self.recorded("unet")
        self.assertGreaterEqual(self.kinds(unet)["cat"], 16, "a skip for each residual block on the way up")
        self.assertGreaterEqual(self.kinds(self.recorded("vision_transformer"))["bmm"], 24 * 2 * 3)
        decoder = self.recorded("encoder_decoder")
        made_by_ops = {tensor for op in decoder.ops for tensor in op["outputs"]}
        self.assertGreaterEqual(max(count for tensor, count in self.readers(decoder).items() if tensor in made_by_ops), 8,
                                "all decoder layers read what the encoder made")
        lstm = self.recorded("unrolled_lstm")
        self.assertGreaterEqual(self.readers(lstm).most_common(1)[0][1], 32, "all steps read a cell's weights")


if __name__ == "__main__":
    unittest.main()
