"""Times of repetitions that a machine runs at several speeds."""

import unittest
import unittest.mock

from .apart import Apart
from .support import NO_TORCH, torch

if torch is not None:
    from plimsoll.trace.clocks import TimeProbe, even_out


class Given:
    """A clock that is told what to show."""

    runs_apart = False

    def __init__(self, seconds):
        self.marks = [mark for time in seconds for mark in (0.0, time)]

    def mark(self):
        return self.marks.pop(0)

    def settle(self):
        pass

    def seconds(self, start, finish):
        return finish - start


@unittest.skipIf(torch is None, NO_TORCH)
class Paces(unittest.TestCase):
    def probe(self, seconds):
        probe = TimeProbe(Given(seconds))
        for _ in seconds:
            probe.begin("forward", 0, None)
            probe.end("forward", 0, None)
        probe.settle()
        return probe

    def test_a_sample_counts_relative_to_its_repetition(self):
        """Repetitions of 4, 8, 4, 8 and 6 s, a quarter of which is the stage's, but for the last one, which is disturbed."""
        stage, rest = self.probe([1, 2, 1, 2, 3]), self.probe([3, 6, 3, 6, 3])
        self.assertEqual(stage.median("forward", 0), 2)
        even_out([stage, rest])
        self.assertEqual(stage.median("forward", 0), 1.5)
        self.assertEqual(rest.median("forward", 0), 4.5)
        self.assertEqual(stage.spread("forward", 0), 1, "of the samples as they were")


@unittest.skipIf(torch is None, NO_TORCH)
class Covers(unittest.TestCase):
    """Two stages, the first of many kernels that the host issues more slowly than the device runs them."""

    def run_stages(self, clock, probe, kernels=(10, 2)):
        for stage, count in enumerate(kernels):
            probe.begin("forward", stage, None)
            clock.launch(count)
            probe.end("forward", stage, None)

    def times(self, clock, with_covers):
        probe = TimeProbe(clock)
        with unittest.mock.patch("plimsoll.trace.clocks.time", clock):
            if with_covers:
                probe.find_covers(lambda: self.run_stages(clock, probe))
            for _ in range(3):
                self.run_stages(clock, probe)
                probe.settle()
        return probe

    def test_times_hold_kernels_only(self):
        slow_host = Apart(0.004, 0.001)
        bare = self.times(slow_host, False)
        self.assertAlmostEqual(bare.median("forward", 0), 0.041, msg="as fast as the host issues: 10 x 4 ms, and the last kernel")
        probe = self.times(slow_host, True)
        self.assertAlmostEqual(probe.median("forward", 0), 0.010)
        self.assertAlmostEqual(probe.median("forward", 1), 0.002)
        self.assertAlmostEqual(probe.issue["forward", 0], 0.040)
        self.assertEqual(probe.dry_share(), 0)
        self.assertEqual(len(probe.samples["forward", 0]), 3, "passes that find the covers do not count")

    def test_a_cover_that_was_too_short_grows(self):
        """The host once issued the stage in a third of the time that it takes from then on."""
        clock = Apart(0.001, 0.0001)
        probe, passes = TimeProbe(clock), []

        def run():
            passes.append(None)
            clock.host_each = 0.001 if len(passes) <= 2 else 0.003
            self.run_stages(clock, probe)

        with unittest.mock.patch("plimsoll.trace.clocks.time", clock):
            probe.find_covers(run)
            self.run_stages(clock, probe)
            probe.settle()
        self.assertAlmostEqual(probe.median("forward", 0), 0.001)
        self.assertEqual(probe.dry_share(), 0)

    def test_the_cover_of_a_whole_iteration_does_not_grow(self):
        clock = Apart(0.001, 0.0001)
        probe = TimeProbe(clock)

        def run():
            probe.begin("iteration", 0, None)
            clock.launch(10)
            clock.settle()  # the queue is full
            clock.launch(10)
            probe.end("iteration", 0, None)

        with unittest.mock.patch("plimsoll.trace.clocks.time", clock):
            probe.find_covers(run)
        self.assertAlmostEqual(probe.covers["iteration", 0], 1.3 * probe.issue["iteration", 0] + 1e-4)
        self.assertEqual(probe.ran_dry, {})

    def test_what_no_cover_covers_is_said(self):
        clock = Apart(0.001, 0.0001)
        probe = TimeProbe(clock)
        with unittest.mock.patch("plimsoll.trace.clocks.time", clock):
            probe.find_covers(lambda: self.run_stages(clock, probe))
            clock.host_each = 1
            self.run_stages(clock, probe)
            probe.settle()
        self.assertEqual(probe.dry_share(), 1)


if __name__ == "__main__":
    unittest.main()
