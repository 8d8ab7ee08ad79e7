"""A LightningModule by a plan (docs/pytorch.md), by Lightning's manual optimization:

    class Classifier(ByPlan, LightningModule):
        def __init__(self):
            super().__init__()
            self.network, self.loss = ...
            self.use_plan(self.network, "plan.json", loss=self.loss, accumulate_grad_batches=2, gradient_clip_val=1.0)

        def training_step(self, batch, index):
            return self.train_by_plan(*batch)

Lightning itself is not imported: `lightning.pytorch` and `pytorch_lightning` both do.
"""

import torch

from . import again
from .errors import Refused
from .several import apply

RANDOM = "plimsoll_torch.random"  # in checkpoints
NOT_CALLED = ("on_before_backward", "on_after_backward", "backward")


class ByPlan:
    """Before LightningModule. The Trainer has precision, loggers, callbacks and checkpoints; into these goes the random state too, so that
    training resumed at the end of an epoch goes on with the same bits. What overrides a hook that is here calls super()."""

    planned_step = None  # from the first batch on: planned_step.report()

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False
        self._plan = self._random = None

    def use_plan(self, network, plan, loss=None, limit=None, otherwise="refuse", accumulate_grad_batches=1, gradient_clip_val=None,
                 gradient_clip_algorithm="norm", cuda_graph=False, compile=False):
        """Say by which plan train_by_plan trains; nothing is done yet.

        network: the module that was measured, a part of this one
        plan, loss, limit, otherwise, cuda_graph, compile: as plimsoll.torch.apply takes them
        accumulate_grad_batches, gradient_clip_val, gradient_clip_algorithm: what Lightning's Trainer takes where it optimizes itself, and refuses
            here
        """
        self._plan = (network, {"plan": plan, "loss": loss, "limit": limit, "otherwise": otherwise, "cuda_graph": cuda_graph, "compile": compile})
        self._accumulated, self._clipping, self._clipped = accumulate_grad_batches, (gradient_clip_val, gradient_clip_algorithm), False

    def train_by_plan(self, inputs, targets=None):
        """Do all that Lightning does with a batch: gradients, and behind the last of those that are accumulated clipping, the optimizer's step
        and the schedulers'. Inputs, targets and the loss that is returned are those of a step (plimsoll.torch.apply). Raises Refused where the
        module overrides a hook that would not be called, has several optimizers, or trains on several devices."""
        if self.planned_step is None:
            self._refuse_what_no_plan_is_for()
            network, options = self._plan
            self.planned_step = apply(network, **options)  # not before: Lightning moves the network to its device
        optimizer, batch = self.optimizers(), self.trainer.fit_loop.batch_idx
        if batch % self._accumulated == 0:
            optimizer.zero_grad()
        loss = self.planned_step(inputs, targets, scale=self._seed())
        is_last = self.trainer.is_last_batch or batch + 1 == self.trainer.num_training_batches
        if (batch + 1) % self._accumulated == 0 or is_last:
            self._clipped = False
            with again.without_autocast():  # which Lightning puts around training_step, and not around its own steps
                optimizer.step()
            if not self._clipped:
                raise Refused(f"{type(self).__name__}.on_before_optimizer_step does not call super().on_before_optimizer_step, which clips gradients")
            self._step_schedules("step", batch + 1)
        if is_last:
            self._step_schedules("epoch", self.trainer.current_epoch + 1)
        return loss

    def _seed(self):
        """The gradient that Lightning would give a batch's loss."""
        one = torch.ones((), device=self.device) / self._accumulated
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        return (one if scaler is None else scaler.scale(one)).item() if scaler is not None or self._accumulated > 1 else 1.0

    def on_before_optimizer_step(self, optimizer):
        """Gradients are unscaled here."""
        super().on_before_optimizer_step(optimizer)
        value, algorithm = self._clipping
        self.configure_gradient_clipping(optimizer, gradient_clip_val=value, gradient_clip_algorithm=algorithm)
        self._clipped = True

    def _step_schedules(self, interval, count):
        for config in self.trainer.lr_scheduler_configs:
            if config.interval == interval and count % config.frequency == 0:
                self.lr_scheduler_step(config.scheduler, None)

    def _refuse_what_no_plan_is_for(self):
        name = type(self).__name__
        if self._plan is None:
            raise Refused(f"{name} has no plan: call self.use_plan(network, 'plan.json') in its __init__")
        if self.trainer.world_size > 1:
            raise Refused(f"the Trainer runs on {self.trainer.world_size} devices, and a plan is for one: Trainer(devices=1)")
        if isinstance(self.optimizers(), list):
            raise Refused(f"{name} has {len(self.optimizers())} optimizers, and train_by_plan is for one; call self.planned_step and them yourself")
        for config in self.trainer.lr_scheduler_configs:
            if isinstance(config.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                raise Refused("ReduceLROnPlateau waits for a number that is measured later, and train_by_plan steps schedulers behind a batch")
        lightning = next(kind for kind in type(self).__mro__ if kind.__name__ == "LightningModule")
        for hook in NOT_CALLED:
            if getattr(type(self), hook) is not getattr(lightning, hook):
                raise Refused(f"{name}.{hook} would not be called: the backward is the plan's")

    # --- checkpoints --------------------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint):
        super().on_save_checkpoint(checkpoint)
        checkpoint[RANDOM] = [torch.get_rng_state()] + ([torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else [])

    def on_load_checkpoint(self, checkpoint):
        super().on_load_checkpoint(checkpoint)
        self._random = checkpoint.get(RANDOM)

    def on_fit_start(self):
        """Before Lightning makes the first epoch's iterator, whose sampler draws the next numbers."""
        super().on_fit_start()
        if self._random is not None:
            device = self.trainer.strategy.root_device
            torch.set_rng_state(self._random[0].cpu())
            if device.type == "cuda":
                torch.cuda.set_rng_state(self._random[1].cpu(), device)
            self._random = None
