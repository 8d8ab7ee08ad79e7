"""A process that measures what it is told, a JSON list of arguments a line, and answers with [exit code, what it said]: the exact counter must be
loaded when a process begins, and to begin takes longer than to measure a small model. `exporter.environment_of` says how to start it.
"""

import contextlib
import io
import json
import sys

from plimsoll.trace import exporter
from plimsoll.trace.errors import MeasurementError, UsageError


def answer(arguments):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            exporter.export(exporter.command_line().parse_args(arguments))
        except (UsageError, MeasurementError) as error:
            return error.exit_code, str(error)
    return 0, said.getvalue()


if __name__ == "__main__":
    exporter.leave_no_preload()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
