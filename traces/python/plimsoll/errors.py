"""What goes wrong, as exceptions: each is an exit code of the program (experiments/README.md)."""

import re


class InputError(ValueError):
    """A file or an argument is wrong. `file`, `line`, `column` (from 1) and `key` are of the first complaint, None where it
    names none; `key` is an argument's name, or a key of the file. The message has all complaints, a line each."""

    def __init__(self, message):
        super().__init__(message)
        self.file, self.line, self.column, self.key = _place(message)


class Infeasible(Exception):
    """Nothing fits. `least_bytes`: the smallest budget of the strategy that would do, of one device, in bytes (None: not
    known); `least_is_proven`: False where less may do. `result`: all fields of the result, as `simulate --json` has them."""

    def __init__(self, message, least_bytes=None, least_is_proven=False, result=None):
        super().__init__(message)
        self.least_bytes, self.least_is_proven, self.result = least_bytes, least_is_proven, result


class Illegal(Exception):
    """A schedule from a file breaks rules, which the message names, a line each."""


class Unavailable(RuntimeError):
    """This machine or this build cannot do what was asked."""


class OutputError(OSError):
    """What is made cannot be written."""


class Defect(RuntimeError):
    """A defect of plimsoll; please report it with the call."""


class Note(UserWarning):
    """What the commands say on standard error, such as that times are re-scaled."""


def _place(message):
    """The parts of `file:line:column: key: what`, of which each but the last may be missing."""
    line = message.split("\n", 1)[0]
    option = re.match(r"--([a-z-]+)(?::(\d+):(\d+))?(?: [^:]*)?: ", line)
    if option:
        name, row, column = option.groups()
        return None, row and int(row), column and int(column), name.replace("-", "_") if name != "for" else "made_for"
    placed = re.match(r"(.+?):(\d+):(\d+): (?:([\w.\[\]-]+): )?", line)
    if placed:
        file, row, column, key = placed.groups()
        return file, int(row), int(column), key
    whole = re.match(r"([^:\s']+\.\w+): (?:([\w.\[\]-]+): )?", line)
    return (whole[1], None, None, whole[2]) if whole else (None, None, None, None)
