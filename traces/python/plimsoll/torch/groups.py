"""Optimizers of a script, and their groups of parameters, as words of plimsoll's command line.

    from plimsoll.torch.groups import optimizer_words

    subprocess.run(["plimsoll", "plan", "-t", "mine.json", *optimizer_words(model, adamw, sgd)])

SGD is sgd, or momentum where its group has momentum; Adam and AdamW are adam. What most parameters have is --optimizer, and others are named.
"""

from collections import Counter

import torch

from .errors import Refused


def optimizer_words(model, *optimizers):
    """["--optimizer", "adam", "--parameter-group", "head.weight=sgd, head.bias=sgd"], or the first two."""
    by_parameter = {id(parameter): kind_of(optimizer, group) for optimizer in optimizers for group in optimizer.param_groups
                    for parameter in group["params"]}
    by_name = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) not in by_parameter:
            raise Refused(f"'{name}' needs a gradient, and no optimizer has it: give all optimizers, or freeze it")
        by_name[name] = by_parameter[id(parameter)]
    if not by_name:
        raise Refused("the model has no parameter that needs a gradient")
    rest = Counter(by_name.values()).most_common(1)[0][0]
    others = ", ".join(f"{name}={kind}" for name, kind in by_name.items() if kind != rest)
    return ["--optimizer", rest] + (["--parameter-group", others] if others else [])


def kind_of(optimizer, group):
    """Of an optimizer that keeps what Plimsoll's of that name keeps."""
    if isinstance(optimizer, torch.optim.SGD):
        return "momentum" if group["momentum"] else "sgd"
    if isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)) and not group["amsgrad"]:
        return "adam"
    what = "amsgrad" if group.get("amsgrad") else type(optimizer).__name__
    raise Refused(f"optimizer {what}: Plimsoll has SGD, Adam and AdamW")
