#!/usr/bin/env python3
"""Tests of plimsoll.torch where people use it: a loop with all that belongs to one, inputs of several lengths, reports, training that is saved and
resumed. Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_people.py
"""

import contextlib
import copy
import io
import unittest
from types import SimpleNamespace
from unittest import mock

import left_out
from turns import eleventh

try:
    import torch
    from torch import nn

    import hand_plans
    from plimsoll.torch import Refused, WrongPlan, apply, several
    from plimsoll.torch.outside import storages_seen_by_python
    from plimsoll.torch.report import KEPT, Counts, Took, report_of
    from plimsoll.torch.stages import split
    from plimsoll.torch.versions import why_no_bf16_products
except ModuleNotFoundError as error:
    left_out.end_without(error)

torch.set_num_threads(1)
WORDS = 40


class Reader(nn.Module):
    """Rows of any length."""

    def __init__(self, width=16):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.2)) for _ in range(4)])
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def loss_of(outputs, targets):
    return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def rows(length, seed, batch=4):
    made = torch.Generator().manual_seed(seed)
    return torch.randint(WORDS, (batch, length), generator=made), torch.randint(WORDS, (batch, length), generator=made)


def plan_for(length, batch=4, micro_batches=1, name=None):
    tokens, targets = rows(length, 0, batch // micro_batches)
    staged = split(Reader(), tokens, loss=loss_of, targets=targets)
    plan = hand_plans.plan_of(staged, hand_plans.segments(len(staged.stages), 2), [0] * len(staged.stages), micro_batches)
    return plan if name is None else plan | {"strategy": name}


def is_same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values()))


class Loop:
    """Accumulation, autocast, clipping, a schedule of the rate, and a GradScaler where this torch has one for a CPU."""

    def __init__(self, planned):
        self.model = Reader()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        has_scaler = hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler")
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2) if has_scaler else None
        self.step = apply(self.model, plan_for(8), loss=loss_of) if planned else self.plainly

    def plainly(self, tokens, targets, scale):
        loss = loss_of(self.model(tokens), targets)
        with torch.autocast("cpu", enabled=False):
            (loss * scale).backward()
        return loss.detach()

    def run(self, steps):
        losses = []
        for k in steps:
            self.optimizer.zero_grad(set_to_none=True)
            scale = self.scaler.get_scale() if self.scaler else 1.0
            for part in range(2):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    losses.append(self.step(*rows(8, 2 * k + part), scale=scale / 2))
            if self.scaler:
                self.scaler.scale(torch.ones(()))  # which the scaler asks for before it unscales
                self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.scaler.step(self.optimizer) if self.scaler else self.optimizer.step()
            if self.scaler:
                self.scaler.update()
            self.schedule.step()
        return losses

    def parts(self):
        return {name: part for name, part in vars(self).items() if hasattr(part, "state_dict") and part is not None}

    def saved(self):
        file = io.BytesIO()
        torch.save({name: part.state_dict() for name, part in self.parts().items()} | {"random": torch.get_rng_state()}, file)
        return file.getvalue()

    def load(self, saved):
        state = torch.load(io.BytesIO(saved))
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        torch.set_rng_state(state["random"])


@unittest.skipIf(why_no_bf16_products(), why_no_bf16_products())
class InALoop(unittest.TestCase):
    def test_as_the_plain_loop(self):
        results = []
        for planned in (False, True):
            torch.manual_seed(1)
            loop = Loop(planned)
            torch.manual_seed(1)
            results.append((loop, loop.run(range(4))))
        (plain, expected), (planned, found) = results
        self.assertTrue(all(map(torch.equal, expected, found)), "losses")
        self.assertTrue(is_same(plain.model, planned.model))

    def test_saved_and_resumed_as_without(self):
        torch.manual_seed(1)
        whole = Loop(planned=True)
        torch.manual_seed(1)
        expected = whole.run(range(6))
        after = torch.get_rng_state()
        torch.manual_seed(1)
        first = Loop(planned=True)
        torch.manual_seed(1)
        found = first.run(range(3))
        saved = first.saved()
        torch.manual_seed(77)  # another process
        second = Loop(planned=True)
        second.load(saved)
        found += second.run(range(3, 6))
        self.assertTrue(all(map(torch.equal, expected, found)), "losses")
        self.assertTrue(is_same(whole.model, second.model))
        self.assertTrue(torch.equal(after, torch.get_rng_state()), "random state")
        if whole.scaler:
            self.assertEqual(whole.scaler.state_dict(), second.scaler.state_dict())


class SeveralLengths(unittest.TestCase):
    def setUp(self):
        self.model = Reader()
        self.other = copy.deepcopy(self.model)

    def compare(self, step, lengths, parts=1, **more):
        for seed, length in enumerate(lengths):
            tokens, targets = rows(length, seed)
            torch.manual_seed(seed)
            found = step(tokens, targets, **more)
            torch.manual_seed(seed)
            expected = loss_of(self.other(tokens), targets)
            (expected * more.get("scale", 1.0)).backward()
            self.assertTrue(torch.equal(found, expected.detach()))
            self.assertFalse(found.requires_grad)
        for one, other in zip(self.model.parameters(), self.other.parameters()):
            self.assertTrue(torch.equal(one.grad, other.grad))

    def test_each_by_its_plan(self):
        step = apply(self.model, [plan_for(8), plan_for(12)], loss=loss_of)
        self.compare(step, (8, 12, 12, 8, 12), scale=0.25)
        self.assertEqual([one.counts.steps for one in step.steps], [2, 3])

    def test_others_are_refused_or_run_plainly_as_asked(self):
        step = apply(self.model, [plan_for(8), plan_for(12, micro_batches=2)], loss=loss_of)
        message = (r"no plan is for tokens int64 \[4, 10\]: there are plan for tokens int64 \[4, 8\]; plan for tokens int64 \[2, 12\] in 2 micro-batches "
                   r"\(otherwise='plain' trains such inputs without a plan, 'at most' smaller ones by a plan for larger ones\)")
        with self.assertRaisesRegex(WrongPlan, message):
            step(*rows(10, 0))
        self.assertTrue(all(p.grad is None for p in self.model.parameters()), "nothing has been done")
        step = apply(self.model, plan_for(8), loss=loss_of, otherwise="plain")
        self.compare(step, (10, 8, 3), scale=8.0)

    @unittest.skipIf(why_no_bf16_products(), why_no_bf16_products())
    def test_others_run_plainly_under_the_autocast_of_the_moment(self):
        step = apply(self.model, plan_for(8), loss=loss_of, otherwise="plain")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            step(*rows(10, 0))
        self.model.zero_grad(set_to_none=True)
        self.compare(step, (10, 8, 3), scale=8.0)

    def test_micro_batches_are_part_of_what_a_plan_is_for(self):
        step = apply(self.model, [plan_for(8, batch=8, micro_batches=4), plan_for(8, batch=4, micro_batches=2)], loss=loss_of)
        for batch, number in ((8, 0), (4, 1)):
            step(*rows(8, 0, batch))
            self.assertEqual(step.steps[number].counts.steps, 1)
        with self.assertRaisesRegex(WrongPlan, "no plan is for"):
            step(*rows(8, 0, 3))

    def test_what_cannot_be_chosen_is_refused_at_once(self):
        for plans, message in (([plan_for(8), plan_for(8)], "plan and plan are both for tokens int64"), ([], "expected a plan or several"),
                               ([plan_for(8), without_shapes(plan_for(12))], "does not say for which inputs it is")):
            with self.assertRaisesRegex(WrongPlan, message):
                apply(self.model, plans, loss=loss_of)
        with self.assertRaisesRegex(Refused, "otherwise: expected 'refuse', 'plain' or 'at most', found 'pad'"):
            apply(self.model, plan_for(8), loss=loss_of, otherwise="pad")

    def test_reports_are_by_plan(self):
        step = apply(self.model, [plan_for(8) , plan_for(12, name="another")], loss=loss_of)
        step(*rows(12, 0))
        reports = step.report()
        self.assertEqual([report.strategy for report in reports.values()], ["another"])


class SmallerInputs(unittest.TestCase):
    """By plans for larger ones, which hold at most."""

    compare = SeveralLengths.compare
    setUp = SeveralLengths.setUp

    def offloading(self, length, batch=4, micro_batches=1):
        """Everything goes to the host in three parts and comes back."""
        tokens, targets = rows(length, 0, batch // micro_batches)
        staged = split(Reader(), tokens, loss=loss_of, targets=targets)
        steps = hand_plans.offload(hand_plans.segments(len(staged.stages), 2), staged)
        return hand_plans.in_parts(hand_plans.plan_of(staged, steps, hand_plans.saved_bytes(staged, tokens, targets), micro_batches), 3)

    def test_bit_for_bit_by_the_smallest_plan_that_they_fit_into(self):
        step = apply(self.model, [self.offloading(12), self.offloading(8)], loss=loss_of, otherwise="at most")
        self.compare(step, (8, 5, 12, 9, 5, 8, 1), scale=0.5)
        self.assertEqual([one.counts.steps for one in step.steps], [1, 2])
        self.assertEqual({key: one.counts.steps for key, one in step.smaller.items()},
                         {(1, "tokens int64 [4, 5]"): 2, (0, "tokens int64 [4, 9]"): 1, (1, "tokens int64 [4, 1]"): 1})

    def test_smaller_last_batches_in_micro_batches(self):
        step = apply(self.model, self.offloading(8, batch=8, micro_batches=2), loss=loss_of, otherwise="at most")
        for batch in (8, 6, 2, 6):
            tokens, targets = rows(8, batch, batch)
            self.model.zero_grad(set_to_none=True), self.other.zero_grad(set_to_none=True)
            torch.manual_seed(batch)
            found = step(tokens, targets)
            torch.manual_seed(batch)
            losses = [loss_of(self.other(a), b) / 2 for a, b in zip(tokens.chunk(2), targets.chunk(2))]
            for loss in losses:
                loss.backward()
            self.assertTrue(torch.equal(found, sum(losses).detach()))
            self.assertTrue(all(torch.equal(p.grad, q.grad) for p, q in zip(self.model.parameters(), self.other.parameters())))

    def test_what_is_larger_anywhere_is_refused(self):
        step = apply(self.model, self.offloading(8), loss=loss_of, otherwise="at most")
        for tokens in (rows(9, 0)[0], rows(4, 0, batch=5)[0], rows(8, 0)[0].int(), rows(8, 0)[0][:0]):
            with self.assertRaisesRegex(WrongPlan, "^no plan is for tokens"):
                step(tokens, tokens.long())
        self.assertTrue(all(p.grad is None for p in self.model.parameters()), "nothing has been done")

    @eleventh(1)
    def test_no_action_finds_more_than_with_the_larger(self):
        """Bytes that Python reaches before each forward and backward, less those before the first; and the host's buffers are the same."""
        step, seen = apply(self.model, self.offloading(32, batch=8), loss=loss_of, otherwise="at most"), {}
        for length, batch in ((32, 8), (32, 5), (20, 8), (3, 1)):
            tokens, targets = rows(length, 0, batch)
            one, found = next(iter(step.chosen(tokens))), seen.setdefault((length, batch), [])
            step(tokens, targets)
            self.model.zero_grad(set_to_none=True)
            one.watch = lambda _, action, found=found: found.append(live_bytes()) if action is not None and action.do != "copy" else None
            step(tokens, targets)
            self.model.zero_grad(set_to_none=True)
            self.assertIs(one.copies, step.steps[0].copies)
        whole = seen.pop((32, 8))
        for other in seen.values():
            self.assertTrue(all(own - other[0] < most - whole[0] for own, most in zip(other[1:], whole[1:], strict=True)))

    def test_values_that_share_their_memory_must_do_so(self):
        class Turned(Reader):
            def forward(self, tokens):
                x = self.words(tokens)
                turned = x.transpose(0, 1).reshape(-1, x.shape[-1])  # of one row a view
                return self.head(self.layers[1](self.layers[0](x).flatten(0, 1) + turned)).reshape(*x.shape[:2], -1)
        tokens, targets = rows(8, 0, batch=1)
        model = Turned()
        staged = split(copy.deepcopy(model), tokens, ["layers.0", "layers.1"], loss_of, targets)
        plan = hand_plans.plan_of(staged, hand_plans.store_all(len(staged.stages)), [0] * len(staged.stages))
        self.assertEqual(len(set(plan["model"]["tensors"][1])), 1, plan["model"]["boundaries"])
        plan["model"]["input_shapes"]["tokens"]["shape"] = [4, 8]
        with self.assertRaisesRegex(WrongPlan, "share their memory by the plan, and not for these inputs$"):
            apply(model, plan, loss=loss_of, otherwise="at most")(*rows(8, 0, batch=2))

    def test_what_is_a_copy_otherwise_and_is_read_must_be_there(self):
        """Of one row nothing is copied, and the backward reads what it would be a copy of."""
        class Turned(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(8, 8)

            def forward(self, x):
                return self.linear(x.transpose(0, 1).reshape(-1, 8))
        model, loss, x = nn.Sequential(nn.Linear(8, 8), Turned()), lambda outputs, _: outputs.pow(2).mean(), torch.randn(4, 6, 8)
        staged = split(copy.deepcopy(model), x, None, loss)
        plan = hand_plans.plan_of(staged, hand_plans.store_all(3), [0] * 3)
        for action in plan["actions"]:
            if action.get("stage") == 1:
                action["drops"] = ["x1"] if action["do"] == "forward" else ["saved by 1", "x2"]
        step = apply(model, plan, loss=loss, otherwise="at most")
        for rows_ in (4, 3):
            model.zero_grad(set_to_none=True)
            step(x[:rows_])
            found = model[0].weight.grad
            model[0].weight.grad = None
            loss(model(x[:rows_]), None).backward()
            self.assertTrue(torch.equal(found, model[0].weight.grad))
        model.zero_grad(set_to_none=True)
        with self.assertRaisesRegex(WrongPlan, "^plan: for these inputs the backward of stage '1' reads '0', which the plan has dropped by then$"):
            step(x[:1])
        self.assertTrue(all(p.grad is None for p in model.parameters()), "nothing has been done")

    def test_reports_say_at_most_and_do_not_complain_of_less(self):
        plan = self.offloading(8)
        plan["predicted"] |= {"one_after_the_other_s": 1e3, "one_after_the_other_peak_bytes": 10**6}
        step = apply(self.model, plan, loss=loss_of, otherwise="at most")
        step(*rows(5, 0))
        (where, report), = step.report().items()
        self.assertEqual(where, "plan, for tokens int64 [4, 5]")
        self.assertIn("promised 1000.00 s at most, taken", str(report))
        self.assertIn("promised 1.00 MB at most; torch counts", str(report))
        self.assertEqual(report.advice, [])

    def test_steps_that_were_not_used_for_long_are_let_go(self):
        step = apply(self.model, self.offloading(20), loss=loss_of, otherwise="at most")
        with mock.patch.object(several, "MOST_KEPT", 2):
            for length in (1, 2, 1, 3):
                step(*rows(length, 0, batch=1))
        self.assertEqual([shapes for _, shapes in step.smaller], ["tokens int64 [1, 1]", "tokens int64 [1, 3]"])


def live_bytes():
    return sum(storage.nbytes() for storage in storages_seen_by_python().values())


def without_shapes(plan):
    return plan | {"model": {key: value for key, value in plan["model"].items() if key != "input_shapes"}}


class Reports(unittest.TestCase):
    """Of real steps on a CPU; of a GPU's by what its events and counters would say."""

    def promised(self, **more):
        predicted = {"makespan_s": 0.010, "one_after_the_other_s": 0.020, "peak_bytes": 10_000_000, "one_after_the_other_peak_bytes": 9_000_000,
                     "resident_bytes": 2_000_000, "input_bytes": 1_000_000}
        return SimpleNamespace(strategy="rotor", is_at_most=False, predicted=predicted | more)

    def counts(self, kind="cuda", **took):
        counts = Counts(torch.device(kind))
        counts.took.append(Took(**took))
        return counts

    def on_gpu(self, seconds, issue, rise):
        events = (SimpleNamespace(elapsed_time=lambda finish: seconds * 1e3), SimpleNamespace(synchronize=lambda: None))
        return report_of(self.promised(), self.counts(issue_s=issue, events=events, before_bytes=4_000_000, rise_bytes=rise))

    def test_of_steps_on_a_cpu(self):
        step = apply(Reader(), plan_for(8) | {"predicted": self.promised().predicted}, loss=loss_of)
        self.assertIn("no step has run yet", str(step.report()))
        for k in range(3):
            step(*rows(8, k))
        report = step.report()
        self.assertEqual((report.steps, report.promised_s, report.promised_peak_bytes), (2, 0.020, 9_000_000), "without the first")
        self.assertIsNone(report.peak_bytes)
        self.assertTrue(0 < report.taken_s < 5 and report.issue_s == report.taken_s)
        self.assertGreater(report.resident_set_bytes, 10_000_000)
        self.assertRegex(str(report), r"by hand, the last 2 steps\n  time   promised 20.00 ms, taken .* ms \([+-].* %\)\n  peak   promised 9.00 MB; torch "
                         r"counts no bytes on a CPU \(measure.py does, with a counter of its own\): the whole process has had at most .* since it began")

    def test_what_copies_have_on_the_host(self):
        tokens, targets = rows(8, 0)
        staged = split(Reader(), tokens, loss=loss_of, targets=targets)
        sizes = hand_plans.saved_bytes(staged, tokens, targets)
        for steps, host in ((hand_plans.store_all(len(staged.stages)), 0), (hand_plans.offload(hand_plans.store_all(len(staged.stages)), staged), 10_000)):
            plan = hand_plans.plan_of(staged, steps, sizes)
            plan["predicted"]["host_peak_bytes"] = host
            step = apply(Reader(), plan, loss=loss_of)
            for _ in range(3):
                step(tokens, targets)
            report = step.report()
            moved = sum({action["value"]: next(value["bytes"] for value in plan["values"] if value["name"] == action["value"])
                         for action in plan["actions"] if action["do"] == "copy"}.values())
            self.assertEqual((report.promised_host_bytes, report.host_bytes), (host, max(0, moved - 4)), "all is there at one time, and again in the next step; the loss stays")
            self.assertEqual("host   promised 10.00 kB, taken" in str(report), host > 0)

    def test_the_last_steps_alone(self):
        step = apply(Reader(), plan_for(8), loss=loss_of)
        for k in range(KEPT + 3):
            step(*rows(8, k))
        self.assertEqual((step.report().steps, step.counts.steps), (KEPT, KEPT + 3))

    def test_a_step_that_failed_does_not_count(self):
        step = apply(Reader(), plan_for(8), loss=loss_of)
        with contextlib.suppress(IndexError), mock.patch.object(step, "by_actions", side_effect=IndexError):
            step(*rows(8, 0))
        self.assertEqual(step.report().steps, 0)

    def test_as_promised(self):
        report = self.on_gpu(0.0102, 0.004, 7_010_000)
        self.assertEqual(str(report), "rotor, the last 1 step\n  time   promised 10.00 ms, taken 10.20 ms (+2.0 %)\n"
                                      "  peak   promised 10.00 MB, taken 10.01 MB (+0.1 %); in addition 1.00 MB that the plan does not know")

    def test_the_peak_is_the_most_of_any_step(self):
        counts, events = self.counts(issue_s=0.001, rise_bytes=0), (SimpleNamespace(elapsed_time=lambda _: 1.0), SimpleNamespace(synchronize=lambda: None))
        counts.took.clear()
        for before, rise in ((4_000_000, 5_000_000), (3_500_000, 7_000_000), (9_000_000, 6_000_000)):
            counts.took.append(Took(issue_s=0.001, events=events, before_bytes=before, rise_bytes=rise))
        report = report_of(self.promised(), counts)
        self.assertEqual((report.peak_bytes, report.beside_bytes), (10_000_000, 500_000))

    def test_what_to_do_where_they_part(self):
        for arguments, expected in (((0.020, 0.019, 7_000_000), "the host binds: it issued for 19.00 ms"), ((0.020, 0.004, 7_000_000), "the GPU binds"),
                                    ((0.005, 0.004, 7_000_000), "faster than promised"),
                                    ((0.010, 0.004, 8_000_000), "until then plan with 1.00 MB less memory"),
                                    ((0.010, 0.004, 5_000_000), "up to 2.00 MB more of --memory")):
            advice = self.on_gpu(*arguments).advice
            self.assertEqual(len(advice), 1, advice)
            self.assertIn(expected, advice[0])
        report = report_of(self.promised(), self.counts("cpu", issue_s=0.05))
        self.assertIn("with other threads (here 1)", report.advice[0])

    def test_on_cuda_nothing_waits_within_the_step(self):
        said, live = [], iter([5, 12])
        event = SimpleNamespace(record=lambda stream: said.append("event"))
        stats = lambda device: {"requested_bytes": {"all": dict.fromkeys(("current", "peak"), next(live))}}
        with mock.patch.multiple(torch.cuda, Event=lambda enable_timing: event, current_stream=lambda device: None,
                                 reset_peak_memory_stats=lambda device: said.append("reset"), memory_stats_as_nested_dict=stats,
                                 memory_stats=lambda: {"requested_bytes.all.current": 0}, synchronize=lambda: said.append("waits")):
            counts = Counts(torch.device("cuda"))
            with counts.of_step():
                said.append("step")
        self.assertEqual(said, ["reset", "event", "step", "event"])
        self.assertEqual((counts.took[0].before_bytes, counts.took[0].rise_bytes), (5, 7))


if __name__ == "__main__":
    unittest.main()
