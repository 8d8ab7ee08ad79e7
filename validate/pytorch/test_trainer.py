#!/usr/bin/env python3
"""Tests of plimsoll.torch.trainer with Hugging Face's own Trainer, on tiny models and plans made by hand. Skipped where this Python lacks torch,
transformers or accelerate.

  python3 validate/pytorch/test_trainer.py
"""

import copy
import os
import shutil
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import left_out

try:
    import accelerate
    import torch
    from torch import nn
    from torch.nn import functional
    from transformers import Trainer, TrainerCallback, TrainingArguments

    import hand_plans
    from plimsoll.torch import Refused, WrongPlan, apply
    from plimsoll.torch.stages import split
    from plimsoll.torch.trainer import ByPlan
except ModuleNotFoundError as error:
    left_out.end_without(error, "Trainer by a plan was not run")

torch.set_num_threads(1)
WORDS, LENGTH = 50, 12
BF16 = torch.autocast("cpu", dtype=torch.bfloat16)


def weights_can_be_saved():
    """Debian's root has a stand-in for safetensors that only refuses."""
    import safetensors.torch
    try:
        return len(safetensors.torch.save({"x": torch.zeros(1)})) > 0
    except RuntimeError:
        return False


class Config:
    """What Trainer asks a model for."""

    use_cache, problem_type, keys_to_ignore_at_inference = False, None, []

    def to_json_string(self):
        return "{}"


class Words(nn.Module):
    """A language model in the style of transformers: its loss is a sum over the items of all accumulated batches where it is told their number."""

    loudness = 1.0

    def __init__(self, width=24):
        super().__init__()
        torch.manual_seed(0)
        self.config = Config()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList([nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, width),
                                                   nn.Dropout(0.1)) for _ in range(4)])
        self.head = nn.Linear(width, WORDS)

    def forward(self, input_ids, labels=None, num_items_in_batch=None, **_):
        x = self.words(input_ids)
        for layer in self.layers:
            x = x + layer(x)
        logits = self.head(x)
        if labels is None:
            return {"logits": logits}
        how = "mean" if num_items_in_batch is None else "sum"
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction=how) * self.loudness
        return {"loss": loss if num_items_in_batch is None else loss / num_items_in_batch, "logits": logits}


class Rows(Words):
    def forward(self, input_ids, labels=None, **more):
        outputs = super().forward(input_ids, labels, **more)
        return outputs["loss"], outputs["logits"]


class Loud(Words):
    """Its gradients are large: scaled they overflow."""

    loudness = 1e4


class Deaf(Words):
    """Without num_items_in_batch: the Trainer divides its loss by the number of accumulated batches."""

    accepts_loss_kwargs = False


def rows(count=11, lengths=(LENGTH,)):
    made = torch.Generator().manual_seed(5)
    tokens = [torch.randint(WORDS, (lengths[k // 2 % len(lengths)],), generator=made) for k in range(count)]
    for k, row in enumerate(tokens):
        row[:k % 3] = 1
    return [{"input_ids": row, "labels": torch.where(row == 1, -100, row)} for row in tokens]


class Seen(TrainerCallback):
    """Losses, norms and gradients of each optimizer step."""

    def __init__(self):
        self.logs, self.gradients = [], []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append({key: value for key, value in logs.items() if key in ("loss", "grad_norm", "learning_rate", "eval_loss")})

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])


def trainer_of(kind, model, folder, data=None, callbacks=(), **more):
    options = {"per_device_train_batch_size": 2, "num_train_epochs": 2, "logging_steps": 1, "report_to": [], "use_cpu": True, "seed": 3,
               "save_strategy": "no", "disable_tqdm": True, "dataloader_drop_last": True}
    names = ("compute_loss_func", "eval_dataset", "data_collator")
    arguments = TrainingArguments(folder, **options | {name: value for name, value in more.items() if name not in names})
    return kind(model=model, args=arguments, train_dataset=data or rows(), callbacks=list(callbacks),
                **{name: value for name, value in more.items() if name in names})


def plan_for(trainer, sequence="segments of 2", precision=None):
    """Made of what the trainer hands to the exporter."""
    model, loss, inputs, targets = trainer.example()
    with precision or torch.autocast("cpu", enabled=False):
        staged = split(copy.deepcopy(model), inputs, loss=loss, targets=targets)
    return hand_plans.plan_of(staged, hand_plans.SEQUENCES[sequence](staged), [0] * len(staged.stages))


class ByPlanTrainer(ByPlan, Trainer):
    pass


class Folders(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)


class Comparing(Folders):
    """Bit for bit: what is logged, gradients at each optimizer step, the weights, and the random state afterwards."""

    def compare(self, model, plain_kind=Trainer, kind=ByPlanTrainer, precision=None, sequence="segments of 2", callbacks=(), **more):
        results = []
        for one in (plain_kind, kind):
            seen, trained = Seen(), copy.deepcopy(model)
            trainer = trainer_of(one, trained, self.folder, callbacks=[seen, *callbacks], **more)
            if one is kind and trainer.plan is None:
                trainer.plan = plan_for(trainer, sequence, precision)
            trainer.train()
            results.append((seen, trained, torch.get_rng_state(), trainer))
        (plain, weights, random, _), (planned, others, after, trainer) = results
        self.assertEqual(repr(plain.logs), repr(planned.logs))  # a norm may be no number
        self.assertGreater(len(plain.gradients), 1)
        for step, (expected, found) in enumerate(zip(plain.gradients, planned.gradients)):
            self.assertEqual(len(expected), len(found))
            for one, other in zip(expected, found):
                self.assertTrue(torch.equal(one.nan_to_num(), other.nan_to_num()), f"a gradient of step {step}")
        for (name, one), other in zip(weights.state_dict().items(), others.state_dict().values()):
            self.assertTrue(torch.equal(one, other), name)
        self.assertTrue(torch.equal(random, after), "random state")
        return trainer


class AsThePlainTrainer(Comparing):
    def test_the_model_s_own_loss(self):
        self.compare(Words())

    def test_a_model_that_returns_a_tuple(self):
        self.compare(Rows())

    def test_accumulation_over_items_with_a_rest(self):
        self.compare(Words(), gradient_accumulation_steps=3, max_grad_norm=0.1, sequence="recompute all")

    def test_accumulation_where_the_trainer_divides(self):
        self.compare(Deaf(), gradient_accumulation_steps=3, max_grad_norm=0.1)

    def test_autocast(self):
        trainer = self.compare(Words(), bf16=True, gradient_accumulation_steps=2, precision=BF16)
        states = {operation.state for stage in trainer.planned_step.staged.stages for operation in stage.operations}
        self.assertEqual(states, {(False, None)}, "entered once a step, not around each call")

    def test_evaluation_between_steps(self):
        self.compare(Words(), eval_strategy="steps", eval_steps=2, eval_dataset=rows(4), prediction_loss_only=True)

    def test_label_smoothing(self):
        self.compare(Words(), label_smoothing_factor=0.1, gradient_accumulation_steps=2)

    def test_a_loss_function_is_outside_of_autocast(self):
        def loss(outputs, labels, num_items_in_batch=None):
            logits = outputs["logits"].flatten(0, 1)
            return functional.cross_entropy(logits, labels.flatten()) + (logits @ logits.t()).mean()  # a product in fp32
        self.compare(Words(), compute_loss_func=loss, bf16=True, precision=BF16)
        self.compare(Words(), label_smoothing_factor=0.1, bf16=True, precision=BF16)

    def test_a_loss_function_of_one_s_own(self):
        def loss(outputs, labels, num_items_in_batch=None):
            value = functional.cross_entropy(outputs["logits"].flatten(0, 1), labels.flatten(), reduction="sum")
            return 0.5 * value / num_items_in_batch
        self.compare(Words(), compute_loss_func=loss, gradient_accumulation_steps=2)

    def test_a_compute_loss_of_one_s_own_before_and_behind(self):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            labels = inputs.pop("labels")
            logits = model(input_ids=inputs["input_ids"])["logits"]
            return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.2)

        mine = type("Mine", (Trainer,), {"compute_loss": compute_loss})
        self.compare(Words(), mine, type("Behind", (ByPlan, mine), {}), gradient_accumulation_steps=2)
        self.compare(Words(), mine, type("Before", (ByPlan, Trainer), {"compute_loss": compute_loss}), gradient_accumulation_steps=2)

    def test_a_training_step_of_one_s_own_around_it(self):
        def training_step(self, model, inputs, num_items_in_batch=None):
            self.calls = getattr(self, "calls", 0) + 1
            return super(mine, self).training_step(model, inputs, num_items_in_batch)

        mine = type("Mine", (Trainer,), {"training_step": training_step})
        trainer = self.compare(Words(), mine, type("Planned", (ByPlan, mine), {}))
        self.assertEqual(trainer.calls, 10, "once a batch")

    @unittest.skipUnless(hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"), "torch.amp.GradScaler on a CPU comes with 2.3")
    def test_grad_scaler(self):
        """In the hands of accelerate, as with fp16 on a GPU; one overflow, after which a step is left out."""
        def create_accelerator_and_postprocess(self):
            Trainer.create_accelerator_and_postprocess(self)
            self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, growth_interval=2)

        kinds = [type(name, bases, {"create_accelerator_and_postprocess": create_accelerator_and_postprocess})
                 for name, bases in (("Plain", (Trainer,)), ("Planned", (ByPlan, Trainer)))]
        trainer = self.compare(Loud(), *kinds, gradient_accumulation_steps=2)
        self.assertLess(trainer.accelerator.scaler.get_scale(), 2.0**120)

    def test_lengths_that_vary(self):
        """A plan for each length, and plainly what is of another."""
        data = rows(12, lengths=(12, 8, 10))
        model, plans = Words(), []
        for length in (12, 8):
            trainer = trainer_of(ByPlanTrainer, model, self.folder, data=[row for row in data if len(row["input_ids"]) == length])
            plans.append(plan_for(trainer))
        planned = type("Planned", (ByPlan, Trainer), {"plan": plans, "otherwise": "plain"})
        trainer = self.compare(model, Trainer, planned, data=data, train_sampling_strategy="sequential", gradient_accumulation_steps=2)
        self.assertEqual([one.counts.steps for one in trainer.planned_step.steps], [4, 4])

    def test_shorter_rows_and_a_smaller_last_batch_by_the_plan_for_larger_ones(self):
        data = rows(13, lengths=(12, 8))
        model = Words()
        plan = plan_for(trainer_of(ByPlanTrainer, model, self.folder, data=[row for row in data if len(row["input_ids"]) == 12]))
        planned = type("Planned", (ByPlan, Trainer), {"plan": plan, "otherwise": "at most"})
        trainer = self.compare(model, Trainer, planned, data=data, train_sampling_strategy="sequential", gradient_accumulation_steps=2,
                               dataloader_drop_last=False)
        self.assertGreater(len(trainer.planned_step.smaller), 1)


class Experts(nn.Module):
    """Each row goes to one of two; one may get none."""

    def __init__(self, width=24):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x):
        one_by_one = x.flatten(0, 1)
        y = torch.zeros_like(one_by_one)
        for positive, expert in enumerate(self.experts):
            chosen = ((one_by_one[:, 0] > 0) == bool(positive)).nonzero().squeeze(1)
            y = y.index_add(0, chosen, torch.tanh(expert(one_by_one[chosen])))
        return y.reshape(x.shape)


class Changing(TrainerCallback):
    def __init__(self, change):
        self.change = change

    def on_substep_end(self, args, state, control, model=None, **kwargs):
        self.change(model, 2 * state.global_step + 1)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.change(model, 2 * state.global_step)


class Crossed(Comparing):
    """What changes between batches that are accumulated, sizes that follow from data, several plans, and compiled stages."""

    def test_what_a_callback_changes_between_accumulated_batches(self):
        for name, change in (("a number", lambda model, step: setattr(model, "loudness", 1.0 + step % 3)),
                             ("a probability", lambda model, step: [setattr(layer[4], "p", 0.3 * (step % 2)) for layer in model.layers]),
                             ("what is trained", lambda model, step: model.words.requires_grad_(step % 3 != 1))):
            with self.subTest(name):
                self.compare(Words(), sequence="recompute all", callbacks=[Changing(change)], gradient_accumulation_steps=2)

    def test_experts_of_whom_each_batch_chooses_others(self):
        model, data, plans = Words(), rows(12, lengths=(12, 8)), []
        model.layers.append(Experts())
        for length in (12, 8):
            trainer = trainer_of(ByPlanTrainer, model, self.folder, data=[row for row in data if len(row["input_ids"]) == length])
            _, loss, inputs, targets = trainer.example()
            staged = split(copy.deepcopy(model), inputs, loss=loss, targets=targets)
            plan = hand_plans.plan_of(staged, hand_plans.SEQUENCES["offload segments"](staged), hand_plans.saved_bytes(staged, inputs, targets))
            plan["model"]["at_most"] = {"stages": [stage.name for stage in staged.stages], "values": [name for names in staged.boundaries for name in names]}
            plans.append(plan)
        for some, otherwise in ((plans, "refuse"), (plans[:1], "at most")):
            planned = type("Planned", (ByPlan, Trainer), {"plan": some, "otherwise": otherwise})
            self.compare(model, Trainer, planned, data=data, train_sampling_strategy="sequential", gradient_accumulation_steps=2)

    def test_compiled_stages_and_a_graph_of_cuda_are_asked_for(self):
        trainer = trainer_of(ByPlanTrainer, Words(), self.folder)
        plan = plan_for(trainer)
        for more, expected in (({"plan": plan | {"model": plan["model"] | {"compiled": True}}}, "compile=True"), ({"plan": plan, "compile": True}, "--compile"),
                               ({"plan": plan, "cuda_graph": True}, "cuda_graph: the model is on 'cpu'")):
            planned = type("Planned", (ByPlan, Trainer), more)
            with self.assertRaisesRegex(Refused, expected):
                trainer_of(planned, Words(), self.folder).train()


class InAccelerate(unittest.TestCase):
    def train(self, planned):
        """A loop by accelerate with bf16, accumulation and clipping; the step stands where accelerator.backward stood."""
        accelerate.state.AcceleratorState._reset_state(True)  # as the Trainer does: one state for the whole process
        accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
        model = Words()
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
        batches = [{name: torch.stack([row[name] for row in pair]) for name in ("input_ids", "labels")} for pair in zip(rows()[::2], rows()[1::2])]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            staged = split(copy.deepcopy(model), batches[0])
        step = apply(model, hand_plans.plan_of(staged, hand_plans.segments(len(staged.stages), 2), [0] * len(staged.stages)))
        torch.manual_seed(4)
        for batch in batches[:4]:
            with accelerator.accumulate(model):
                if planned:
                    with accelerator.autocast():
                        step(batch, scale=1 / accelerator.gradient_accumulation_steps)
                else:
                    accelerator.backward(model(**batch)["loss"])
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
        return model

    def test_as_without_a_plan(self):
        plain, planned = self.train(False), self.train(True)
        for (name, one), other in zip(plain.state_dict().items(), planned.state_dict().values()):
            self.assertTrue(torch.equal(one, other), name)
        self.assertFalse(torch.equal(plain.head.weight, Words().head.weight))


class Resumed(Folders):
    def setUp(self):
        super().setUp()
        if not weights_can_be_saved():
            import safetensors.torch
            for name, function in (("save_file", lambda tensors, path, metadata=None: torch.save(tensors, path)),
                                   ("load_file", lambda path, device=None: torch.load(path))):
                patched = mock.patch.object(safetensors.torch, name, function)
                patched.start()
                self.addCleanup(patched.stop)

    def test_from_a_checkpoint_as_without_one(self):
        """Half an epoch in, with dropout, momentum and accumulated gradients; and by the plan as plainly."""
        self.compare_resumed()

    def compare_resumed(self, precision=None, **more):
        states = []
        for kind, stops in ((Trainer, ()), (ByPlanTrainer, ()), (ByPlanTrainer, (2,))):
            for stop in (*stops, None):
                folder = os.path.join(self.folder, f"{kind.__name__}{len(stops)}")
                trainer = trainer_of(kind, Words(), folder, gradient_accumulation_steps=2, save_strategy="steps", save_steps=2, save_total_limit=1,
                                     **more)
                if kind is ByPlanTrainer:
                    trainer.plan = plan_for(trainer, precision=precision)
                if stop is not None:
                    trainer.add_callback(StopAt(stop))
                trainer.train(resume_from_checkpoint=bool(stops) and stop is None)
            scaler = trainer.accelerator.scaler
            states.append((trainer.model.state_dict(), trainer.optimizer.state_dict()["state"], torch.get_rng_state(), trainer.state.global_step,
                           scaler and scaler.state_dict()))
        for state in states[1:]:
            self.assertEqual(state[3:], states[0][3:])
            self.assertTrue(torch.equal(state[2], states[0][2]), "random state")
            for name, value in state[0].items():
                self.assertTrue(torch.equal(value, states[0][0][name]), name)
            for number, of in state[1].items():
                for key, value in of.items():
                    self.assertTrue(torch.equal(value, states[0][1][number][key]), key)


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop |= state.global_step == self.step


class Refusals(Folders):
    def refused(self, expected, kind=ByPlanTrainer, model=None, error=Refused, planned=True, **more):
        trainer = trainer_of(kind, model or Words(), self.folder, **more)
        if planned and trainer.plan is None:
            trainer.plan = plan_for(trainer)
        with self.assertRaisesRegex(error, expected):
            trainer.train()

    def test_each_by_name(self):
        self.refused("ByPlanTrainer.plan is missing; set it to the file of a plan", planned=False)
        self.refused("neftune_noise_alpha puts a hook on the embedding", neftune_noise_alpha=5.0, planned=False,
                     kind=type("Planned", (ByPlan, Trainer), {"plan": "none"}), model=WithEmbeddings())
        several = plan_for(trainer_of(ByPlanTrainer, Words(), self.folder)) | {"micro_batches": 2}
        self.refused("is for 2 micro-batches, and the Trainer hands over one at a time", kind=type("P", (ByPlan, Trainer), {"plan": several}))

    def test_what_is_set_elsewhere_by_name(self):
        trainer = trainer_of(ByPlanTrainer, Words(), self.folder)
        trainer.plan = "none"
        args, accelerator = trainer.args, type(trainer.accelerator)
        several = SimpleNamespace(value="MULTI_GPU")
        for patched, expected in ((mock.patch.object(args, "gradient_checkpointing", True), "gradient_checkpointing is on, and plans recompute"),
                                  (mock.patch.object(args, "_n_gpu", 2), r"would run copies on 2 GPUs \(DataParallel\)"),
                                  (mock.patch.object(trainer.accelerator, "has_lomo_optimizer", True), "optim=.* updates inside of the backward"),
                                  (mock.patch.object(accelerator, "mixed_precision", "fp8"), "fp8 has recipes of its own"),
                                  (mock.patch.object(accelerator, "distributed_type", several), r"training is distributed \(MULTI_GPU\)")):
            with patched, self.assertRaisesRegex(Refused, expected):
                trainer.step_of(trainer.model)

    def test_a_training_step_that_asks_for_outputs(self):
        def training_step(self, model, inputs, num_items_in_batch=None):
            return self.compute_loss(model, inputs, return_outputs=True)[0]

        mine = type("Mine", (Trainer,), {"training_step": training_step})
        self.refused("training_step asks compute_loss for the model's outputs", kind=type("Planned", (ByPlan, mine), {}))

    def test_a_batch_that_no_plan_is_for(self):
        self.refused(r"input 'input_ids': expected torch.int64 \[2, 12\], found torch.int64 \[1, 12\]", dataloader_drop_last=False, error=Refused)

    def test_losses_that_do_not_go_by_a_plan(self):
        def twice(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return model(**inputs)["loss"] + model(**inputs)["loss"]

        def noisy(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return model(**inputs, noise=torch.randn(2))["loss"]

        def another(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return self.model(**inputs)["loss"]

        for function, expected in ((twice, "compute_loss calls the model twice"), (noisy, "draws random numbers before it calls the model"),
                                   (another, "Mine.compute_loss does not call the model that it is handed")):
            with self.assertRaisesRegex(Refused, expected):
                trainer = trainer_of(type("Mine", (ByPlan, Trainer), {"compute_loss": function}), Words(), self.folder)
                plan_for(trainer)

    def test_a_training_step_that_changes_the_loss(self):
        def training_step(self, model, inputs, num_items_in_batch=None):
            loss = self.compute_loss(model, self._prepare_inputs(inputs), num_items_in_batch=num_items_in_batch)
            self.accelerator.backward(2 * loss)
            return loss.detach()

        mine = type("Mine", (Trainer,), {"training_step": training_step})
        self.refused("Mine.training_step changes the loss before its backward", kind=type("Planned", (ByPlan, mine), {}))

    def test_a_model_without_a_loss(self):
        with self.assertRaisesRegex(Refused, "the model returns no loss, only logits"):
            plan_for(trainer_of(ByPlanTrainer, Words(), self.folder, data=[{"input_ids": row["input_ids"]} for row in rows()]))

    def test_another_model(self):
        plan = plan_for(trainer_of(ByPlanTrainer, Words(), self.folder))
        self.refused("is of another model", kind=type("P", (ByPlan, Trainer), {"plan": plan}), model=Words(width=16), error=WrongPlan)


class WithEmbeddings(Words):
    def get_input_embeddings(self):
        return self.words


if __name__ == "__main__":
    unittest.main()
