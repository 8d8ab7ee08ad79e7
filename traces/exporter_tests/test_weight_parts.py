"""Backwards in two parts, for the inputs and for the weights."""

import unittest

from .support import NO_TORCH, SMALL_GPT, WithFolder, torch
from .turns import eleventh


@unittest.skipIf(torch is None, NO_TORCH)
class WeightParts(WithFolder):
    def check_weight_parts(self, trace, expected):
        """(all that stays, of it made by the input's part, output's gradient, input, output) of each stage."""
        keys = ("weight_saved_bytes", "weight_made_bytes", "weight_keeps_gradient", "weight_keeps_input", "weight_keeps_output")
        self.assertEqual([tuple(stage[key] for key in keys) for stage in trace["stages"]], expected)

    def test_what_stays_for_the_weights_of_a_small_network_is_that_computed_by_hand(self):
        # Nothing needs the gradient of the input: all of the first backward is for the weights. Of the second, the linear op needs
        # its input and the gradient behind it, which the input's part makes out of that of the output.
        trace = self.trace("small")
        self.check_weight_parts(trace, [(0, 0, True, True, True), (60, 60, False, True, False), (0, 0, False, False, False)])
        self.assertEqual(trace["stages"][2]["backward_weight_s"], 0)
        self.assertGreater(trace["stages"][0]["backward_weight_s"], 0)

    def test_a_frozen_layer_has_no_part_for_weights(self):
        trace = self.trace("frozen")
        self.check_weight_parts(trace, [(0, 0, True, True, True)] + 3 * [(0, 0, False, False, False)])
        self.assertEqual([stage["backward_weight_s"] for stage in trace["stages"][1:]], [0, 0, 0])

    def test_what_stays_for_the_weights_of_a_gpt_is_that_computed_by_hand(self):
        row, statistics = 2 * 8 * 16 * 4, 2 * 2 * 8 * 4  # (batch, sequence, width), and a norm's mean and deviation
        # Attention: norm, qkv (3 wide) and projection save what they read; made behind the norm and behind qkv.
        # Mlp: the same with 4 wide. The last gradient of both is that of the output, for they end in a sum.
        attention = (6 * row + statistics, 4 * row, True, True, False)
        mlp = (10 * row + statistics, 5 * row, True, True, False)
        head = (2 * row + statistics, row, True, True, False)
        self.check_weight_parts(self.trace("gpt", *SMALL_GPT, counter="malloc"),
                                [(0, 0, True, True, True), *2 * [attention, mlp], head, (0, 0, False, False, False)])

    def check_part_workspaces(self, trace, expected):
        """(of the input's part, of the weights' part, of that with existing gradients) of each stage."""
        keys = [f"backward_{part}_workspace_bytes" for part in ("input", "weight", "weight_accumulate")]
        self.assertEqual([tuple(stage.get(key) for key in keys) for stage in trace["stages"]], expected)

    def test_workspaces_of_the_two_parts_of_a_small_network_are_those_computed_by_hand(self):
        # First: all is for the weights, and the whole backward makes the gradient behind the ReLU (240) and weight and bias (880).
        # Second: when the linear op's turn comes tanh's gradient is gone; weight and bias (420) come out of one operation. exp's
        # gradient reads that of the sum, an expanded 4 bytes.
        for counter in ("malloc", "sweep"):
            self.check_part_workspaces(self.trace("small", counter=counter), [(0, 240, 240 + 880), (0, 0, 420), (4, 0, 0)])

    def test_workspaces_of_the_two_parts_of_a_gpt_are_those_computed_by_hand(self):
        # Attention: the gradient that comes back through the norm, beside its sum with that of the residual. Mlp: GELU reads and
        # makes 4 rows, of the 8 are 5 kept for the weights and 1 is the result. A norm's kernel has a buffer for its weights' gradients.
        row, norm = 2 * 8 * 16 * 4, 2 * 16 * 4
        attention, mlp = (row, norm, (16 + 1) * 3 * 16 * 4), (2 * row, norm, (16 + 1) * 4 * 16 * 4)
        trace = self.trace("gpt", *SMALL_GPT, counter="malloc")
        whole = [(0, stage["backward_workspace_bytes"], stage["backward_accumulate_workspace_bytes"]) for stage in trace["stages"]]
        logits = 2 * 8 * 50 * 4
        self.check_part_workspaces(trace, [whole[0], *2 * [attention, mlp], (0, norm, 50 * 16 * 4), (logits + 4, 0, 0)])

    def test_of_operations_that_share_a_parameter_only_the_inputs_part_has_a_workspace(self):
        trace = self.trace("twice")
        # 128 B each: kept are both gradients that reach the linear op, so tanh's and the result's leave nothing over. The
        # loss makes the sum's 4, the mean's, and two products before the result.
        self.check_part_workspaces(trace, [(0, 0, 288), (0, None, None), (4 + 3 * 128, 0, 0)])

    @eleventh(5)
    def test_saved_tensors_that_no_node_shows_leave_what_stays_for_the_weights_unknown(self):
        trace = self.trace("unseen", "--no-identity-check")
        for key in ("weight_saved_bytes", "backward_input_workspace_bytes"):
            self.assertEqual([key in stage for stage in trace["stages"]], [True, False, True])
        self.assertEqual(trace["source"]["weight_saved_bytes_not_known_of"], ["stage1"])

    def test_what_would_be_below_zero_is_written_as_zero_and_said(self):
        """The input's part needs less above its start than what it makes, where what it reads dies before."""
        from types import SimpleNamespace

        from plimsoll.trace.chain_fields import part_workspaces
        measured = SimpleNamespace(input_peaks={3: 100}, weights={3: (8, 16)})
        facts = SimpleNamespace(part_workspaces=measured, saved=SimpleNamespace(stages={3: {"new_gradient": 64}}), weight_parts={3: {"made": 60}})
        fields, said = part_workspaces(3, facts, {})
        self.assertEqual(list(fields.values()), [0, 8, 16])
        self.assertEqual(said, ["backward input: -24"])
