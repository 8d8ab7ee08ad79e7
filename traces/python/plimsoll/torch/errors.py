"""The error whose message is for the user: one line on stderr, exit code 2."""


class Refused(Exception):
    """The model, its inputs or a plan for it cannot be taken: one line says where and why. Nothing has been done."""

    exit_code = 2
