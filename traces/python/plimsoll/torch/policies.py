"""Policies for torch's selective checkpointing from a plan of an operator graph (plimsoll.policy.v1, validate/plan_format.md).

    contexts = policies("policy.json")
    y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False, context_fn=contexts["blocks.0"])

for each stage that the plan names; its modules are what is to be called inside the checkpoint. Needs torch 2.4; run with 2.6.
"""

import json
import os

from .errors import Refused
from .plan import WrongPlan, field
from .versions import name_of_op, selective_checkpointing

FORMAT = "plimsoll.policy.v1"


class SavesInOrder:
    """A policy function: the ops of a stage in the order in which they are dispatched, in the forward and when it runs again. Ops that the
    plan does not list are views, which take no memory: they run again."""

    def __init__(self, ops, save, recompute):
        self.ops, self.save, self.recompute = ops, save, recompute
        self.next = {False: 0, True: 0}  # by whether it runs again

    def __call__(self, context, op, *args, **kwargs):
        again = bool(context.is_recompute)
        at = self.next[again]
        name = name_of_op(op)
        if at < len(self.ops) and self.ops[at][0] == name:
            self.next[again] = at + 1
            return self.save if self.ops[at][1] else self.recompute
        if any(name == of for of, _ in self.ops[at:]):
            raise Refused(f"op {at} of the stage is '{name}' now, and '{self.ops[at][0]}' in the plan: the model takes another course")
        return self.recompute


def read_policy(source):
    """{name of a stage: [(op, whether it is saved)]}"""
    where = os.fspath(source) if not isinstance(source, dict) else "policy"
    try:
        text = source if isinstance(source, dict) else json.load(open(source, encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WrongPlan(f"{where}: {error}") from error
    if not isinstance(text, dict) or text.get("format") != FORMAT:
        raise WrongPlan(f"{where}: format: expected {FORMAT!r} (write policies with 'plimsoll plan --for pytorch' of a trace of ops)")
    stages = {}
    for k, stage in enumerate(field(text, "stages", list, where)):
        place = f"{where}: stages[{k}]"
        stages[field(stage, "name", str, place)] = [
            (field(op, "op", str, f"{place}.ops[{i}]"), field(op, "save", bool, f"{place}.ops[{i}]"))
            for i, op in enumerate(field(stage, "ops", list, place))]
    return stages


def policies(source):
    """What torch.utils.checkpoint takes as context_fn, by the name of the stage.

    source: a file of `plimsoll plan --for pytorch` of a trace of ops (format plimsoll.policy.v1), or its JSON as a dict

    Raises WrongPlan where that is malformed, Refused where this torch has no selective checkpointing (before 2.4); and in training, Refused
    where the stage takes another course than the one that was measured.
    """
    stages = read_policy(source)
    found = selective_checkpointing()
    if found is None:
        raise Refused("selective checkpointing needs torch 2.4 or later")
    policy, contexts = found

    def contexts_of(ops):
        # A storage that ops overwrite in place is saved whole, from the op that makes it on: torch's check against overwritten values is not asked.
        return lambda: contexts(SavesInOrder(ops, policy.MUST_SAVE, policy.PREFER_RECOMPUTE), allow_cache_entry_mutation=True)

    return {name: contexts_of(ops) for name, ops in stages.items()}
