"""Times of stages: process CPU time, wall time, or CUDA events.

Process CPU time is the default on a CPU with one thread: other work on the machine then does not count.

On CUDA the device is kept busy while the host issues what is timed, so that events around it hold its kernels and none of the host's gaps.
"""

import statistics
import time

import torch

from .executor import Probe


class ProcessClock:
    name = "process CPU time (CLOCK_PROCESS_CPUTIME_ID)"
    runs_apart = False  # whether the host issues work that a device does later

    def mark(self):
        return time.process_time_ns()

    def settle(self):
        pass

    def seconds(self, start, finish):
        return (finish - start) * 1e-9


class WallClock(ProcessClock):
    name = "wall time (perf_counter)"

    def mark(self):
        return time.perf_counter_ns()


class CudaClock:
    """Events on the current stream; the host waits once, after the whole pass."""

    name = "CUDA events on the current stream"
    runs_apart = True
    cycles_a_second = None  # of torch.cuda._sleep

    def mark(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def settle(self):
        torch.cuda.synchronize()

    def seconds(self, start, finish):
        return start.elapsed_time(finish) * 1e-3

    def keep_busy(self, seconds):
        """The device spins for so long before it does what is issued next."""
        if seconds > 0:
            torch.cuda._sleep(int(seconds * self.rate()))

    def rate(self):
        if self.cycles_a_second is None:
            torch.cuda._sleep(100_000_000)  # some 50 ms, in which the device's own clock rises
            start = self.mark()
            torch.cuda._sleep(20_000_000)
            finish = self.mark()
            self.settle()
            self.cycles_a_second = 20_000_000 / self.seconds(start, finish)
        return self.cycles_a_second

    def is_over(self, mark):
        """Whether the device has come there."""
        return mark.query()


def clock_for(device, threads):
    if device == "cuda":
        return CudaClock()
    return ProcessClock() if threads == 1 else WallClock()


class TimeProbe(Probe):
    """Collects {(phase, stage): [seconds of each repetition]}; call settle() after each pass.

    Where the host issues work that a device does later, find_covers() makes the device busy before each part of a pass for as long as the host
    issues that part."""

    SPARE, LEAST, MOST = 1.3, 1e-4, 4  # a cover is so many times the issue and so many seconds; it grows to at most so many times that

    def __init__(self, clock):
        self.clock = clock
        self.samples = {}
        self.paces = None  # by repetition, set by even_out
        self.pending = []
        self.started = None
        self.issue = {}    # (phase, stage) -> seconds in which the host issues it, where a device works apart
        self.covers = {}   # (phase, stage) -> seconds for which the device is kept busy before it
        self.ran_dry = {}  # (phase, stage) -> how often the device was done with what covers it before the host was

    def begin(self, phase, stage, inputs):
        if self.covers:
            self.clock.keep_busy(self.covers[phase, stage])
        self.started = self.clock.mark(), time.perf_counter()

    def end(self, phase, stage, outputs):
        start, host = self.started
        issue = time.perf_counter() - host
        self.pending.append((phase, stage, start, self.clock.mark()))
        # A whole iteration may be more than the device's queue of launches takes: then the host waits for the cover to be over, however long it is.
        if self.covers and phase != "iteration" and self.clock.is_over(start):
            self.ran_dry[phase, stage] = self.ran_dry.get((phase, stage), 0) + 1
        elif self.clock.runs_apart and not self.covers:
            self.issue[phase, stage] = issue

    def settle(self):
        self.clock.settle()
        for phase, stage, start, finish in self.pending:
            self.samples.setdefault((phase, stage), []).append(self.clock.seconds(start, finish))
        self.pending.clear()

    def find_covers(self, run):
        """From passes that do not count: two without covers, then with them, longer where the device was done first."""
        for _ in range(2):
            run()
            self.settle()
        self.covers = {key: self.SPARE * seconds + self.LEAST for key, seconds in self.issue.items()}
        most = {key: self.MOST * cover for key, cover in self.covers.items()}
        for _ in range(3):
            self.ran_dry = {}
            run()
            self.settle()
            self.covers |= {key: min(2 * self.covers[key], most[key]) for key in self.ran_dry}
        self.samples, self.ran_dry = {}, {}

    def dry_share(self):
        """Of all samples, those in which the device may have waited for the host."""
        return sum(self.ran_dry.values()) / max(1, sum(map(len, self.samples.values())))

    def median(self, phase, stage):
        """Of the samples at the pace at which half of the repetitions were slower."""
        samples = self.samples.get((phase, stage), [0.0])
        if self.paces is not None and len(samples) == len(self.paces):
            samples = [sample / pace for sample, pace in zip(samples, self.paces)]
        return statistics.median(samples)

    def spread(self, phase, stage):
        """(largest - smallest) / median over the repetitions."""
        samples = self.samples.get((phase, stage), [0.0])
        middle = statistics.median(samples)
        return (max(samples) - min(samples)) / middle if middle > 0 else 0.0

    def quartile_spread(self, phase, stage):
        """(third quartile - first) / median: what is left of the spread without the few disturbed repetitions."""
        samples = self.samples.get((phase, stage), [])
        if len(samples) < 2:
            return 0.0
        first, middle, third = statistics.quantiles(samples, n=4, method="inclusive")
        return (third - first) / middle if middle > 0 else 0.0

    def passes(self):
        """Seconds of each whole pass, all phases and stages together."""
        return [sum(pass_) for pass_ in zip(*self.samples.values())]


def even_out(probes):
    """A machine that shares its processor may be slower by a half for whole repetitions: all samples of one are taken relative to the time
    of all its passes together, of which the median repetition's counts."""
    totals = [sum(of) for of in zip(*(probe.passes() for probe in probes))]
    middle = statistics.median(totals)
    for probe in probes:
        probe.paces = [total / middle for total in totals]
