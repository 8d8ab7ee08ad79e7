"""Plimsoll in Python. `plimsoll.trace` measures a model of PyTorch and writes a trace, `plimsoll.torch` trains it by a plan.
`simulate`, `plan`, `explain`, `fits` and `sweep` answer what the commands of those names do; they need the compiled module
(docs/python.md), which is loaded when one of them is first used."""

from plimsoll.errors import Defect, Illegal, Infeasible, InputError, Note, OutputError, Unavailable

_answers = ("simulate", "plan", "explain", "fits", "sweep", "version", "Simulation", "Plan")
__all__ = [*_answers, "Defect", "Illegal", "Infeasible", "InputError", "Note", "OutputError", "Unavailable"]


def __getattr__(name):
    if name not in _answers:
        raise AttributeError(f"module 'plimsoll' has no attribute '{name}'")
    import plimsoll.answers

    return getattr(plimsoll.answers, name)


def __dir__():
    return sorted({*globals(), *_answers})
