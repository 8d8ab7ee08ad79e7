#!/usr/bin/env python3
"""The pages of the tree: no link leads nowhere, every strategy has its section under fixed headings, the tables of options and the index are
the program's own, and the words are what CONTRIBUTING.md asks for, but for the pages of not_rewritten.txt. Those of messages and helps, too.

    tests/documentation/pages_test.py PROGRAM           # all of it
    tests/documentation/pages_test.py PROGRAM --write   # writes the tables into the pages
"""
import pathlib
import re
import sys
import unittest

import messages
import pages

PROGRAM = pathlib.Path("build/plimsoll")
SHARED_PARTS = ("When to use", "Example")  # of a page of several strategies, before the first of them
PARTS = (*SHARED_PARTS, "Options", "Limits", "Method", "Source", "Validation")


def missing(text, names):
    """The first of these headings that does not follow the one before."""
    at = 0
    for name in names:
        part = re.compile(rf"^#{{2,3}} {name}$", re.M).search(text, at)
        if part is None:
            return name
        at = part.end()
    return None


class Pages(unittest.TestCase):
    def test_no_link_leads_nowhere(self):
        for place in pages.pages():
            self.assertEqual(pages.broken_links(place, (pages.ROOT / place).read_text()), [], place)

    def test_sources_that_pages_name_are_there(self):
        names = [str(file.relative_to(pages.ROOT)) for file in pages.ROOT.rglob("*.*") if not file.relative_to(pages.ROOT).parts[0].startswith("build")]
        for place in pages.pages():
            self.assertEqual(pages.missing_sources((pages.ROOT / place).read_text(), names), [], place)

    def test_every_strategy_has_one_section_with_its_parts(self):
        sections = pages.strategy_sections()
        self.assertEqual(set(sections), {strategy["name"] for strategy in pages.strategies(PROGRAM)})
        for name, found in sections.items():
            self.assertEqual(len(found), 1, name)
            place, text = found[0]
            before = (pages.ROOT / place).read_text().split("\n## `")[0]
            shared = [part for part in SHARED_PARTS if missing(before, [part]) is None]
            self.assertIsNone(missing(text, [part for part in PARTS if part not in shared]), name)

    def test_tables_are_the_program_s(self):
        for place, name, table in pages.tables(PROGRAM):
            text = (pages.ROOT / place).read_text()
            self.assertEqual(pages.with_table(text, name, table), text, f"{place}, {name}: run this with --write")

    def test_every_page_of_strategies_is_in_the_index(self):
        index = pages.ROOT / pages.INDEX
        reached = {(index.parent / link.split("#")[0]).resolve() for link in pages.links(index.read_text())}
        for place in pages.pages():
            if place.is_relative_to(pages.STRATEGIES):
                self.assertIn(pages.ROOT / place, reached)

    def test_every_picture_of_a_pipeline_is_shown(self):
        shown = {(pages.ROOT / place.parent / link).resolve() for place in pages.pages()
                 for link in pages.links((pages.ROOT / place).read_text())}
        for picture in (pages.ROOT / "docs/pipelines").iterdir():
            self.assertIn(picture, shown)

    def test_words(self):
        later = pages.not_rewritten()
        self.assertEqual(len(later), len(set(later)))
        for place in later:
            self.assertTrue((pages.ROOT / place).exists(), f"not_rewritten.txt has {place}, which is no page")
        wrong = [f"{place}:{number}: {why}" for place in pages.pages() if place not in later
                 for number, why in pages.against_the_rules((pages.ROOT / place).read_text())]
        print(f"{len(later)} pages are still to be rewritten", file=sys.stderr)
        self.assertEqual(wrong, [])

    def test_words_of_messages(self):
        texts = {place: literals((pages.ROOT / place).read_text()) for place, literals in messages.sources()}
        self.assertGreater(sum(map(len, texts.values())), 5000)
        wrong = [f"{place}:{number}: {why}" for place, found in texts.items() for number, why in messages.against_the_rules(found)]
        self.assertEqual(wrong, [])


class Rules(unittest.TestCase):
    """That the checks see what is wrong."""

    def wrong(self, text):
        return [(number, why.split(":")[0]) for number, why in pages.against_the_rules(text)]

    def test_long_lines(self):
        self.assertEqual(self.wrong("# T\n\n" + "ab. " * 28), [(3, "112 columns, allowed 110")])
        self.assertEqual(self.wrong("A [link](" + "x" * 120 + ").\n\n| " + "cell " * 40 + "|\n\n```\n" + "code " * 40 + "\n```\n"), [])

    def test_long_sentences(self):
        words = ["word"] * 26
        text = " ".join(words[:13]) + "\n" + " ".join(words[13:]) + "."
        self.assertEqual(self.wrong(text), [(1, "a sentence of 26 words, allowed 25")])
        self.assertEqual(self.wrong("- " + text), [(1, "a sentence of 26 words, allowed 25")])
        self.assertEqual(self.wrong(text.replace("word\n", "word.\n")), [])
        self.assertEqual(self.wrong(text.replace("word\n", "`a b` et al.\n")), [(1, "a sentence of 28 words, allowed 25")])
        self.assertEqual(self.wrong("## Source\n\n" + text + "\n\n## Validation\n\nShort.\n"), [])
        self.assertEqual(self.wrong("**Source.** " + text + "\n**Options.** None.\n"), [])

    def test_glue(self):
        self.assertEqual(self.wrong("It runs\nbeside it. What is kept, those\nthat stay.\n"),
                         [(1, "'beside'"), (2, "'those that'"), (2, "'what is'")])
        self.assertEqual(self.wrong("`beside`, besides.\n\n```\nwhat is\n```\n"), [])
        self.assertEqual(self.wrong("| `beside` | [a](beside.md) |\n|---|---|\n| it runs beside it | |\n"), [(3, "'beside'")])
        self.assertEqual(self.wrong("<!-- index -->\n| what is |\n<!-- end of index -->\n| what is |\n"), [(4, "'what is'")])

    def test_messages(self):
        cpp = """// "beside the code"
f("runs be"
  "side it", 'a', "beside", '"', "is no\\nvalue"); /* "what is" */
g(R"(those that stay)", "there is no way", "is no longer, is no larger");
"""
        self.assertEqual([(number, why.split(":")[0]) for number, why in messages.against_the_rules(messages.literals_of_cpp(cpp))],
                         [(2, "'beside'"), (3, "'is no'"), (4, "'those that'")])
        python = 'def f():\n    """What is kept."""\n    g("those "\n      "that stay")\n    g(f"{x} lies beside {y}", "beside")\n'
        self.assertEqual([(number, why.split(":")[0]) for number, why in messages.against_the_rules(messages.literals_of_python(python))],
                         [(3, "'those that'"), (5, "'beside'")])

    def test_links(self):
        for link in ("missing.md", "README.md#no-such-heading", "#nowhere", "dev#anchor"):
            self.assertEqual(pages.broken_links(pathlib.Path("x.md"), f"# X\n\n[a]({link})"), [link])
        self.assertEqual(pages.broken_links(pathlib.Path("docs/x.md"), "# A `b_c` d!\n\n[a](../README.md), [b](#a-b_c-d), [c](https://x/y)"), [])

    def test_sources(self):
        self.assertEqual(pages.missing_sources("`a/b.h`, `b.h`, `x.py`, `old/b.h` and `b.h FILE`", ["z/a/b.h"]), ["old/b.h", "x.py"])

    def test_missing_parts(self):
        self.assertEqual(missing("## Example\na\n## Source\nb\n", ("Example", "Limits", "Source")), "Limits")
        self.assertEqual(missing("## Limits\n## Example\n", ("Example", "Limits")), "Limits")
        self.assertIsNone(missing("### Example\n\n### Limits\n\nNone.\n", ("Example", "Limits")))

    def test_tables(self):
        strategy = {"family": "placement", "options": [{"name": "devices", "default": "all", "values": "n", "help": "c"}, {"name": "a", "default": "1", "values": "x|y", "help": "b"}]}
        self.assertIn("| `a=1` | x\\|y | b |", pages.options_table(strategy))
        self.assertIn("| `devices=all` | n | [shared](README.md#options) |", pages.options_table(strategy))
        self.assertIn("| `devices=all` | n | c |", pages.rows_of(strategy["options"]))
        self.assertEqual(pages.with_table("<!-- t -->\nold\n<!-- end of t -->\n", "t", "new"), "<!-- t -->\nnew\n<!-- end of t -->\n")
        self.assertIsNone(pages.with_table("no marks", "t", "new"))


def write():
    for place, name, table in pages.tables(PROGRAM):
        file = pages.ROOT / place
        text = pages.with_table(file.read_text(), name, table)
        if text is None:
            sys.exit(f"{place} has no place for '{name}': <!-- {name} --> and <!-- end of {name} -->")
        file.write_text(text)


if __name__ == "__main__":
    PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        unittest.main()
