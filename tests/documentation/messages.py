"""The texts that people read of the program and of the Python package: literals of more than a word in their sources."""
import ast
import re

import pages

FOLDERS = ("sim", "strategies", "experiments", "traces", "platforms", "validate")
CPP = {".cpp", ".h", ".cu", ".cuh", ".def"}
# A comment, an include, a character, or a literal.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#[ \t]*include[^\n]*|\'(?:[^\'\\\n]|\\.)+\'|R"(?P<mark>\w*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:[^"\\\n]|\\.)*)"',
                   re.S | re.M)
# "a memory snapshot is no text", but neither "there is no host" nor "it is no longer there"
NEGATED = re.compile(r"(?<!there )\b(?:is|are) no\b(?! (?:longer|larger|more|less)\b)")


def literals_of_cpp(text):
    """Pairs of a line's number and a literal, those that follow each other as one."""
    found, end = [], None
    for token in TOKEN.finditer(text):
        literal = token["raw"] if token["text"] is None else token["text"]
        if literal is None:
            continue
        if end is not None and not text[end:token.start()].strip():
            found[-1] = (found[-1][0], found[-1][1] + literal)
        else:
            found.append((text.count("\n", 0, token.start()) + 1, literal))
        end = token.end()
    return found


def literals_of_python(text):
    """Likewise, without what documents code; of a text with values in it the parts between them."""
    tree = ast.parse(text)
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [(node.lineno, node.value) for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents]


def sources():
    """The places of the sources that have such texts, and how to read them."""
    for folder in FOLDERS:
        for file in sorted((pages.ROOT / folder).rglob("*")):
            is_test = file.name.startswith("test_") or file.parent.name == "exporter_tests"
            if file.suffix in CPP:
                yield file.relative_to(pages.ROOT), literals_of_cpp
            elif file.suffix == ".py" and not is_test:
                yield file.relative_to(pages.ROOT), literals_of_python


def against_the_rules(literals):
    """Pairs of a line's number and what is wrong there. A word alone is a name: of a key, a file or a value."""
    found = []
    for number, literal in literals:
        words = " ".join(re.sub(r"\\n", " ", literal).split())
        if " " in words:
            found += pages.glue_in(number, words)
            found += [(number, f"'{negated[0]}': {words}") for negated in NEGATED.finditer(words)]
    return found
