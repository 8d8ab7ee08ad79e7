#!/usr/bin/env python3
"""experiments/digits_csv.py: what it writes is scikit-learn's digits, pixel by pixel, and `plimsoll train` learns from it.

    tests/experiments/digits_csv_test.py build/plimsoll        # exits with 77, skipped, where scikit-learn is missing
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
try:
    from sklearn import datasets
except ImportError:
    print("skipped: scikit-learn is missing (Debian: python3-sklearn)")
    sys.exit(77)


def written(folder, *options):
    """The lines of the file, without its first."""
    file = pathlib.Path(folder) / "digits.csv"
    subprocess.run([sys.executable, ROOT / "experiments/digits_csv.py", "-o", file, *options], check=True, stdout=subprocess.DEVNULL)
    first, *lines = file.read_text(encoding="utf-8").splitlines()
    assert first.startswith("# Alpaydin and Kaynak"), first
    return file, lines


class Digits(unittest.TestCase):
    def test_every_picture_is_there_once(self):
        for side in (8, 16):
            with tempfile.TemporaryDirectory() as folder:
                _, lines = written(folder, "--side", str(side))
            middle = lines.index("test")
            trained, held_out = lines[:middle], lines[middle + 1:]
            self.assertEqual((len(trained), len(held_out)), (1437, 360))
            digits = datasets.load_digits()
            left = {True: iter(held_out), False: iter(trained)}
            times = side // 8
            for number, (picture, label) in enumerate(zip(digits.data, digits.target)):
                found, *values = next(left[number % 5 == 0]).split(",")
                self.assertEqual(int(found), label)
                self.assertEqual(len(values), side * side)
                for place, value in enumerate(values):
                    row, column = place // side // times, place % side // times
                    self.assertEqual(float(value), picture[8 * row + column] / 16, (number, place))

    def test_networks_learn_from_them(self):
        with tempfile.TemporaryDirectory() as folder:
            file, _ = written(folder)
            made = subprocess.run([PROGRAM, "train", "mlp:layers=4,width=64,batch=32,classes=10,view=graph", "--data", file, "--strategy",
                                   "quantize(bits=4)", "--steps", "200", "--json"], check=True, capture_output=True, text=True)
        answer = json.loads(made.stdout)
        self.assertEqual(answer["rows"], {"trained": 1437, "held_out": 360})
        for outcome in (answer["trained"], answer["plain"]):
            self.assertGreater(outcome["held_out_accuracy"], 0.85, answer)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
