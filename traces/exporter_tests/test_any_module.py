"""Modules that are no chain: eight models of validate/pytorch/models.py, cut by the exporter, against torch's own hooks and counters.

Three of them by default; all where PLIMSOLL_TESTS=all (./dev traces).
"""

import os
import time
import unittest
from types import SimpleNamespace
from unittest import mock

from plimsoll.trace.errors import UsageError
from plimsoll.trace.user_code import load_file

from .peaks import freed_after_last_use_peak, plain_peak_of_tensors
from .support import MODELS, NO_TORCH, WithFolder, torch
from .turns import eleventh

NAMES = ("gpt", "unet", "tagger")
if os.environ.get("PLIMSOLL_TESTS") == "all":
    NAMES += ("resnet18", "vgg11", "densenet", "encoder_decoder", "lstm")


def models():
    return load_file(MODELS, "eight_models").MODELS


def saved_by_hooks(model, loss, inputs, targets, with_numbers=True):
    """Bytes of all that autograd saves in a plain forward and that was not there before. Numbers: such as the 3 of x / 3."""
    def tensors_in(value):
        if isinstance(value, torch.Tensor):
            return [value]
        return [t for item in (value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()) for t in tensors_in(item)]
    before = {t.storage().data_ptr() for t in [*model.parameters(), *model.buffers(), *tensors_in(inputs), *tensors_in(targets)]}
    saved = {}

    def pack(tensor):
        storage = tensor.storage()
        if storage.data_ptr() not in before and len(storage) > 0 and (with_numbers or tensor.dim() > 0):
            saved[storage.data_ptr()] = (storage, len(storage) * tensor.element_size())  # held, so that no address comes again
        return tensor
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = model(**inputs) if isinstance(inputs, dict) else model(*inputs) if isinstance(inputs, tuple) else model(inputs)
        value = loss(outputs, targets) if loss else outputs.loss
    return sum(size for _, size in saved.values()) + (8 * len(numbers_without_hook(value) - set(saved)) if with_numbers else 0)


def numbers_without_hook(loss):
    """Places of the numbers that torch 2 saves of products and quotients and shows no hook."""
    found, nodes = set(), [loss.grad_fn]
    for node in nodes:  # grows
        nodes += [one for one, _ in node.next_functions if one is not None and one not in nodes]
        number = getattr(node, "_saved_other", None)
        if isinstance(number, torch.Tensor) and number.dim() == 0 and number.dtype == torch.float64:
            found.add(number.storage().data_ptr())
    return found


def saved_by_fields(trace):
    """What the stages save inside, and what their backwards read of boundaries behind the input."""
    kept = set()
    for k, stage in enumerate(trace["stages"]):
        flags = (["keeps_input"] * len(trace["boundaries"][k]), ["keeps_output"] * len(trace["boundaries"][k + 1]))
        named = [t for j in (0, 1) for t, flag in zip(trace["boundaries"][k + j], flags[j]) if stage[flag]]
        kept |= set(stage.get("kept_tensors", named))
    loss = 4  # the number itself, which no backward reads
    return (sum(stage["saved_bytes"] - stage["output_bytes"] for stage in trace["stages"]) - loss
            + sum(trace["tensors"][t]["bytes"] for t in kept - set(trace["boundaries"][0])))


@unittest.skipIf(torch is None, NO_TORCH)
class AnyModule(WithFolder):
    def test_saved_bytes_are_those_that_hooks_count_in_the_model_as_it_is(self):
        for name in NAMES:
            trace = self.of_model(name, "--stages", "auto")
            with self.subTest(name):
                self.assertEqual(trace["name"], name)
                self.assertEqual(saved_by_fields(trace), saved_by_hooks(*self.arguments_of(name)))

    @eleventh(3)
    def test_a_graphs_backward_reads_of_its_forward_what_hooks_count(self):
        for name in NAMES:
            trace = self.of_model(name, "--graph")
            made = {i for op in trace["ops"] if op["phase"] == "forward" for i in op["outputs"]}
            read = {i for op in trace["ops"] if op["phase"] == "backward" for i in op["inputs"]}
            storages = {trace["tensors"][i]["storage"]: trace["tensors"][i]["bytes"] for i in made & read if trace["tensors"][i]["shape"]}
            with self.subTest(name):
                self.assertEqual(sum(storages.values()), saved_by_hooks(*self.arguments_of(name), with_numbers=False))

    def test_peaks_follow_from_the_fields(self):
        for name in NAMES:
            trace = self.of_model(name, "--stages", "auto")
            check = trace["source"]["check"]
            self.assertEqual(check["identity"], "exact on all stages")
            for new, key in ((True, "plain_iteration_peak_bytes"), (False, "plain_accumulate_peak_bytes")):
                with self.subTest(name, key=key):
                    self.assertLess(abs(plain_peak_of_tensors(trace, new) / check[key] - 1), 0.005)

    def test_peaks_follow_from_graphs(self):
        for name in ("gpt", "tagger"):
            trace = self.of_model(name, "--graph", counter="malloc")
            with self.subTest(name):
                self.assertAlmostEqual(freed_after_last_use_peak(trace), trace["source"]["check"]["plain_iteration_peak_bytes"], delta=64)

    @eleventh(6)
    def test_a_plan_can_name_stages_boundaries_and_model(self):
        for name in NAMES:
            trace = self.of_model(name, "--stages", "auto")
            said = trace["source"]["pytorch"]
            with self.subTest(name):
                self.assertEqual([stage["name"] for stage in said["stages"]], [stage["name"] for stage in trace["stages"]])
                for names, tensors in zip(said["boundaries"][:-1], said["tensors"]):
                    self.assertEqual(len(names), len(tensors))
                own = [[path, type(module).__name__, [list(p.shape) for p in module.parameters(recurse=False)]]
                       for path, module in self.arguments_of(name)[0].named_modules()]
                self.assertEqual(said["fingerprint"], own)

    def test_parameters_have_their_own_names_tied_ones_one_and_frozen_ones_no_gradient(self):
        gpt, tagger = self.of_model("gpt", "--stages", "auto"), self.of_model("tagger", "--stages", "auto")
        shared, = gpt["shared"]
        self.assertEqual(gpt["parameters"][shared["parameter"]]["name"], "tokens.weight")
        self.assertEqual([gpt["stages"][k]["name"] for k in shared["stages"]], ["head", "tokens"])
        frozen = next(i for i, p in enumerate(tagger["parameters"]) if p["name"] == "words.weight")
        first = tagger["stages"][0]
        self.assertIn(frozen, first["parameters"])
        total = sum(tagger["parameters"][i]["bytes"] for i in first["parameters"])
        self.assertEqual(first["parameter_gradient_bytes"], total - tagger["parameters"][frozen]["bytes"])

    @eleventh(7)
    def test_stages_that_are_named_are_those_of_the_trace(self):
        trace = self.of_model("unet", "--stages", "down.1,bottom,up.0")
        self.assertEqual([stage["name"] for stage in trace["stages"]], ["down.0", "down.1", "bottom", "up.0", "loss"])
        self.assertEqual(trace["source"]["pytorch"]["how"], ["down.1", "bottom", "up.0"])

    @eleventh(0)
    def test_what_cannot_be_cut_is_refused_by_path_and_reason(self):
        for options, expected in ((("--stages", "botom"), "no module 'botom'; did you mean 'bottom'?"),
                                  (("--stages", "down.0.layers.1"), None), (("--stages", "down.0.layers.2"), "module 'down.0.layers.2' "
                                   "overwrites its input in place, so the model cannot be cut before 'down.0.layers.2'")):
            if expected is None:
                self.of_model("unet", *options)
                continue
            with self.assertRaises(UsageError) as raised:
                self.of_model("unet", *options)
            self.assertIn(expected, str(raised.exception))

    def of_model(self, name, *options, counter="sweep"):
        counter = "malloc" if options == ("--stages", "auto") else counter  # measured once for all tests
        return self.trace_of(f"{MODELS}:{name}", *options, counter=counter)

    @staticmethod
    def arguments_of(name):
        return models()[name](batch=2)


@unittest.skipIf(torch is None or os.environ.get("PLIMSOLL_TESTS") != "all", "takes long: PLIMSOLL_TESTS=all")
class ManyModules(WithFolder):
    def test_two_hundred_modules_are_exported_in_a_minute_beside_their_own_run_time(self):
        output = os.path.join(self.folder.name, "many.json")
        begin = time.process_time()
        self.measure("--model", f"{self.model}:many", "--repetitions", "3", "-o", output)
        seconds, trace = time.process_time() - begin, self.read(output)
        self.assertEqual(len(trace["stages"]), 101)
        self.assertGreater(len(trace["source"]["pytorch"]["fingerprint"]), 200)
        # Plain iterations, and stages run by themselves, which take as long together.
        own = (3 * 5 + 20) * trace["source"]["check"]["plain_iteration_s"]
        self.assertLess(seconds - own, 60)


class Precision(WithFolder):
    @unittest.skipIf(torch is None, NO_TORCH)
    @eleventh(4)
    def test_autocast_saves_narrow_activations_and_casts_beside_wide_weights(self):
        """x (3, 10) -> linear, ReLU (3, 20): saved are casts of x and of the weight, 2 bytes an element, and the result."""
        trace = self.trace("small", "--amp", "bf16", counter="malloc")
        first = trace["stages"][0]
        self.assertEqual(trace["source"]["dtype"], "bf16")
        self.assertEqual((first["output_bytes"], first["saved_bytes"]), (3 * 20 * 2, 3 * 20 * 2 + 3 * 10 * 2))
        self.assertEqual([p["bytes"] for p in trace["parameters"]], [10 * 20 * 4, 20 * 4, 20 * 5 * 4, 5 * 4])
        self.assertEqual({p["dtype"] for p in trace["parameters"]}, {"float32"})
        self.assertEqual(trace["source"]["check"]["identity"], "exact on all stages")

    @unittest.skipIf(torch is None, NO_TORCH)
    @eleventh(9)
    def test_peaks_under_autocast_are_those_of_the_model_as_it_is(self):
        from plimsoll.torch.versions import why_no_bf16_products
        if why_no_bf16_products():
            self.skipTest(why_no_bf16_products())
        trace = self.trace_of(f"{MODELS}:gpt", "--amp", "bf16", counter="malloc")
        measured = trace["source"]["check"]["plain_iteration_peak_bytes"]
        self.assertLess(abs(plain_peak_of_tensors(trace, True) / measured - 1), 0.005)

    @unittest.skipIf(torch is None, NO_TORCH)
    def test_casts_are_ops_with_bytes(self):
        trace = self.trace("small", "--graph", "--amp", "bf16", counter="malloc")
        casts = [op["bytes"] for op in trace["ops"] if op["kind"] == "_to_copy" and op["phase"] == "forward"]
        self.assertIn(10 * 20 * (4 + 2), casts)  # the first weight: 4 bytes read, 2 written
        self.assertAlmostEqual(freed_after_last_use_peak(trace), trace["source"]["check"]["plain_iteration_peak_bytes"], delta=64)

    @unittest.skipIf(torch is None, NO_TORCH)
    def test_autocast_that_this_torch_does_not_have_is_refused(self):
        from plimsoll.torch import versions
        from plimsoll.trace.models import refuse_missing
        options = SimpleNamespace(device="cpu", amp="fp16")
        with mock.patch.object(versions, "version", lambda: (2, 1)), self.assertRaises(UsageError) as raised:
            refuse_missing(options)
        with mock.patch.object(versions, "version", lambda: (2, 2)):
            refuse_missing(options)
        self.assertIn("--amp fp16 on a CPU needs torch 2.2", str(raised.exception))


@unittest.skipIf(torch is None, NO_TORCH)
class Updates(WithFolder):
    @eleventh(4)
    def test_states_and_steps_of_a_small_network(self):
        numbers = 10 * 20 + 20 + 20 * 5 + 5
        for name, states in (("sgd", 0), ("momentum", 1), ("adam", 2)):
            update = self.trace("small", "--optimizer", name, counter="malloc")["source"]["update"]
            steps = 4 * 4 if name == "adam" else 0  # the number of steps, a tensor for each parameter
            with self.subTest(name):
                self.assertEqual(update["state_bytes"], 4 * states * numbers + steps)
                self.assertTrue(all(update["steps"][way]["step_s"] > 0 for way in ("default", "for-loop", "foreach")))
                self.assertGreater(update["zero_s"], 0)
        # Adam makes the root of the second moment, and a scalar: of the largest parameter one by one, of all in a row.
        adam = self.trace("small", "--optimizer", "adam", counter="malloc")["source"]["update"]["steps"]
        self.assertLess(adam["for-loop"]["workspace_bytes"], 3 * 4 * 200)
        self.assertGreaterEqual(adam["foreach"]["workspace_bytes"], 4 * numbers)

    def test_a_graph_has_an_update_for_each_trained_parameter(self):
        trace = self.trace("small", "--graph", "--optimizer", "adam", counter="malloc")
        updates = [op for op in trace["ops"] if op["phase"] == "update"]
        self.assertEqual([trace["tensors"][op["inputs"][0]]["name"] for op in updates],
                         ["first.0.weight", "first.0.bias", "second.0.weight", "second.0.bias"])
        for op in updates:
            parameter, gradient, *states = op["inputs"]
            self.assertEqual(trace["tensors"][gradient]["gradient_of"], parameter)
            self.assertEqual([trace["tensors"][s]["bytes"] for s in states], 2 * [trace["tensors"][parameter]["bytes"]])
            self.assertEqual(op["bytes"], 7 * trace["tensors"][parameter]["bytes"])
            self.assertEqual(op["mutates"], [parameter, *states])
        self.assertAlmostEqual(sum(op["time_s"] for op in updates), trace["source"]["update"]["steps"]["default"]["step_s"], places=8)

    def test_what_draws_random_numbers_says_so(self):
        trace = self.trace("gpt", "--graph", "--layers", "1", "--width", "16", "--heads", "2", "--sequence", "8", "--vocabulary", "50",
                           "--batch", "2", "--dropout", "0.1")
        self.assertEqual({op["kind"] for op in trace["ops"] if op.get("attributes", {}).get("random") == "yes"}, {"bernoulli_"})
        self.assertEqual(sum(op["kind"] == "bernoulli_" for op in trace["ops"]), 4)
