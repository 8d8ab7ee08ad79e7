#!/usr/bin/env python3
"""Trainer by a plan on a GPU: fp16 with a GradScaler, bf16, LoRA, checkpoints; and what a report counts there. Skipped where there is no GPU.

  python3 validate/pytorch/test_cuda_people.py
"""

import os
import unittest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # so that the same products are the same bits

import left_out

try:
    import torch
except ModuleNotFoundError as error:
    left_out.end_without(error)
if not torch.cuda.is_available():
    left_out.end("torch sees no CUDA device")

import test_trainer  # noqa: E402, which skips where the libraries are missing
from plimsoll.torch import apply
from plimsoll.torch.stages import split
from test_trainer import Comparing, Loud, Words, rows

import hand_plans

torch.use_deterministic_algorithms(True, warn_only=True)
HALF = torch.autocast("cuda", dtype=torch.float16)
ON_GPU = {"use_cpu": False, "fp16": True}


class InHalf(Comparing):
    def test_a_scaler_that_leaves_steps_out(self):
        trainer = self.compare(Loud(), precision=HALF, gradient_accumulation_steps=2, max_grad_norm=0.5, **ON_GPU)
        self.assertLess(trainer.accelerator.scaler.get_scale(), 65536)

    def test_accumulation_with_a_rest(self):
        trainer = self.compare(Words(), precision=HALF, gradient_accumulation_steps=3, max_grad_norm=0.1, **ON_GPU)
        report = trainer.planned_step.report()
        self.assertTrue(report.taken_s > 0 and report.peak_bytes > 0 and report.beside_bytes > 0, report)

    def test_label_smoothing(self):
        self.compare(Words(), precision=HALF, label_smoothing_factor=0.1, **ON_GPU)

    def test_bf16(self):
        self.compare(Words(), precision=torch.autocast("cuda", dtype=torch.bfloat16), use_cpu=False, bf16=True, gradient_accumulation_steps=2)


class InHalfResumed(test_trainer.Resumed):
    def test_from_a_checkpoint_as_without_one(self):
        self.compare_resumed(precision=HALF, **ON_GPU)


class OfTransformers(Comparing):
    """Models of the library, tiny, with attention whose sums have an order."""

    def model(self):
        from transformers import LlamaConfig, LlamaForCausalLM
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(vocab_size=test_trainer.WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
                                            num_key_value_heads=2, attention_dropout=0.1, attn_implementation="eager"))

    def test_llama(self):
        self.compare(self.model(), precision=HALF, gradient_accumulation_steps=2, **ON_GPU)

    def test_lora(self):
        try:
            from peft import LoraConfig, get_peft_model
        except ModuleNotFoundError:
            self.skipTest("peft is missing: LoRA was not run")
        model = get_peft_model(self.model(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1))
        self.compare(model, precision=HALF, gradient_accumulation_steps=2, **ON_GPU)


class Reports(unittest.TestCase):
    def test_bytes_are_the_allocator_s_and_nothing_waits(self):
        model, inputs = Words(256).cuda(), {name: torch.stack([row[name] for row in rows(8)]).cuda() for name in ("input_ids", "labels")}
        staged = split(model, inputs)
        step = apply(model, hand_plans.plan_of(staged, hand_plans.segments(len(staged.stages), 2), [0] * len(staged.stages)))
        for _ in range(3):
            step(inputs)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with step.counts.of_step():
                torch.empty(1_000_000, dtype=torch.uint8, device="cuda").fill_(1)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        took = step.counts.took[-1]
        self.assertTrue(1_000_000 <= took.rise_bytes < 1_000_000 + 512, took)
        self.assertTrue(0 < took.seconds() < 1)
        before = torch.cuda.memory_allocated()
        step(inputs)
        rise = torch.cuda.max_memory_allocated() - before  # of blocks; the report's bytes are as asked for
        self.assertTrue(0.9 * rise < step.counts.took[-1].rise_bytes <= rise, (rise, step.counts.took[-1]))
        self.assertGreater(step.report().taken_s, 0)


if __name__ == "__main__":
    unittest.main()
