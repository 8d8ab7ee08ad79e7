"""Tests that take seconds: each in one of eleven turns, as those of C++ that are tagged eleventh-0 to eleventh-10
(tests/random_case.h).

    @eleventh(1)
    def test_every_model_by_every_sequence(self):

Without PLIMSOLL_TURN, and with PLIMSOLL_TESTS=all, every one runs.
"""
import os
import unittest

TURNS = 11
WHY = "takes seconds: runs in every eleventh turn (PLIMSOLL_TURN), and with PLIMSOLL_TESTS=all"


def chosen(items):
    """Every eleventh of the items, of fewer than eleven one; which ones depends on the turn."""
    turn = os.environ.get("PLIMSOLL_TURN")
    if turn is None or os.environ.get("PLIMSOLL_TESTS") == "all":
        return items
    step = min(TURNS, len(items))
    return items[int(turn) % step :: step] if step else []


def eleventh(number):
    return unittest.skipIf(number not in chosen(range(TURNS)), WHY)
