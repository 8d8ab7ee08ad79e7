"""Times of repetitions that a machine runs at several speeds."""

import unittest

from .support import NO_TORCH, torch

if torch is not None:
    from pytorch_export.clocks import TimeProbe, even_out


class Given:
    """A clock that is told what to show."""

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


if __name__ == "__main__":
    unittest.main()
