#!/usr/bin/env python3
"""The site of ./dev site: all pages of the tree are in it and in its navigation, its reference names all that the program knows, and every
link leads somewhere, in the pages that are made and, where mkdocs is, in what it builds of them.

    tests/documentation/site_test.py PROGRAM
"""
import html.parser
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import pages
import turns

PROGRAM = pathlib.Path("build/plimsoll")
THEME = pathlib.Path("/usr/share/mkdocs/themes/material")  # where Debian's mkdocs-material has it
SCRIPT = pages.ROOT / "docs/site/make_site.py"
try:
    import yaml
except ImportError:
    yaml = None


def loaded():
    spec = importlib.util.spec_from_file_location("make_site", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_site = loaded()


class Page(html.parser.HTMLParser):
    """The places of a page, its links, and what it loads."""

    def __init__(self, text):
        super().__init__()
        self.places, self.links, self.loads = {"", "__skip"}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        has = dict(attrs)
        self.places.add(has.get("id") or "")
        target = has.get("href") or has.get("src")
        if target:
            (self.links if tag == "a" else self.loads).append(target)


class Markdown(unittest.TestCase):
    """Lists as Python's Markdown reads them."""

    def holds(self, github, python):
        self.assertEqual(make_site.as_markdown(github), python)

    def test_lists_begin_behind_an_empty_line(self):
        self.holds("text\n- a\n- b\n\nend\n", "text\n\n- a\n- b\n\nend\n")
        self.holds("1. a\n2. b\n", "1. a\n2. b\n")

    def test_each_level_is_four_columns(self):
        self.holds("- a\n  more\n  - b\n    deep\n- c\n", "- a\n    more\n    - b\n        deep\n- c\n")
        self.holds("1. a\n\n   more\n\nend\n", "1. a\n\n    more\n\nend\n")

    def test_tables_in_lists_stand_alone(self):
        self.holds("- a:\n\n  | x |\n  |---|\n  | y |\n", "- a:\n\n    | x |\n    |---|\n    | y |\n")
        self.holds("- a:\n  | x |\n  |---|\n", "- a:\n\n    | x |\n    |---|\n")

    def test_bars_in_the_code_of_a_table_have_no_backslash(self):
        self.holds("| `a\\|b<c` | `d` |\n|---|\n", "| <code>a&#124;b&lt;c</code> | `d` |\n|---|\n")
        self.holds("`a\\|b`\n", "`a\\|b`\n")

    def test_code_stays_as_it_is(self):
        self.holds("text\n```\n- a\n  - b\n\n| x |\n```\n    code\n", "text\n```\n- a\n  - b\n\n| x |\n```\n    code\n")
        self.holds("- a\n  ```\n  code\n    deep\n  ```\n- b\n", "- a\n    ```\n    code\n      deep\n    ```\n- b\n")


@unittest.skipIf(yaml is None, "no yaml")
class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.out = pathlib.Path(scratch.name) / "site"
        subprocess.run([sys.executable, SCRIPT, PROGRAM, cls.out, "--pages"], check=True)
        cls.pages = sorted(file.relative_to(cls.out / "pages") for file in (cls.out / "pages").rglob("*.md"))
        loader = type("Loader", (yaml.SafeLoader,), {})
        loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
        cls.nav = list(make_site.places(yaml.load((cls.out / "mkdocs.yml").read_text(), loader)["nav"]))

    def test_every_page_is_in_the_navigation_once(self):
        self.assertEqual(sorted(self.nav), sorted(map(str, self.pages)))
        missing = set(map(str, pages.pages())) - set(self.nav)
        self.assertEqual(missing, set())

    def test_the_navigation_leads_to_what_newcomers_need(self):
        first = self.nav[:12]
        for place in ("README.md", "docs/start.md", "docs/concepts.md", "docs/how_to/platform.md", "docs/how_to/model.md", "docs/how_to/strategy.md",
                      "docs/how_to/importer.md", "docs/how_to/cluster.md"):
            self.assertIn(place, first)
        for family in (pages.ROOT / "docs/strategies").iterdir():
            if (family / "README.md").exists():
                self.assertIn(f"docs/strategies/{family.name}/README.md", self.nav)

    def test_no_link_leads_nowhere(self):
        home, found = (self.out / "pages").resolve(), 0
        for place in self.pages:
            text = (home / place).read_text()
            for link in pages.links(text):
                path, _, anchor = link.partition("#")
                if re.match(r"[a-z]+:", link):
                    continue
                target = (home / place).parent / path if path else home / place
                self.assertTrue(target.is_file(), f"{place}: {link}")
                if anchor:
                    self.assertIn(anchor, pages.anchors(target.read_text()), f"{place}: {link}")
                found += 1
        self.assertGreater(found, 1000)

    def test_the_reference_has_all_that_the_program_knows(self):
        home = self.out / "pages/reference"
        for what in ("strategies", "platforms", "traces", "models"):
            text = (home / f"{what}.md").read_text()
            known = json.loads(subprocess.run([PROGRAM, "list", what, "--json"], capture_output=True, text=True, check=True).stdout)[what]
            for entry in known:
                self.assertIn(f"`{entry['name']}`", text)
                for option in entry.get("options", []):
                    self.assertIn(f"| `{option['name']}={option['default']}` |".replace("|`", "| `"), text)
        commands = [name for name, _ in make_site.command_names(PROGRAM)]
        self.assertGreater(len(commands), 20)
        for name in commands:
            self.assertIn(f"Usage: plimsoll {name}", (home / f"commands/{name}.md").read_text())

    @turns.eleventh(6)
    @unittest.skipUnless(shutil.which("mkdocs") and THEME.is_dir(), "no mkdocs-material")
    def test_mkdocs_builds_it_and_no_link_leads_nowhere(self):
        run = subprocess.run(["mkdocs", "build", "--strict", "--config-file", self.out / "mkdocs.yml"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        home = (self.out / "html").resolve()
        built = {file: Page(file.read_text()) for file in home.rglob("*.html") if file.name != "404.html"}
        self.assertEqual(len(built), len(self.pages))
        for file, page in built.items():
            for link in page.links + page.loads:
                if re.match(r"[a-z]+:", link):
                    self.assertIn(link, page.links, f"{file.relative_to(home)} loads from a network: {link}")
                    continue
                path, _, anchor = link.partition("#")
                target = (file.parent / path.partition("?")[0]).resolve() if path else file
                target = target / "index.html" if target.is_dir() else target
                self.assertTrue(target.is_file(), f"{file.relative_to(home)}: {link}")
                if target.suffix == ".html" and target in built:
                    self.assertIn(anchor, built[target].places, f"{file.relative_to(home)}: {link}")


if __name__ == "__main__":
    PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
