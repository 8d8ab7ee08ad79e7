"""Runs the program within limits, and says what no run of it may do."""

import functools
import os
import re
import signal
import subprocess

EXIT_CODES = {0: "done", 1: "no answer", 2: "refused", 4: "no room"}

# A finding of a sanitizer has an exit code of its own: 1 would be taken for an answer.
SANITIZER_EXIT_CODE = 99
SANITIZERS = {
    "ASAN_OPTIONS": f"exitcode={SANITIZER_EXIT_CODE}:detect_leaks=1:quarantine_size_mb=8:malloc_context_size=8:"
                    "hard_rss_limit_mb=2000",
    "UBSAN_OPTIONS": f"exitcode={SANITIZER_EXIT_CODE}:print_stacktrace=1",
    "LSAN_OPTIONS": f"exitcode={SANITIZER_EXIT_CODE}",
}


class Run:
    """How a run ended, and what it took with all its processes (resident bytes: of the largest)."""

    def __init__(self, status, out, err, usage):
        self.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        self.code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        self.out, self.err = out, err
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.resident_bytes = usage.ru_maxrss * 1024


@functools.cache
def is_sanitized(program):
    with open(program, "rb") as file:
        return b"__asan_init" in file.read()


def run(program, words, folder, cpu_s=10, wall_s=120):
    """`words` and standard output are bytes. Files out and err in `folder` keep what it said."""
    limits = f"ulimit -t {cpu_s + 1}; ulimit -f 1000000; ulimit -c 0"  # AddressSanitizer reserves terabytes of addresses
    if not is_sanitized(program):
        limits += "; ulimit -d 2000000"
    command = ["/bin/sh", "-c", limits + '; exec "$@"', "sh", program, *words]
    paths = [os.path.join(folder, name) for name in ("stdout", "stderr")]
    with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                                   env={**os.environ, **SANITIZERS})
    end = waited(process.pid, wall_s)
    process.returncode = 0  # it has been waited for
    texts = []
    for path in paths:
        with open(path, "rb") as file:
            texts.append(file.read())
    return Run(end[0], *texts, end[1])


def waited(pid, wall_s):
    """Status and resources of a process and its children; past `wall_s` they are all killed."""
    previous = signal.signal(signal.SIGALRM, lambda *_: os.killpg(pid, signal.SIGKILL))
    signal.alarm(wall_s)
    try:
        _, status, usage = os.wait4(pid, 0)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    return status, usage


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def complaints(run, codes=EXIT_CODES, cpu_s=10, resident_bytes=10**9):
    """What is wrong with a run: nothing, where the list is empty."""
    wrong = []
    if run.signal is not None:
        wrong.append(f"ended by {signal.Signals(run.signal).name}")
    elif run.code not in codes:
        wrong.append(f"exit code {run.code}, expected {', '.join(map(str, codes))}")
    if run.cpu_s > cpu_s:
        wrong.append(f"took {run.cpu_s:.1f} s of CPU time, at most {cpu_s} are allowed")
    if run.resident_bytes > resident_bytes:
        wrong.append(f"took {run.resident_bytes / 1e6:.0f} MB, at most {resident_bytes / 1e6:.0f} are allowed")
    for name, text in (("standard output", run.out), ("standard error", run.err)):
        try:
            shown = text.decode("utf-8")
        except UnicodeDecodeError:
            wrong.append(f"{name} is not UTF-8")
            continue
        if CONTROL.search(shown):
            wrong.append(f"{name} has control characters")
    for trace in (b"Sanitizer", b"runtime error:", b"Traceback", b"defect of plimsoll"):
        if trace in run.err:
            wrong.append(f"standard error has '{trace.decode()}'")
    if run.code in (2, 4) and not run.err.strip():
        wrong.append(f"exit code {run.code} without a word on standard error")
    return wrong
