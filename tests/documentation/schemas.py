"""The JSON Schemas of docs/schemas: which files each is of, the keys that the program's readers have in their tables of fields, and the words that
pages have for these keys, which are the schemas' descriptions.
"""
import gzip
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = ROOT / "docs/schemas"
NAMES = ("trace", "platform", "efficiency", "experiment", "schedule", "memplanlib", "validation", "plan", "results")
MOST_COLUMNS = 118

# By schema, each definition ("": the whole): the reader's table of fields, and the page and the first words of the heads of its tables of keys.
CHAIN, GRAPH, PLATFORM, EXPERIMENT = "traces/chain_reader.cpp", "traces/graph_reader.cpp", "platforms/platform_file.cpp", "experiments/sweep/experiment_file.cpp"
ALLOCATIONS, SCHEDULE, DECISIONS = "traces/allocations_file.cpp", "sim/io/schedule/schedule_reader.cpp", "sim/io/schedule/schedule_decisions.cpp"
CHAIN_PAGE, GRAPH_PAGE, FORMAT_PAGE, PLATFORM_PAGE, SCHEDULE_PAGE = "traces/chain.md", "traces/graph.md", "traces/format.md", "platforms/README.md", "sim/README.md"
LIBRARY, PLAN_PAGE = "experiments/library/plan_library.cpp", "validate/plan_format.md"
TABLES = {
    "trace": {
        "chain": (CHAIN, "chain_fields", [(FORMAT_PAGE, "top"), (CHAIN_PAGE, "top")]),
        "stage": (CHAIN, "stage_fields", [(CHAIN_PAGE, "stage")]),
        "kernel": (CHAIN, "kernel_fields", [(CHAIN_PAGE, "key")]),
        "saved_tensor": (CHAIN, "inner_fields", []),
        "boundary_use": (CHAIN, "boundary_use_fields", []),
        "parameter": (CHAIN, "parameter_fields", [(CHAIN_PAGE, "`parameters[]`")]),
        "chain_tensor": (CHAIN, "tensor_fields", [(CHAIN_PAGE, "`tensors[]`")]),
        "shared": (CHAIN, "shared_fields", [(CHAIN_PAGE, "key")]),
        "allocations": (ALLOCATIONS, "chain_allocation_fields", [(CHAIN_PAGE, "`allocations`")]),
        "stage_allocations": (ALLOCATIONS, "stage_allocation_fields", []),
        "pass": (ALLOCATIONS, "pass_allocation_fields", [(CHAIN_PAGE, "pass")]),
        "plain_allocations": (ALLOCATIONS, "plain_allocation_fields", []),
        "graph": (GRAPH, "own_graph_fields", [(FORMAT_PAGE, "top"), (GRAPH_PAGE, "top")]),
        "tensor": (GRAPH, "graph_tensor_fields", [(GRAPH_PAGE, "tensor")]),
        "op": (GRAPH, "op_fields", [(GRAPH_PAGE, "op")]),
        "alternative": (GRAPH, "alternative_fields", []),
    },
    "platform": {
        "": (PLATFORM, "platform_fields", [(PLATFORM_PAGE, "where top")]),
        "device": (PLATFORM, "device_fields", [(PLATFORM_PAGE, "where `devices`")]),
        "codec": (PLATFORM, "codec_fields", []),
        "memory": (PLATFORM, "memory_fields", [(PLATFORM_PAGE, "where `memories`")]),
        "switch": (PLATFORM, "switch_fields", [(PLATFORM_PAGE, "where `switches`")]),
        "link": (PLATFORM, "link_fields", [(PLATFORM_PAGE, "where `links`")]),
    },
    "efficiency": {"": ("platforms/efficiency_file.cpp", "efficiency_fields", [(PLATFORM_PAGE, "key")])},
    "experiment": {
        "": (EXPERIMENT, "draft_fields", [("experiments/README.md", "key")]),
        "range": (EXPERIMENT, "range_fields", []),
    },
    "schedule": {
        "": (SCHEDULE, "schedule_fields", [(SCHEDULE_PAGE, "key")]),
        "decision": (DECISIONS, "decisions_fields", [(SCHEDULE_PAGE, "key of `decisions[]`")]),
        "axis": (DECISIONS, "axis_fields", []),
        "padding": (DECISIONS, "padding_fields", []),
        "cut": (DECISIONS, "cut_fields", []),
        "stream": ("sim/io/schedule/schedule_streams.cpp", "stream_fields", []),
        "route": (SCHEDULE, "route_fields", []),
        "collective": (SCHEDULE, "collective_fields", []),
        "codec": (SCHEDULE, "codec_fields", []),
        "buffer": (SCHEDULE, "buffer_fields", []),
        "step": (SCHEDULE, "step_fields", []),
    },
    "memplanlib": {
        "": (LIBRARY, "library_fields", []),
        "instance": (LIBRARY, "library_instance_fields", []),
        "budget": (LIBRARY, "library_budget_fields", []),
        "best": (LIBRARY, "known_plan_fields", []),
        "bound": (LIBRARY, "known_bound_fields", []),
    },
    "validation": {"": ("experiments/measure/validation_file.cpp", "validation_fields", [])},
    "plan": {"": (None, None, [(PLAN_PAGE, "key")]), "action": (None, None, [(PLAN_PAGE, "action")])},  # read by Python alone
    "results": {"": ("experiments/study/result_fields.cpp", "fields", [("experiments/README.md", "key unit"), ("experiments/README.md", "key")])},
}


def schema(name):
    return json.loads((HOME / f"{name}.json").read_text())


def definition(of, name):
    return of["definitions"][name] if name else of


def written(value, indent=0):
    """JSON with an object or a list on one line where it fits."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= MOST_COLUMNS or not isinstance(value, (dict, list)):
        return flat
    pad, inner = " " * indent, " " * (indent + 2)
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"{inner}{json.dumps(key)}: {written(each, indent + 2)}" for key, each in value.items()) + f"\n{pad}}}"
    return "[\n" + ",\n".join(inner + written(each, indent + 2) for each in value) + f"\n{pad}]"


def load(file):
    """A file's object: JSON, packed or not, or YAML as the program reads it: `yes` and `1:30` are words."""
    if file.suffix == ".gz":
        return json.loads(gzip.decompress(file.read_bytes()))
    if file.suffix in (".json", ".jsonl"):
        return json.loads(file.read_text())
    import yaml

    class Words(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):
        yaml_implicit_resolvers = {}

    for tag, pattern, first in (("bool", "true|false", "tf"), ("null", "~|null|", ["~", "n", ""]), ("int", "[-+]?[0-9]+", "-+0123456789"),
                                ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789")):
        Words.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))
    return yaml.load(file.read_text(), Words)


def list_of(source, name):
    """What stands between the braces of a list in C++."""
    text = (ROOT / source).read_text().split(f" {name}[] = {{")[1]
    return text.split("\n};" if text[0] == "\n" else "};")[0]


def keys_of_reader(source, table):
    """{key: whether it has to be there} of a table of fields in C++."""
    body = list_of(source, table)
    found = {key: need.endswith("required") for key, need in re.findall(r'^    \{"(\w+)",\s+((?:Need::)?\w+),', body, re.M)}
    if "shares_by_dtype[" in body:  # efficiencies have their keys in a list of their own
        found |= dict.fromkeys(re.findall(r'"(\w+)"', list_of(source, "shares_by_dtype")), False)
    return {**({"$schema": False} if "schema_field<" in body else {}), **found}


def plain(cell):
    """A cell of a page without links."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", cell).replace("\\|", "|").strip()


def rows(page):
    """Triples of the first two cells of a table's head, a row's keys, and its words, of all tables of a page that have keys."""
    head, at, where = None, None, ""
    for line in (ROOT / page).read_text().splitlines():
        if not line.startswith("|"):
            head = None
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
        if head is None:
            head, where, at = cells, "", cells.index("meaning") if "meaning" in cells else 1
        elif not set(line) <= set("|-: "):
            key, first = cells[0], head[0]
            if head[0] == "where":
                where = cells[0] or where
                key, first = cells[1], f"where {where}"
            words = plain(cells[at]) if at < len(cells) else ""
            default = plain(cells[head.index("default")]) if "default" in head and head.index("default") < len(cells) else ""
            if default and default != "required":
                words = f"{words}. Default: {default}" if words else f"Default: {default}"
            yield f"{first} {head[1]}", re.findall(r"`([\w$]+)(?:\[\])?`", key), words


def words_for(tables, name):
    """What the pages say of a key; nothing where they have no row of it."""
    for page, first in tables:
        for head, keys, words in rows(page):
            if f"{head} ".startswith(f"{first} ") and name in keys and words:
                return words
    return None


def described(name):
    """The schema with the pages' words as descriptions of its keys."""
    of = schema(name)
    for part, (_, _, tables) in TABLES[name].items():
        properties = definition(of, part)["properties"]
        for key, value in properties.items():
            if words := words_for(tables, key):
                properties[key] = {"description": words, **{k: v for k, v in value.items() if k != "description"}}
    return of
