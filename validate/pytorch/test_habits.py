#!/usr/bin/env python3
"""Tests of what models of others do beside calling modules in a row, by plans made by hand. Skipped where this Python has no torch; seconds.

  /usr/bin/python3 validate/pytorch/test_habits.py
"""

import contextlib
import copy
import unittest

import left_out
from turns import eleventh

try:
    import torch
    from torch import nn
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.nn import functional

    import hand_plans
    from plimsoll.torch import Refused, apply
    from plimsoll.torch.outside import Outside
    from plimsoll.torch.saved import SavedByStage
    from plimsoll.torch.stages import split
    from plimsoll.torch.versions import storage_of
    from plimsoll.trace.chain_trace import measure_saved
    from plimsoll.trace.cuts import chain_of_cuts
    from plimsoll.trace.models import Subject
except ModuleNotFoundError as error:
    left_out.end_without(error)

torch.set_num_threads(1)


class Layer(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class Labelled(nn.Module):
    """Makes its own loss, in the style of Hugging Face."""

    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(3)), nn.Linear(8, 4)

    def forward(self, x, labels=None):
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x)
        return {"loss": None if labels is None else nn.functional.cross_entropy(logits, labels), "logits": logits, "cache": Cache(x)}


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, labels):
        return {"loss": self.inner(x, labels)["loss"] * 1.5}


class Placed(Labelled):
    def __init__(self, more):
        super().__init__()
        self.more = more

    def forward(self, x, labels):
        return super().forward(self.layers[0](x) + self.more(x), labels)


@torch.jit.script
def places(rows: int, columns: int):
    return torch.arange(rows).unsqueeze(1) * 0.1 + torch.zeros([columns])


@torch.jit.script
def scaled(x):
    return x.detach() * 0.5


class Cache:
    """Of a class of its own, with tensors inside."""

    def __init__(self, x):
        self.layers = [{"keys": x}]


def plan_for(staged, steps):
    return hand_plans.plan_of(staged, steps, [0] * len(staged.stages))


class Habits(unittest.TestCase):
    x, labels = torch.linspace(-2, 2, 32).view(4, 8), torch.arange(4)

    def trained(self, model, loss, inputs, targets=None, sequence=hand_plans.recompute_all):
        """The stages, once plain training and a plan's step were the same to the bit, twice."""
        plain = copy.deepcopy(model)
        staged = split(copy.deepcopy(model), inputs, "auto", loss, targets)
        step = apply(model, plan_for(staged, sequence(len(staged.stages))), loss=loss)
        for shift in (0.0, 0.5):
            other = {name: value + shift if value.is_floating_point() else value for name, value in inputs.items()}
            for one in (plain, model):
                one.zero_grad(set_to_none=True)
            output = plain(**other)
            expected = output["loss"] if loss is None else loss(output, targets)
            expected.backward()
            self.assertTrue(torch.equal(step(other, targets), expected.detach()))
            for p, q in zip(plain.parameters(), model.parameters()):
                self.assertTrue(torch.equal(p.grad, q.grad))
            for (name, p), q in zip(plain.named_buffers(), model.buffers()):
                self.assertTrue(torch.equal(p, q), name)
        return staged

    # --- loss functions ---

    def test_a_loss_function_that_takes_the_loss_out_of_the_output_is_no_stage(self):
        torch.manual_seed(0)
        model, inputs = Labelled(), {"x": self.x, "labels": self.labels}
        alone = self.trained(copy.deepcopy(model), None, inputs)
        for loss in (lambda output, targets: output["loss"], lambda output, targets: (output["loss"], output["logits"])[0]):
            staged = self.trained(copy.deepcopy(model), loss, inputs)
            self.assertEqual([(stage.name, stage.reads, stage.makes) for stage in staged.stages],
                             [(stage.name, stage.reads, stage.makes) for stage in alone.stages])

    def test_a_loss_function_that_computes_from_that_loss_is_a_stage(self):
        torch.manual_seed(0)
        staged = self.trained(Labelled(), lambda output, targets: 0.5 * output["loss"] + targets, {"x": self.x, "labels": self.labels}, torch.ones([]))
        self.assertEqual((staged.stages[-1].name, [operation.name for operation in staged.stages[-1].operations]), ("loss", ["loss"]))

    def test_a_loss_function_that_overwrites_the_output_is_in_a_stage_with_what_it_overwrites(self):
        torch.manual_seed(0)
        staged = self.trained(Labelled(), lambda output, targets: output["logits"].mul_(2).logsumexp(-1).mean(), {"x": self.x})
        self.assertEqual(staged.stages[-1].operations[0].path, "head")
        staged = self.trained(Labelled(), lambda output, targets: output["loss"].mul_(2), {"x": self.x, "labels": self.labels})
        self.assertEqual(staged.stages[-1].operations[-1].name, "loss")

    def test_an_object_with_tensors_in_the_output_is_not_kept_for_the_loss_function(self):
        torch.manual_seed(0)
        loss = lambda output, targets: nn.functional.cross_entropy(output["logits"], targets)
        staged = self.trained(Labelled(), loss, {"x": self.x}, self.labels)
        self.assertEqual(len(staged.boundaries[-2]), 1)
        for reads in (lambda cache: cache.layers[0]["keys"].mean(), lambda cache: sum(layer["keys"].mean() for layer in cache)):
            with self.assertRaisesRegex(Refused, "^the loss function reads a Cache in the model's output, an object with tensors inside, which no "
                                                 "stage hands on: let the model return the tensors, or none"):
                split(Labelled(), {"x": self.x}, "auto", lambda output, targets: reads(output["cache"]))

    def test_an_object_with_tensors_that_a_call_is_handed_is_not_seen(self):
        class Reads(nn.Module):
            def forward(self, cache):
                return cache.layers[0]["keys"] * 2

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.reads = Layer(), Reads()

            def forward(self, x):
                return self.reads(Cache(self.layer(x)))
        with self.assertRaisesRegex(Refused, "^module 'reads': is handed a Cache with tensors inside that are not seen$"):
            split(Model(), {"x": self.x})

    # --- functions that ask whether gradients are followed ---

    def test_a_function_that_takes_another_kernel_without_gradients(self):
        class Sum(nn.Module):
            def forward(self, x):
                return x.sum(-1, keepdim=True) if not x.requires_grad else x[..., 4:].sum(-1, keepdim=True) + x[..., :4].sum(-1, keepdim=True)

        class Scaled(Labelled):
            def __init__(self):
                super().__init__()
                self.sum = Sum()

            def forward(self, x, labels):
                return super().forward(self.layers[0](x) / 3 + 0.01 * self.sum(self.layers[1](x) * 1.7), labels)
        torch.manual_seed(0)
        x = torch.randn(64, 8)
        staged = self.trained(Scaled(), None, {"x": x, "labels": torch.arange(64) % 4})
        others = [stage for stage in staged.stages if stage.is_other_without_gradients]
        self.assertEqual([any(operation.path == "sum" for operation in stage.operations) for stage in others], [True])
        kept = []
        with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(kept.append, lambda _: None):
            made = others[0](tuple(torch.randn(64, 8) for _ in others[0].reads))
        self.assertEqual((kept, [tensor.requires_grad for tensor in made]), ([], [False] * len(made)))

    # --- modules that are more than one ---

    def test_a_batch_norm_with_modules_inside_moves_its_statistics_once(self):
        class Activated(nn.BatchNorm1d):
            """As timm's: the norm and what follows it."""

            def __init__(self, width):
                super().__init__(width)
                self.act = nn.PReLU()

            def forward(self, x):
                keeps = self.training and self.track_running_stats
                if keeps:
                    self.num_batches_tracked.add_(1)
                mean, var = (self.running_mean, self.running_var) if keeps else (None, None)
                return self.act(nn.functional.batch_norm(x, mean, var, self.weight, self.bias, True, 0.1, self.eps))
        torch.manual_seed(0)
        model = Labelled()
        model.layers = nn.Sequential(*(one for _ in range(3) for one in (Layer(), Activated(8))))
        staged = self.trained(model, None, {"x": self.x, "labels": self.labels})
        self.assertIn("layers.1", [operation.path for stage in staged.stages for operation in stage.operations])

    # --- tensors that no call is seen to make ---

    def test_a_scripted_function_is_one_call(self):
        torch.manual_seed(0)
        staged = self.trained(Placed(lambda x: places(x.shape[0], x.shape[1]) + scaled(x)), None, {"x": self.x, "labels": self.labels})
        names = [operation.name for stage in staged.stages for operation in stage.operations]
        self.assertEqual((names.count("places"), names.count("scaled")), (1, 1))

    @unittest.skipUnless(hasattr(torch, "func"), "torch 1.13 has no vmap of this kind")
    def test_what_follows_from_shapes_in_a_vmap_stands_for_itself(self):
        def mask(x):
            row = torch.vmap(lambda i, j: (i <= j) * torch.tensor(0.1), (None, 0))
            return torch.vmap(row, (0, None))(torch.arange(x.shape[0]), torch.arange(x.shape[1]))
        torch.manual_seed(0)
        inputs = {"x": self.x, "labels": self.labels}
        self.assertGreater(len(self.trained(Placed(mask), None, inputs).stages), 4)
        for writes in (lambda made: made.add_(1), lambda made: made[1:].mul_(2).sum() + made):  # would be written again in each step
            staged = self.trained(Wrapped(Placed(lambda x: writes(mask(x)))), None, inputs)
            self.assertEqual([stage.name for stage in staged.stages], ["inner", "loss"])

    @unittest.skipUnless(hasattr(torch, "func"), "torch 1.13 has no vmap of this kind")
    def test_what_follows_from_inputs_in_a_vmap_does_not(self):
        torch.manual_seed(0)
        staged = self.trained(Wrapped(Placed(lambda x: torch.vmap(lambda row: 0.5 * row)(x))), None, {"x": self.x, "labels": self.labels})
        self.assertEqual([stage.name for stage in staged.stages], ["inner", "loss"])

    # --- hooks that a forward registers ---

    def test_hooks_that_a_forward_registers_run_when_it_is_recorded_and_in_no_step(self):
        class Collecting(Labelled):
            def __init__(self, kinds):
                super().__init__()
                self.found, self.kinds, self.calls = [], kinds, 0

            def forward(self, x, labels):
                for module in self.modules() if self.kinds else ():
                    if isinstance(module, self.kinds):
                        module.register_forward_hook(lambda module, args, output: self.found.append(torch.tanh(output)))
                self.kinds = ()
                self.found.clear()
                output = super().forward(x, labels)
                return {"loss": output["loss"] + sum(one.pow(2).mean() for one in self.found[:3])}
        torch.manual_seed(0)
        for kinds in (Layer, nn.Linear, (Layer, nn.Linear)):
            model = Collecting(kinds)
            staged = self.trained(model, None, {"x": self.x, "labels": self.labels})
            self.assertEqual(sum(operation.name == "tanh" for stage in staged.stages for operation in stage.operations), len(model.found) + 3)
            self.assertGreater(len(model.found), 2)
            found = list(map(id, model.found))
            model.training = False  # so that it is cut anew, with hooks that are there
            plan = plan_for(staged, hand_plans.recompute_all(len(staged.stages)))
            with self.assertRaisesRegex(Refused, "has forward hooks, which would run again with each recomputation$"):
                apply(model, plan)
            step = apply(Collecting(kinds), plan)
            for training in (True, False, True):
                step.model.train(training)
                step({"x": self.x, "labels": self.labels})
                self.assertEqual(len(step.model.found), len(found), "steps run no hook")

    def test_hooks_inside_of_what_is_one_call_are_named(self):
        class Between(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(8, 8)

            def forward(self, x):
                self.inner.register_forward_hook(lambda *_: None)
                return self.inner(x) * torch.Tensor([1.0])  # a constructor that torch lets nobody see
        with self.assertRaisesRegex(Refused, "^module '0': not all that it calls can be seen, and hooks that the model's forward has registered inside "
                                             r"of it \(on '0.inner'\) would run again with each recomputation$"):
            split(nn.Sequential(Between(), nn.Linear(8, 1)), self.x, ["1"])

    def test_hooks_of_transformers_from_before_are_no_reason_to_refuse(self):
        calls = []
        hook = lambda module, args, output: calls.append(module)
        model = Labelled()
        staged = split(copy.deepcopy(model), {"x": self.x, "labels": self.labels})
        plan = plan_for(staged, hand_plans.recompute_all(len(staged.stages)))
        for module in (model.layers[1], model.head):
            module.register_forward_hook(hook)
        with self.assertRaisesRegex(Refused, "^module 'layers.1' has forward hooks, which would run again with each recomputation$"):
            apply(model, plan)
        hook.__module__, hook.__name__ = "transformers.utils.output_capturing", "output_capturing_hook"
        step = apply(model, plan)
        step({"x": self.x, "labels": self.labels})
        count = len(calls)
        step({"x": self.x, "labels": self.labels})
        self.assertEqual(len(calls), count)

    # --- inputs without a batch ---

    def test_an_input_of_one_row_goes_to_every_micro_batch_and_one_number_is_refused(self):
        class Placed(Labelled):
            def forward(self, x, positions, labels, count=None):
                loss = super().forward(x + positions, labels)["loss"]
                return {"loss": loss if count is None else loss / count}
        torch.manual_seed(0)
        model, positions = Placed(), torch.randn(1, 8)
        one, both = ({"x": x, "positions": positions, "labels": labels} for x, labels in ((self.x[:2], self.labels[:2]), (self.x, self.labels)))
        staged = split(copy.deepcopy(model), one)
        plan = hand_plans.plan_of(staged, hand_plans.recompute_all(len(staged.stages)), [0] * len(staged.stages), micro_batches=2)
        plain = copy.deepcopy(model)
        losses = [plain(self.x[rows], positions, self.labels[rows])["loss"] / 2 for rows in (slice(0, 2), slice(2, 4))]
        for loss in losses:
            loss.backward()
        for inputs in (both, (self.x, positions, self.labels)):
            model.zero_grad(set_to_none=True)
            self.assertTrue(torch.equal(apply(model, plan)(inputs), (losses[0] + losses[1]).detach()))
            self.assertTrue(all(torch.equal(p.grad, q.grad) for p, q in zip(plain.parameters(), model.parameters())))
        with self.assertRaisesRegex(Refused, "^input 'count' is one number for the whole batch, and the plan has 2 micro-batches, whose losses are "
                                             "averaged: leave it out, or plan with one micro-batch$"):
            apply(model, plan)({**both, "count": torch.tensor(2.0)})
        with self.assertRaisesRegex(Refused, r"^the plan has 2 micro-batches, into which a tensor of shape \[1, 8\] cannot be cut$"):
            apply(model, plan)({**one, "x": self.x[:1], "labels": self.labels[:1]})

    # --- what autograd holds and shows no hook ---

    def test_a_number_and_what_a_function_keeps_in_its_ctx_are_dropped_and_moved_as_what_is_saved(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second, self.head = Layer(), Layer(), nn.Linear(8, 1)

            def forward(self, x):
                x = 0.3 * self.first(x)
                return {"loss": self.head(self.second(Keeping.apply(x, 1.5) * 0.7)).pow(2).mean()}
        torch.manual_seed(0)
        model, alive = Model(), []
        for sequence in (hand_plans.recompute_all, hand_plans.store_all):
            self.trained(copy.deepcopy(model), None, {"x": self.x}, sequence=sequence)
        staged = split(copy.deepcopy(model), self.x, ["second"])
        saved = hand_plans.saved_bytes(staged, self.x, None)
        saved[0] += 128 + 16  # a copy of x, and two numbers of its own
        steps = hand_plans.offload(hand_plans.store_all(3), staged)
        step = apply(model, hand_plans.in_parts(hand_plans.plan_of(staged, steps, saved), 3))
        step.watch = lambda number, action: alive.append(sum(not one.expired() for one in Keeping.kept))
        plain = copy.deepcopy(model)
        for _ in range(2):
            model.zero_grad(), plain.zero_grad(), alive.clear()
            expected = plain(self.x)["loss"]
            expected.backward()
            Keeping.kept.clear()
            self.assertTrue(torch.equal(step(self.x), expected.detach()))
            self.assertTrue(all(torch.equal(p.grad, q.grad) for p, q in zip(plain.parameters(), model.parameters())))
            moved = next(i for i, action in enumerate(step.plan.actions) if "saved by 0" in action.drops)
            self.assertEqual((alive[moved], alive[moved + 1]), (2, 0))
        saved[0] -= 1
        with self.assertRaisesRegex(Refused, f"^'saved by 0' has {saved[0] + 1} B, by the plan {saved[0]} B"):
            apply(model, hand_plans.plan_of(staged, steps, saved))(self.x)

    def test_numbers_in_the_memory_of_another_device_stay_there(self):
        saved = SavedByStage("one", set(), torch.device("meta"))  # in place of a GPU
        with saved.hooks():
            kept = [nn.functional.gelu(torch.zeros(4, device="meta", requires_grad=True)), torch.zeros(2, requires_grad=True).exp()]
        self.assertEqual((saved.bytes(), [one.tensor.device.type for one in (hold() for hold in saved.holds)]), (16, ["meta"]))
        del kept


class Keeping(torch.autograd.Function):
    """x to the power of a number, of which it keeps more than autograd knows."""

    kept = []

    @staticmethod
    def forward(ctx, x, power):
        ctx.inside, ctx.powers, ctx.power = {"x": x.clone()}, [torch.tensor([power, power - 1], dtype=torch.float64)], power
        Keeping.kept += [StorageWeakRef(storage_of(tensor)) for tensor in (ctx.inside["x"], ctx.powers[0])]
        return x.abs() ** power

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.inside["x"]
        return gradient * ctx.powers[0][0] * x.abs() ** float(ctx.powers[0][1]) * x.sign(), None


class Scaled(nn.Module):
    """Run as a whole, with tensors in attributes that are no buffers."""

    def __init__(self):
        super().__init__()
        self.table, self.factor = torch.randn(5, 8), torch.tensor(0.7)

    def forward(self, x):
        return self.factor * torch.tanh(x) * self.table


class Classes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.scaled, self.last = nn.Linear(6, 8), Scaled(), nn.Linear(8, 4)
        self.register_buffer("factor", torch.tensor(0.25))

    def forward(self, x):
        return self.last(self.scaled(self.first(x) / 3) * self.factor)


WEIGHTS = (0.5, 1.0, 2.0, 1.5)
WEIGHTED = {
    "a number": lambda model: lambda outputs, targets: 0.3 * functional.cross_entropy(outputs, targets),
    "several numbers": lambda model: lambda outputs, targets: (functional.cross_entropy(outputs, targets) / 3 + 0.01 * outputs.pow(2).mean()) ** 1.5,
    "a count": lambda model: lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="sum") / (targets >= 0).sum(),
    "a buffer": lambda model: lambda outputs, targets: model.factor * functional.cross_entropy(outputs, targets),
    "a new tensor": lambda model: lambda outputs, targets: torch.tensor(0.5, dtype=torch.float64) * functional.cross_entropy(outputs, targets),
    "a tensor of the loss": lambda model: lambda outputs, targets, factor=torch.tensor(0.5): factor * functional.cross_entropy(outputs, targets),
    "smoothing": lambda model: lambda outputs, targets: functional.cross_entropy(outputs, targets, label_smoothing=0.1),
    "new weights of classes": lambda model: lambda outputs, targets: functional.cross_entropy(outputs, targets, weight=torch.tensor(WEIGHTS)),
    "a module with weights of classes": lambda model: nn.CrossEntropyLoss(weight=torch.tensor(WEIGHTS), label_smoothing=0.1),
    "a module with weights of positives": lambda model: lambda outputs, targets, loss=nn.BCEWithLogitsLoss(pos_weight=torch.tensor(WEIGHTS)):
        loss(outputs, functional.one_hot(targets, 4).float()),
}


class WeightedLosses(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.model, self.x, self.y = Classes(), torch.randn(5, 6), torch.randint(4, (5,))

    @eleventh(10)
    def test_what_the_exporter_counts_of_a_loss_is_what_the_step_moves(self):
        """Also with numbers that are saved as tensors, and with tensors that were there before, which are no stage's."""
        for name, make in WEIGHTED.items():
            with self.subTest(name):
                loss = make(self.model)
                chain = chain_of_cuts(Subject("model", "", self.model, loss, self.x, self.y), "auto", contextlib.nullcontext, False)
                saved = measure_saved(chain).stages
                sizes = [stage["inner"] for stage in saved[:-1]] + [saved[-1]["inner"] + saved[-1]["output"]]
                staged = split(self.model, self.x, "auto", loss, self.y)
                self.assertEqual(sizes, hand_plans.saved_bytes(staged, self.x, self.y))
                steps = hand_plans.offload(hand_plans.store_all(len(staged.stages)), staged)
                self.train(apply(self.model, hand_plans.plan_of(staged, steps, sizes), loss=loss), loss)

    def train(self, step, loss):
        for _ in range(3):
            self.model.zero_grad(set_to_none=True)
            found = step(self.x, self.y), [parameter.grad.clone() for parameter in self.model.parameters()]
            self.model.zero_grad(set_to_none=True)
            expected = loss(self.model(self.x), self.y)
            expected.backward()
            self.assertTrue(torch.equal(found[0], expected.detach()))
            self.assertTrue(all(torch.equal(gradient, p.grad) for gradient, p in zip(found[1], self.model.parameters())))

    def test_what_replaces_a_tensor_of_before_at_its_address_is_no_such_tensor(self):
        """The model lets go of what it holds, and its memory is given to what is saved. Of 64 MB, which the system gives and takes as a
        whole: a smaller piece may become part of a larger one."""
        outside = Outside([])
        held = torch.empty(1 << 24)
        outside.there = {storage_of(held).data_ptr(): StorageWeakRef(storage_of(held))}
        outside.look(held)
        self.assertEqual(list(outside.found), [storage_of(held).data_ptr()])
        outside.found.clear()
        address, held = storage_of(held).data_ptr(), None
        others = []
        while not others or storage_of(others[-1]).data_ptr() != address:
            others.append(torch.empty(1 << 24))
            self.assertLess(len(others), 100)
        outside.look(others[-1])
        self.assertEqual(outside.found, {})


if __name__ == "__main__":
    unittest.main()
