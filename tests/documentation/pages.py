"""The pages (Markdown files) of the tree: their headings and links, their words, and the sections that strategies have in them."""
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
STRATEGIES = pathlib.Path("docs/strategies")
INDEX = pathlib.Path("strategies/README.md")
MOST_COLUMNS, MOST_WORDS = 110, 25
SHARED = {"pipelining": ("stages", "cut", "shared_updates", "work_conserving", "backward", "buckets"),
          "hybrid": ("devices", "model", "memory", "replicas", "collectives"), "placement": ("devices", "parameters", "usable")}
OUTSIDE = {"c10/core/AllocatorConfig.h", "c10/cuda/CUDACachingAllocator.cpp", "torch/_functorch/partitioners.py",
           "strategies/rematerialization/policies/keep_first.cpp"}  # the last: of ADDING.md's example
GLUE = ("beside", "what is", "those that", "can do with")
NO_END = re.compile(r"\b(al|e\.g|i\.e|vs|cf|no|fig|sec|resp|approx)\.$", re.I)


def pages():
    """The places of all pages, without what was built."""
    for file in sorted(ROOT.rglob("*.md")):
        place = file.relative_to(ROOT)
        if not place.parts[0].startswith(("build", "out", ".")):
            yield place


def without_code(text):
    """The text with as many lines, those of code blocks empty."""
    return re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)


def headings(text):
    """Pairs of a level and a heading."""
    return [(len(mark), heading) for mark, heading in re.findall(r"^(#+) (.+)$", without_code(text), re.M)]


def anchors(text):
    """What a link may have after `#`, as GitHub makes it of headings."""
    found = {}
    for _, heading in headings(text):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {slug if number == 0 else f"{slug}-{number}" for slug, most in found.items() for number in range(most + 1)}


def links(text):
    """The targets of links and pictures, inline code left out."""
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "`", without_code(text)))


def broken_links(place, text):
    """The links that lead to no file of the tree, or to no heading of it."""
    broken = []
    for link in links(text):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (ROOT / place.parent / path).resolve() if path else ROOT / place
        if path and not target.exists():
            broken.append(link)
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text() if path else text)):
            broken.append(link)
    return broken


def missing_sources(text, names):
    """Sources that the text names and the tree, by its files' names, has not; those of other projects stand in OUTSIDE."""
    named = {code for code in re.findall(r"`([^`\n]+)`", without_code(text)) if re.fullmatch(r"\w[\w./-]*\.(h|cpp|cu|py|def)", code)}
    return sorted(code for code in named - OUTSIDE if not any(f"/{name}".endswith(f"/{code}") for name in names))


def prose_lines(text):
    """Pairs of a line's number and the line, without code blocks, tables and comments."""
    for number, line in enumerate(without_code(text).splitlines(), 1):
        if not line.lstrip().startswith(("|", "<!--")) and not line.startswith("    "):
            yield number, line


def table_rows(text):
    """Pairs of a line's number and the row of a table, each code as one word, without the tables that the program writes."""
    written = r"^<!-- (.+) -->\n.*?^<!-- end of \1 -->"
    by_hand = re.sub(written, lambda table: "\n" * table[0].count("\n"), without_code(text), flags=re.M | re.S)
    for number, line in enumerate(by_hand.splitlines(), 1):
        if line.lstrip().startswith("|"):
            yield number, re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]+`", "code", line))


def without_sources(text):
    """The text with as many lines, those of sources empty: they are names of papers."""
    parts = r"^#{2,3} Source\n.*?(?=^#|\Z)|^\*\*Source\.\*\* .*?(?=^\*\*|^$|^#|\Z)"  # the second: a paragraph of a planner's
    return re.sub(parts, lambda part: "\n" * part[0].count("\n"), text, flags=re.M | re.S)


def sentences(text):
    """Pairs of the number of the line in which a sentence begins, and the sentence, each code as one word."""
    block = []
    for number, line in [*prose_lines(without_sources(text)), (0, "")]:
        begins = re.match(r"\s*([-*] |\d+\. )", line)
        if not line.strip() or begins or line.startswith("#"):
            yield from split_sentences(block)
            block = []
        if line.strip() and not line.startswith("#"):
            block.append((number, line[begins.end():] if begins else line))


def split_sentences(block):
    words, first = [], 0
    for number, line in block:
        plain = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", re.sub(r"`[^`]+`", "code", line))
        for word in re.sub(r"\]\([^)]*\)", "]", plain).split():
            first = first or number
            words.append(word)
            if re.search(r"[.!?][\"')*\]]*$", word) and not NO_END.search(word):
                yield first, " ".join(words)
                words, first = [], 0
    if words:
        yield first, " ".join(words)


def glue_in(number, words):
    return [(number, f"'{glue}': {words}") for glue in GLUE if re.search(rf"\b{glue}\b", words, re.I)]


def against_the_rules(text):
    """What a page does against the rules of words: pairs of a line and what is wrong."""
    found = []
    for number, line in prose_lines(text):
        shown = re.sub(r"\]\([^)]*\)", "]", line)
        if len(shown) > MOST_COLUMNS:
            found.append((number, f"{len(shown)} columns, allowed {MOST_COLUMNS}"))
    for number, sentence in sentences(text):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if len(words) > MOST_WORDS:
            found.append((number, f"a sentence of {len(words)} words, allowed {MOST_WORDS}: {sentence}"))
        found += glue_in(number, sentence)
    for number, row in table_rows(text):
        found += glue_in(number, row)
    return sorted(found)


def not_rewritten():
    """The pages that the rules of words do not hold for yet."""
    lines = (ROOT / "tests/documentation/not_rewritten.txt").read_text().splitlines()
    return [pathlib.Path(line) for line in lines if line and not line.startswith("#")]


def strategies(program):
    """All strategies as the program describes them."""
    run = subprocess.run([program, "list", "strategies", "--json"], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["strategies"]


def strategy_sections():
    """By strategy, the pairs of a place and the text of its section there."""
    found = {}
    for place in pages():
        if not place.is_relative_to(STRATEGIES):
            continue
        text = (ROOT / place).read_text()
        for part in re.split(r"^(?=#{1,2} )", text, flags=re.M):
            if name := re.match(r"#{1,2} `(\w+)`\n", part):
                end = text if part.startswith("# ") else part
                found.setdefault(name[1], []).append((place, end))
    return found


def rows_of(options, shared=()):
    """A table of options; those that a family shares are told once, on its own page."""
    rows = [(f"`{option['name']}={option['default']}`", option["values"],
             "[shared](README.md#options)" if option["name"] in shared else option["help"]) for option in options]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(["| option | values | |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in cells)])


def options_table(strategy):
    """The table of a strategy's options."""
    return rows_of(strategy["options"], SHARED.get(strategy["family"], ()))


def shared_options_table(listed, family):
    """The table of the options that a family shares, as the first of its strategies has them."""
    options = [option for strategy in listed if strategy["family"] == family for option in strategy["options"]]
    return rows_of([next(option for option in options if option["name"] == name) for name in SHARED[family]])


def index_table(listed, sections):
    """The index of all strategies by family."""
    lines, family = [], None
    for strategy in sorted(listed, key=lambda s: list(dict.fromkeys(t["family"] for t in listed)).index(s["family"])):
        if strategy["family"] != family:
            family = strategy["family"]
            lines += ["" if lines else None, f"### {family.capitalize()}", "", "| strategy | |", "|---|---|"]
        place, text = sections[strategy["name"]][0]
        alone = text.startswith(f"# `{strategy['name']}`")
        target = f"../{place}" + ("" if alone else f"#{strategy['name']}")
        lines.append(f"| [`{strategy['name']}`]({target}) | {strategy['summary'].rstrip('.')} |")
    return "\n".join(line for line in lines if line is not None)


def with_table(text, name, table):
    """The text with this table between its two marks."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        return None
    return text[:text.index(begin) + len(begin)] + table + "\n" + text[text.index(end):]


def tables(program):
    """Triples of a page, the name of a table that the program knows, and the table, for every table that a page has to have."""
    listed, sections = strategies(program), strategy_sections()
    yield INDEX, "index", index_table(listed, sections)
    for family in SHARED:
        yield STRATEGIES / family / "README.md", f"options of {family}", shared_options_table(listed, family)
    for strategy in listed:
        for place, text in sections.get(strategy["name"], []):
            if strategy["options"]:
                yield place, f"options of {strategy['name']}", options_table(strategy)
