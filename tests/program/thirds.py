"""Tests that take seconds: each in one of three turns, as those of C++ that are tagged third-0 to third-2 (tests/random_case.h).

    @third(1)
    def test_every_model_by_every_sequence(self):

Without PLIMSOLL_TURN, and with PLIMSOLL_TESTS=all, every one runs.
"""
import os
import unittest

WHY = "takes seconds: runs in every third turn (PLIMSOLL_TURN), and with PLIMSOLL_TESTS=all"


def waits(number):
    """Whether what runs in this one of three turns is left out of this run."""
    turn = os.environ.get("PLIMSOLL_TURN")
    return turn is not None and os.environ.get("PLIMSOLL_TESTS") != "all" and int(turn) % 3 != number


def third(number):
    return unittest.skipIf(waits(number), WHY)
