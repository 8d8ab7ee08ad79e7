#!/usr/bin/env python3
"""The step on a GPU: copies to the host and back, their memory, and the whole step as one CUDA graph. Skipped without CUDA.

  python3 validate/pytorch/test_cuda_step.py
"""

import copy
import os
import unittest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import left_out

try:
    import torch
    from torch import nn

    import gpu_models
    import hand_plans
    from models import mean_square
    from plimsoll.torch import Refused, apply
    from plimsoll.torch.stages import split
except ModuleNotFoundError as error:
    left_out.end_without(error)

if not torch.cuda.is_available():
    left_out.end("torch sees no CUDA device")

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = False
torch.use_deterministic_algorithms(True)
for kernel in ("flash", "mem_efficient", "cudnn"):  # whose backwards add in no fixed order
    getattr(torch.backends.cuda, f"enable_{kernel}_sdp", lambda _: None)(False)
VALUE = 4_000_000  # bytes of a value between stages


def in_order(plan):
    """The plan with each action waiting for the one before it: hand-made ones say of no waits."""
    for number, action in enumerate(plan["actions"]):
        action["waits"] = [number - 1] if number else []
    return plan


def gpt2(batch=2):
    torch.manual_seed(0)
    model = gpu_models.Gpt2(layers=4, width=64, heads=2, length=32, words=128).cuda()
    return model, gpu_models.cross_entropy, torch.randint(128, (batch, 32), device="cuda"), torch.randint(128, (batch, 32), device="cuda")


def chain():
    """Stages that save their input and the result of a Tanh."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 100)) for _ in range(4)]).cuda()
    return model, mean_square, torch.randn(10_000, 100, device="cuda"), None


def planned(made, sequence, autocast=None):
    model, loss, inputs, targets = made
    with torch.autocast("cuda", dtype=autocast, enabled=autocast is not None):
        staged = split(copy.deepcopy(model), inputs, how=None if isinstance(model, nn.Sequential) else "auto", loss=loss, targets=targets)
        saved = hand_plans.saved_bytes(staged, inputs, targets)
    return in_order(hand_plans.plan_of(staged, sequence(staged), saved))


SEQUENCES = {name: hand_plans.SEQUENCES[name] for name in ("store all", "segments of 3", "recompute all", "offload", "offload segments")}


class ByPlan(unittest.TestCase):
    def compare(self, made, plan, autocast=None, **options):
        """Bit for bit against plain training, over steps with other inputs, optimizer steps between them, and another scale."""
        model, loss, inputs, targets = made
        other = copy.deepcopy(model)
        step = apply(model, plan, loss=loss, **options)
        optimizers = [torch.optim.SGD(m.parameters(), 0.01, momentum=0.9) for m in (model, other)]
        losses = []
        for iteration in range(6):
            if iteration:
                inputs = torch.randint_like(inputs, 128) if inputs.dtype == torch.int64 else torch.randn_like(inputs)
            scale = 1.0 if iteration < 4 else 256.0
            with torch.autocast("cuda", dtype=autocast, enabled=autocast is not None):
                got = step(inputs, targets, scale=scale)
                outputs = other(inputs)
                expected = loss(outputs, targets)
            (expected * scale).backward()
            self.assertTrue(torch.equal(got, expected.detach()), (iteration, got, expected))
            for (name, p), q in zip(model.named_parameters(), other.parameters()):
                self.assertTrue(torch.equal(p.grad, q.grad), (iteration, name, (p.grad - q.grad).abs().max()))
            losses.append((got, got.clone()))
            for optimizer in optimizers:
                if iteration < 3:
                    optimizer.step()
                if iteration != 2:  # once gradients stay, and the next step's are added
                    optimizer.zero_grad(set_to_none=iteration != 3)
        self.assertTrue(all(torch.equal(a, b) for a, b in losses), "losses of earlier steps stay")
        return step

    def test_steps(self):
        for name, sequence in SEQUENCES.items():
            with self.subTest(name):
                self.compare(gpt2(), planned(gpt2(), sequence))

    def test_one_graph(self):
        for name, sequence in SEQUENCES.items():
            for autocast in (None, torch.bfloat16):
                with self.subTest(name, autocast=autocast):
                    step = self.compare(gpt2(), planned(gpt2(), sequence, autocast), autocast, cuda_graph=True)
                    self.assertIsNotNone(step.whole_graph.graph)

    def test_one_graph_of_plain_training(self):
        plan = planned(gpt2(), SEQUENCES["store all"]) | {"backward": "in_one_call"}
        self.assertIsNotNone(self.compare(gpt2(), plan, cuda_graph=True).whole_graph.graph)

    def test_one_graph_with_random_numbers(self):
        """They go on from step to step as without a graph."""
        torch.manual_seed(0)
        model, x = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)) for _ in range(4)]).cuda(), torch.randn(8, 64, device="cuda")
        plan = planned((model, mean_square, x, None), SEQUENCES["store all"])
        found = []
        for cuda_graph in (False, True):
            step = apply(copy.deepcopy(model), plan, loss=mean_square, cuda_graph=cuda_graph)
            step(x), step(x), step(x)
            torch.manual_seed(5)
            found.append(torch.stack([step(x) for _ in range(4)]))
        self.assertTrue(torch.equal(*found), found)
        self.assertEqual(len(set(found[1].tolist())), 4)

    def test_what_is_no_graph_is_refused(self):
        torch.manual_seed(0)
        model, x = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)) for _ in range(3)]).cuda(), torch.randn(8, 64, device="cuda")
        plan = planned((model, mean_square, x, None), SEQUENCES["recompute all"])
        with self.assertRaisesRegex(Refused, "^cuda_graph: stage '.*' draws random numbers and runs again"):
            apply(model, plan, loss=mean_square, cuda_graph=True)(x)


class Memory(unittest.TestCase):
    def peak(self, plan, **options):
        """Most bytes that are asked for above what is there before a step, in the second step and in one that is recorded."""
        model, _, inputs, _ = chain()
        step, counter, found = apply(model, plan, loss=mean_square, **options), lambda which: torch.cuda.memory_stats()[f"requested_bytes.all.{which}"], []
        for _ in range(3):
            for parameter in model.parameters():
                parameter.grad = None
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = counter("current")
            step(inputs)
            found.append(counter("peak") - before)
        return found[1:]

    def test_what_goes_out_is_not_there(self):
        """What stage 0 saves (a value) is on the host while the others' backwards run, at whose beginning the peak is."""
        model, _, inputs, _ = chain()
        steps = [("S", 0), ("S", 1), ("out", "saved by 0"), ("S", 2), ("S", 3), ("S", 4), ("B", 4), ("B", 3), ("B", 2), ("B", 1),
                 ("in", "saved by 0"), ("B", 0)]
        stored = self.peak(planned(chain(), lambda staged: hand_plans.store_all(5)))
        offloaded = self.peak(planned(chain(), lambda staged: steps))
        print(f"peaks above what is there: stored {stored}, offloaded {offloaded} B, one value {VALUE} B")
        self.assertEqual(stored[0] - offloaded[0], VALUE)
        self.assertEqual(offloaded[0], offloaded[1], "the same in each step")

    def test_a_recording_takes_what_a_step_takes(self):
        """Beside the clones of its inputs and one of the loss."""
        steps = hand_plans.segments(5, 2)
        plain, one = (self.peak(planned(chain(), lambda staged: steps), cuda_graph=cuda_graph) for cuda_graph in (False, True))
        print(f"peaks above what is there: step {plain}, recorded {one} B")
        self.assertLessEqual(one[1] - plain[1], VALUE + 65_536)


if __name__ == "__main__":
    unittest.main(verbosity=2)
