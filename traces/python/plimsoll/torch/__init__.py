"""Training in PyTorch by a plan of Plimsoll's: the same bits as plain training, in the memory that the plan promises.

    from plimsoll.torch import apply

    step = apply(model, "plan.json", loss=loss)   # once
    value = step(inputs, targets)                 # in place of the forward and loss.backward(); gradients are in .grad
    print(step.report())                          # promised and taken time and peak

The plan is a file of `plimsoll plan --for pytorch`, made of the trace that plimsoll.trace has measured of the same model. docs/pytorch.md goes from
a script to a step in ten minutes, validate/pytorch.md has the rules, validate/plan_format.md the format of plans.

apply     a step by one plan, or by several, one for each shape of inputs
policies  torch's selective checkpointing by the plan of an operator graph
Refused   the error of all that cannot be taken; WrongPlan and LimitExceeded are two kinds of it

plimsoll.torch.trainer.ByPlan is for Hugging Face's Trainer, plimsoll.torch.lightning.ByPlan for Lightning.
plimsoll.torch.groups.optimizer_words says in words of the command line which of a script's optimizers has which parameters.
"""

from .errors import Refused
from .plan import LimitExceeded, WrongPlan
from .policies import policies
from .several import apply

__all__ = ["LimitExceeded", "Refused", "WrongPlan", "apply", "policies"]
