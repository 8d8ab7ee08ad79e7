"""Nested values with tensors in them: tuples, lists, dicts, named tuples and dataclasses, as modules take and return them, and slices, as in
x[:n]."""

import dataclasses

import torch


def is_dataclass(value):
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def children_of(value):
    """What a container holds, in order; None of what is no container."""
    if is_dataclass(value):  # before dict: outputs in the style of Hugging Face are both
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (tuple, list)):
        return list(value)
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    return None


def named_tensors_in(value, name=""):
    """Pairs of a dotted name and a tensor, in order; a tensor that stands there twice is there twice."""
    if isinstance(value, torch.Tensor):
        return [(name, value)]
    children = children_of(value)
    if children is None:
        return []
    if is_dataclass(value):
        keys = [field.name for field in dataclasses.fields(value)]
    else:
        keys = list(value) if isinstance(value, dict) else range(len(children))
    return [pair for key, child in zip(keys, children)
            for pair in named_tensors_in(child, f"{name}.{key}" if name else str(key))]


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for _, tensor in named_tensors_in(value)]


def map_leaves(value, function):
    """The same form with each leaf (whatever is no container) replaced."""
    if is_dataclass(value):
        return type(value)(**{field.name: map_leaves(getattr(value, field.name), function)
                              for field in dataclasses.fields(value) if field.init})
    if isinstance(value, dict):
        return type(value)((key, map_leaves(item, function)) for key, item in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)._make(map_leaves(item, function) for item in value)  # a __new__ of its own may ask for tensors
    if isinstance(value, slice):
        return slice(*(map_leaves(item, function) for item in children_of(value)))
    if type(value) in (tuple, list) or (isinstance(value, (tuple, list)) and tensors_in(value)):
        return (list if isinstance(value, list) else tuple)(map_leaves(item, function) for item in value)
    return function(value)


def form_of(value, of_tensor, depth=4):
    """Of nested values: their types, and of leaves numbers, words, what `of_tensor` says of tensors, and which other object it is. Tables
    (a vocabulary) are objects."""
    children = children_of(value)
    if children is not None and depth > 0 and len(children) < 100:
        return type(value), list(value) if isinstance(value, dict) else None, [form_of(child, of_tensor, depth - 1) for child in children]
    if isinstance(value, torch.Tensor):
        return of_tensor(value)
    return type(value), value if isinstance(value, (bool, int, float, str, type(None), torch.dtype)) else id(value)
