#!/usr/bin/env python3
"""Sharded parameters trained by plans beside torch's DistributedDataParallel and fully_shard in plain training, two processes by gloo. Skipped where this
Python has no torch.

  /usr/bin/python3 validate/pytorch/test_sharded.py
"""

import copy
import unittest

import left_out
from turns import eleventh

try:
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import hand_plans
    import models
    import processes

    from plimsoll.torch import Refused, apply
    from plimsoll.torch.sharded import Sharded
    from plimsoll.torch.stages import split
    from plimsoll.torch.versions import storage_of
except ModuleNotFoundError as error:
    left_out.end_without(error)

torch.set_num_threads(1)

# --- what a rank does ---------------------------------------------------------------------------------------------------------------------


def part_of_rank(tensor, rank):
    each = -(-tensor.numel() // processes.RANKS)
    return tensor.reshape(-1)[rank * each : (rank + 1) * each]


CASES = (("gpt", "segments of 2", 1), ("resnet18", "segments of 3", 0), ("unet", "offload segments", 2), ("gpt", "in one call", 1))


def trained_as_by_ddp(rank):
    """[name of what differs from plain training under DistributedDataParallel, bit for bit], and how many things were compared."""
    found = processes.Differences()
    for name, sequence, ahead in CASES:
        sharded = Sharded(ahead=ahead)
        found.beside_ddp(rank, name, sequence, {"sharded": sharded}, lambda parameters: torch.optim.Adam(parameters, 0.01),
                         iterations=2 if name == "gpt" else 1, part=lambda tensor: part_of_rank(tensor, rank), whole=sharded.whole)
    return found.names, found.compared


def trained_as_by_fsdp2(rank):
    """[name of what differs from plain training under torch's own fully_shard], and how many things were compared."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    give_streams()
    found = processes.Differences()
    for name, sequence, ahead in CASES[:3]:
        model, plan, loss, inputs, targets = hand_plans.planned(name, hand_plans.SEQUENCES[sequence])
        other = copy.deepcopy(model)
        mesh = init_device_mesh("cpu", (processes.RANKS,))
        for layer in getattr(other, "blocks", ()):  # on a CPU autograd refuses what torch 2.6 gathers a second time
            fully_shard(layer, mesh=mesh, reshard_after_forward=False)
        fully_shard(other, mesh=mesh, reshard_after_forward=False)
        step = apply(model, plan, loss=loss, sharded=Sharded(ahead=ahead))
        optimizers = [torch.optim.Adam(one.parameters(), 0.01) for one in (other, model)]
        x, y = processes.part_of(inputs, rank), processes.part_of(targets, rank)
        for iteration in range(2):
            values = []
            # gloo sums where fully_shard asks it for the mean
            for train in (lambda: processes.plainly(other, loss, x, y, processes.RANKS), lambda: step(x, y)):
                torch.manual_seed(iteration)
                values.append(train())
            found.compare(f"{name}: loss", *values)
            for optimizer in optimizers:
                optimizer.step()
            for (of, p), q in zip(other.named_parameters(), model.parameters()):
                found.compare(f"{name}: gradient of {of}", part_of_rank(p.grad.full_tensor(), rank), q.grad)
                found.compare(f"{name}: {of}", part_of_rank(p.full_tensor(), rank), q)
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
    return found.names, found.compared


def give_streams():
    """torch 2.6 has streams for a CPU that do nothing and lack what fully_shard asks of them."""
    class Nothing(torch.cpu.Stream):
        def __init__(self, *_, **__):
            super().__init__()

        def record_event(self, *_):
            return self

        def wait_stream(self, *_):
            pass

        wait_event = record = wait = synchronize = wait_stream

    torch.cpu.Stream = torch.cpu.Event = Nothing
    torch.cpu.current_stream = lambda *_: Nothing()


def planned_layers(seed=0, micro_batches=1, frozen=False, sequence=hand_plans.store_all):
    """(model, plan, x) of four layers with 40,400 bytes each."""
    torch.manual_seed(seed)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(100, 100), nn.Tanh()) for _ in range(4)])
    if frozen:
        model[2][0].weight.requires_grad_(False)
    x = torch.randn(10, 100)
    staged = split(copy.deepcopy(model), x, how=None, loss=models.mean_square)
    return model, hand_plans.plan_of(staged, sequence(len(staged.stages)), [0] * len(staged.stages), micro_batches), x


def accumulated(rank):
    """Whether gradients of two micro-batches, and of two steps, are the sums of DistributedDataParallel's of each."""
    model, plan, x = planned_layers(micro_batches=2, frozen=True)
    x = torch.cat([x, x.roll(1, 0) * 2]) + rank
    other = DistributedDataParallel(copy.deepcopy(model))
    sharded = Sharded()
    step = apply(model, plan, loss=models.mean_square, sharded=sharded)
    sums = [None for _ in model.parameters()]
    for _ in range(2):
        step(x)
        for half in x.chunk(2):
            (models.mean_square(other(half), None) / 2).backward()
            for k, p in enumerate(other.parameters()):
                sums[k] = p.grad if sums[k] is None else sums[k] + p.grad
                p.grad = None
    return [processes.same(None if total is None else part_of_rank(total, rank), p.grad) for total, p in zip(sums, model.parameters())]


def clipped(rank):
    """Largest relative distance of clipped gradients, and of their norm, from those of plain training."""
    model, plan, x = planned_layers()
    other = DistributedDataParallel(copy.deepcopy(model))
    sharded = Sharded(ahead=0)
    apply(model, plan, loss=models.mean_square, sharded=sharded)(x + rank)
    processes.plainly(other, models.mean_square, x + rank, None)
    norms = [sharded.clip_grad_norm_(1e-3), nn.utils.clip_grad_norm_(other.parameters(), 1e-3)]
    far = [float((part_of_rank(p.grad, rank) - q.grad).abs().max() / p.grad.abs().max()) for p, q in zip(other.parameters(), model.parameters())]
    return max(*far, abs(float(norms[0] / norms[1]) - 1))


def saved_and_loaded(rank):
    """Whether a state that is saved with all parameters there is the other model's, and parts are its parts when it has been loaded."""
    model, plan, x = planned_layers()
    sharded = Sharded()
    step = apply(model, plan, loss=models.mean_square, sharded=sharded)
    step(x)
    before = [p.grad for p in model.parameters()]
    with sharded.whole():
        states = [{name: tensor.clone() for name, tensor in of.state_dict().items()} for of in (model, planned_layers()[0])]
        model.load_state_dict({name: tensor + 1 for name, tensor in states[1].items()})
    same_state = all(torch.equal(*pair) for pair in zip(*(of.values() for of in states)))
    loaded = [torch.equal(part_of_rank(of + 1, rank), p) for of, p in zip(states[1].values(), model.parameters())]
    return same_state and all(loaded) and all(p.grad is of for p, of in zip(model.parameters(), before))


def refused(rank):
    """The reasons why ranks with other models, and with other plans, train nothing."""
    found = []
    for plan_of_rank, shape in ((False, 4 + rank), (True, 4)):
        model = nn.Sequential(nn.Linear(4, shape), nn.Tanh())
        staged = split(copy.deepcopy(model), torch.ones(2, 4), how=None, loss=models.mean_square)
        steps = hand_plans.recompute_all if plan_of_rank and rank else hand_plans.store_all
        plan = hand_plans.plan_of(staged, steps(len(staged.stages)), [0] * len(staged.stages))
        try:
            apply(model, plan, loss=models.mean_square, sharded=True)(torch.ones(2, 4))
        except Refused as error:
            found.append(str(error))
    return found


def every_task(rank):
    return [task(rank) for task in (accumulated, clipped, saved_and_loaded, refused)]


# --- tests --------------------------------------------------------------------------------------------------------------------------------

class TwoProcesses(unittest.TestCase):
    @eleventh(2)
    def test_bits_are_those_of_ddp(self):
        """Losses, this rank's parts of gradients, parameters and running statistics after two optimizer steps, on both ranks."""
        for differs, compared in processes.results_of(__file__, "trained_as_by_ddp"):
            self.assertEqual(differs, [])
            self.assertGreater(compared, 300)

    @eleventh(3)
    @unittest.skipIf(torch.__version__.startswith("1."), f"torch {torch.__version__} has no fully_shard (2.6 has)")
    def test_bits_are_those_of_fully_shard(self):
        """Losses, gradients and parameters in two optimizer steps."""
        for differs, compared in processes.results_of(__file__, "trained_as_by_fsdp2"):
            self.assertEqual(differs, [])
            self.assertGreater(compared, 300)

    @eleventh(7)
    def test_accumulation_clipping_states_and_refusals(self):
        for sums, far, is_saved, why in processes.results_of(__file__, "every_task"):
            self.assertEqual(sums, [True] * 8)
            self.assertLess(far, 1e-5)
            self.assertTrue(is_saved)
            self.assertEqual(len(why), 2)
            self.assertIn("sharded: rank 1 has other parameters", why[0])
            self.assertIn("sharded: rank 1 has another plan", why[1])


LAYER = 4 * 10_100  # bytes


class OneProcess(processes.OneProcess):
    def gathered(self, ahead, sequence=hand_plans.store_all):
        """[(action, stage, layers that are gathered, layers' gradients that are under way)] at the beginning of each action, before it gathers its own."""
        model, plan, x = planned_layers(sequence=sequence)
        step, seen = apply(model, plan, loss=models.mean_square, sharded=Sharded(ahead=ahead)), []
        step.watch = lambda number, action: seen.append((
            action and f"{action.do[0]}{action.stage}", [k for k, layer in enumerate(model) if storage_of(layer[0].weight).nbytes()],
            sum(flat.numel() * 4 for _, flat, *_ in step.exchange.under_way) / LAYER))
        step(x)
        self.assertEqual(step.exchange.bytes(), 0)
        self.assertTrue(all(p.dim() == 1 and p.grad.shape == p.shape for p in model.parameters()))
        return seen

    def test_parameters_are_there_for_their_stage_alone(self):
        seen = self.gathered(ahead=0)
        self.assertEqual([of for _, of, _ in seen], [[]] * len(seen))
        self.assertEqual([under for *_, under in seen], [0] * len(seen))

    def test_the_next_stage_s_are_gathered_while_one_runs(self):
        """And gradients of a stage are under way while the next backward runs. What the next action needs too stays: the loss has no parameters, so
        the last layer's are gathered once for both ways."""
        seen = self.gathered(ahead=1)
        self.assertEqual([(what, of) for what, of, _ in seen], [
            ("f0", []), ("f1", [1]), ("f2", [2]), ("f3", [3]), ("f4", []), ("b4", []), ("b3", [3]), ("b2", [2]), ("b1", [1]), ("b0", [0]), (None, [])])
        self.assertEqual([under for *_, under in seen], [0] * 7 + [1, 1, 1, 1])

    def test_what_runs_again_is_gathered_again(self):
        seen = self.gathered(0, hand_plans.recompute_all)
        self.assertEqual(sum(what is not None and what[0] == "f" for what, *_ in seen), 5 + 4 + 3 + 2 + 1 + 5)
        self.assertEqual([of for what, of, _ in seen if what == "b3"], [[3]])  # right behind its forward

    def promised(self, ahead, **changes):
        model, plan, x = planned_layers()
        plan |= changes
        step = apply(model, plan, loss=models.mean_square, sharded=Sharded(ahead=ahead))
        step(x)
        for action in step.plan.actions:
            gradients = 4 * LAYER if step.plan.has_gradients else LAYER * (4 - action.stage if action.do == "backward" and action.stage < 4 else 0)
            object.__setattr__(action, "peak_bytes", 4 * LAYER + gradients + (1000 if action.do == "backward" else 900))  # all parameters, gradients, and a value
            object.__setattr__(action, "after_bytes", 4 * LAYER + gradients + 800)
        step.plan.predicted["resident_bytes"] = 4 * LAYER * (2 if step.plan.has_gradients else 1)
        return step

    def test_promised_peak_has_parts_and_what_is_gathered(self):
        """Of one rank its parts are all. In the last backward gradients of three layers are kept; one layer is gathered, and its gradient is there, first as
        the backward makes it, then beside what leaves (the weight's 40,000 bytes)."""
        step = self.promised(ahead=0)
        kept = 4 * LAYER + 3 * LAYER
        self.assertEqual(step.peak_with_ranks(), kept + 2 * LAYER + 40_000 + 800 + 4)
        self.assertEqual(step.exchange.resident_bytes(step.plan, step.staged), 4 * LAYER)

    def test_promised_peak_has_what_is_under_way(self):
        """In the last backward the gradients of the layer before are under way; behind it that one's bias is kept beside its copy under way."""
        step = self.promised(ahead=1)
        before = 4 * LAYER + 2 * LAYER  # parts, and gradients of two layers
        in_last = before + LAYER + 2 * LAYER + 1000 + 4  # one layer under way, one gathered with its gradient
        landing = before + LAYER + 2 * LAYER + 40_000 + 800 + 4
        leaving = before + LAYER + 2 * LAYER + 40_000 + 800 + 4
        self.assertEqual(step.peak_with_ranks(), max(in_last, landing, leaving))

    def test_gradients_that_are_there_before_count(self):
        step = self.promised(ahead=0, gradients="existing")
        self.assertEqual(step.exchange.resident_bytes(step.plan, step.staged), 4 * LAYER)  # the first step found none
        step(torch.randn(10, 100))
        self.assertEqual(step.exchange.resident_bytes(step.plan, step.staged), 8 * LAYER)

    def test_a_step_that_fails_leaves_parts(self):
        model, plan, x = planned_layers()
        step = apply(model, plan, loss=models.mean_square, sharded=Sharded())
        before = [p.detach().clone() for p in model.parameters()]
        step.watch = lambda number, action: (_ for _ in ()).throw(KeyboardInterrupt) if number == 7 else None
        with self.assertRaises(KeyboardInterrupt):
            step(x)
        self.assertEqual(step.exchange.bytes(), 0)
        self.assertTrue(all(p.grad is None and torch.equal(p, of) for p, of in zip(model.parameters(), before)))
        step.watch = None
        step(x)
        self.assertTrue(all(p.grad is not None for p in model.parameters()))

    def test_memory_formats_stay(self):
        model = nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)
        before, sharded = model.weight.detach().clone(), Sharded()
        sharded.begin(model)
        with sharded.whole():
            self.assertEqual(model.weight.stride(), before.stride())
            self.assertTrue(torch.equal(model.weight, before))
        self.assertEqual(model.weight.shape, (144,))

    def test_report_says_what_the_promise_has(self):
        model, plan, x = planned_layers()
        step = apply(model, plan, loss=models.mean_square, sharded=True)
        step(x)
        step.plan.predicted["one_after_the_other_peak_bytes"] = 10 ** 9
        self.assertIn("this rank's parts", str(step.report()))
        self.assertEqual(step.report().promised_peak_bytes, step.peak_with_ranks())

    def test_refusals(self):
        model, plan, _ = planned_layers()
        with self.assertRaisesRegex(Refused, "ahead: expected at least 0, found -1"):
            Sharded(ahead=-1)
        for options, why in (({"limit": 10 ** 9}, "limit: counts on parameters"), ({"otherwise": "plain"}, "'plain' trains with all parameters"),
                             ({"replicas": True}, "leave replicas out")):
            with self.assertRaisesRegex(Refused, why):
                apply(model, plan, loss=models.mean_square, sharded=True, **options)
        model = nn.Linear(4, 4)
        model.weight.data = torch.ones(8, 4)[::2]
        with self.assertRaisesRegex(Refused, "'weight' has gaps or repeats in its memory"):
            Sharded().begin(model)


class WithoutGroup(unittest.TestCase):
    def test_it_says_what_is_missing(self):
        with self.assertRaisesRegex(Refused, "sharded: torch.distributed is not initialized"):
            Sharded()


if __name__ == "__main__":
    processes.end_as_rank(globals())
    unittest.main()
