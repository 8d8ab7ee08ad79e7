"""Hugging Face's Trainer by a plan: `class PlannedTrainer(ByPlan, Trainer): plan = "plan.json"`, and everything else stays (docs/pytorch.md).

The Trainer's own training_step runs, with what it asks compute_loss for answered by the plan's step. Twice, since a plan's backward begins before
its loss is known elsewhere: once with a number of our own for a loss, which shows the gradient that this loss is given (accumulation, GradScaler), and
once with the loss that the step has made, for what is logged.
"""

import contextlib

import torch
from transformers import Trainer

from . import again
from .errors import Refused
from .several import Several, apply


class ByPlan:
    """Stands before Trainer or a class made of it: its training_step is by the plan. Evaluation, prediction and checkpoints are the Trainer's.
    The first step raises Refused where the Trainer's arguments ask for what no plan is for (several devices, gradient checkpointing, fp8)."""

    plan = None           # as apply takes it: a file, or a list of them for inputs of several shapes
    otherwise = "refuse"  # or "plain" or "at most": what happens to batches that no plan is for
    limit = None
    cuda_graph = False    # these two as apply takes them
    compile = False
    planned_step = None   # from the first step on: of which planned_step.report() tells

    def training_step(self, model, inputs, num_items_in_batch=None):
        if self.planned_step is None or self.planned_step.model is not model:
            self.planned_step = self.step_of(model)
        seed = self.seed(num_items_in_batch)
        made = []

        def by_plan(model, inputs, return_outputs=False, **_):
            if return_outputs:
                raise Refused("training_step asks compute_loss for the model's outputs, which a plan drops")
            given, targets = self.handed_over(model, inputs, num_items_in_batch)
            with self.accelerator.autocast():  # else the model's forward enters it, around each of its calls
                made.append(self.planned_step(given, targets, scale=seed.item()).requires_grad_())
            return made[-1]

        with self.answered(by_plan):
            loss = super().training_step(model, inputs, num_items_in_batch)
        if self.has_own("training_step") and [one.grad for one in made] != [seed.to(one) for one in made[:1]]:
            raise Refused(f"{self.has_own('training_step').__name__}.training_step changes the loss before its backward, behind the plan's step; "
                          "change it in compute_loss")
        return loss

    def step_of(self, model):
        self.refuse_what_no_plan_is_for()
        step = apply(model, self.plan, loss=self.loss_of(model), limit=self.limit, otherwise=self.otherwise,
                     cuda_graph=self.cuda_graph, compile=self.compile)
        for one in step.steps if isinstance(step, Several) else [step]:
            if one.plan.micro_batches > 1:
                raise Refused(f"{one.plan.where}: is for {one.plan.micro_batches} micro-batches, and the Trainer hands over one at a time; plan with "
                              "--micro-batches 1 and leave them to gradient_accumulation_steps")
        return step

    def refuse_what_no_plan_is_for(self):
        args, kind = self.args, self.accelerator.distributed_type.value
        reasons = {
            f"{type(self).__name__}.plan is missing; set it to the file of a plan": self.plan is None,
            f"training is distributed ({kind}), and a plan is for one device": kind != "NO",
            f"the Trainer would run copies on {args.n_gpu} GPUs (DataParallel), and a plan is for one; let it see one (CUDA_VISIBLE_DEVICES=0)":
                args.n_gpu > 1,
            "gradient_checkpointing is on, and plans recompute; leave it off": args.gradient_checkpointing,
            "neftune_noise_alpha puts a hook on the embedding, which would run again with each recomputation":
                args.neftune_noise_alpha is not None,
            f"optim={getattr(args.optim, 'value', args.optim)} updates inside of the backward, which is the plan's":
                getattr(self.accelerator, "has_lomo_optimizer", False),
            "fp8 has recipes of its own around the forward; bf16 and fp16 work": self.accelerator.mixed_precision == "fp8",
        }
        for reason, holds in reasons.items():
            if holds:
                raise Refused(reason)

    def has_own(self, method):
        """The class that has this method in place of the Trainer's, or None."""
        return next((kind for kind in type(self).__mro__ if method in vars(kind) and kind not in (ByPlan, Trainer)), None)

    # --- the loss -----------------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def answered(self, function):
        """Within, compute_loss is this function."""
        self.compute_loss = function
        try:
            yield
        finally:
            del self.compute_loss

    def seed(self, num_items_in_batch):
        """The gradient that the Trainer gives a batch's loss."""
        scaled = self.accelerator.scaler is not None
        loss = torch.ones((), device=self.args.device if scaled else "cpu", requires_grad=True)
        with self.answered(lambda *_, **__: loss):
            Trainer.training_step(self, torch.nn.Module(), {"": torch.zeros(())}, num_items_in_batch)
        return loss.grad

    def is_own_loss(self):
        """Whether the loss is the one that the model computes."""
        return not self.has_own("compute_loss") and self.label_smoother is None and self.compute_loss_func is None

    def handed_over(self, model, inputs, num_items_in_batch):
        """What compute_loss calls the model with, and what it needs beside the outputs."""
        call, is_own = Call(), self.is_own_loss()
        before = None if is_own else again.random_state(again.device_of(model))
        with contextlib.suppress(Called):
            type(self).compute_loss(self, InPlaceOf(model, call.note), dict(inputs), num_items_in_batch=num_items_in_batch)
        if call.arguments is None:
            raise Refused(f"{self.name_of_loss()} does not call the model that it is handed")
        if not is_own and again.random_state(again.device_of(model)) != before:
            raise Refused(f"{self.name_of_loss()} draws random numbers before it calls the model; draw them in the data collator or in the model")
        return call.arguments, None if is_own else {"inputs": dict(inputs), "num_items_in_batch": num_items_in_batch}

    def loss_of(self, model):
        """As a function of outputs and targets: compute_loss with the outputs in the model's place."""
        if self.is_own_loss():
            return loss_in

        def loss(outputs, targets):
            call = Call(outputs)
            with again.without_autocast():  # which the model's forward alone is in
                return type(self).compute_loss(self, InPlaceOf(model, call.answer), dict(targets["inputs"]),
                                               num_items_in_batch=targets["num_items_in_batch"])
        return loss

    def name_of_loss(self):
        return f"{(self.has_own('compute_loss') or Trainer).__name__}.compute_loss"

    def example(self):
        """(model, loss, inputs, targets) of the first batch, as plimsoll.trace takes them: `def build(batch): return trainer.example()`. Random
        numbers that this draws are given back."""
        with torch.random.fork_rng(devices=[]):
            batches, count = self.get_batch_samples(iter(self.get_train_dataloader()), self.args.gradient_accumulation_steps, self.args.device)
        model = self.accelerator.prepare_model(self.model.train())  # under autocast what it returns is cast up
        return (model, self.loss_of(model), *self.handed_over(model, self._prepare_inputs(batches[0]), count))


def loss_in(outputs, _):
    """The model's own."""
    if isinstance(outputs, dict) and "loss" not in outputs:
        raise Refused(f"the model returns no loss, only {', '.join(outputs)}: its inputs need labels, or the Trainer a compute_loss_func")
    return outputs["loss"] if isinstance(outputs, dict) else outputs[0]


class Called(Exception):
    """The model has been called: what follows is not wanted."""


class Call:
    """What compute_loss calls the model with."""

    def __init__(self, outputs=None):
        self.outputs, self.arguments = outputs, None

    def note(self, *args, **kwargs):
        if args:
            raise Refused("compute_loss calls the model with arguments by place; name them: model(input_ids=...)")
        self.arguments = kwargs
        raise Called

    def answer(self, **kwargs):
        if self.arguments is not None:
            raise Refused("compute_loss calls the model twice, and a plan is of one forward")
        self.arguments = kwargs
        return self.outputs


class InPlaceOf:
    """A model to all who ask, but for calls."""

    def __init__(self, model, call):
        self._model, self._call = model, call

    def __call__(self, *args, **kwargs):
        return self._call(*args, **kwargs)

    def __getattr__(self, name):
        return getattr(self._model, name)

    @property
    def __class__(self):
        return type(self._model)
