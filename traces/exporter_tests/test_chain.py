"""Bytes, flags and checks of a chain."""

import os
import unittest

from plimsoll.trace.errors import MeasurementError

from .peaks import plain_peak, store_all_peak
from .support import NO_TORCH, SMALL_GPT, WithFolder, bytes_saved_by_hooks, torch
from .turns import eleventh
from .user_models import USER_MODEL


@unittest.skipIf(torch is None, NO_TORCH)
class ChainTrace(WithFolder):
    def check_small_network(self, trace):
        """x (3, 10) -> linear, ReLU (3, 20) -> linear, sigmoid, tanh (3, 5) -> exp, sum; 4 bytes an element."""
        first, second, loss = trace["stages"]
        self.assertEqual(trace["input_bytes"], 3 * 10 * 4)
        # The ReLU keeps its result, which is the output; the sum before it dies.
        self.assertEqual((first["output_bytes"], first["saved_bytes"]), (3 * 20 * 4, 3 * 20 * 4))
        self.assertEqual(first["forward_workspace_bytes"], 3 * 20 * 4)
        self.assertEqual(first["input_gradient_bytes"], 0)
        # Tanh keeps the output, sigmoid its result.
        self.assertEqual((second["output_bytes"], second["saved_bytes"]), (3 * 5 * 4, 2 * 3 * 5 * 4))
        self.assertEqual(second["input_gradient_bytes"], 3 * 20 * 4)
        # exp keeps its result; the loss itself is 4 bytes.
        self.assertEqual((loss["output_bytes"], loss["saved_bytes"]), (0, 3 * 5 * 4 + 4))
        self.assertEqual(loss["input_gradient_bytes"], 3 * 5 * 4)
        self.assertEqual([p["bytes"] for p in trace["parameters"]], [10 * 20 * 4, 20 * 4, 20 * 5 * 4, 5 * 4])
        self.assertEqual([s["parameters"] for s in trace["stages"]], [[0, 1], [2, 3], []])
        self.assertEqual([s["keeps_input"] for s in trace["stages"]], [True, True, False])
        self.assertEqual([s["keeps_output"] for s in trace["stages"]], [True, True, False])
        self.assertEqual([s["forward_flops"] for s in trace["stages"]], [2 * 3 * 10 * 20, 2 * 3 * 20 * 5, 0])
        self.assertEqual([s["backward_flops"] for s in trace["stages"]], [2 * 3 * 10 * 20, 2 * 2 * 3 * 20 * 5, 0])
        # The first linear reads x, weight, bias and writes the sum; the ReLU reads and writes 240 bytes.
        self.assertEqual(first["forward_bytes_moved"], 120 + 800 + 80 + 240 + 2 * 240)
        self.assertEqual(trace["source"]["check"]["identity"], "exact on all stages")

    def test_bytes_of_a_small_network_are_those_computed_by_hand(self):
        self.check_small_network(self.trace("small", counter="malloc"))

    def test_the_portable_counter_finds_the_same_bytes(self):
        self.check_small_network(self.trace("small", counter="sweep"))

    def test_a_last_stage_is_the_loss_and_every_required_field_is_there(self):
        trace = self.trace("small")
        self.assertEqual((trace["format"], trace["kind"], trace["source"]["kind"]), ("plimsoll.trace.v1", "chain", "measured"))
        for stage in trace["stages"]:
            self.assertGreaterEqual(stage["saved_bytes"], stage["output_bytes"])
            self.assertTrue(all(stage[key] >= 0 for key in stage if key.endswith(("_s", "_bytes", "_flops", "_moved"))
                                and "_released_" not in key))
        self.assertEqual(trace["stages"][-1]["output_bytes"], 0)
        self.assertEqual(trace["boundaries"], [[0], [1], [2], []])
        self.assertEqual([t["bytes"] for t in trace["tensors"]], [120, 240, 60])

    def test_tied_parameters_are_one_id_in_several_stages(self):
        trace = self.trace("tied")
        self.assertEqual(trace["parameters"], [{"name": "stage0.weight", "bytes": 8 * 8 * 4}])
        self.assertEqual([s["parameters"] for s in trace["stages"]], [[0], [], [0], []])

    def test_a_module_that_stands_in_a_row_twice_runs_twice(self):
        trace = self.trace("again")
        self.assertEqual([stage["name"] for stage in trace["stages"]], ["0#1", "1", "0#2", "loss"])
        self.assertEqual([stage["parameters"] for stage in trace["stages"]], [[0, 1], [], [0, 1], []])

    def test_a_sequential_with_a_forward_of_its_own_runs_that(self):
        self.assertEqual([stage["name"] for stage in self.trace("backwards")["stages"]], ["1", "0", "loss"])

    def test_a_frozen_layer_has_no_parameter_gradient_and_does_not_keep_its_input(self):
        trace = self.trace("frozen")
        _, frozen, residual, _ = trace["stages"]
        self.assertEqual(frozen["parameter_gradient_bytes"], 0)
        self.assertFalse(frozen["keeps_input"])
        self.assertEqual(residual["saved_bytes"], residual["output_bytes"])
        self.assertFalse(residual["keeps_input"] or residual["keeps_output"])

    def test_frozen_parameters_are_said_and_a_frozen_first_stage_has_a_backward_of_no_work(self):
        trace = self.trace("adapted")
        table, adapted, _ = trace["stages"]
        self.assertEqual([parameter.get("trained", True) for parameter in trace["parameters"]], [False, False, True, True])
        self.assertEqual((table["parameter_gradient_bytes"], adapted["parameter_gradient_bytes"]), (0, 2 * 8 * 2 * 4))
        self.assertEqual((table["backward_flops"], table["backward_bytes_moved"]), (0, 0))
        self.assertGreater(adapted["backward_flops"], 0)

    def test_a_tuple_boundary_lists_each_tensor(self):
        trace = self.trace("pair")
        self.assertEqual(trace["boundaries"], [[0], [1], [2, 3], [4], []])
        self.assertEqual(trace["stages"][1]["output_bytes"], 2 * 4 * 8 * 4)
        self.assertEqual(trace["stages"][2]["input_gradient_bytes"], 2 * 4 * 8 * 4)

    def test_a_stage_that_changes_a_buffer_runs_once(self):
        """Batch statistics stay when their stage runs again; a mean of the model's own does not."""
        trace = self.trace("once")
        self.assertEqual({stage["name"]: stage.get("recomputable", True) for stage in trace["stages"]},
                         {"norm": True, "noise": True, "more": True, "moving": False, "loss": True})

    def test_what_is_saved_where_something_older_lay_is_new(self):
        """A tensor that goes while a stage runs, as garbage of Python does, gives its address to what the stage saves."""
        from plimsoll.torch.versions import storage_of
        from plimsoll.trace.chain import Chain, Stage
        from plimsoll.trace.memory import SavedProbe  # needs torch

        x, module, older = torch.randn(4, 8, requires_grad=True), torch.nn.Linear(8, 8), [torch.empty(4, 8) for _ in range(100)]
        probe, addresses = SavedProbe(Chain("one", [Stage("one", module)], x)), {storage_of(each).data_ptr() for each in older}
        probe.begin("forward", 0, x)
        older.clear()
        saved = torch.tanh(x)
        self.assertIn(storage_of(saved).data_ptr(), addresses, "this allocator gives other addresses")
        y = torch.sigmoid(saved * saved)
        probe.end("forward", 0, y)
        self.assertEqual(probe.stages[0]["inner"], 4 * 8 * 4)  # of the tanh; the product is not saved, and the sigmoid is the output

    def test_gradients_of_two_views_of_one_storage_add_up(self):
        """x (4, 8) -> linear -> two halves of a tanh, 64 bytes each -> their product."""
        trace = self.trace("halves", counter="malloc")
        self.assertEqual(trace["boundaries"], [[0], [1], [2], [3], []])
        self.assertEqual([s["input_gradient_bytes"] for s in trace["stages"]], [0, 128, 128, 64])
        self.assertEqual(trace["source"]["check"]["identity"], "exact on all stages")

    def test_what_passes_a_stage_by_is_one_tensor_with_one_gradient(self):
        """x (4, 8) -> linear -> tanh, sigmoid -> minus the tanh -> product; every tensor has 128 bytes."""
        trace = self.trace("skip", counter="malloc")
        self.assertEqual(trace["boundaries"], [[0], [1], [2, 3], [4, 3], [5], []])
        self.assertEqual([s["kept_tensors"] for s in trace["stages"]], [[0], [2, 3], [], [3, 4], [5]])
        self.assertEqual([s["gradient_tensors"] for s in trace["stages"]], [[], [1], [2], [3, 4], [5]])
        self.assertEqual([s["output_bytes"] for s in trace["stages"]], [128, 256, 256, 128, 0])
        self.assertEqual([s["saved_bytes"] for s in trace["stages"]], [128, 256, 256, 128, 4])
        self.assertEqual([s["input_gradient_bytes"] for s in trace["stages"]], [0, 128, 256, 256, 128])
        self.assertEqual([t.get("gradient_bytes", t["bytes"]) for t in trace["tensors"]], [0, 128, 128, 128, 128, 128])
        self.assertEqual(trace["source"]["check"]["identity"], "exact on all stages")

    def test_shared_parameters_say_which_stages_contribute_in_which_order(self):
        shared, = self.trace("tied")["shared"]
        self.assertEqual((shared["parameter"], shared["stages"]), (0, [2, 0]))
        if torch.__version__.startswith("1.13"):
            self.assertEqual(shared["sum"], "out_of_place")

    def test_released_workspaces_give_back_the_peak_of_plain_training(self):
        trace = self.trace("gpt", *SMALL_GPT, counter="malloc")
        check = trace["source"]["check"]
        for key, gradients in (("plain_iteration_peak_bytes", True), ("plain_accumulate_peak_bytes", False)):
            promised = plain_peak(trace, gradients)
            self.assertEqual(promised, check[key])

    def test_the_trace_says_what_plain_training_takes(self):
        trace = self.trace("tied")
        self.assertGreater(trace["plain_iteration_s"], 0)
        self.assertEqual(trace["plain_iteration_s"], trace["source"]["check"]["plain_iteration_s"])

    def test_the_fields_give_back_the_measured_peak_of_a_small_gpt(self):
        trace = self.trace("gpt", *SMALL_GPT, counter="malloc")
        self.assertEqual(trace["source"]["check"]["identity"], "exact on all stages")
        self.assertEqual(trace["stages"][-2]["forward_flops"], 2 * (2 * 8) * 16 * 50)
        self.assertEqual(store_all_peak(trace), trace["source"]["check"]["stagewise_peak_bytes"])

    def test_a_backward_that_frees_before_it_makes_gradients_has_a_workspace_below_zero(self):
        """x (64, 8) -> a large weight and 8 wide results behind it, all saved, which are gone when the weight's gradient is made."""
        trace = self.trace("early", counter="malloc")
        stage = trace["stages"][0]
        self.assertLess(stage["backward_workspace_bytes"], -50_000)
        self.assertGreaterEqual(stage["backward_workspace_bytes"], stage["output_bytes"] - stage["saved_bytes"])
        self.assertEqual(store_all_peak(trace), trace["source"]["check"]["stagewise_peak_bytes"])

    def test_uses_of_saved_tensors_are_those_of_the_layers(self):
        trace = self.trace("pictures")
        picture = 2 * 8 * 8 * 4  # bytes of a channel of both pictures
        lists = [[(tensor["bytes"], sorted(tensor["uses"])) for tensor in stage["saved_tensors"]] for stage in trace["stages"]]
        self.assertEqual(lists[0], [(4 * picture, ["bn.input"]), (16, ["bn.output"]), (16, ["bn.output"]),
                                    (4 * picture, ["conv1x1.input", "relu.output"])])
        self.assertEqual(lists[1], [(5 * picture, ["pool.shape", "relu.output"]), (2 * 5 * 4 * 4 * 8, ["pool.output"]),
                                    (2 * 5 * 4 * 4 * 4, ["linear.input"])])
        self.assertEqual([use for _, uses in lists[2] for use in uses], ["loss.input", "loss.output", "loss.output"])  # log-probabilities, weight
        self.assertEqual([stage.get("boundary_uses") for stage in trace["stages"]],
                         [[{"tensor": 0, "uses": ["conv3x3.input"]}], None, None])
        self.assertEqual([tensor["shape"] for tensor in trace["stages"][1]["saved_tensors"]],
                         [[2, 5, 8, 8], [2, 5, 4, 4], [2, 80]])

    @eleventh(4)
    def test_listed_tensors_add_up_to_what_hooks_count_in_plain_training(self):
        for name in ("small", "pictures", "twice", "pair", "skip"):
            trace, names = self.trace(name), {}
            exec(USER_MODEL, names)  # the models of this file
            stages, loss, x = names[name]()
            modules = [stage[1] if isinstance(stage, tuple) else stage for stage in stages]
            apart = {p.data_ptr() for module in modules for p in [*module.parameters(), *module.buffers()]}
            saved = bytes_saved_by_hooks(modules, loss, x, apart)
            inner = sum(tensor["bytes"] for stage in trace["stages"] for tensor in stage.get("saved_tensors", []))
            used = {use["tensor"] for stage in trace["stages"] for use in stage.get("boundary_uses", [])}
            total = inner + sum(trace["tensors"][tensor]["bytes"] for tensor in used)
            # The targets of a loss were there before.
            elsewhere = sum(trace["source"].get("saved_but_alive_before_and_not_counted_bytes", {}).values())
            with self.subTest(name):
                self.assertEqual(total + elsewhere, saved)

    def test_what_a_function_keeps_in_its_ctx_and_the_number_of_a_product_are_saved(self):
        """x (4, 8) -> its square, times 0.3: kept are 2 x, x itself and the number, which is a tensor of 8 bytes."""
        trace = self.trace("keeping", counter="malloc")
        stage = trace["stages"][1]
        self.assertEqual(trace["source"]["check"]["identity"], "exact on all stages")
        self.assertEqual((stage["saved_bytes"] - stage["output_bytes"], stage["keeps_input"]), (4 * 8 * 4 + 8, True))
        self.assertEqual(sorted((of["bytes"], of["uses"]) for of in stage["saved_tensors"]), [(8, ["other.input"]), (128, ["other.input"])])
        self.assertIn(1, [use["tensor"] for use in stage["boundary_uses"]])
        self.assertEqual(trace["stages"][0]["saved_bytes"] - trace["stages"][0]["output_bytes"], 0)

    @eleventh(4)
    def test_tensors_hidden_from_autograd_break_the_identity_and_no_trace_is_written(self):
        output = os.path.join(self.folder.name, "hidden.json")
        arguments = ("--model", f"{self.model}:hidden", "--repetitions", "2", "-o", output)
        with self.assertRaises(MeasurementError) as raised:
            self.measure(*arguments)
        self.assertIn("forward of 'stage1' changes live bytes by 256, expected 128", str(raised.exception))
        self.assertEqual(raised.exception.exit_code, 1)
        self.assertFalse(os.path.exists(output))
        self.measure(*arguments, "--no-identity-check")
        self.assertTrue(os.path.exists(output))
