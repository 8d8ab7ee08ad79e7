"""Which Python code runs while a model is recorded, but in calls that run again as a whole, and what it asks of the world that nobody can watch."""

import contextlib
import datetime
import random
import sys
import time

from .errors import Refused
from .origins import states_of_python

LANGUAGE = {*sys.stdlib_module_names, "torch", "numpy", "functorch", "plimsoll"}  # whose code and constants do not change
CLOCKS = {time.time, time.time_ns, time.monotonic, time.monotonic_ns, time.perf_counter, time.perf_counter_ns, time.process_time, time.process_time_ns,
          time.thread_time, time.localtime, time.gmtime, time.ctime, time.strftime}
DATES = ("now", "today", "utcnow")
STATES = ("getstate", "setstate", "seed")  # where nothing is drawn
DRAWS = "draws random numbers of Python or numpy, which a forward that runs again would draw anew: draw them by torch"


def package_of(name):
    return name.split(".")[0] if isinstance(name, str) else ""


class CodeThatRuns:
    """`ran`: {code: the globals of its function}; `in_whole`: the same of calls that run as a whole, and so anew in each step. `recorder`: it knows whether
    such a call runs."""

    def __init__(self, recorder):
        self.recorder, self.ran, self.in_whole, self.in_loss, self.is_loss = recorder, {}, {}, {}, False
        self.asks = None   # what nobody can watch, in words
        self.draws = None  # that it draws random numbers of Python or numpy, which may decide nothing

    @contextlib.contextmanager
    def noted(self):
        before, states = sys.getprofile(), states_of_python()
        sys.setprofile(self.see)
        try:
            yield
        finally:
            sys.setprofile(before)
        if self.draws is None and states_of_python() != states:  # by functions that no profiler is told of, as numpy's are
            self.draws = self.said(DRAWS, "numpy.random")
        if self.asks is not None:
            raise Refused(self.asks)

    def see(self, frame, event, function):
        if event == "call":
            if package_of(frame.f_globals.get("__name__")) not in LANGUAGE:
                (self.in_loss if self.is_loss else self.in_whole if self.recorder.suspended else self.ran).setdefault(frame.f_code, frame.f_globals)
        elif event == "c_call" and self.asks is None:
            self.see_call(function, frame)

    def see_call(self, function, frame):
        owner = getattr(function, "__self__", None)
        is_of_model = package_of(frame.f_globals.get("__name__")) not in LANGUAGE
        if isinstance(owner, random.Random) and function.__name__ not in STATES:
            self.draws = self.draws or self.said(DRAWS, function.__name__)
        elif is_of_model and (function is open or function is input):
            self.asks = self.said("reads values from outside of it, which cannot be watched", function.__name__)
        elif is_of_model and (function in CLOCKS or isinstance(owner, type) and issubclass(owner, datetime.date) and function.__name__ in DATES):
            self.asks = self.said("reads the clock", function.__name__)

    def said(self, what, name):
        return f"{self.recorder.here()}: its forward {what} ({name})"


@contextlib.contextmanager
def draws_are(number):
    """Every uniform random number of Python and numpy is the same of [0, 1), as far as one is asked for by their modules' names. Gives a list, to
    which True is added where others are drawn."""
    numpy, states, others = sys.modules.get("numpy"), states_of_python(), []
    between = lambda low=0.0, high=1.0: low + (high - low) * number
    places = [(random, "random", lambda: number), (random, "uniform", between)]
    places += [(numpy.random, name, made) for name, made in (("rand", lambda: number), ("random", lambda: number), ("uniform", between))] if numpy else []
    before = [(place, name, getattr(place, name)) for place, name, _ in places]
    for place, name, made in places:
        setattr(place, name, made)
    try:
        yield others
    finally:
        for place, name, function in before:
            setattr(place, name, function)
        if states_of_python() != states:
            others.append(True)
