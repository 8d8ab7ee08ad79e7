#!/usr/bin/env python3
"""Makes the site of the pages of the tree: ./dev site.

    docs/site/make_site.py PROGRAM OUT             # OUT/pages, OUT/mkdocs.yml and, by mkdocs, OUT/html
    docs/site/make_site.py PROGRAM OUT --pages     # without mkdocs

The pages stay where they are in the tree, and are written for GitHub's Markdown. OUT/pages has copies that Python's Markdown reads
alike, all files that they link to, and the reference, which is made of what the program says of itself.
"""
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(__file__).resolve().parent
ITEM = re.compile(r"([-*]|\d+\.) +")
BAR = "\\|"
BAR_IN_CODE = re.compile(r"`([^`]*\\\|[^`]*)`")  # in a table, where GitHub leaves out the backslash
LINK = re.compile(r"\]\(([^)\s]+)\)")


def as_markdown(text):
    """The text with lists as Python's Markdown wants them: behind an empty line, and each level by four columns."""
    lines, levels, fence = [], [], None
    for line in text.splitlines():
        content = line.lstrip(" ")
        indent = len(line) - len(content)
        if fence:
            lines.append(" " * (4 * len(fence[1])) + line[min(indent, fence[2]):] if fence[1] else line)
            fence = None if content.startswith(fence[0]) else fence
            continue
        if not content:
            lines.append("")
            continue
        in_list = bool(levels)
        while levels and indent < levels[-1]:
            levels.pop()
        marker = ITEM.match(content)
        if content.startswith("|"):
            content = BAR_IN_CODE.sub(lambda code: f"<code>{html.escape(code[1]).replace(BAR, '&#124;')}</code>", content)
        before = lines[-1] if lines else ""
        is_new = marker and not in_list and before.strip()
        is_table = content.startswith("|") and before.strip() and not before.lstrip().startswith("|")
        if is_new or is_table:
            lines.append("")
        lines.append(" " * (4 * len(levels) + indent - (levels[-1] if levels else 0)) + content)
        if content.startswith("```"):
            fence = ("```", list(levels), levels[-1] if levels else 0)
        elif marker:
            levels.append(indent + marker.end())
    return "\n".join(lines) + "\n"


def targets(place, text):
    """The files of the tree that a page links to."""
    code = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)
    for link in LINK.findall(code.sub("", text)):
        path = link.partition("#")[0]
        if path and not re.match(r"[a-z]+:", path):
            yield (ROOT / place.parent / path).resolve().relative_to(ROOT)


def pages():
    for file in sorted(ROOT.rglob("*.md")):
        place = file.relative_to(ROOT)
        if not place.parts[0].startswith(("build", "out", ".")):
            yield place


def copy_pages(out):
    """All pages, the files that they link to, and of a folder that they link to a list of what it has."""
    linked = set()
    for place in pages():
        text = (ROOT / place).read_text()
        linked.update(targets(place, text))
        text = LINK.sub(lambda link: f"]({link[1]}/README.md)" if (ROOT / place.parent / link[1]).is_dir() else link[0], text)
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        (out / place).write_text(as_markdown(text))
    for place in sorted(linked):
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / place).is_dir() and not (ROOT / place / "README.md").exists():
            (out / place).mkdir(parents=True, exist_ok=True)
            entries = [f"- [{each.name}]({each.name}{'/README.md' if (each / 'README.md').exists() else ''})"
                       for each in sorted((ROOT / place).iterdir()) if each.suffix == ".md" or (each / "README.md").exists() or each.is_dir()]
            entries = [entry for entry in entries if "." in entry.rpartition("(")[2]]
            (out / place / "README.md").write_text(f"# {place.name.capitalize()}\n\n" + "\n".join(entries) + "\n")
        elif (ROOT / place).is_file() and place.suffix != ".md":
            shutil.copy(ROOT / place, out / place)
    shutil.copytree(HOME, out / HOME.relative_to(ROOT), ignore=shutil.ignore_patterns("*.py", "*.yml", "__pycache__"), dirs_exist_ok=True)


# The reference.

def said(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def listed(program, what):
    return json.loads(said(program, "list", what, "--json"))[what]


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(map(cell, row)) + " |" for row in rows)]) + "\n"


def pages_of_strategies():
    """By strategy its page, and the place on it."""
    found = {}
    for place in pages():
        if place.parts[:2] == ("docs", "strategies"):
            for mark, name in re.findall(r"^(#{1,2}) `(\w+)`$", (ROOT / place).read_text(), re.M):
                found[name] = f"../{place}" + (f"#{name}" if mark == "##" else "")
    return found


def strategies_page(program):
    text, family, where = "# All strategies\n\nAs `plimsoll list strategies` and `plimsoll describe` have them.\n", None, pages_of_strategies()
    for strategy in sorted(listed(program, "strategies"), key=lambda each: each["family"]):
        if strategy["family"] != family:
            family = strategy["family"]
            text += f"\n## {family.capitalize()}\n"
        title = f"[`{strategy['name']}`]({where[strategy['name']]})" if strategy["name"] in where else f"`{strategy['name']}`"
        text += f"\n### {title}\n\n{strategy['summary'][0].upper()}{strategy['summary'][1:]}"
        text += f"{', of chains only' if strategy['chains_only'] else ''}. Source: {strategy['source']}.\n\n"
        if strategy["options"]:
            rows = [(f"`{o['name']}={o['default']}`", o["values"], o["help"]) for o in strategy["options"]]
            text += table(("option", "values", ""), rows)
    return text


def command_names(program):
    return re.findall(r"^  ([a-z][a-z-]*) {2,}(\S.*)", said(program, "help").split("Subcommands:")[1], re.M)


def reference(program, out):
    """Pages of commands, strategies, platforms, traces and models."""
    home = out / "reference"
    (home / "commands").mkdir(parents=True)
    for name, _ in command_names(program):
        (home / f"commands/{name}.md").write_text(f"# plimsoll {name}\n\n```text\n{said(program, 'help', name)}```\n")
    rows = [(f"[`{name}`](commands/{name}.md)", words) for name, words in command_names(program)]
    tail = said(program, "help").split("'plimsoll help COMMAND'")[1]
    (home / "README.md").write_text(
        "# Reference\n\nMade of what the program says of itself.\n\n- [all strategies](strategies.md)\n- [platforms](platforms.md)\n- [traces](traces.md)\n"
        "- [models](models.md)\n\n## Commands\n\n" + table(("command", ""), rows) + f"\n```text\n'plimsoll help COMMAND'{tail}```\n")
    (home / "strategies.md").write_text(strategies_page(program))
    for what, about in (("platforms", "../platforms/README.md"), ("traces", "../traces/format.md#names-that---trace-takes"),
                        ("models", "../traces/format.md#published-models")):
        entries = listed(program, what)
        keys = list(dict.fromkeys(key for entry in entries for key in entry))
        rows = [[f"`{entry[key]}`" if key in ("name", "trace") else entry.get(key, "") for key in keys] for entry in entries]
        heads = [key.replace("_bytes", ", B").replace("_", " ") for key in keys]
        (home / f"{what}.md").write_text(f"# Shipped {what}\n\nAs `plimsoll list {what}` has them ([more]({about})).\n\n" + table(heads, rows))


# The navigation.

def title(place, out):
    text = (out / place).read_text()
    return re.search(r"^# (.+)$", text, re.M)[1].split(":")[0].replace("`", "")


def of_folder(folder, out):
    """The folder's pages: its README.md, then its own pages by title, then its folders."""
    here = out / folder
    entries = [f"{folder}/README.md"] if (here / "README.md").exists() else []
    own = sorted((each.relative_to(out) for each in here.glob("*.md") if each.name != "README.md"), key=lambda place: title(place, out).lower())
    entries += [{title(place, out): str(place)} for place in own]
    for each in sorted(here.iterdir()):
        inner = of_folder(str(each.relative_to(out)), out) if each.is_dir() else []
        if len(inner) == 1 and isinstance(inner[0], str):
            entries.append({title(pathlib.Path(inner[0]), out): inner[0]})
        elif inner:
            entries.append({each.name.replace("_", " ").capitalize(): inner})
    return entries


def navigation(nav, out):
    """The navigation with the pages of its folders."""
    made = []
    for entry in nav:
        name, of = (None, entry) if isinstance(entry, str) else next(iter(entry.items()))
        of = navigation(of, out) if isinstance(of, list) else of if of.endswith(".md") else of_folder(of, out)
        if name is None and isinstance(of, list):
            made += of
        else:
            made.append(of if name is None else {name: of})
    return made


def places(nav):
    """All pages of a navigation, in order."""
    for entry in nav:
        of = entry if isinstance(entry, str) else next(iter(entry.values()))
        yield from [of] if isinstance(of, str) else places(of)


def configuration(out):
    import yaml
    config = yaml.safe_load((HOME / "mkdocs.yml").read_text())
    config["nav"] = navigation(config["nav"], out / "pages")
    named = set(places(config["nav"]))
    rest = sorted(str(file.relative_to(out / "pages")) for file in (out / "pages").rglob("*.md") if str(file.relative_to(out / "pages")) not in named)
    if rest:
        config["nav"].append({"More": [{title(pathlib.Path(place), out / "pages"): place} for place in rest]})
    config.update(docs_dir="pages", site_dir="html")
    # Headings have the anchors that GitHub gives them.
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True).replace(
        "markdown_extensions:\n", "markdown_extensions:\n- toc: {permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}}\n")


def main():
    program, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    shutil.rmtree(out, ignore_errors=True)
    (out / "pages").mkdir(parents=True)
    copy_pages(out / "pages")
    reference(program, out / "pages")
    (out / "mkdocs.yml").write_text(configuration(out))
    if sys.argv[3:] != ["--pages"]:
        subprocess.run(["mkdocs", "build", "--strict", "--quiet", "--config-file", out / "mkdocs.yml"], check=True)


if __name__ == "__main__":
    main()
