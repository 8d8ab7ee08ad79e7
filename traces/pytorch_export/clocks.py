"""Times of stages: process CPU time, wall time, or CUDA events.

Process CPU time is the default on a CPU with one thread: other work on the machine then does not count.
"""

import statistics
import time

import torch

from .executor import Probe


class ProcessClock:
    name = "process CPU time (CLOCK_PROCESS_CPUTIME_ID)"

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

    def mark(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def settle(self):
        torch.cuda.synchronize()

    def seconds(self, start, finish):
        return start.elapsed_time(finish) * 1e-3


def clock_for(device, threads):
    if device == "cuda":
        return CudaClock()
    return ProcessClock() if threads == 1 else WallClock()


class TimeProbe(Probe):
    """Collects {(phase, stage): [seconds of each repetition]}; call settle() after each pass."""

    def __init__(self, clock):
        self.clock = clock
        self.samples = {}
        self.paces = None  # by repetition, set by even_out
        self.pending = []
        self.started = None

    def begin(self, phase, stage, inputs):
        self.started = self.clock.mark()

    def end(self, phase, stage, outputs):
        self.pending.append((phase, stage, self.started, self.clock.mark()))

    def settle(self):
        self.clock.settle()
        for phase, stage, start, finish in self.pending:
            self.samples.setdefault((phase, stage), []).append(self.clock.seconds(start, finish))
        self.pending.clear()

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
