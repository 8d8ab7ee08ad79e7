"""Says on one page how well a validation was predicted: a line a plan, a line a kind of step, and the goals.

python3 validation_page.py FILE [PAGE.txt]    FILE: validation.json, or rows.jsonl of a run that was cut; PAGE.txt too

Exit code 2: FILE is none of them.
"""

import itertools
import json
import math
import sys

TIME_MEAN, TIME_WORST, TAU = 0.02, 0.08, 0.9  # goals; peaks are to be exact


class Refused(Exception):
    """One line that says where and why."""


def read(file):
    """The whole object of a run, with its rows."""
    try:
        with open(file, encoding="utf-8") as text:
            lines = text.read()
        if file.endswith(".jsonl"):
            whole = {"rows": [json.loads(line) for line in lines.splitlines() if line]}
        else:
            whole = json.loads(lines)
        for number, row in enumerate(whole["rows"], 1):
            missing = [key for key in ("network", "strategy", "predicted_relative", "measured_relative", "measured_spread", "predicted_s",
                                       "measured_s", "predicted_peak_bytes", "measured_peak_bytes", "predicted_by_kind", "measured_by_kind")
                       if key not in row]
            if missing:
                raise Refused(f"{file}: row {number}: no '{missing[0]}'")
    except OSError as error:
        raise Refused(f"{file}: cannot read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{file}: not a validation: {error}") from error
    if not whole["rows"]:
        raise Refused(f"{file}: no rows: no network was finished")
    return whole


def time_error(row):
    """Of times as parts of store_all's around them: the machine's speed is not in it."""
    return row["predicted_relative"] / row["measured_relative"] - 1


def tau_b(rows):
    """Kendall's, of one network's plans; what differs by no more than its spread is tied."""
    score = one = other = pairs = 0
    for a, b in itertools.combinations(rows, 2):
        tie = max(a["measured_spread"], b["measured_spread"])
        signs = []
        for key in ("predicted_relative", "measured_relative"):
            apart = a[key] - b[key]
            signs.append(0 if abs(apart) <= tie else math.copysign(1, apart))
        pairs += 1
        score += signs[0] * signs[1]
        one += signs[0] != 0
        other += signs[1] != 0
    return score / math.sqrt(one * other) if one and other else 1.0


def beyond_order(row):
    """Bytes by which the measured live peak lies outside of what the plan's own order allows."""
    least, most = row.get("legal_peaks_bytes", [row["predicted_peak_bytes"]] * 2)
    return max(0, least - row["measured_peak_bytes"], row["measured_peak_bytes"] - most)


def percent(share):
    return f"{100 * share + 0:+.1f} %".replace("-0.0", "+0.0")


def plan_lines(rows):
    yield f"{'plan':<38}{'time, ms':>18}{'':>9}{'live peak, MB':>19}{'':>9}{'reserved':>12}"
    yield f"{'':<38}{'predicted':>9}{'measured':>9}{'error':>9}{'predicted':>10}{'measured':>9}{'off, B':>9}{'off, B':>12}"
    network = None
    for row in rows:
        if row["network"] != network:
            network = row["network"]
            yield network
        off = row["measured_peak_bytes"] - row["predicted_peak_bytes"]
        reserved = ""
        if "measured_reserved_bytes" in row:
            reserved = str(row["measured_reserved_bytes"] - row["predicted_reserved_bytes"])
        yield (f"  {row['strategy']:<36.36}{1e3 * row['predicted_s']:>9.3f}{1e3 * row['measured_s']:>9.3f}"
               f"{percent(time_error(row)):>9}{row['predicted_peak_bytes'] / 1e6:>10.1f}{row['measured_peak_bytes'] / 1e6:>9.1f}"
               f"{off:>9}{reserved:>12}").rstrip()


def kind_lines(rows):
    yield f"{'kind of step':<20}{'predicted, s':>14}{'measured, s':>13}{'error':>9}  the plan where it is furthest off"
    kinds = list(dict.fromkeys(kind for row in rows for kind in [*row["predicted_by_kind"], *row["measured_by_kind"]]))
    for kind in kinds:
        predicted = sum(row["predicted_by_kind"].get(kind, 0) for row in rows)
        measured = sum(row["measured_by_kind"].get(kind, 0) for row in rows)

        def off(row):
            return row["predicted_by_kind"].get(kind, 0) - row["measured_by_kind"].get(kind, 0)
        worst = max(rows, key=lambda row: abs(off(row)))
        error = percent(predicted / measured - 1) if measured else "-"
        yield (f"  {kind.removesuffix('_s'):<18}{predicted:>14.4f}{measured:>13.4f}{error:>9}  "
               f"{1e3 * off(worst):+.3f} ms, {worst['strategy']} of {worst['network'].split(',')[0]}")


def goal_lines(rows):
    def line(what, found, goal, met):
        return f"  {what:<18}{found:<56}{'goal ' + goal:<18}{'met' if met else 'missed'}"
    errors = [time_error(row) for row in rows]
    mean, worst = sum(map(abs, errors)) / len(rows), max(rows, key=lambda row: abs(time_error(row)))
    yield "goals"
    yield line("time, mean", f"{100 * mean:.1f} % of {len(rows)} plans", f"{100 * TIME_MEAN:g} %", mean <= TIME_MEAN)
    found = f"{percent(time_error(worst))}: {worst['strategy']:.22} of {worst['network'].split(',')[0]:.20}"
    yield line("time, worst", found, f"{100 * TIME_WORST:g} %", abs(time_error(worst)) <= TIME_WORST)
    equal = sum(row["measured_peak_bytes"] == row["predicted_peak_bytes"] for row in rows)
    beyond = sum(beyond_order(row) > 0 for row in rows)
    yield line("live peak", f"equal in {equal} of {len(rows)}, not of its plan's order in {beyond}", "exact", beyond == 0)
    reserving = [row for row in rows if "measured_reserved_bytes" in row]
    simulated = [row for row in reserving if row.get("reserved_as_issued", True)]
    if simulated:
        exact = sum(row["measured_reserved_bytes"] == row["predicted_reserved_bytes"] for row in simulated)
        others = len(reserving) - len(simulated)
        found = f"equal in {exact} of {len(simulated)}" + (f", {others} in chunks not counted" if others else "")
        yield line("reserved", found, "exact", exact == len(simulated))
    else:
        yield f"  {'reserved':<18}no allocator was measured that is simulated"
    networks = list(dict.fromkeys(row["network"] for row in rows))
    tau = sum(tau_b([row for row in rows if row["network"] == each]) for each in networks) / len(networks)
    yield line("order, tau-b", f"{tau:.3f}, mean of {len(networks)} networks", f"{TAU:g}", tau >= TAU)


def page(whole):
    rows = whole["rows"]
    if "made_by" in whole:
        yield whole["made_by"]
        yield f"{whole['date']}, {whole['device']}, {whole['library']}, {whole['rounds']} rounds"
        yield ""
    yield from goal_lines(rows)
    yield ""
    yield from kind_lines(rows)
    yield ""
    yield from plan_lines(rows)


def main(words):
    if len(words) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        text = "\n".join(page(read(words[0]))) + "\n"
    except Refused as error:
        print(error, file=sys.stderr)
        return 2
    print(text, end="")
    if len(words) == 2:
        with open(words[1], "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
