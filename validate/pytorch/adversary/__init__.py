"""Models that try to be taken wrongly: each reads a number or a shape out of tensors, in another way, and multiplies by it.

A trick is a function of (model, x, mask, h), of which x and mask are inputs and h follows from parameters, that gives Python a number. Its kind
says what is right: "fixed" (taken), "asked" (taken, and batches that answer otherwise are refused before anything runs), or the words of the
refusal. What a step leaves to the next differs: parameters, the buffer `count`, the attributes `flag` and `array`, the global `BOX`.
"""

from . import inputs, shapes, sources, writes  # each has its tricks noted in TRICKS
from .models import BOX, TRICKS, Batch, Hidden, Inside, Model, Nested, batch

__all__ = ["BOX", "TRICKS", "Batch", "Hidden", "Inside", "Model", "Nested", "batch", "inputs", "shapes", "sources", "writes"]
