#!/usr/bin/env python3
"""Replicas trained by plans beside torch's DistributedDataParallel in plain training, two processes by gloo. Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_replicas.py
"""

import copy
import unittest

import left_out
from turns import eleventh

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import hand_plans
    import models
    import processes

    from plimsoll.torch import Refused, apply
    from plimsoll.torch.replicas import Exchange, Replicas
    from plimsoll.torch.stages import split
except ModuleNotFoundError as error:
    left_out.end_without(error)

torch.set_num_threads(1)

# --- what a rank does ---------------------------------------------------------------------------------------------------------------------

def trained_as_by_ddp(rank):
    """[name of what differs from plain training under DistributedDataParallel, bit for bit], and how many things were compared."""
    found = processes.Differences()
    for name, sequence in (("gpt", "segments of 2"), ("resnet18", "recompute all"), ("unet", "offload segments"), ("gpt", "in one call")):
        found.beside_ddp(rank, name, sequence, {"replicas": Replicas(bucket_bytes=1 << 18)},
                         lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9))
    return found.names, found.compared


def accumulated(rank):
    """Whether gradients of two steps, the first under no_sync, are those of DistributedDataParallel."""
    model, plan, loss, inputs, targets = hand_plans.planned("gpt", hand_plans.SEQUENCES["segments of 2"])
    other = DistributedDataParallel(copy.deepcopy(model))
    replicas = Replicas()
    step = apply(model, plan, loss=loss, replicas=replicas)
    for train, no_sync in ((lambda: processes.plainly(other, loss, processes.part_of(inputs, rank), processes.part_of(targets, rank)), other.no_sync),
                           (lambda: step(processes.part_of(inputs, rank), processes.part_of(targets, rank)), replicas.no_sync)):
        torch.manual_seed(3)
        with no_sync():
            train()
        train()
    return all(torch.equal(p.grad, q.grad) for p, q in zip(other.parameters(), model.parameters()))


def in_micro_batches(rank):
    """Whether gradients of two micro-batches, which are exchanged once, are those of DistributedDataParallel."""
    model, loss, inputs, targets = models.MODELS["gpt"](batch=4)
    staged = split(copy.deepcopy(model), inputs[:2], loss=loss, targets=targets[:2])
    saved = hand_plans.saved_bytes(staged, inputs[:2], targets[:2])
    plan = hand_plans.plan_of(staged, hand_plans.segments(len(staged.stages), 2), saved, micro_batches=2)
    other, x, y = DistributedDataParallel(copy.deepcopy(model)), processes.part_of(inputs, rank), processes.part_of(targets, rank)
    torch.manual_seed(3)
    apply(model, plan, loss=loss, replicas=True)(x, y)
    torch.manual_seed(3)
    (first, of_first), (second, of_second) = zip(x.chunk(2), y.chunk(2))
    with other.no_sync():
        (loss(other(first), of_first) / 2).backward()
    (loss(other(second), of_second) / 2).backward()
    return all(torch.equal(p.grad, q.grad) for p, q in zip(other.parameters(), model.parameters()))


class Routed(nn.Module):
    """Of its two layers a batch takes one, by a number that the caller gives."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.layers = nn.Linear(8, 8), nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x, which):
        return self.layers[which](self.first(x))


def by_other_plans(rank):
    """Each rank takes another layer, by a plan of its own, and nobody the third: gradients are DistributedDataParallel's."""
    model, x = Routed(), torch.ones(4, 8) + rank
    other = DistributedDataParallel(copy.deepcopy(model), find_unused_parameters=True)
    inputs = {"x": x, "which": rank}
    staged = split(copy.deepcopy(model), inputs, how=None, loss=models.mean_square)
    plan = hand_plans.plan_of(staged, hand_plans.store_all(len(staged.stages)), [0] * len(staged.stages))
    apply(model, plan, loss=models.mean_square, replicas=True)(inputs)
    models.mean_square(other(**inputs)).backward()
    same = all(processes.same(p.grad, q.grad) for p, q in zip(other.parameters(), model.parameters()))
    return same, [name for name, p in model.named_parameters() if p.grad is None]


def refused(rank):
    """The reason why ranks with other models train nothing."""
    model = nn.Sequential(nn.Linear(4, 4 + rank), nn.Tanh())
    x = torch.ones(2, 4)
    staged = split(copy.deepcopy(model), x, how=None, loss=models.mean_square)
    plan = hand_plans.plan_of(staged, hand_plans.store_all(len(staged.stages)), [0] * len(staged.stages))
    try:
        apply(model, plan, loss=models.mean_square, replicas=True)
    except Refused as error:
        return str(error)
    return ""


def outside(rank):
    """The reason why a rank outside of a group trains nothing by it."""
    group = dist.new_group([0])
    try:
        Replicas(group)
    except Refused as error:
        return str(error)
    return ""


def every_task(rank):
    return [task(rank) for task in (accumulated, in_micro_batches, by_other_plans, refused, outside)]


# --- tests --------------------------------------------------------------------------------------------------------------------------------

class TwoProcesses(unittest.TestCase):
    @eleventh(5)
    def test_bits_are_those_of_ddp(self):
        """Losses, gradients, parameters and running statistics after two optimizer steps, on both ranks."""
        for differs, compared in processes.results_of(__file__, "trained_as_by_ddp"):
            self.assertEqual(differs, [])
            self.assertGreater(compared, 300)

    @eleventh(8)
    def test_accumulation_other_plans_and_other_models(self):
        for rank, (same, same_in_parts, (routed, without), why, why_outside) in enumerate(processes.results_of(__file__, "every_task")):
            self.assertTrue(same)
            self.assertTrue(same_in_parts)
            self.assertTrue(routed)
            self.assertEqual(without, ["layers.2.weight", "layers.2.bias"])
            self.assertIn("rank 1 has other parameters", why)
            self.assertEqual(why_outside, "replicas: rank 1 is not in the group: only its ranks train the model" if rank else "")


class OneProcess(processes.OneProcess):
    def planned(self, **options):
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(100, 100), nn.Tanh()) for _ in range(4)])
        x = torch.randn(10, 100)
        staged = split(copy.deepcopy(model), x, how=None, loss=models.mean_square)
        plan = hand_plans.plan_of(staged, hand_plans.store_all(len(staged.stages)), [0] * len(staged.stages))
        return model, apply(model, plan, loss=models.mean_square, **options), x

    def test_buckets_leave_while_the_backward_goes_on(self):
        """A layer has 40,400 bytes: a bucket of two layers leaves behind the second one's backward, and no memory is there before the first's."""
        model, step, x = self.planned(replicas=Replicas(bucket_bytes=80_000))
        step(x)
        seen = []
        step.watch = lambda number, action: seen.append((action and (action.do, action.stage), step.exchange.next, step.exchange.bytes()))
        step(x)
        own = 4 * (2 * 10_100 + 4)  # and a flag for each parameter
        self.assertEqual(seen[-5:], [(("backward", 3), 0, 0), (("backward", 2), 0, own), (("backward", 1), 1, own), (("backward", 0), 1, 2 * own), (None, 2, 2 * own)])
        self.assertEqual(step.exchange.bytes(), 0)

    def test_promised_peak_has_the_buckets(self):
        model, step, x = self.planned(replicas=Replicas(bucket_bytes=80_000))
        step(x)
        for number, action in enumerate(step.plan.actions):  # a value of 1,000,000 bytes until a stage's backward has run
            alive = sum(of.do == "forward" for of in step.plan.actions[:number + 1]) - sum(of.do == "backward" for of in step.plan.actions[:number])
            object.__setattr__(action, "peak_bytes", alive * 1_000_000)
            object.__setattr__(action, "after_bytes", (alive - (action.do == "backward")) * 1_000_000)
        self.assertEqual(step.peak_with_ranks(), len(step.staged.stages) * 1_000_000)
        for action in step.plan.actions:
            if (action.do, action.stage) == ("backward", 0):
                object.__setattr__(action, "peak_bytes", 9_000_000)
        self.assertEqual(step.peak_with_ranks(), 9_000_000 + 2 * 4 * (2 * 10_100 + 4) + 4)  # and the loss

    def test_a_step_that_fails_leaves_no_buckets_and_no_hooks(self):
        model, step, x = self.planned(replicas=True)
        step(x)
        step.watch = lambda number, action: (_ for _ in ()).throw(KeyboardInterrupt) if number == 6 else None
        with self.assertRaises(KeyboardInterrupt):
            step(x)
        self.assertEqual(step.exchange.bytes(), 0)
        step.watch = None
        expected, found = copy.deepcopy(model), step(x)
        for parameter in [*expected.parameters(), *model.parameters()]:
            parameter.grad = None
        self.assertTrue(torch.equal(found, processes.plainly(expected, models.mean_square, x, None)))
        step(x)
        self.assertTrue(all(torch.equal(p.grad, q.grad) for p, q in zip(expected.parameters(), model.parameters())))

    def test_buckets_are_of_one_dtype_and_in_the_same_order_everywhere(self):
        model = nn.ModuleList([nn.Linear(600, 600), nn.Linear(4, 4).to(torch.bfloat16), nn.Linear(600, 600), nn.Linear(4, 4)])
        model[3].weight.requires_grad_(False)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        found = [[names[id(parameter)] for parameter in bucket.parameters] for bucket in Exchange(Replicas(bucket_bytes=1 << 30), model).buckets]
        self.assertEqual(found, [["3.bias", "2.bias", "2.weight"], ["1.bias", "1.weight"], ["0.bias", "0.weight"]])

    def test_refusals(self):
        with self.assertRaisesRegex(Refused, "bucket_bytes: expected at least 1, found 0"):
            Replicas(bucket_bytes=0)


class WithoutGroup(unittest.TestCase):
    def test_it_says_what_is_missing(self):
        with self.assertRaisesRegex(Refused, "init_process_group"):
            Replicas()


if __name__ == "__main__":
    processes.end_as_rank(globals())
    unittest.main()
