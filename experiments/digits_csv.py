#!/usr/bin/env python3
"""Writes the handwritten digits that come with scikit-learn (Debian: python3-sklearn) as rows for `plimsoll train`.

    /usr/bin/python3 experiments/digits_csv.py -o out/digits.csv              # 8 x 8 pixels: 64 numbers a row
    /usr/bin/python3 experiments/digits_csv.py -o out/digits16.csv --side 16  # each pixel 2 x 2 times: 256 numbers

1797 pictures of 10 digits by 13 people, from 0 to 1 in steps of 1/16; every fifth one is held out. They are the test part of
Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998 (CC BY 4.0). Nothing is
downloaded: they lie in the package.
"""
import argparse
import pathlib


def pixels_of(picture, times):
    """Row by row, every pixel `times` times in both directions."""
    for row in picture:
        wide = [format(value / 16, "g") for value in row for _ in range(times)]
        for _ in range(times):
            yield from wide


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", required=True, type=pathlib.Path, metavar="FILE")
    parser.add_argument("--side", type=int, default=8, choices=(8, 16, 24, 32), help="pixels a side (default: 8)")
    arguments = parser.parse_args()
    try:
        from sklearn import datasets
    except ImportError:
        raise SystemExit("digits_csv.py: scikit-learn is missing; on Debian and Ubuntu: apt-get install python3-sklearn")
    digits = datasets.load_digits()
    rows = [",".join([str(label), *pixels_of(picture, arguments.side // 8)])
            for picture, label in zip(digits.images, digits.target)]
    held_out = rows[::5]
    trained = [row for number, row in enumerate(rows) if number % 5]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    origin = "# Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998, CC BY 4.0"
    arguments.output.write_text("\n".join([origin, *trained, "test", *held_out]) + "\n", encoding="utf-8")
    print(f"{arguments.output}: {len(trained)} rows, {len(held_out)} held out, {64 * (arguments.side // 8) ** 2} numbers each")


if __name__ == "__main__":
    main()
