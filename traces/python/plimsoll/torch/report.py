"""What the last steps took, beside what their plan promises, and what to do where they part."""

import collections
import contextlib
import dataclasses
import functools
import statistics
import time

import torch

from .versions import byte_counter_of_cuda

KEPT = 10       # steps
TIME_OFF = 0.1  # of the promised time; less is not worth a word
PEAK_OFF = 0.01
ISSUING = 0.9   # of the time: from there on the host binds


@dataclasses.dataclass
class Took:
    issue_s: float             # how long the host was busy with the step
    events: object = None      # (start, finish) on CUDA, read when they are asked for
    before_bytes: int = None   # on CUDA: live when the step began
    rise_bytes: int = None     # on CUDA: the peak above that

    def seconds(self):
        if self.events is None:
            return self.issue_s
        start, finish = self.events
        finish.synchronize()
        return start.elapsed_time(finish) / 1e3


class Counts:
    """Of the last steps. On CUDA by two events and the allocator's own counters, so that no step waits for the device; its peak counters
    (torch.cuda.max_memory_allocated) begin anew with each step."""

    def __init__(self, device):
        self.device, self.took, self.steps = device, collections.deque(maxlen=KEPT), 0
        self.above = {}  # {name of a value whose size follows from data: (most bytes, planned)}, where there were more than planned

    @contextlib.contextmanager
    def of_step(self):
        begin = self.begun() if self.device.type == "cuda" else None
        start = time.perf_counter()
        yield
        took = Took(time.perf_counter() - start)
        if begin is not None:
            event, took.before_bytes = begin
            took.events = event, self.marked()
            took.rise_bytes = self.bytes("peak") - took.before_bytes
        if self.steps == 1:
            self.took.clear()  # the first, in which kernels are chosen and buffers made, counts until there is another
        self.steps += 1
        self.took.append(took)

    def note_size(self, name, found, planned):
        if found > max(planned, self.above.get(name, (0,))[0]):
            self.above[name] = found, planned

    def begun(self):
        torch.cuda.reset_peak_memory_stats(self.device)
        return self.marked(), self.bytes("current")

    def marked(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    @functools.cached_property
    def counter(self):
        return byte_counter_of_cuda()[0]

    def bytes(self, which):
        return torch.cuda.memory_stats_as_nested_dict(self.device)[self.counter]["all"][which]


@dataclasses.dataclass
class Report:
    """Times are in seconds, medians over the last steps (ten at most), sizes in bytes, the most of any. `peak_bytes` counts what the plan counts
    (parameters, inputs, and what the step makes), `beside_bytes` is what was there beside that when the step began: states of the optimizer,
    others' tensors. Both are None on a CPU. To be printed: str() tells promised and taken, and what to do where they part."""

    strategy: str
    steps: int
    promised_s: float
    taken_s: float
    issue_s: float
    promised_peak_bytes: int
    peak_bytes: int
    beside_bytes: int
    resident_set_bytes: int  # the most that the process has had, since it began
    advice: list
    is_at_most: bool = False  # whether inputs were smaller than those that the plan was made for
    promised_host_bytes: int = 0  # the most that copies have on the host at one time
    host_bytes: int = 0  # of the buffers that are there for them, kept from step to step by their sizes
    ranks: str = ""  # "replicas" or "sharded": the promised peak has what they exchange, the promised time has not

    def __str__(self):
        if not self.steps:
            return f"{self.strategy}: no step has run yet"
        most = " at most" if self.is_at_most else ""
        lines = [f"{self.strategy}, the last {self.steps} step{'s' if self.steps > 1 else ''}",
                 f"  time   promised {told_seconds(self.promised_s)}{most}, taken {told_seconds(self.taken_s)}{told_off(self.taken_s, self.promised_s)}"]
        if self.peak_bytes is not None:
            lines += [f"  peak   promised {told_bytes(self.promised_peak_bytes)}{most}, taken {told_bytes(self.peak_bytes)}"
                      f"{told_off(self.peak_bytes, self.promised_peak_bytes)}; in addition {told_bytes(self.beside_bytes)} that the plan does not know"]
        else:
            lines += [f"  peak   promised {told_bytes(self.promised_peak_bytes)}{most}; torch counts no bytes on a CPU (measure.py does, with a counter of "
                      f"its own): the whole process has had at most {told_bytes(self.resident_set_bytes)} since it began"]
        if self.promised_host_bytes or self.host_bytes:
            lines += [f"  host   promised {told_bytes(self.promised_host_bytes)}{most}, taken {told_bytes(self.host_bytes)}"
                      f"{told_off(self.host_bytes, self.promised_host_bytes)}"]
        if self.ranks:
            what = {"replicas": "buckets of the replicas' gradients are", "sharded": "this rank's parts of parameters and gradients, and all that it gathers, are"}
            lines += [f"  {what[self.ranks]} in the promised peak; the exchange is not in the promised time"]
        return "\n".join(lines + [f"  {line}" for line in self.advice])


def report_of(plan, counts, host_bytes=0, ranks="", with_ranks=None, resident_bytes=None):
    """`counts`: of the steps by this plan; `host_bytes`: of the buffers that are there for its copies; of ranks that exchange: "replicas" or "sharded", the peak
    of the plan's actions with what they exchange, and the bytes that are resident with them."""
    on_cpu = counts.device.type == "cpu"
    predicted, took = plan.predicted, list(counts.took)
    promised_s = predicted.get("one_after_the_other_s" if on_cpu else "makespan_s")
    promised_peak = predicted.get("one_after_the_other_peak_bytes" if on_cpu else "peak_bytes")
    if promised_peak is not None and ranks:
        promised_peak = with_ranks if ranks == "sharded" else max(promised_peak, with_ranks)
    known = (predicted["resident_bytes"] if resident_bytes is None else resident_bytes) + predicted.get("input_bytes", 0)
    report = Report(plan.strategy, len(took), promised_s, None, None, promised_peak, None, None, resident_set_bytes(), [], plan.is_at_most,
                    predicted.get("host_peak_bytes", 0), host_bytes, ranks)
    if not took:
        return report
    report.taken_s = statistics.median(one.seconds() for one in took)
    report.issue_s = statistics.median(one.issue_s for one in took)
    if not on_cpu:
        highest = max(took, key=lambda one: one.rise_bytes)
        report.peak_bytes, report.beside_bytes = highest.rise_bytes + known, highest.before_bytes - known
    report.advice = [*advice_on_time(report, on_cpu), *advice_on_peak(report), *advice_on_sizes(counts.above)]
    return report


def resident_set_bytes():
    import resource  # not everywhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def advice_on_time(report, on_cpu):
    if not report.promised_s or abs(report.taken_s / report.promised_s - 1) <= TIME_OFF:
        return []
    if report.taken_s < report.promised_s:
        return [] if report.is_at_most else ["faster than promised: the trace was measured on another machine or a busy one; with one of this machine a plan may recompute less"]
    if on_cpu:
        return [f"slower than promised: the trace was measured on another machine, with other threads (here {torch.get_num_threads()}) or without the "
                "load that is there now; measure it again as you train"]
    if report.issue_s >= ISSUING * report.taken_s:
        return [f"slower than promised, and the host binds: it issued for {told_seconds(report.issue_s)}, the GPU waited; a larger batch, fewer stages "
                "(--stages), or nothing else on the host"]
    return ["slower than promised, and the GPU binds: the trace was measured on another GPU, in another precision (--amp) or at other clocks; measure "
            "it again here, and plan for its platform"]


def advice_on_peak(report):
    if report.peak_bytes is None or not report.promised_peak_bytes:
        return []
    more = report.peak_bytes - report.promised_peak_bytes
    if abs(more) <= PEAK_OFF * report.promised_peak_bytes:
        return []
    if more > 0:
        return ["more than promised: the model runs in another precision (--amp) or course than when it was measured, or its kernels take other "
                f"workspaces here; measure it again on this device, until then plan with {told_bytes(more)} less memory"]
    return [] if report.is_at_most else [f"less than promised (gradients that were there already count as additional): up to {told_bytes(-more)} more of --memory buy time"]


def advice_on_sizes(above):
    return [f"'{name}', whose size follows from data, had {told_bytes(found)}, and the plan counts on {told_bytes(planned)} at most: the promised peak may "
            "be passed; measure with a batch like that one" for name, (found, planned) in above.items()]


def told_off(taken, promised):
    return f" ({100 * (taken / promised - 1):+.1f} %)" if promised else ""


def told_seconds(seconds):
    if seconds is None:
        return "nothing"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


def told_bytes(bytes_):
    if bytes_ is None:
        return "nothing"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(bytes_) >= size:
            return f"{bytes_ / size:.2f} {unit}"
    return f"{bytes_} B"
