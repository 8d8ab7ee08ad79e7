#!/usr/bin/env python3
"""Tests of plimsoll/torch/stages.py. Skipped where this Python has no torch; seconds.

  /usr/bin/python3 validate/pytorch/test_stages.py
"""

import copy
import functools
import unittest

import left_out
from turns import eleventh

try:
    import torch
    import torch.utils.checkpoint
    from torch import nn

    import models
    from models import mean_square
    from plimsoll.torch.errors import Refused
    from plimsoll.torch.stages import split
except ModuleNotFoundError as error:
    left_out.end_without(error)


def call(model, inputs):
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def plain_loss(model, loss, inputs, targets):
    outputs = call(model, inputs)
    return outputs.loss if loss is None else loss(outputs, targets)


def trained(model, run):
    """All that one iteration leaves: loss, gradients, buffers."""
    torch.manual_seed(7)
    loss = run()
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()]


class Layer(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class Model(nn.Module):
    """Layers "a" and "b" with something between that a test gives."""

    def __init__(self, between):
        super().__init__()
        self.a, self.b, self.between = Layer(), Layer(), between

    def forward(self, x):
        return self.b(self.between(self.a(x)))


@functools.lru_cache(maxsize=None)
def cut(name):
    """(one of the eight, its loss, inputs, targets, the same model before it is cut, its stages), made once."""
    model, loss, inputs, targets = models.MODELS[name]()
    return model, loss, inputs, targets, copy.deepcopy(model), split(model, inputs, "auto", loss, targets)


class Eight(unittest.TestCase):
    def test_stages_one_after_the_other_train_as_the_model_does_to_the_bit(self):
        for name in models.MODELS:
            model, loss, inputs, targets, twin, staged = cut(name)
            with self.subTest(name):
                self.assertGreater(len(staged.stages), 5)
                found = trained(model, lambda: staged.run(staged.values_of(inputs), targets))
                expected = trained(twin, lambda: plain_loss(twin, loss, inputs, targets))
                self.assertEqual(len(found), len(expected))
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(found, expected)))

    @eleventh(0)
    def test_names_of_stages_cut_the_model_at_the_same_places(self):
        for name in models.MODELS:
            model, loss, inputs, targets, _, staged = cut(name)
            again = split(model, inputs, [stage.name for stage in staged.stages[1:-1]], loss, targets)
            with self.subTest(name):
                self.assertEqual([(s.name, s.modules, s.reads, s.makes) for s in staged.stages],
                                 [(s.name, s.modules, s.reads, s.makes) for s in again.stages])

    def test_a_resnet_is_cut_between_its_blocks(self):
        staged = cut("resnet18")[-1]
        blocks = [f"layer{i}.{j}" for i in range(1, 5) for j in range(2)]
        self.assertEqual([stage.name for stage in staged.stages], ["conv1", *blocks, "fc", "loss"])
        self.assertEqual(staged.stages[0].modules, ["conv1", "bn1", "relu", "maxpool"])
        self.assertEqual([len(boundary) for boundary in staged.boundaries], [1] * 12)

    @eleventh(4)
    def test_every_boundary_has_what_its_stage_reads_and_what_passes_by(self):
        for name in models.MODELS:
            staged = cut(name)[-1]
            with self.subTest(name):
                self.assertEqual(staged.stages[-1].makes, ["loss"])
                for i, stage in enumerate(staged.stages):
                    self.assertLessEqual(set(stage.reads), set(staged.boundaries[i]))
                    self.assertEqual(set(staged.boundaries[i + 1]) - set(staged.boundaries[i]), set(stage.makes))
                    later = {name for other in staged.stages[i + 1:] for name in other.reads}
                    self.assertEqual(set(staged.boundaries[i + 1]) - {"loss"}, later & set(staged.boundaries[i + 1]))

    def test_a_skip_of_a_unet_passes_the_stages_between_by(self):
        staged = cut("unet")[-1]
        skip = "down.0.layers.4"
        first = next(i for i, stage in enumerate(staged.stages) if skip in stage.makes)
        last = next(i for i, stage in enumerate(staged.stages) if skip in stage.reads)
        self.assertGreater(last - first, 5)
        self.assertTrue(all(skip in staged.boundaries[j] for j in range(first + 1, last + 1)))


class Recording(unittest.TestCase):
    x = torch.linspace(-1, 1, 8).view(2, 4)

    def same(self, between, how=("b",)):
        torch.manual_seed(0)
        model = Model(between)
        twin = copy.deepcopy(model)
        staged = split(model, self.x, list(how), mean_square)
        found = trained(model, lambda: staged.run(staged.values_of(self.x)))
        expected = trained(twin, lambda: twin(self.x).pow(2).mean())
        self.assertEqual(len(found), len(expected))
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(found, expected)))
        return staged

    def test_views_writes_dropout_and_constants_are_as_in_the_model(self):
        class Between(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale, self.table = nn.Parameter(torch.ones(4)), torch.arange(4.0)
                self.register_buffer("seen", torch.zeros(()))
                self.inner = nn.Identity()  # of a module with a child the inside is looked at

            def forward(self, x):
                self.seen += 1
                y = x.clone()
                y[0] = y[1] * 2
                y[:, 1:3].mul_(3)
                left, right = nn.functional.dropout(y * self.scale.exp() + self.table, 0.5).chunk(2, -1)
                return torch.cat([right, left], -1)
        staged = self.same(Between())
        self.assertEqual([len(boundary) for boundary in staged.boundaries], [1, 1, 1, 1])

    def test_gradients_that_the_model_stops_are_stopped(self):
        class Between(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Identity()

            def forward(self, x):
                with torch.no_grad():
                    mean = x.mean()
                return x - mean
        self.same(Between())

    def test_the_models_own_autocast_is_entered_again(self):
        class Between(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)
                self.inner = Layer()

            def forward(self, x):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    return self.inner(self.linear(x)).float()
        staged = self.same(Between(), ("between.inner", "b"))
        self.assertIn(torch.bfloat16, [value.dtype for value in staged.values])

    def test_nothing_is_cut_behind_the_loss(self):
        """A wrapper does something with what its model returns beside the loss, and runs a module on it."""
        class Inner(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([Layer(), Layer()])

            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                return {"loss": x.pow(2).mean(), "logits": x}

        class Wrapper(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.beside = Inner(), Layer()

            def forward(self, x):
                outputs = self.inner(x)
                return outputs | {"logits": self.beside(outputs["logits"].double().float())}

        staged = split(Wrapper(), torch.randn(2, 4))
        self.assertEqual((staged.boundaries[-1], staged.stages[-1].makes), (["loss"], ["loss"]))
        with self.assertRaisesRegex(Refused, "module 'beside' runs behind the loss, where nothing is to be cut"):
            split(Wrapper(), torch.randn(2, 4), ["beside"])

    def test_an_autograd_function_is_one_call(self):
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, gradient):
                return 2 * ctx.saved_tensors[0] * gradient

        class Between(nn.Sequential):
            def forward(self, x):
                return Square.apply(x) + torch.utils.checkpoint.checkpoint(torch.sin, x)
        staged = self.same(Between(nn.Identity()))
        names = [operation.name for stage in staged.stages for operation in stage.operations]
        self.assertEqual(names, ["a.linear", "tanh", "Square", "CheckpointFunction", "add", "b.linear", "tanh", "loss"])

    def test_a_module_whose_inside_is_not_seen_is_one_call(self):
        class Between(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Identity()

            def forward(self, x):
                return self.inner(x) * torch.Tensor([1.0, 2.0, 3.0, 4.0])  # a constructor that torch lets nobody see
        staged = self.same(Between())
        self.assertIn("between", [operation.name for operation in staged.stages[0].operations])

    def test_modules_in_a_row_are_a_stage_each_whatever_they_hand_on(self):
        class Fork(nn.Module):
            def forward(self, x):
                return {"main": torch.tanh(x), "more": [torch.sigmoid(x)]}

        class Pass(nn.Module):
            def forward(self, boundary):
                return {**boundary, "main": -boundary["main"]}

        class Meet(nn.Module):
            def forward(self, boundary):
                return boundary["main"] * boundary["more"][0]
        staged = split([("linear.first", nn.Linear(4, 4)), Fork(), Pass(), Meet()], self.x, None, mean_square)
        self.assertEqual([stage.name for stage in staged.stages], ["linear.first", "stage1", "stage2", "stage3", "loss"])
        self.assertEqual(staged.boundaries[2], ["stage1.main", "stage1.more.0"])
        self.assertEqual((staged.stages[2].reads, staged.stages[2].makes), (["stage1.main", "stage1.more.0"], ["stage2.main"]))

    def test_a_module_that_runs_twice_is_cut_before_both_calls_or_one(self):
        layer = Layer()

        class Again(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = layer

            def forward(self, x):
                return self.layer(self.layer(self.layer(x)))
        self.assertEqual([s.name for s in split(Again(), self.x, ["layer"], mean_square).stages], ["layer#1", "layer#2", "layer#3", "loss"])
        self.assertEqual([s.name for s in split(Again(), self.x, ["layer#3"], mean_square).stages], ["layer#1", "layer#3", "loss"])

    def test_a_row_with_a_module_twice_and_one_with_a_forward_of_its_own(self):
        layer, other = Layer(), Layer()
        staged = split(nn.Sequential(layer, other, layer), self.x, None, mean_square)
        self.assertEqual([stage.name for stage in staged.stages], ["0#1", "1", "0#2", "loss"])

        class Backwards(nn.Sequential):
            def forward(self, x):
                for module in reversed(list(self)):
                    x = module(x)
                return x
        staged = split(Backwards(layer, other), self.x, None, mean_square)
        self.assertEqual([stage.name for stage in staged.stages], ["1", "0", "loss"])

    def test_an_argument_that_is_handed_over_twice_may_differ_the_next_time(self):
        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()

            def forward(self, x, wanted):
                return (self.layer(x) - wanted).pow(2).mean()
        model = Both()
        staged = split(model, {"x": self.x, "wanted": self.x}, ["layer"])
        other = {"x": self.x, "wanted": self.x.flip(0)}
        self.assertEqual(staged.boundaries[0], ["x", "wanted"])
        self.assertTrue(torch.equal(staged.run(staged.values_of(other)), model(**other)))

    def test_nothing_of_the_model_is_changed_by_cutting_it(self):
        model, loss, inputs, targets = models.resnet18()
        buffers, state = [buffer.clone() for buffer in model.buffers()], torch.get_rng_state()
        split(model, inputs, "auto", loss, targets)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(buffers, model.buffers())))
        self.assertTrue(torch.equal(state, torch.get_rng_state()))
        self.assertTrue(all(parameter.grad is None for parameter in model.parameters()))
        self.assertNotIn("__getitem__", torch.Tensor.__dict__)

    def test_a_stage_lets_go_of_what_it_needs_no_more(self):
        staged = split(nn.Sequential(*[Layer(64) for _ in range(6)]), torch.randn(4, 64), ["5"], mean_square)
        alive, most = set(), [0]
        for operation in staged.stages[0].operations:
            inner = operation.function

            def counted(*args, inner=inner, **kwargs):
                made = inner(*args, **kwargs)
                reference = torch.multiprocessing.reductions.StorageWeakRef(made.storage())
                alive.add(reference)
                most[0] = max(most[0], sum(not one.expired() for one in alive))
                return made
            operation.function = counted
        with torch.no_grad():
            staged.stages[0]((torch.randn(4, 64),))
        self.assertEqual(most[0], 2)  # what is read and what is made


class Packed(nn.Module):
    """A named tuple whose class asks for tensors."""

    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(9, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.words(tokens), lengths, batch_first=True, enforce_sorted=False)
        return self.head(nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0])


class Halves(nn.Module):
    """As in a ShuffleNet: one half passes by, so that between the modules two views of one storage are alive."""

    def __init__(self):
        super().__init__()
        self.first, self.inner, self.deeper, self.last = nn.Linear(8, 8), Layer(), Layer(), nn.Linear(8, 2)

    def forward(self, x):
        left, right = self.first(x).chunk(2, -1)
        return self.last(torch.cat([left, self.deeper(self.inner(right))], -1))


class Wide(nn.Module):
    """Eight times as wide between the second norm and the last layer as before."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.wide, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.LayerNorm(64), nn.Linear(64, 2)

    def forward(self, x):
        return self.last(self.wide(self.norm(self.first(x)).repeat(1, 8)))


class Sequences(unittest.TestCase):
    def test_cuts_lie_where_few_bytes_are_alive(self):
        self.assertEqual([stage.name for stage in split(Wide(), torch.randn(2, 8), loss=mean_square).stages], ["first", "norm", "loss"])

    def test_no_cut_lies_between_halves_of_one_tensor(self):
        model, x = Halves(), torch.linspace(-1, 1, 16).view(2, 8)
        staged = split(model, x, loss=mean_square)
        self.assertEqual([stage.name for stage in staged.stages], ["first", "deeper", "last", "loss"])
        self.assertTrue(torch.equal(staged.run(staged.values_of(x)), model(x).pow(2).mean()))

    def test_packed(self):
        model, inputs = Packed(), (torch.arange(8).view(2, 4), torch.tensor([2, 4]))
        staged = split(model, inputs, ["head"], mean_square)
        self.assertTrue(torch.equal(staged.run(staged.values_of(inputs)), model(*inputs).pow(2).mean()))


class Refusals(unittest.TestCase):
    x = torch.linspace(-1, 1, 8).view(2, 4)

    def refused(self, expected, model, how="auto", x=None, **options):
        with self.assertRaises(Refused) as raised:
            split(model, self.x if x is None else x, how, **{"loss": mean_square, **options})
        self.assertIn(expected, str(raised.exception))
        self.assertEqual(len(str(raised.exception).splitlines()), 1)

    def test_a_course_that_depends_on_the_data(self):
        class Branches(nn.Module):
            def forward(self, x):
                return x if x.sum() > 0 else -x

        class Leaf(nn.Module):
            def forward(self, x):
                return x * x.max().item()
        self.refused("module 'between': its forward reads numbers out of a tensor (__bool__), so its course depends on the data", Model(Branches()))
        self.refused("module 'between': its forward reads numbers out of a tensor (item)", Model(Leaf()))

    def test_a_course_that_differs_from_run_to_run(self):
        calls = []

        class Drops(nn.Module):
            def forward(self, x):
                calls.append(1)
                return x * len(calls)
        self.refused("the model's forward takes another course from run to run", Model(Drops()))

    def test_a_course_that_differs_in_code_between_modules(self):
        class Counts(Model):
            def forward(self, x):
                self.calls = getattr(self, "calls", 0) + 1
                return super().forward(x * self.calls)
        self.refused("the model's forward takes another course from run to run", Counts(nn.ReLU()))

    def test_a_module_that_checkpoints_another(self):
        class Between(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Layer()

            def forward(self, x):
                return torch.utils.checkpoint.checkpoint(self.inner, x)
        self.refused("module 'between': recomputes a part of itself (torch.utils.checkpoint), whose parameters are not seen; switch that off",
                     Model(Between()))

    def test_what_changes_what_autograd_saves(self):
        class Kept(nn.Module):
            def forward(self, x):
                return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)

        class OnHost(nn.Module):
            def forward(self, x):
                with torch.autograd.graph.save_on_cpu():
                    return torch.sin(x)
        for inner, reason in ((Kept(), "recomputes a part of itself (torch.utils.checkpoint, use_reentrant=False), which stages would run without; switch that off"),
                              (OnHost(), "its forward has hooks on what autograd saves (saved_tensors_hooks), without which stages would run")):
            self.refused(f"module 'between': {reason}", Model(inner))
        with torch.autograd.graph.save_on_cpu():  # nobody's but the model's own
            torch.sin(torch.ones(2, requires_grad=True)).sum().backward()

    def test_a_buffer_that_is_replaced(self):
        class Means(nn.BatchNorm1d):
            def forward(self, x):
                self.running_mean = 0.9 * self.running_mean + 0.1 * x.detach().mean(0)
                return x - self.running_mean
        model = Model(Means(4))
        before = model.between.running_mean
        self.refused("module 'between' puts another tensor in place of its buffer 'running_mean' in its forward", model)
        self.assertIs(model.between.running_mean, before)

    def test_paths_that_are_not_there(self):
        self.refused("no module 'betwen'; did you mean 'between'?", Model(nn.ReLU()), ["betwen"])
        self.refused("module 'between' is not called by itself", NeverCalled(), ["between"])
        for number in (0, 2):
            self.refused(f"no call {number} of module 'b'", Model(nn.ReLU()), [f"b#{number}"])

    def test_cuts_before_what_is_overwritten(self):
        self.refused("module 'between' overwrites its input in place, so the model cannot be cut before 'between'",
                     Model(nn.ReLU(inplace=True)), ["between"])
        self.refused("module '0' overwrites the model's input 'input' in place", nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4)))

    def test_a_loss_that_is_no_number(self):
        self.refused("the loss must be one number that some parameter's gradient flows to, found a tensor of shape [2, 4]", Layer(), loss=lambda y, _: y)
        frozen = Layer().requires_grad_(False)
        self.refused("found one that needs no gradient", frozen)

    def test_a_model_that_does_not_run_on_the_example(self):
        self.refused("module 'a.linear' does not run on the example: RuntimeError: mat1 and mat2", Model(nn.ReLU()), x=torch.randn(2, 3))
        self.refused("the model cannot be called with 2 arguments", Model(nn.ReLU()), x=(self.x, self.x))

    def test_wrappers_and_sparse_gradients(self):
        self.refused("the model is wrapped in DataParallel, which runs copies on several devices; give the module inside it", nn.DataParallel(Layer()))
        self.refused("module 'between' makes sparse gradients", Model(nn.Embedding(3, 4, sparse=True)))

    def test_scripted_and_traced_modules(self):
        layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        for module in (torch.jit.script(layer), torch.jit.trace(layer, self.x)):
            self.refused("module 'between' is scripted or traced (torch.jit), so that its calls are not seen; give the module that it was made of",
                         Model(module))
        self.refused("the model is scripted or traced (torch.jit)", torch.jit.script(layer))

    def test_inputs_of_another_shape(self):
        staged = split(Model(nn.ReLU()), self.x, loss=mean_square)
        for inputs, expected in ((torch.randn(3, 4), "input 'x': expected torch.float32 [2, 4], found torch.float32 [3, 4] (a plan is for one: leave a smaller "
                                                     "last batch out, or give a plan for each shape, or otherwise='at most' or 'plain')"),
                                 ({"y": self.x}, "input 'x' is missing")):
            with self.assertRaises(Refused) as raised:
                staged.values_of(inputs)
            self.assertEqual(str(raised.exception), expected)


class NeverCalled(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.between = Layer(), nn.ReLU()

    def forward(self, x):
        return self.a(x)


if __name__ == "__main__":
    unittest.main()
