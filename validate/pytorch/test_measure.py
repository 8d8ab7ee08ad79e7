#!/usr/bin/env python3
"""Tests of measure.py: what it says of gradients that differ and of a host that binds, with stand-ins for a GPU.

  /usr/bin/python3 validate/pytorch/test_measure.py
"""

import contextlib
import importlib.util
import io
import os
import sys
import tempfile
import unittest
import unittest.mock

import left_out

HERE = os.path.dirname(os.path.abspath(__file__))

if importlib.util.find_spec("torch") is None:
    left_out.end(f"{sys.executable} has no torch {left_out.TO_INSTALL}")

import measure
import torch

from plimsoll.trace.user_code import load_file

Apart = load_file(os.path.join(HERE, "..", "..", "traces", "exporter_tests", "apart.py"), "apart").Apart


class Trained(measure.Sameness):
    """Training of which each run gives the next of some numbers, or is refused; by which kernels, is written down."""

    def __init__(self, answers, plans=1):
        self.runs = unittest.mock.Mock(task={"device": "cuda"}, plans=[None] * plans)
        self.model, self.answers, self.asked, self.controls = None, answers, [], {}

    def trained(self, run):
        way = (torch.is_deterministic_algorithms_warn_only_enabled(), torch.are_deterministic_algorithms_enabled())
        self.asked.append(way)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"loss": torch.tensor([answer, 8.0])}


REFUSED = RuntimeError("attention_backward does not have a deterministic implementation")
OTHER_BYTES = measure.Refused("'saved by attention' has 16 B, by the plan 8 B")


class Sameness(unittest.TestCase):
    def test_the_first_kernels_by_which_plain_training_is_itself(self):
        trained = Trained([1.0, 1.0, 1.0, 1.0])
        self.assertEqual(trained.of_plans(),
                         [{"differences": [], "deviation": 0.0, "control_deviation": 0.0, "kernels": "deterministic"}])
        self.assertEqual(trained.asked, [(False, True)] * 4, "two controls and a plan, by kernels that are refused where they add in any order")
        self.assertFalse(torch.are_deterministic_algorithms_enabled(), "as before")

    def test_what_is_refused_goes_by_the_math_kernel(self):
        found = Trained([REFUSED, 1.0, 1.0, 1.0, 2.0]).of_plans()
        self.assertEqual(found, [{"differences": ["loss"], "deviation": 1 / 8, "control_deviation": 0.0,
                                  "kernels": "deterministic, attention by the math kernel"}])

    def test_a_control_that_differs_goes_on_to_the_last_kernels_and_is_reported(self):
        trained = Trained([1.0, 1.0, 2.0, 1.0, 2.0, 1.0, 1.0, 1.5, 1.25, 2.0, 1.0], plans=2)
        found = trained.of_plans()
        self.assertEqual([of["deviation"] for of in found], [1 / 8, 0.0])
        self.assertEqual([of["control_deviation"] for of in found], [0.5 / 8] * 2, "the larger of two controls")
        self.assertEqual([of["differences"] for of in found], [["loss"], []])
        self.assertTrue(all(of["kernels"].startswith("deterministic where PyTorch has them") for of in found))
        self.assertEqual(trained.asked[-1], (True, True))

    def test_a_plan_that_is_refused_is_tried_by_the_next_kernels(self):
        found = Trained([1.0, 1.0, 1.0, REFUSED, 1.0, 1.0, 1.0, 1.0]).of_plans()
        self.assertEqual((found[0]["differences"], found[0]["kernels"]), ([], "deterministic, attention by the math kernel"))

    def test_a_plan_that_moves_what_other_kernels_save_otherwise_goes_by_those_of_its_measurement(self):
        """Of two plans the first, which is compared with its own control; the second keeps its kernels and its control."""
        found = Trained([1.0, 1.0, 1.0, OTHER_BYTES, REFUSED, 1.0, 1.0, 1.0, OTHER_BYTES, 1.0, 2.0, 1.0, 3.0, 1.0], plans=2).of_plans()
        self.assertEqual(found, [{"differences": ["loss"], "deviation": 2 / 8, "control_deviation": 1 / 8, "kernels": "as they are"},
                                 {"differences": [], "deviation": 0.0, "control_deviation": 0.0, "kernels": "deterministic"}])

    def test_other_errors_are_errors(self):
        for error in (RuntimeError("out of memory"), measure.Refused("no such stage")):
            with self.assertRaises(type(error)):
                Trained([error] * 9).of_plans()
        with self.assertRaisesRegex(measure.Refused, "16 B"):
            Trained([*[1.0, 1.0, 1.0, OTHER_BYTES] * 4]).of_plans()
        self.assertFalse(torch.are_deterministic_algorithms_enabled())

    def test_attention_goes_by_the_math_kernel_and_back(self):
        backend = unittest.mock.Mock(spec=[f"{word}_sdp{end}" for name in ("flash", "cudnn") for word, end in
                                           ((f"enable_{name}", ""), (name, "_enabled"))])
        backend.flash_sdp_enabled.return_value, backend.cudnn_sdp_enabled.return_value = True, False
        with unittest.mock.patch.object(torch.backends, "cuda", backend):
            with measure.kernels(False, True):
                backend.enable_flash_sdp.assert_called_once_with(False)
                backend.enable_cudnn_sdp.assert_called_once_with(False)
        self.assertEqual(backend.enable_flash_sdp.call_args[0], (True,))
        self.assertEqual(backend.enable_cudnn_sdp.call_args[0], (False,))

    def test_the_distance_is_of_the_largest_number(self):
        of = {"a": torch.tensor([4.0, -8.0]), "b": None, "c": torch.tensor([1, 2]), "d": torch.zeros(0)}
        self.assertEqual(measure.compared(of, dict(of)), ([], 0.0))
        self.assertEqual(measure.compared(of, of | {"a": torch.tensor([4.0, -8.5])}), (["a"], 0.0625))
        self.assertEqual(measure.compared(of, of | {"b": torch.ones(1)}), (["b"], 1.0))
        self.assertEqual(measure.compared(of, of | {"a": torch.tensor([4.0, float("nan")])}), (["a"], 1.0))


class Issue(unittest.TestCase):
    """A device that does later what the host issues."""

    def runs(self, clock):
        runs = object.__new__(measure.Runs)
        runs.clock, runs.model = clock, torch.nn.Linear(1, 1)
        return runs

    def measured(self, clock):
        runs = self.runs(clock)
        with unittest.mock.patch("measure.time", clock):
            seconds, issue = runs.seconds_of(lambda: clock.launch(10))
        return seconds, issue, runs.issue_of([seconds], [issue])

    def test_a_device_that_binds(self):
        seconds, issue, said = self.measured(Apart(0.001, 0.004))
        self.assertAlmostEqual(seconds, 0.040)
        self.assertAlmostEqual(issue, 0.010)
        self.assertAlmostEqual(said["issue_share"], 0.25)
        self.assertEqual(len(said["issue_seconds"]), 1)

    def test_a_host_that_binds(self):
        seconds, issue, said = self.measured(Apart(0.004, 0.001))
        self.assertAlmostEqual(issue, 0.040)
        self.assertGreater(said["issue_share"], 0.9)

    def test_a_host_that_waits_for_room_in_the_queue_is_not_taken_for_slow(self):
        clock = Apart(0.001, 0.004)
        launch, calls = clock.launch, []

        def waits(kernels):
            launch(kernels)
            calls.append(None)
            if len(calls) == 2:
                clock.now += 0.025
        clock.launch = waits
        self.assertAlmostEqual(self.measured(clock)[1], 0.010)

    def test_one_processor_has_no_issue(self):
        runs = self.runs(unittest.mock.Mock(runs_apart=False))
        self.assertEqual(runs.issue_of([1.0], [1.0]), {})


class Batches(unittest.TestCase):
    """What trains is not what was exported."""

    example = torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 2])

    def found(self, is_for):
        """By plans that are for such inputs."""
        runs, trained = object.__new__(measure.Runs), []
        runs.model = torch.nn.Linear(1, 1)
        runs.plain_on = lambda _: trained.append(runs.inputs)

        def step():
            if not is_for(runs.inputs):
                raise measure.Refused("another course")
        runs.steps = [step]
        found, why = runs.other_batches(self.example)
        self.assertEqual(len(trained), 2, "others alone")
        return [inputs for inputs, _ in found], why

    def test_they_are_other_numbers_and_other_rows(self):
        (numbers, rows), why = self.found(lambda inputs: True)
        self.assertEqual(why, "")
        self.assertTrue(torch.equal(rows, self.example[0].flip(0)))
        self.assertFalse(torch.equal(numbers.sort().values, self.example[0].sort().values))

    def test_what_the_plan_is_not_for_is_left_out(self):
        found, why = self.found(lambda inputs: inputs.sum() == 15)
        self.assertEqual((len(found), why), (1, ""))
        found, why = self.found(lambda inputs: False)
        self.assertTrue(torch.equal(found[0], self.example[0]))
        self.assertEqual(why, "Refused: another course")

    def test_each_step_has_its_own(self):
        runs, model = unittest.mock.Mock(), torch.nn.Linear(2, 1)
        same = object.__new__(measure.Sameness)
        same.runs, same.model, same.start = runs, model, {name: value.clone() for name, value in model.state_dict().items()}
        same.trained(lambda: model(torch.ones(2)).sum())
        self.assertEqual([call.args for call in runs.take.call_args_list], [(0,), (1,), (0,)])


class Quick(unittest.TestCase):
    def test_it_stands_for_one_plan_and_three_rounds(self):
        with unittest.mock.patch.object(measure, "measure_all") as measured:
            self.assertEqual(measure.main(["gpt", "--quick", "--plans", "9", "--program", sys.executable, "-o", "nowhere"]), 0)
        options = measured.call_args[0][0]
        self.assertEqual((options.plans, options.strategies, options.rounds), (1, "", 3))


class Prepared(unittest.TestCase):
    """Plans made before a clock counts, taken when it does."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.kept, self.to = os.path.join(folder.name, "kept"), os.path.join(folder.name, "to")
        os.makedirs(os.path.join(self.kept, "net"))
        self.write("trace.json", "a trace")
        self.options = measure.command_line().parse_args(["net", "--batch", "4", "--prepared", self.kept, "-o", self.to])
        plans = [{"strategy": "rotor", "budget_bytes": 5, "file": os.path.join(self.kept, "net", "plan1.json")}]
        measure.keep_plans(self.options, os.path.join(self.kept, "net"), plans)

    def write(self, name, text):
        with open(os.path.join(self.kept, "net", name), "w", encoding="utf-8") as file:
            file.write(text)

    def taken(self, name="net"):
        return measure.prepared_plans(self.options, name, self.to)

    def test_are_copied_with_their_trace(self):
        self.assertEqual(self.taken(), [{"strategy": "rotor", "budget_bytes": 5, "file": os.path.join(self.to, "plan1.json")}])
        self.assertTrue(os.path.isfile(os.path.join(self.to, "trace.json")))

    def test_of_another_model_there_are_none(self):
        self.assertIsNone(self.taken("other"))
        self.options.prepared = None
        self.assertIsNone(self.taken())

    def test_in_a_folder_that_is_not_there_are_refused(self):
        said = io.StringIO()
        for absent in (self.kept + "x", os.path.join(self.kept, "net", "trace.json"), ""):
            with contextlib.redirect_stderr(said), unittest.mock.patch.object(measure, "measure_all") as measured:
                self.assertEqual(measure.main(["net", "--program", "/bin/true", "--prepared", absent, "-o", self.to]), 2)
            measured.assert_not_called()
            self.assertIn(f"measure.py: --prepared {absent}: no such folder; ", said.getvalue())
        with unittest.mock.patch.object(measure, "measure_all") as measured:
            self.assertEqual(measure.main(["net", "--program", "/bin/true", "--prepared", self.kept, "-o", self.to]), 0)
        measured.assert_called_once()

    def test_for_another_question_are_refused(self):
        self.options.batch = 8
        with self.assertRaisesRegex(measure.exporter.UsageError, "net/plans.json: made for batch 4, not 8$"):
            self.taken()
        for text in ("{}", "[]", '{"asked": 1, "plans": []}', '{"asked": {}, "plans": [1]}', "{"):
            self.write("plans.json", text)
            with self.assertRaisesRegex(measure.exporter.UsageError, "net/plans.json: not what --prepare writes: "):
                self.taken()

    def test_without_a_plan_are_refused(self):
        measure.keep_plans(self.options, os.path.join(self.kept, "net"), [])
        with self.assertRaisesRegex(measure.exporter.UsageError, "net/plans.json: has no plans$"):
            self.taken()

    def test_may_lie_where_the_run_writes(self):
        self.to = os.path.join(self.kept, "net")
        self.assertEqual(self.taken()[0]["file"], os.path.join(self.to, "plan1.json"))


if __name__ == "__main__":
    unittest.main()
