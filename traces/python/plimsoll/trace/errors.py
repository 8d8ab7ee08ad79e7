"""Errors whose message is for the user: one line on stderr, then the exit code."""


class UsageError(Exception):
    """The command or the user's model file is wrong; exit code 2."""

    exit_code = 2


class MeasurementError(Exception):
    """The measurement contradicts itself, so no trace is written; exit code 1."""

    exit_code = 1


def first_line(error):
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
