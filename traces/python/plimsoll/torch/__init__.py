"""Training in PyTorch by a plan of Plimsoll's: `step = apply(model, "plan.json"); loss = step(inputs, targets)` (validate/pytorch.md)."""

from .errors import Refused
from .plan import LimitExceeded, WrongPlan
from .policies import policies
from .several import apply

__all__ = ["LimitExceeded", "Refused", "WrongPlan", "apply", "policies"]
