"""A process that measures what it is told, a JSON list of arguments a line, and answers with [exit code, what it said]: the exact counter must be
loaded when a process begins, and to begin takes longer than to measure a small model. `export_pytorch.environment_of` says how to start it.
"""

import contextlib
import io
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import export_pytorch  # noqa: E402
from pytorch_export.errors import MeasurementError, UsageError  # noqa: E402


def answer(arguments):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            export_pytorch.export(export_pytorch.command_line().parse_args(arguments))
        except (UsageError, MeasurementError) as error:
            return error.exit_code, str(error)
    return 0, said.getvalue()


if __name__ == "__main__":
    export_pytorch.leave_no_preload()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
