"""Commands inside sentences: `plimsoll ...`, `./dev ...`, and `simulate --json` for short. Those that can be typed as they
stand are run by commands.py; of all of them command, options, values and number of arguments are held against what the
program's own parser says of itself in its help.
"""
import re
import shlex
import subprocess

# A word that the reader is to replace: FILE, out/NAME, [DIR].
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]+\b|[\[\]<>…]|\.\.\.")


def codes(text):
    """The inline code of a Markdown text, each once, in order."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    found = (" ".join(code.split()).replace("\\|", "|") for code in re.findall(r"`([^`]+)`", prose))
    return list(dict.fromkeys(found))


def comment_lines(text):
    """The commands that a YAML file's own comments show, indented."""
    return re.findall(r"^# {2,}(plimsoll .*)$", text, re.M)


class Parser:
    """What the program and ./dev say that they understand."""

    def __init__(self, program, dev):
        self.program = program
        front = self.page()
        self.commands = re.findall(r"^  ([a-z][a-z-]*) {2,}\S", front.split("Subcommands:")[1], re.M)
        self.known = {name: self.known_of(self.page(name)) for name in self.commands}
        self.known[None] = self.known_of(front.split("Subcommands:")[0])
        self.dev = re.search(r"^  ([a-z0-9-]+(?: \| [a-z0-9-]+)+)\)$", dev, re.M)[1].split(" | ")

    def page(self, *words):
        return subprocess.run([self.program, "help", *words], capture_output=True, text=True, check=True).stdout

    @staticmethod
    def known_of(page):
        """Its options by name, each with the values it takes (None: takes none; empty: any), and its arguments' values."""
        def values(kind):
            among = re.search(r"\{(.*)\}", kind)
            return among[1].split(",") if among else []
        options, arguments = {}, []
        for line in page.splitlines():
            if option := re.match(r"  (-\S+)( \S+)?", line):
                for name in option[1].split(","):
                    options[name] = values(option[2]) if option[2] else None
            elif (argument := re.match(r"  [a-zA-Z_]+ ([A-Z]\S*)", line)) and "Positionals:" in page:
                arguments.append(values(argument[1]))
        return options, arguments

    def command_of(self, code):
        """The words of a command behind `plimsoll`; None where the code is no command."""
        try:
            words = shlex.split(re.split(r" > |\s+\|\s+", code)[0])
        except ValueError:
            return None
        if words[:1] in (["plimsoll"], ["build/plimsoll"]) and len(words) > 1:
            return words[1:]
        short = len(words) > 1 and words[0] in self.commands and (words[1].startswith("-") or "/" in words[1])
        return words if short else None

    def complaint(self, code):
        """What the parsers do not know in a code, or None."""
        for part in code.split(" && "):
            if part.startswith("./dev "):
                name = part.split()[1]
                if name not in self.dev:
                    return f"./dev has no command '{name}'"
            elif words := self.command_of(part):
                if why := self.unknown(words):
                    return why
        return None

    def unknown(self, words):
        name = None if words[0].startswith("-") else words.pop(0)
        if name not in self.known:
            return f"no command '{name}'"
        options, arguments = self.known[name]
        places = list(arguments)
        while words:
            word, _, value = words.pop(0).strip("[]").partition("=") if words[0].startswith(("-", "[-")) else (words.pop(0), "", "")
            if word.startswith("-"):
                if word not in options:
                    return f"'{name or 'plimsoll'}' has no option '{word}'"
                if options[word] is None:
                    continue
                among, word = options[word], value or (words.pop(0).strip("[]") if words else "")
            elif not places:
                return f"'{name}' takes no argument '{word}'"
            else:
                among = places.pop(0)
            if word and among and word not in among and not PLACEHOLDER.search(word):
                return f"'{name}' knows no '{word}' there, but {', '.join(among)}"
        return None


def can_be_run(code):
    """Whether it can be typed as it stands; `plimsoll replay` alone only names a command."""
    return code.startswith("plimsoll ") and len(code.split()) > 2 and not PLACEHOLDER.search(code)
