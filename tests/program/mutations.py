"""Structured mutations of files: JSON as a tree, YAML and logs line by line and word by word, both as bytes.

Every function takes a random.Random and a text or tree, and gives bytes. The same generator state gives the same bytes.
"""

import copy
import json

WORDS = ["", "x", "n" * 400, "caf\xe9", "\x1b[2Jred", "\x00", "=cmd()", "@SUM(1)", "a,b\"c\nd", "\u202egpj.exe", "true",
         "null", "\U0001f600" * 90, "../../../etc/passwd", "rotor", "%s%n{}{0}"]
NUMBERS = ["0", "-0", "-1", "1", "2", "3", "0.5", "1e-300", "5e-324", "1e308", "1e400", "-1e400", "NaN", "Infinity", "-Infinity", "1e9",
           "2147483647", "2147483648", "4294967294", "4294967295", "4294967296", "4503599627370496", "4503599627370497",
           "4611686018427387904", "9223372036854775807", "9223372036854775808", "18446744073709551615",
           "18446744073709551616", "-9223372036854775808", "-9223372036854775809", "1" * 400, "01", "1e", "+1", ".5",
           "0x10", "1_000", "1e5", "100000", "1000000"]
QUANTITIES = ["0 B", "-1 GB", "1 B", "1e400 GB", "1e-300 GB", "0.3 B", "4 PB", "9223372036854775807 B", "9 EB", "unlimited",
              ".nan", "nan GB", ".inf", "inf GBps", "1e-300 FLOPS", "1e300 GFLOPS", "0 GFLOPS", "0 GBps", "1e-300 GBps",
              "1e18 GBps", "0 s", "-1 us", "1e-300 s", "1e300 s", "1e9 s", "5", "5 parsecs", "5us", "5  us", "1 us 2"]
YAML_WORDS = ["~", "null", "yes", "[]", "{}", "''", "|", ">", "&a x", "*a", "*unknown", "!!binary aGk=", "!!int 1", "!x y", "[[]]",
              "{a: {b: c}}", "\"\\xE9\"", "'", "\"", "- a", "? a", "[a, b", "{a: b", "#", "@", "`", "%", "caf\xe9", "n" * 400,
              "\x1b[2J", "=1+1", "smallest", "store_all", "capacity"]


class Raw(str):
    """A number as it is written."""


class Pairs(list):
    """An object: keys may be there twice."""


def parsed(text):
    return json.loads(text, object_pairs_hook=lambda pairs: Pairs([list(p) for p in pairs]), parse_float=Raw, parse_int=Raw,
                      parse_constant=Raw)


def written(node):
    """Not recursive in depth beyond what parsed() reads; nesting beyond that is made as text."""
    if isinstance(node, Raw):
        return str(node)
    if isinstance(node, Pairs):
        return "{" + ", ".join(f"{json.dumps(key)}: {written(value)}" for key, value in node) + "}"
    if isinstance(node, list):
        return "[" + ", ".join(map(written, node)) + "]"
    return json.dumps(node)


def places(node, found=None):
    """Every (container, position) of a tree; the value is container[position], of objects container[position][1]."""
    found = [] if found is None else found
    if isinstance(node, list):
        for at in range(len(node)):
            found.append((node, at))
            places(node[at][1] if isinstance(node, Pairs) else node[at], found)
    return found


def value_at(place):
    container, at = place
    return container[at][1] if isinstance(container, Pairs) else container[at]


def put(place, value):
    container, at = place
    if isinstance(container, Pairs):
        container[at][1] = value
    else:
        container[at] = value


def other_value(random, value):
    """One of another type, or a number or word that is hard to take."""
    if isinstance(value, Raw) and random.random() < 0.7:
        if random.random() < 0.5 and value.isdigit():
            return Raw(max(0, int(value) * random.choice([1, 1, 2, 1000]) + random.choice([-1, 0, 1, 2, 10])))
        return Raw(random.choice(NUMBERS))
    if isinstance(value, str) and not isinstance(value, Raw) and random.random() < 0.6:
        return random.choice(WORDS + QUANTITIES)
    return random.choice([None, True, False, [], Pairs(), "", "x", Raw("0"), Raw("-1"), Raw("1.5"), [None], [[]],
                          [Raw("0")], Pairs([["a", Raw("1")]])])


def mutate_tree(random, tree):
    """One change of a tree, in place."""
    all_places = places(tree)
    if not all_places:
        return
    place = random.choice(all_places)
    container, at = place
    kind = random.choice(["value", "value", "value", "number", "number", "delete", "repeat", "key", "swap", "copy", "wrap", "many",
                          "index"])
    if kind == "value":
        put(place, other_value(random, value_at(place)))
    elif kind == "number":
        numbers = [p for p in all_places if isinstance(value_at(p), Raw)]
        if numbers:
            put(random.choice(numbers), Raw(random.choice(NUMBERS)))
    elif kind == "delete":
        del container[at]
    elif kind == "repeat":
        container.insert(random.randrange(len(container) + 1), container[at])
    elif kind == "key" and isinstance(container, Pairs):
        key = container[at][0]
        container[at][0] = random.choice([key + "s", key[:-1], key.upper(), "", "unknown", "id", random.choice(WORDS),
                                          random.choice(container)[0]])
    elif kind == "swap":
        other = random.choice(all_places)
        if other[0] is container:
            mine, its = value_at(place), value_at(other)
            put(place, its)
            put(other, mine)
    elif kind == "copy":
        put(place, copy.deepcopy(value_at(random.choice(all_places))))
    elif kind == "wrap":
        put(place, [value_at(place)] if random.random() < 0.5 else Pairs([["a", value_at(place)]]))
    elif kind == "many" and isinstance(container, list):
        container.extend([container[at]] * random.choice([2, 10, 300]))
    elif kind == "index":
        numbers = [p for p in all_places if isinstance(value_at(p), Raw) and value_at(p).isdigit() and len(value_at(p)) < 4]
        if numbers:
            put(random.choice(numbers), Raw(random.randrange(0, 12)))


def mutate_bytes(random, data):
    """What editors, transfers and disks do to a file."""
    if not data:
        return data
    at = random.randrange(len(data))
    end = min(len(data), at + random.choice([1, 3, 20, 200]))
    kind = random.choice(["cut", "cut", "flip", "hole", "twice", "latin1", "control", "bom", "utf16", "crlf", "after", "nul",
                          "deep", "empty", "brackets"])
    if kind == "cut":
        return data[:at]
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1:]
    if kind == "hole":
        return data[:at] + data[end:]
    if kind == "twice":
        return data[:end] + data[at:]
    if kind == "latin1":
        return data[:at] + b"caf\xe9" + data[at:]
    if kind == "control":
        return data[:at] + random.choice([b"\x1b[2J", b"\x07", b"\x7f", b"\r", b"\t", b"\xc2\x85", b"\xe2\x80\xae"]) + data[at:]
    if kind == "bom":
        return b"\xef\xbb\xbf" + data
    if kind == "utf16":
        return data.decode("latin-1").encode("utf-16")
    if kind == "crlf":
        return data.replace(b"\n", b"\r\n")
    if kind == "after":
        return data + random.choice([b"x", b"\n---\na: b\n", b"{}", b"]", b"\x00", data[:100]])
    if kind == "nul":
        return data[:at] + b"\x00" * random.choice([1, 100]) + data[end:]
    if kind == "deep":
        return data[:at] + random.choice([b"[", b"{\"a\":", b"{a: ", b"- "]) * random.choice([50, 20000]) + data[at:]
    if kind == "brackets":
        depth = random.choice([50, 20000])
        return data[:at] + b"[" * depth + b"]" * depth + data[end:]
    return b""


def mutated_json(random, text):
    tree = parsed(text)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        mutate_tree(random, tree)
    data = written(tree).encode("utf-8", "surrogatepass")
    return mutate_bytes(random, data) if random.random() < 0.15 else data


def mutate_line(random, line):
    """A line of YAML: its key, its value, one word of it, or where it stands."""
    indent = len(line) - len(line.lstrip(" -"))
    key, colon, value = line.partition(":")
    kind = random.choice(["value", "value", "value", "word", "word", "word", "key", "indent", "anchor", "tab", "comment"])
    hard = random.choice(random.choice([QUANTITIES, NUMBERS, YAML_WORDS]))
    if kind == "value" and colon:
        return f"{key}: {hard}"
    if kind == "word":
        starts = [i + 1 for i, c in enumerate(line) if c in " [,{:" and i + 1 < len(line) and line[i + 1] not in " []{},:#"]
        if starts:
            start = random.choice(starts)
            end = min([i for i in range(start, len(line)) if line[i] in ",]}:"] + [len(line)])
            return line[:start] + hard + line[end:]
    if kind == "key" and colon:
        return line[:indent] + random.choice(["unknown", key.strip(" -") + "s", "", "*a", "<<", "[a]", "? "]) + ":" + value
    if kind == "indent":
        return " " * random.choice([1, 2, 5]) + line
    if kind == "anchor" and colon:
        return f"{key}: &a{value}" if random.random() < 0.5 else f"{key}: *a"
    if kind == "tab":
        return "\t" + line
    return line + " # caf\xe9"


def mutated_lines(random, text, mutate=mutate_line):
    """Lines changed, deleted, doubled and exchanged; as Latin-1 now and then, where bytes are no UTF-8."""
    lines = text.splitlines()
    written_lines = [i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")]
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        i = random.choice(written_lines) if written_lines else 0
        if i >= len(lines):
            break
        kind = random.choice(["change"] * 6 + ["delete", "double", "exchange", "many"])
        if kind == "change":
            lines[i] = mutate(random, lines[i])
        elif kind == "delete":
            del lines[i]
        elif kind == "double":
            lines.insert(i, lines[i])
        elif kind == "exchange":
            j = random.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
        else:
            lines[i:i] = [lines[i]] * 300
    joined = "\n".join(lines) + "\n"
    data = joined.encode("latin-1" if random.random() < 0.1 else "utf-8", "replace")
    return mutate_bytes(random, data) if random.random() < 0.15 else data


def mutate_json_line(random, line):
    try:
        return mutated_json(random, line).decode("utf-8", "replace").replace("\n", " ")
    except ValueError:  # changed before
        return line[:random.randrange(len(line) + 1)]


def mutated_json_lines(random, text):
    """One JSON object a line."""
    return mutated_lines(random, text, mutate_json_line)
