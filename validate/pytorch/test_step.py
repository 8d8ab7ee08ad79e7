#!/usr/bin/env python3
"""Tests of plimsoll.torch.apply, on plans made by hand. Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_step.py
"""

import contextlib
import copy
import os
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

import left_out
from turns import eleventh

try:
    import torch
    from torch import nn

    import gpu_models
    import hand_plans
    import models
    import overhead
    import torch.utils.checkpoint

    from models import mean_square
    from plimsoll.torch import Refused, WrongPlan, apply, policies
    from plimsoll.torch.borders import Entry
    from plimsoll.torch.policies import SavesInOrder, read_policy
    from plimsoll.torch.stages import split
    from plimsoll.torch.versions import autocast_now, why_no_bf16_products
    from plimsoll.torch.whole_graph import WholeGraph, refuse_without_graph
except ModuleNotFoundError as error:
    left_out.end_without(error)

torch.set_num_threads(1)


def plain(model, loss, inputs, targets):
    outputs = model(**inputs) if isinstance(inputs, dict) else model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    value = outputs.loss if loss is None else loss(outputs, targets)
    value.backward()
    return value.detach()


class TrainsAsPlainTraining(unittest.TestCase):
    """Bit for bit: losses, gradients, running statistics, random state, and parameters after two optimizer steps."""

    def compare(self, model, step, loss, inputs, targets):
        other, watched = copy.deepcopy(model), step.model
        optimizers = [torch.optim.SGD(m.parameters(), 0.01, momentum=0.9) for m in (other, watched)]
        for iteration in range(2):
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
            torch.manual_seed(iteration)
            expected = plain(other, loss, inputs, targets)
            after = torch.get_rng_state()
            torch.manual_seed(iteration)
            self.assertTrue(torch.equal(step(inputs, targets), expected))
            self.assertTrue(torch.equal(torch.get_rng_state(), after), "random state")
            for (name, p), q in zip(other.named_parameters(), watched.parameters()):
                self.assertEqual(p.grad is None, q.grad is None, name)
                self.assertTrue(p.grad is None or torch.equal(p.grad, q.grad), f"gradient of {name}, step {iteration}")
            for optimizer in optimizers:
                optimizer.step()
        for (name, a), b in zip(other.state_dict().items(), watched.state_dict().values()):
            self.assertTrue(torch.equal(a, b), name)

    @eleventh(7)
    def test_every_model_by_every_sequence(self):
        everything = os.environ.get("PLIMSOLL_TESTS") == "all"
        for number, name in enumerate(models.MODELS):
            for k, (what, sequence) in enumerate(hand_plans.SEQUENCES.items()):
                if not everything and k % 5 != number % 5:
                    continue
                with self.subTest(model=name, sequence=what):
                    model, plan, loss, inputs, targets = hand_plans.planned(name, sequence)
                    self.compare(model, apply(copy.deepcopy(model), plan, loss=loss), loss, inputs, targets)

    def test_micro_batches_add_up_as_in_a_loop(self):
        model, loss, inputs, targets = models.MODELS["gpt"](batch=4)
        staged = split(copy.deepcopy(model), inputs[:2], loss=loss, targets=targets[:2])
        saved = hand_plans.saved_bytes(staged, inputs[:2], targets[:2])
        plan = hand_plans.plan_of(staged, hand_plans.segments(len(staged.stages), 2), saved, micro_batches=2)
        trained = copy.deepcopy(model)
        step = apply(trained, plan, loss=loss)
        for seed in range(2):  # the second adds to the gradients of the first
            torch.manual_seed(seed)
            got = step(inputs, targets)
            torch.manual_seed(seed)
            parts = [loss(model(x), y) / 2 for x, y in zip(inputs.chunk(2), targets.chunk(2))]
            for part in parts:
                part.backward()
            self.assertTrue(torch.equal(got, (parts[0] + parts[1]).detach()))
            for (name, p), q in zip(model.named_parameters(), trained.parameters()):
                self.assertTrue(torch.equal(p.grad, q.grad), name)

    @eleventh(1)
    def test_what_is_copied_in_parts_comes_back_whole(self):
        for name in ("unet", "lstm"):
            for sequence in ("offload", "offload segments"):
                with self.subTest(model=name, sequence=sequence):
                    model, plan, loss, inputs, targets = hand_plans.planned(name, hand_plans.SEQUENCES[sequence])
                    step = apply(copy.deepcopy(model), hand_plans.in_parts(plan, 3), loss=loss)
                    self.compare(model, step, loss, inputs, targets)

    def test_scale_is_that_of_the_loss(self):
        model, plan, loss, inputs, targets = hand_plans.planned("unet", hand_plans.SEQUENCES["segments of 2"])
        other = copy.deepcopy(model)
        got = apply(model, plan, loss=loss)(inputs, targets, scale=512.0)
        value = loss(other(inputs), targets)
        (value * 512.0).backward()
        self.assertTrue(torch.equal(got, value.detach()))
        self.assertTrue(all(torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), other.parameters())))

    def test_inputs_get_their_gradients(self):
        model, plan, loss, inputs, targets = hand_plans.planned("unet", hand_plans.SEQUENCES["recompute all"])
        one, two = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
        other, step = copy.deepcopy(model), apply(model, plan, loss=loss)
        for _ in range(2):  # the second adds to the gradient of the first
            loss(other(one), targets).backward()
            step(two, targets)
            self.assertTrue(torch.equal(one.grad, two.grad))

    @unittest.skipIf(why_no_bf16_products(), why_no_bf16_products())
    def test_autocast_is_as_in_the_first_run(self):
        for name in ("unet", "encoder_decoder"):
            model, loss, inputs, targets = models.MODELS[name]()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                staged = split(copy.deepcopy(model), inputs, loss=loss, targets=targets)
            plan = hand_plans.plan_of(staged, hand_plans.segments(len(staged.stages), 3), [0] * len(staged.stages))
            trained = copy.deepcopy(model)
            step = apply(trained, plan, loss=loss)
            torch.manual_seed(3)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                got = step(inputs, targets)
                self.assertTrue(autocast_now(), "the caller's goes on")
            torch.manual_seed(3)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                value = loss(model(*inputs) if isinstance(inputs, tuple) else model(inputs), targets)
            value.backward()
            self.assertTrue(torch.equal(got, value.detach()), name)
            for (of, p), q in zip(model.named_parameters(), trained.parameters()):
                self.assertTrue(torch.equal(p.grad, q.grad), f"{name}: {of}")


    def test_casts_of_a_forward_without_gradients_are_not_kept(self):
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)), torch.randn(4, 16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            staged = split(copy.deepcopy(model), x, how=None, loss=mean_square)
        steps = [("F", 0), ("S", 0), ("S", 1), ("S", 2), ("B", 2), ("B", 1), ("B", 0)]
        step = apply(model, hand_plans.plan_of(staged, steps, [0] * 3), loss=mean_square)
        for _ in range(2):  # the first records the model, with gradients
            model.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                step(x)
        self.assertTrue(all(p.grad is not None for p in model.parameters()))


class OfGpuSize(unittest.TestCase):
    """The models that are for a GPU, made small."""

    @eleventh(5)
    def test_each_by_a_plan(self):
        for name, made in gpu_models.MODELS.items():
            if name == "resnet50" and os.environ.get("PLIMSOLL_TESTS") != "all":
                continue  # seconds
            with self.subTest(name):
                model, loss, inputs, targets = made(batch=2, small=True)
                staged = split(copy.deepcopy(model), inputs, loss=loss, targets=targets)
                saved = hand_plans.saved_bytes(staged, inputs, targets)
                plan = hand_plans.plan_of(staged, hand_plans.segments(len(staged.stages), 2), saved)
                TrainsAsPlainTraining.compare(self, model, apply(copy.deepcopy(model), plan, loss=loss), loss, inputs, targets)


class Course(nn.Module):
    """What its Python code reads beside tensors: a number of its own, an argument, whether it trains."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.factor = 1.0
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x, times=1):
        for layer in self.layers:
            x = nn.functional.dropout(layer(x) * self.factor * times, 0.5, self.training)
        return x.pow(2).mean()


class Courses(unittest.TestCase):
    """The model is recorded anew where its Python code would do something else than when it was recorded."""

    def setUp(self):
        self.model, self.x = Course(), torch.randn(4, 8)
        staged = split(copy.deepcopy(self.model), self.x)
        plan = hand_plans.plan_of(staged, hand_plans.recompute_all(len(staged.stages)), [0] * len(staged.stages))
        self.other, self.step = copy.deepcopy(self.model), apply(self.model, plan)

    def compare(self, *inputs):
        for seed in range(2):
            torch.manual_seed(seed)
            got = self.step(inputs if len(inputs) > 1 else inputs[0])
            torch.manual_seed(seed)
            expected = self.other(*inputs)
            expected.backward()
            self.assertTrue(torch.equal(got, expected.detach()))
        self.assertTrue(all(torch.equal(p.grad, q.grad) for p, q in zip(self.model.parameters(), self.other.parameters())))

    def test_a_number_of_the_model(self):
        self.compare(self.x)
        self.model.factor = self.other.factor = 0.5
        self.compare(self.x)

    def test_an_argument_that_is_no_tensor(self):
        self.compare(self.x, 2)
        self.compare(self.x, 3)

    def test_calls_that_are_not_in_the_plan(self):
        self.compare(self.x)
        self.model.eval()  # without dropout
        with self.assertRaisesRegex(WrongPlan, r"before stage 'layers.1' there are \['dropout'\] by the plan, and \['mul#2'\] in this model"):
            self.step(self.x)

    def test_a_tensor_that_asks_for_its_gradient(self):
        self.compare(self.x)
        one, two = self.x.clone().requires_grad_(), self.x.clone().requires_grad_()
        torch.manual_seed(0)
        self.step(one)
        torch.manual_seed(0)
        self.other(two).backward()
        self.assertTrue(torch.equal(one.grad, two.grad))

    def test_nothing_is_recorded_twice_without_need(self):
        self.compare(self.x)
        staged = self.step.staged
        self.compare(torch.randn(4, 8))
        self.assertIs(self.step.staged, staged)

    def test_an_input_that_was_not_there(self):
        with self.assertRaisesRegex(WrongPlan, "before stage '.*' there are .* by the plan, and .*'times'.* in this model"):
            self.step((self.x, torch.ones(())))


class Row(nn.Module):
    """A value is read by two operations of a stage and by a later one: G + a + b, in that order, and not G + (a + b)."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(64, 64)
        self.twice, self.also, self.last = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        shared = torch.tanh(self.first(x))
        y = torch.tanh(self.twice(shared)) * self.also(shared) + shared
        return self.last(y) * shared


class Sum(nn.Module):
    """One gradient goes to three values between stages: what is added to one of them must not be in the others."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third, self.fourth = (nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        b = torch.tanh(self.first(x))
        a = torch.tanh(self.second(b))
        c = torch.tanh(self.third(a))
        return self.fourth(c) + a + b


class OrderOfSums(unittest.TestCase):
    def test_values_that_are_handed_the_same_gradient(self):
        model, x = Sum(), torch.randn(32, 64)
        staged = split(copy.deepcopy(model), x, how=["second", "third", "fourth"], loss=lambda y, _: y.pow(3).mean())
        plan = hand_plans.plan_of(staged, hand_plans.store_all(len(staged.stages)), [0] * len(staged.stages))
        trained = copy.deepcopy(model)
        apply(trained, plan, loss=lambda y, _: y.pow(3).mean())(x)
        model(x).pow(3).mean().backward()
        for p, q in zip(model.parameters(), trained.parameters()):
            self.assertTrue(torch.equal(p.grad, q.grad))

    def test_a_value_of_several_stages_and_operations(self):
        model, x = Row(), torch.randn(32, 64)
        staged = split(copy.deepcopy(model), x, how=["twice", "last"], loss=mean_square)
        self.assertTrue(set(staged.stages[1].reads) & set(staged.boundaries[2]), "the value passes by")
        plan = hand_plans.plan_of(staged, hand_plans.store_all(len(staged.stages)), [0] * len(staged.stages))
        trained = copy.deepcopy(model)
        apply(trained, plan, loss=mean_square)(x)
        model(x).pow(2).mean().backward()
        for (name, p), q in zip(model.named_parameters(), trained.named_parameters()):
            self.assertTrue(torch.equal(p.grad, q[1].grad), name)


    def test_a_parameter_of_several_stages_and_operations(self):
        """A cell repeated: two steps a stage, so that a gradient is (((d + c) + b) + a), also on top of one that is there."""
        class Steps(nn.Module):
            def __init__(self, cell):
                super().__init__()
                self.cell = cell

            def forward(self, x):
                return torch.tanh(self.cell(torch.tanh(self.cell(x))))

        torch.manual_seed(0)
        cell, x = nn.Linear(64, 64), torch.randn(32, 64)
        model = nn.Sequential(*[Steps(cell) for _ in range(3)])
        staged = split(copy.deepcopy(model), x, how=None, loss=mean_square)
        plan = hand_plans.plan_of(staged, hand_plans.segments(len(staged.stages), 2), [0] * len(staged.stages))
        trained = copy.deepcopy(model)
        step = apply(trained, plan, loss=mean_square)
        for iteration in range(2):  # the second adds to what the first has left
            step(x)
            model(x).pow(2).mean().backward()
            for p, q in zip(model.parameters(), trained.parameters()):
                self.assertTrue(torch.equal(p.grad, q.grad), iteration)


class Refusals(unittest.TestCase):
    def setUp(self):
        self.model, self.plan, self.loss, self.inputs, self.targets = hand_plans.planned("unet", hand_plans.SEQUENCES["segments of 2"])

    def refused(self, text, kind=Refused, model=None, plan=None, **options):
        with self.assertRaisesRegex(kind, text):
            step = apply(model or self.model, plan or self.plan, loss=self.loss, **options)
            step(self.inputs, self.targets)
        self.assertTrue(all(p.grad is None for p in (model or self.model).parameters()), "nothing half done")

    def test_another_model_names_the_first_path_that_differs(self):
        other = models.UNet((8, 16, 24))
        self.refused(r"of another model: module 'down.2.layers.0': expected Conv2d with parameters \[\[32, 16, 3, 3\], \[32\]\], found Conv2d "
                     r"with \[\[24, 16, 3, 3\], \[24\]\]$", WrongPlan, other)
        self.refused("of another model: module '': expected UNet", WrongPlan, models.MODELS["lstm"]()[0])
        deeper = copy.deepcopy(self.model)
        deeper.more = nn.Linear(2, 2)
        self.refused(r"module 'more' \(Linear\) is not in the plan", WrongPlan, deeper)

    def test_other_shapes(self):
        step = apply(self.model, self.plan, loss=self.loss)
        with self.assertRaisesRegex(Refused, r"input 'x': the plan is for float32 \[2, 3, 32, 32\], found float32 \[4, 3, 32, 32\] \(a plan is for one: leave a smaller "
                                             r"last batch out, or give a plan for each shape, or otherwise='at most' or 'plain'\)$"):
            step(torch.randn(4, 3, 32, 32), torch.randint(2, (4, 32, 32)))
        step(self.inputs, self.targets)
        with self.assertRaisesRegex(Refused, r"input 'x': expected torch.float32 \[2, 3, 32, 32\], found torch.float32 \[1, 3, 32, 32\] \(a plan is for one: leave"):
            step(self.inputs[:1], self.targets[:1])

    def test_hooks_and_wrappers(self):
        handle = self.model.down[1].register_forward_hook(lambda *_: None)
        self.refused("^module 'down.1' has forward hooks, which would run again with each recomputation$")
        handle.remove()
        handle = self.model.classify.weight.register_hook(lambda g: g)
        self.refused("^parameter 'classify.weight' has a hook on its gradient, which would see parts of it$")
        handle.remove()
        self.refused("^the model is wrapped in DataParallel, which runs copies on several devices; give the module inside it$",
                     model=nn.DataParallel(self.model))

    def test_a_buffer_that_a_forward_changes(self):
        class Counts(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)
                self.register_buffer("calls", torch.zeros(()))

            def forward(self, x):
                self.calls.add_(1)
                return self.linear(x)

        model, x = nn.Sequential(Counts(), Counts(), Counts()), torch.randn(2, 4)
        staged = split(copy.deepcopy(model), x, how=None, loss=mean_square)
        plan = hand_plans.plan_of(staged, hand_plans.recompute_all(len(staged.stages)), [0] * len(staged.stages))
        with self.assertRaisesRegex(Refused, "^stage '0': its forward changes the buffer '0.calls', so it cannot be run again as the plan asks$"):
            apply(model, plan, loss=mean_square)(x)
        self.assertEqual([float(buffer) for buffer in model.buffers()], [0.0, 0.0, 0.0], "nothing half done")

    def test_a_buffer_that_is_changed_behind_a_tensors_back(self):
        class Quantizes(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", torch.zeros(4))
                self.linear = nn.Linear(4, 4) if deep else None

            def forward(self, x):
                self.mean.data.mul_(0.9).add_(x.detach().mean(0))
                return x - self.mean

        for deep in (False, True):  # one call, and one that is looked into
            model, x = nn.Sequential(nn.Linear(4, 4), Quantizes(), nn.Linear(4, 4)), torch.randn(2, 4)
            staged = split(copy.deepcopy(model), x, how=None, loss=mean_square)
            plan = hand_plans.plan_of(staged, hand_plans.recompute_all(len(staged.stages)), [0] * len(staged.stages))
            with self.assertRaisesRegex(Refused, "^stage '1': its forward changes the buffer '1.mean'"):
                apply(model, plan, loss=mean_square)(x)

    def test_malformed_plans(self):
        for change, text in (({"format": "plimsoll.plan.v0"}, "format: expected 'plimsoll.plan.v1', found 'plimsoll.plan.v0'"),
                             ({"actions": 3}, "actions: expected a list, found 3"),
                             ({"actions": [{"do": "jump"}]}, r"actions\[0\]: do: expected forward, backward, copy or wait, found 'jump'"),
                             ({"values": [{"name": "x", "kind": "boundary"}]}, r"values\[0\]: tensor: expected a whole number, found nothing")):
            self.refused(text, WrongPlan, plan=self.plan | change)
        first = {"do": "forward", "micro_batch": 0, "stage": 0}
        self.refused(r"actions\[0\]: waits: expected numbers of earlier actions, found \[0\]", WrongPlan,
                     plan=self.plan | {"actions": [first | {"waits": [0]}]})
        count = len(self.plan["model"]["stages"])
        self.refused(f"stage: expected a number below {count}, found {count}", WrongPlan, plan=self.plan | {"actions": [first | {"stage": count}]})
        for ends in (("host", "host"), ("device", "device"), ("host", "disk")):
            copy_of = {"do": "copy", "micro_batch": 0, "value": "saved by 0", "from": ends[0], "to": ends[1]}
            self.refused(r"actions\[0\]: to: expected ", WrongPlan, plan=self.plan | {"actions": [copy_of]})
        with self.assertRaisesRegex(WrongPlan, "^/nowhere/plan.json: "):
            apply(self.model, "/nowhere/plan.json")
        self.refused("^limit: expected a number of bytes or a size such as '12 GB', found '12 Gb'$", limit="12 Gb")

    def test_a_dropped_value_that_a_backward_reads(self):
        for action in self.plan["actions"]:
            if action["do"] == "forward" and action["saves"] and action["makes"]:
                action.setdefault("drops", []).append(f"saved by {action['stage']}")
                break
        self.refused("^plan: stage '.*': its backward reads what it saves, which is not there$", WrongPlan)


class AsOneGraph(unittest.TestCase):
    """cuda_graph=True, with a recording that is a step of the same tensors issued again: what goes in and out of it. test_cuda_step.py has the rest."""

    class Recorded(WholeGraph):
        def __init__(self, step):
            self.key, self.step, self.recordings = None, step, 0
            self.forget()

        def on_own_stream(self, work):
            return work()

        def recorded(self, work):
            self.recordings += 1
            self.loss = torch.zeros(())

            def replay():
                outside = [parameter.grad for parameter in self.step.parameters]
                for parameter in self.step.parameters:
                    parameter.grad = None
                self.loss.copy_(work())
                for (parameter, gradient), made in zip(getattr(self, "gradients", []), [p.grad for p in self.step.parameters if p.grad is not None]):
                    gradient.copy_(made)
                for parameter, gradient in zip(self.step.parameters, outside):
                    parameter.grad = gradient

            work()  # leaves gradients where the replays put theirs
            return SimpleNamespace(replay=replay)

    def setUp(self):
        self.model, plan, self.loss, self.inputs, self.targets = hand_plans.planned("unet", hand_plans.SEQUENCES["offload segments"])
        self.other = copy.deepcopy(self.model)
        self.step = apply(self.model, plan, loss=self.loss)
        self.step.whole_graph = self.Recorded(self.step)
        with mock.patch.object(torch.cuda, "synchronize"):
            for seed in range(3):
                self.compare(seed)

    def compare(self, seed, scale=1.0, keep=False):
        torch.manual_seed(seed)
        inputs = torch.randn_like(self.inputs)
        with mock.patch.object(torch.cuda, "synchronize"):
            got = self.step(inputs, self.targets, scale=scale)
        expected = self.loss(self.other(inputs), self.targets)
        (expected * scale).backward()
        self.assertTrue(torch.equal(got, expected.detach()), seed)
        self.assertTrue(all(torch.equal(p.grad, q.grad) for p, q in zip(self.model.parameters(), self.other.parameters())), seed)
        for parameter in [] if keep else [*self.model.parameters(), *self.other.parameters()]:
            parameter.grad = None
        return got

    def test_other_inputs_and_another_scale(self):
        first = self.compare(3)
        before = first.clone()
        self.compare(4, scale=512.0)
        self.assertTrue(torch.equal(first, before), "a loss of an earlier step stays")
        self.assertEqual(self.step.whole_graph.recordings, 1)

    def test_gradients_that_are_there_are_added_to(self):
        for seed in range(3):
            self.compare(seed, keep=True)

    def test_another_course_is_recorded_anew(self):
        self.model.note = 0.5  # which its code might read
        for seed in range(3):
            self.compare(seed)
        self.assertEqual(self.step.whole_graph.recordings, 2)

    def test_what_cannot_be_one_graph(self):
        with self.assertRaisesRegex(Refused, "^cuda_graph: the model is on 'cpu', and a CUDA graph runs on a GPU alone$"):
            apply(*hand_plans.planned("unet", hand_plans.SEQUENCES["store all"])[:2], cuda_graph=True)
        with self.assertRaisesRegex(Refused, "^cuda_graph: a limit is looked at before each action, and in a graph there is no before; "):
            refuse_without_graph(torch.device("cuda"), 100)
        with self.assertRaisesRegex(Refused, "^cuda_graph: an input asks for its gradient"):
            self.step(self.inputs.clone().requires_grad_(), self.targets)
        stage = SimpleNamespace(name="block", draws_on_host=True)
        with self.assertRaisesRegex(Refused, "^cuda_graph: stage 'block' draws random numbers and runs again"):
            self.step.whole_graph.refuse(SimpleNamespace(stages=[stage]), [True])
        with self.assertRaisesRegex(Refused, "^cuda_graph: stage 'block' draws random numbers on the host"):
            self.step.whole_graph.refuse(SimpleNamespace(stages=[stage]), [False])


class Compiled(unittest.TestCase):
    """Where there is torch.compile; that of a backend which needs no compiler of C++."""

    def setUp(self):
        self.model, self.plan, self.loss, self.inputs, self.targets = hand_plans.planned("gpt", hand_plans.SEQUENCES["segments of 2"])

    def test_a_mismatch_is_refused(self):
        compiled = self.plan | {"model": self.plan["model"] | {"compiled": True}}
        with self.assertRaisesRegex(WrongPlan, r"^plan: is of stages that were measured compiled; apply\(..., compile=True\) runs them so$"):
            apply(self.model, compiled)
        if hasattr(torch, "compile"):
            with self.assertRaisesRegex(WrongPlan, "^plan: is of stages that were measured as they are, not compiled; "):
                apply(self.model, self.plan, compile=True)
        else:
            with self.assertRaisesRegex(Refused, "^stages cannot be compiled: torch.compile needs torch 2, this is "):
                apply(self.model, compiled, compile=True)

    def test_stages_are_compiled(self):
        if not hasattr(torch, "compile"):
            self.skipTest("torch.compile is not there")
        other, real, names = copy.deepcopy(self.model), torch.compile, []
        by_eager = lambda function, dynamic: names.append(dynamic) or real(function, dynamic=dynamic, backend="aot_eager")
        step = apply(self.model, self.plan | {"model": self.plan["model"] | {"compiled": True}}, loss=self.loss, compile=True)
        with mock.patch.object(torch, "compile", by_eager):
            for seed in range(3):
                torch.manual_seed(seed)
                got = step(self.inputs, self.targets)
                torch.manual_seed(seed)
                expected = plain(other, self.loss, self.inputs, self.targets)
                self.assertTrue(torch.allclose(got, expected), (got, expected))
        self.assertEqual(names, [False] * len(step.staged.stages))
        for (name, p), q in zip(self.model.named_parameters(), other.parameters()):
            self.assertTrue(torch.allclose(p.grad, q.grad, atol=1e-6), name)


class RandomNumbers(unittest.TestCase):
    """States are noted and put back for stages that draw numbers alone."""

    def states_asked(self, p):
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Dropout(p)) for _ in range(4)])
        staged = split(copy.deepcopy(model), torch.ones(2, 4), how=None, loss=mean_square)
        plan = hand_plans.plan_of(staged, hand_plans.recompute_all(len(staged.stages)), [0] * len(staged.stages))
        step, counts = apply(model, plan, loss=mean_square), []
        for _ in range(2):
            with mock.patch.object(torch, "get_rng_state", side_effect=torch.get_rng_state) as asked:
                step(torch.ones(2, 4))
            counts.append(asked.call_count)
        return counts[1]

    def test_where_none_are_drawn_no_state_is_asked_for(self):
        self.assertEqual(self.states_asked(0.0), 0)
        self.assertGreater(self.states_asked(0.5), 0)


class ShortWay(unittest.TestCase):
    """From its second run on a stage has no nodes of ours, but where a value has several readers."""

    def nodes_made(self, name, sequence):
        model, plan, loss, inputs, targets = hand_plans.planned(name, sequence)
        step, counts = apply(model, plan, loss=loss), []
        for _ in range(2):
            counts.append(0)

            def counted(*args):
                counts[-1] += 1
                return entry(*args)

            entry = Entry.apply
            with mock.patch.object(Entry, "apply", counted):
                step(inputs, targets)
        return counts

    def test_a_chain_has_none(self):
        first, second = self.nodes_made("gpt", hand_plans.SEQUENCES["segments of 2"])
        self.assertGreater(first, 0)
        self.assertEqual(second, 0)

    def test_values_of_several_stages_keep_theirs(self):
        first, second = self.nodes_made("unet", hand_plans.SEQUENCES["segments of 2"])
        self.assertTrue(0 < second < first, (first, second))


    def test_an_output_that_an_operation_of_its_stage_has_saved(self):
        class Both(nn.Linear):
            def forward(self, x):
                made = super().forward(x)
                return made, made.sin()  # whose backward reads its input

        class Product(nn.Module):
            def forward(self, pair):
                return pair[0] * pair[1]

        torch.manual_seed(0)
        model, x = nn.Sequential(Both(4, 4), Product(), nn.Linear(4, 4)), torch.randn(2, 4)
        staged = split(copy.deepcopy(model), x, how=None, loss=mean_square)
        step = apply(model, hand_plans.plan_of(staged, hand_plans.store_all(4), [0] * 4), loss=mean_square)
        other = copy.deepcopy(model)
        plain(other, mean_square, x, None)
        for _ in range(3):
            model.zero_grad(set_to_none=True)
            step(x)
            self.assertTrue(all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), other.parameters())))


class CallsOfPython(unittest.TestCase):
    """What the step calls beside its stages, a figure of the host's time that other work does not touch."""

    def calls(self, run):
        """How many functions of Python are called."""
        count = 0

        def see(frame, event, argument):
            nonlocal count
            count += event == "call"

        sys.setprofile(see)
        try:
            run()
        finally:
            sys.setprofile(None)
        return count

    def test_few_more_than_in_a_loop_by_hand(self):
        model, x = nn.Sequential(nn.Linear(4, 4), *[nn.ReLU() for _ in range(30)]), torch.randn(2, 4)
        staged = split(copy.deepcopy(model), x, how=None, loss=mean_square)
        for steps, most in ((hand_plans.store_all(32), 4), (hand_plans.segments(32, 4), 3)):
            step = apply(model, hand_plans.plan_of(staged, steps, [0] * 32), loss=mean_square)
            own, by_hand = lambda: step(x), overhead.by_hand(staged, steps, x, None, contextlib.nullcontext)
            for _ in range(2):
                own()
            self.assertLess(self.calls(own) - self.calls(by_hand), most * len(steps))


class Policies(unittest.TestCase):
    """Selective checkpointing itself is not in torch 1.13: the policies are asked as it would ask them."""

    PLAN = {"format": "plimsoll.policy.v1", "stages": [{"name": "block", "ops": [{"op": "mm", "save": False}, {"op": "relu", "save": True},
                                                                              {"op": "mm", "save": True}]}]}

    def answers(self, names, again=False, policy=None):
        policy = policy or SavesInOrder(read_policy(self.PLAN)["block"], "save", "again")
        op = lambda name: SimpleNamespace(_schema=SimpleNamespace(name=f"aten::{name}"))
        return [policy(SimpleNamespace(is_recompute=again), op(name)) for name in names], policy

    def test_ops_are_told_apart_by_their_order(self):
        names = ["t", "mm", "relu", "view", "mm"]
        found, policy = self.answers(names)
        self.assertEqual(found, ["again", "again", "save", "again", "save"])
        self.assertEqual(self.answers(names, True, policy)[0], found, "the same when it runs again")

    def test_another_course_is_refused(self):
        with self.assertRaisesRegex(Refused, "^op 0 of the stage is 'relu' now, and 'mm' in the plan: the model takes another course$"):
            self.answers(["relu"])

    def test_older_torch_is_refused(self):
        if not hasattr(torch.utils.checkpoint, "create_selective_checkpoint_contexts"):
            with self.assertRaisesRegex(Refused, "^selective checkpointing needs torch 2.4 or later$"):
                policies(self.PLAN)
        with self.assertRaisesRegex(WrongPlan, "^policy: format: expected 'plimsoll.policy.v1'"):
            read_policy({"format": "plimsoll.plan.v1"})


if __name__ == "__main__":
    unittest.main(verbosity=0)
