#!/usr/bin/env python3
"""Tests of plimsoll.torch.lightning with Lightning's own Trainer, on a CPU, and where there is one on a GPU, with plans made by hand. Skipped where
this Python lacks torch or Lightning.

  python3 validate/pytorch/test_lightning.py
"""

import logging
import os
import shutil
import tempfile
import unittest
import warnings

import left_out

try:
    import pytorch_lightning as pl
    import torch
    from torch import nn

    import hand_plans
    from plimsoll.torch import Refused
    from plimsoll.torch.lightning import ByPlan
    from plimsoll.torch.stages import split
except ModuleNotFoundError as error:
    left_out.end_without(error, "Lightning by a plan was not run")

torch.set_num_threads(1)
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
ACCELERATORS = ("cpu", "gpu") if torch.cuda.is_available() else ("cpu",)


def network():
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Dropout(0.2)) for _ in range(4)], nn.Linear(12, 5))


def loss_of(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)


def plan():
    x, y = torch.randn(4, 12), torch.randint(5, (4,))
    staged = split(network(), x, how=None, loss=loss_of, targets=y)
    return hand_plans.plan_of(staged, hand_plans.segments(len(staged.stages), 2), [0] * len(staged.stages))


def rows(batch=4):
    made = torch.Generator().manual_seed(7)
    data = torch.utils.data.TensorDataset(torch.randn(20, 12, generator=made), torch.randint(5, (20,), generator=made))
    return torch.utils.data.DataLoader(data, batch_size=batch, shuffle=True)


class Both(pl.LightningModule):
    """What the plain one and the planned one share."""

    interval = "step"

    def __init__(self):
        super().__init__()
        self.network, self.losses = network(), []

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-2)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7), "interval": self.interval}]

    def on_train_batch_end(self, *_):
        self.losses.append(self.loss.item())


class Plain(Both):
    def training_step(self, batch, index):
        self.loss = loss_of(self.network(batch[0]), batch[1])
        return self.loss


class Planned(ByPlan, Both):
    def __init__(self, **more):
        super().__init__()
        self.use_plan(self.network, plan(), loss=loss_of, **more)

    def training_step(self, batch, index):
        self.loss = self.train_by_plan(*batch)
        return self.loss


class InLightning(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def fit(self, model, accelerator="cpu", data=None, resume=None, **more):
        options = {"max_epochs": 2, "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = pl.Trainer(accelerator=accelerator, devices=1, default_root_dir=self.folder, **options | more)
        torch.manual_seed(3)
        trainer.fit(model, data or rows(), ckpt_path=resume)
        return trainer

    def assert_same(self, one, other, message=""):
        for (name, a), b in zip(one.state_dict().items(), other.state_dict().values()):
            self.assertTrue(torch.equal(a, b), f"{message} {name}")

    def compare(self, accelerator="cpu", accumulated=1, clipping=None, interval="step", **more):
        plain, planned = Plain(), Planned(accumulate_grad_batches=accumulated, gradient_clip_val=clipping)
        plain.interval = planned.interval = interval
        one = self.fit(plain, accelerator, accumulate_grad_batches=accumulated, gradient_clip_val=clipping, **more)
        after = torch.get_rng_state()
        other = self.fit(planned, accelerator, **more)
        self.assertEqual(plain.losses, planned.losses)
        self.assertEqual(len(plain.losses), 10)
        self.assert_same(plain.network, planned.network, f"{accelerator} {more}")
        self.assertTrue(torch.equal(after, torch.get_rng_state()), "random state")
        self.assertEqual(one.global_step, other.global_step)
        self.assertEqual(one.optimizers[0].param_groups[0]["lr"], other.optimizers[0].param_groups[0]["lr"])
        self.assertEqual(planned.planned_step.counts.steps, 10)

    def test_as_automatic_optimization(self):
        for accelerator in ACCELERATORS:
            self.compare(accelerator)

    def test_accumulation_with_a_rest_and_clipping(self):
        for accelerator in ACCELERATORS:
            self.compare(accelerator, accumulated=3, clipping=0.05)

    def test_rates_by_epoch(self):
        self.compare(interval="epoch", accumulated=2)

    def test_autocast(self):
        for accelerator in ACCELERATORS:
            self.compare(accelerator, accumulated=2, precision="bf16-mixed")

    @unittest.skipUnless(torch.cuda.is_available(), "a GradScaler in Lightning needs CUDA")
    def test_grad_scaler(self):
        self.compare("gpu", accumulated=2, clipping=0.05, precision="16-mixed")

    def test_a_batch_of_another_size(self):
        model = Planned()
        with self.assertRaisesRegex(Refused, r"input 'input': the plan is for float32 \[4, 12\], found float32 \[3, 12\]"):
            self.fit(model, data=rows(3))
        for otherwise in ("plain", "at most"):
            planned, plain = Planned(otherwise=otherwise), Plain()
            self.fit(planned, data=rows(6))
            self.fit(plain, data=rows(6))
            self.assert_same(plain.network, planned.network)

    def test_saved_and_resumed_as_without(self):
        for accelerator in ACCELERATORS:
            whole, first, second = Planned(), Planned(), Planned()
            self.fit(whole, accelerator, max_epochs=3)
            trainer = self.fit(first, accelerator, max_epochs=1)
            path = os.path.join(self.folder, "state.ckpt")
            trainer.save_checkpoint(path)
            torch.manual_seed(99)
            self.fit(second, accelerator, max_epochs=3, resume=path)
            self.assertEqual(whole.losses, first.losses + second.losses)
            self.assert_same(whole.network, second.network)

    def test_refused_by_name(self):
        def with_(**more):
            return type("Mine", (Planned,), more)()

        def two(self):
            return [torch.optim.SGD(self.network[k].parameters(), 0.1) for k in (0, 1)]

        nothing = Planned()
        nothing._plan = None
        for model, expected in ((nothing, r"Planned has no plan: call self.use_plan\(network, 'plan.json'\)"),
                                (with_(configure_optimizers=two), "Mine has 2 optimizers, and train_by_plan is for one"),
                                (with_(on_after_backward=lambda self: None), "Mine.on_after_backward would not be called: the backward is the plan's"),
                                (with_(on_before_optimizer_step=lambda self, optimizer: None), "does not call super"),):
            with self.assertRaisesRegex(Refused, expected):
                self.fit(model)


if __name__ == "__main__":
    unittest.main()
