#!/usr/bin/env python3
"""The table of the library's page, from index.json.

    experiments/memplanlib/table.py            # prints it
    experiments/memplanlib/table.py --write    # writes it into README.md
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- plans -->\n", "<!-- end of plans -->\n"
HEAD = """| instance | budget, of plain training's | best known | peak | by | bound | by | gap |
|---|---|---|---|---|---|---|---|
"""


def seconds(value):
    return f"{value:.6g} s"


def found(what):
    return f"`{what['by']}`, {what['version']}, {what['date']}"


def row(instance, budget):
    best, bound = budget.get("best"), budget.get("bound")
    gap = f"{100 * (best['time_s'] / bound['time_s'] - 1):.2f} %" if best and bound and bound["time_s"] > 0 else ""
    if gap == "0.00 %" and best["time_s"] <= bound["time_s"] * (1 + 1e-9):
        gap = "optimal"
    share = 100 * budget["bytes"] / instance["store_all_bytes"]
    cells = [f"`{instance['name']}`", f"{budget['bytes']:,} B, {share:.0f} %", seconds(best["time_s"]) if best else "",
             f"{best['peak_bytes']:,} B" if best else "", found(best) if best else "", seconds(bound["time_s"]) if bound else "",
             found(bound) if bound else "", gap]
    return "| " + " | ".join(cells) + " |\n"


def table(index):
    return HEAD + "".join(row(instance, budget) for instance in index["instances"] for budget in instance["budgets"])


def with_table(page, index):
    """The page with the table between its marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table(index) + END + rest.split(END)[1]


def main():
    index = json.loads((HERE / "index.json").read_text())
    page = HERE / "README.md"
    if sys.argv[1:] == ["--write"]:
        page.write_text(with_table(page.read_text(), index))
    else:
        print(table(index), end="")


if __name__ == "__main__":
    main()
