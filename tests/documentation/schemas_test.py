#!/usr/bin/env python3
"""That the JSON Schemas of docs/schemas say of files what the program's readers say: every shipped and written file is valid, the keys are the
readers' own, the words are the pages', and of files with a key dropped, misspelt, of a wrong type or of another value the schema refuses what
the program refuses for its form, and nothing else. Needs Debian's python3-jsonschema and python3-yaml.

    tests/documentation/schemas_test.py PROGRAM           # all of it; PLIMSOLL_TURN: an eleventh of large files, other mutations
    tests/documentation/schemas_test.py PROGRAM --write   # writes the pages' words into the schemas
"""
import copy
import gzip
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import pages
import schemas
import turns

try:
    import jsonschema
    import yaml
    ABSENT = yaml and ""
except ImportError as absent:
    jsonschema, ABSENT = None, absent.name

PROGRAM = pathlib.Path("build/plimsoll")
TURN = int(os.environ.get("PLIMSOLL_TURN", "0"))
MUTANTS = 20  # of each schema
LARGE = 8_000  # bytes of a file that only some turns look at
FORM = re.compile(r"missing key|unknown key|expected (a string|a number(?! for each)|a whole number|true or false|an object|a list|a word or text|a size|a time"
                  r"|a bandwidth|a rate|exact or|one of)|must not be negative|missing unit|unknown unit")
WRONG = [None, True, "word", -1, 0.5, [], {}, [[]], {"x": 1}, 1e300, "", [None], "-3 GB", "7"]


def ran(*words, **more):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=schemas.ROOT, **more)


def complaint(validator, instance):
    """The first thing that a schema has against an object, or None."""
    error = jsonschema.exceptions.best_match(validator.iter_errors(instance))
    return error and f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"


def shipped():
    """Pairs of a schema's name and a file that names it by its format."""
    for file in sorted(schemas.ROOT.rglob("*")):
        place = file.relative_to(schemas.ROOT)
        if place.parts[0].startswith(("build", "out", ".")) or "bad_input" in place.parts or place.parts[:2] == ("docs", "schemas"):
            continue
        if file.name.endswith((".yaml", ".json", ".json.gz")) and not file.is_symlink():
            yield place, file


def sites(schema, instance, of=None):
    """Every object of the instance, with the part of the schema that has its keys."""
    of = of or schema
    while "$ref" in of:
        of = schema["definitions"][of["$ref"].split("/")[-1]]
    if "then" in of and "$ref" in of["then"] and isinstance(instance, dict):  # a trace's kind
        of = schema["definitions"]["graph" if instance.get("kind") == "graph" else "chain"]
    for branch in of.get("anyOf", []):
        yield from sites(schema, instance, branch)
    if isinstance(instance, dict) and isinstance(of.get("additionalProperties"), dict):
        for value in instance.values():
            yield from sites(schema, value, of["additionalProperties"])
    if isinstance(instance, dict) and "properties" in of:
        yield instance, of
        for key, value in instance.items():
            if isinstance(of["properties"].get(key), dict):
                yield from sites(schema, value, of["properties"][key])
    if isinstance(instance, list) and isinstance(of.get("items"), dict):
        for element in instance:
            yield from sites(schema, element, of["items"])


def mutant(schema, instance, chance):
    """A copy with one thing changed, what was, and whether it is now a number in a dress: 2.0, which JSON Schema takes
    for 2, or a number in quotes, whose range it does not see."""
    changed = copy.deepcopy(instance)
    places = list({id(place): (place, of) for place, of in sites(schema, changed)}.values())
    kinds = list({id(of): of for _, of in places}.values())
    kind = chance.choice(kinds)  # each kind of object as often
    place, of = chance.choice([(p, o) for p, o in places if o is kind])
    known = list(of["properties"])
    what = chance.choice(["drop", "type", "type", "unknown", "other"])
    if what == "drop" and place:
        key = chance.choice([*(set(of.get("required", [])) & set(place)), *place])
        del place[key]
    elif what == "unknown" or not place:
        key = chance.choice(known) + "s"
        place[key] = 1
        what = "unknown"
    elif what == "type":
        key = chance.choice(known)
        place[key] = copy.deepcopy(chance.choice(WRONG))
    else:
        key, other = chance.choice(list(place)), chance.choice([p for p, o in places if o is kind])
        place[key] = copy.deepcopy(other[chance.choice(list(other))])
    value = place.get(key)
    return changed, f"{what} {key}: {json.dumps(value)[:80]}", value == "7" or isinstance(value, float) and value.is_integer()


def as_read(schema):
    """The schema without what is in a result's lists, which are for people and whose elements no reader looks at."""
    if schema["title"] != "Plimsoll result":
        return schema
    properties = {key: {k: v for k, v in of.items() if k != "items"} for key, of in schema["properties"].items()}
    return {**schema, "properties": properties}


@unittest.skipIf(jsonschema is None, f"no {ABSENT}")
class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schema = {name: schemas.schema(name) for name in schemas.NAMES}
        cls.validator = {name: jsonschema.Draft7Validator(of) for name, of in cls.schema.items()}
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)

    def test_schemas_are_schemas(self):
        for name in schemas.NAMES:
            jsonschema.Draft7Validator.check_schema(self.schema[name])

    def test_keys_are_the_readers_own(self):
        for name in schemas.NAMES[:-1]:
            for part, (source, table, _) in schemas.TABLES[name].items():
                if source is None:
                    continue
                of, keys = schemas.definition(self.schema[name], part), schemas.keys_of_reader(source, table)
                self.assertGreater(len(keys), 1, (name, part))
                self.assertEqual(set(of["properties"]), set(keys), (name, part))
                self.assertEqual(set(of["required"]), {key for key, needed in keys.items() if needed}, (name, part))

    def test_keys_of_results_are_the_programs(self):
        of = self.schema["results"]
        fields = schemas.keys_of_reader("experiments/study/result_fields.cpp", "fields")
        self.assertEqual(list(of["properties"]), ["point", "case", "build", "key", *fields, "mesh", "timeline"])
        needed = [set(re.findall(r'"(\w+)"', schemas.list_of("experiments/sweep/record_check.cpp", name))) for name in ("in_every_record", "in_answered_records")]
        self.assertEqual([set(of["required"]) | {"point"}, set(of["then"]["required"])], needed)

    def test_words_are_the_pages(self):
        for name in schemas.NAMES:
            text = (schemas.HOME / f"{name}.json").read_text()
            self.assertEqual(schemas.written(schemas.described(name)) + "\n", text, f"docs/schemas/{name}.json: run this with --write")

    def test_shipped_files_are_valid(self):
        counts, named, large = dict.fromkeys(schemas.NAMES, 0), dict.fromkeys(schemas.NAMES, 0), []
        for place, file in shipped():
            packed = file.suffix == ".gz"
            text = gzip.decompress(file.read_bytes()) if packed else file.read_bytes()
            of = re.search(rb'^\s*\{?\s*"?format"?: *"?plimsoll\.(trace|platform|efficiency|experiment|schedule|memplanlib|validation|plan)\.v\d', text, re.M)
            if of:
                named[of[1].decode()] += 1
            if of and len(text) > LARGE:
                large.append((place, file, of[1].decode()))
            elif of:
                self.look_at(place, file, of[1].decode(), counts)
        for each in turns.chosen(large):
            self.look_at(*each, counts)
        self.assertGreater(len(large), 20)
        self.assertGreater(min(counts[name] for name in ("platform", "experiment")), 25)
        self.assertGreater(min(counts[name] for name in ("trace", "schedule")), 0)
        self.assertEqual([named[name] for name in ("validation", "plan")], [3, 2])
        self.assertGreater(counts["memplanlib"], 0)

    def test_files_in_pages_are_valid(self):
        found = 0
        for place in pages.pages():
            for language, text in re.findall(r"^```(json|yaml)\n(.*?)^```", (schemas.ROOT / place).read_text(), re.M | re.S):
                of = re.search(r"plimsoll\.(trace|platform|experiment|schedule)\.v\d", text)
                if of:
                    file = self.folder / f"page.{language}"
                    file.write_text(text)
                    self.assertIsNone(complaint(self.validator[of[1]], schemas.load(file)), place)
                    if of[1] in ("trace", "platform"):
                        self.assertEqual(ran("describe", file).returncode, 0, place)
                    found += 1
        self.assertGreater(found, 1)

    def test_shipped_files_name_their_schema(self):
        named = 0
        for place, file in shipped():
            by_hand = place.parts[0] in ("platforms", "experiments", "strategies") or place.parts[:2] in (("traces", "data"), ("validate", place.name))
            of = by_hand and re.search(r'^ *"?format"?: "?plimsoll\.(trace|platform|efficiency|experiment|validation)\.v1', "" if file.suffix == ".gz" else file.read_text(), re.M)
            if of:
                reference = re.search(r'^(?:# yaml-language-server: \$schema=|  "\$schema": ")([^"\n]+)', file.read_text(), re.M)
                self.assertIsNotNone(reference, place)
                self.assertEqual((file.parent / reference[1]).resolve(), schemas.HOME / f"{of[1]}.json", place)
                named += 1
        self.assertGreater(named, 70)

    def look_at(self, place, file, name, counts):
        counts[name] += 1
        self.assertIsNone(complaint(self.validator[name], schemas.load(file)), place)

    def written_schedules(self):
        """Of a plain plan, and of plans that pack, copy, share out operators and have stages."""
        chain, graph, pair = "tests/program/chain.json", "tests/program/graph.json", "h100_pair_cxl"
        for number, (trace, platform, strategy, more) in enumerate([
                (chain, "ideal", "store_all", ("--evaluate", "every=2")), (chain, pair, "offload_greedy", ("-m", "90 B", "--optimizer", "adam")),
                (graph, "ideal", "store_all", ()), (chain, pair, "1f1b", ("--micro-batches", "2", "--optimizer", "sgd")),
                ("transformer:layers=1,width=64,heads=4,sequence=16,view=graph", pair, "megatron(tensor=2)", ()),
                ("mlp:layers=2,width=8,batch=4", "cpu_host", "quantize", ())]):
            file = self.folder / f"schedule{number}.json"
            if not file.exists():
                run = ran("plan", "-t", trace, "-p", platform, "-s", strategy, *more, "-o", file)
                self.assertEqual(run.returncode, 0, (strategy, run.stderr))
            yield file

    def written_results(self):
        """A small sweep with timelines, of one device and of several."""
        if not (self.folder / "sweep").exists():
            (self.folder / "e.yaml").write_text(f"""format: plimsoll.experiment.v1
name: small
traces: ['{schemas.ROOT}/tests/program/chain.json', 'uniform:4']
platforms: [ideal, h100_pair_cxl]
strategies: [store_all, rotor, 1f1b]
memory: [3 B, capacity]
timelines: true
engine: event
""")
            run = ran("sweep", self.folder / "e.yaml", "-o", self.folder / "sweep", "-q")
            self.assertEqual(run.returncode, 0, run.stderr)
        return [json.loads(line) for line in (self.folder / "sweep/results.jsonl").read_text().splitlines()]

    def test_written_files_are_valid(self):
        for file in self.written_schedules():
            self.assertIsNone(complaint(self.validator["schedule"], schemas.load(file)))
        rows = self.written_results()
        self.assertEqual({row["outcome"] for row in rows}, {"feasible", "infeasible", "refused"})
        for row in rows:
            self.assertIsNone(complaint(self.validator["results"], row))
            self.assertEqual(set(row) - set(self.schema["results"]["properties"]), set())
        for asked in (("-s", "rotor"), ("-s", "store_all", "--optimizer", "adam", "--allocator", "cuda")):
            said = json.loads(ran("simulate", "-t", "uniform:6", "-p", "ideal", *asked, "--json").stdout)
            self.assertIsNone(complaint(self.validator["results"], said))
            self.assertEqual(set(said), set(self.schema["results"]["properties"]) - {"point", "case", "build", "key", "mesh", "timeline"})

    def test_written_plans_are_valid(self):
        page = set().union(*(keys for head, keys, _ in schemas.rows(schemas.PLAN_PAGE) if head == "key meaning"))
        self.assertEqual(set(self.schema["plan"]["properties"]) - page, {"format"})
        done = set()
        for number, words in enumerate((("-s", "rotor"), ("-s", "offload_greedy", "-m", "80 %"), ("-s", "vdnn"), ("-s", "store_all", "--micro-batches", "2"))):
            file = self.folder / f"plan{number}.json"
            run = ran("plan", "-t", "tests/program/pytorch_chain.json", "-p", "ideal", *words, "--for", "pytorch", "-o", file)
            self.assertEqual(run.returncode, 0, run.stderr)
            plan = schemas.load(file)
            self.assertIsNone(complaint(self.validator["plan"], plan), words)
            done |= {action["do"] for action in plan["actions"]}
            for part, key in ((plan, "backward"), (plan["actions"][0], "do"), (plan["values"][0], "kind"), (plan["predicted"], "peak_bytes")):
                kept, part[key] = part[key], "other"
                self.assertIsNotNone(complaint(self.validator["plan"], plan), key)
                part[key] = kept
        self.assertGreaterEqual(done, {"forward", "backward", "copy"})

    # The program as an oracle.

    def says_of(self, name, instance):
        """The program's exit code and what it says of a file with this object."""
        file = self.folder / f"mutant.{'json' if name in ('trace', 'schedule', 'memplanlib') else 'yaml'}"
        if name == "results":
            return self.says_of_result(instance)
        file.write_text(json.dumps(instance))
        if name == "experiment":
            return ran("sweep", file, "--dry-run")
        if name == "efficiency":
            return ran("simulate", "-t", "transformer:layers=1", "-p", f"h200:efficiency={file}", "-s", "store_all", "--engine", "event")
        if name == "memplanlib":
            order = self.folder / "order.txt"
            order.write_text("plimsoll.order.v1\n" + "".join(op["name"] + "\n" for op in schemas.load(schemas.ROOT / "tests/program/graph.json")["ops"]))
            return ran("verify", order, "-t", "tests/program/graph.json", "-p", "rtx_4090_pcie4", "--library", file)
        if name == "schedule":
            return ran("check", "--schedule", file, "-t", self.trace_of[0], "-p", self.trace_of[1])
        return ran("describe", file)

    def says_of_result(self, row):
        """Of a row in the place of another one; a row that cannot be found any more is as one that is refused."""
        folder = self.folder / "mutant"
        folder.mkdir(exist_ok=True)
        shutil.copy(self.folder / "sweep/manifest.json", folder)
        lines = (self.folder / "sweep/results.jsonl").read_text().splitlines()
        lines[self.row] = json.dumps(row)
        (folder / "results.jsonl").write_text("\n".join(lines) + "\n")
        return ran("explain", folder, "--point", self.row, "--without-better")

    def bases(self, name):
        """Valid objects to change."""
        if name == "schedule":
            return [schemas.load(file) for file in self.written_schedules()]
        if name == "results":
            return self.written_results()[:6]  # what one device answers
        if name == "experiment":
            return [schemas.load(schemas.ROOT / "experiments/demo.yaml"), {
                "format": "plimsoll.experiment.v1", "name": "all", "traces": ["uniform:4", "uniform:{5..6}"], "platforms": "ideal",
                "strategies": ["store_all", "rotor(slots={100, 500})"], "alias": {"four": "uniform:4"}, "micro_batches": [1, 2, "{4..8 factor 2}"],
                "memory": {"from": "smallest", "to": "80 %", "count": 3}, "exclude": [{"traces": "uniform:4", "strategies": ["store_all"]}],
                "optimizer": ["none", "adam"], "states": "fp32", "update_kernels": "fused", "ema": False, "clip_norm": True, "evaluate": "every=9,batches=2", "gradients": "new",
                "parameter_groups": ["*=sgd"],
                "engine": "event", "allocator": "cuda", "within": "live", "timelines": False, "timeout": "10 min", "memory_limit": "8 GB",
                "presets": {"short": {"traces": ["uniform:4"], "memory": ["50 %", "capacity"]}}}, {
                "format": "plimsoll.experiment.v1", "name": "zipped", "traces": ["uniform:4", "uniform:5"], "platforms": ["ideal"],
                "strategies": "store_all", "micro_batches": [1, 2], "zip": ["traces", "micro_batches"], "memory": ["1 GB", "capacity"]}]
        if name == "memplanlib":
            found = {"time_s": 2, "by": "somebody", "version": "1", "date": "2026-11-27"}
            budgets = [{"bytes": 5}, {"bytes": 1000000, "best": {**found, "peak_bytes": 100, "plan": "plans/x.json.gz"}, "bound": {**found, "time_s": 0.5}}]
            one = {"name": "a", "trace": "uniform:4", "platform": "ideal", "class": "recompute", "origin": "made up", "store_all_bytes": 100, "budgets": budgets}
            return [{"format": "plimsoll.memplanlib.v1", "instances": [one, {**one, "name": "b", "class": "offload"}]}]
        if name == "efficiency":
            grid = {"m": [1, 2], "n": [64], "k": [8, 16.5], "share": [0.5, 0.25, 1, 0.125]}
            return [{"format": "plimsoll.efficiency.v1", "name": "all", "source": "made up", "model": "A GPU", "peak": {"bf16": "989 TFLOPS"},
                     "memory_bandwidth": "4.8 TBps", "kernel_floor": "2 us", "sustained": 1.09, "product": {"bf16": grid, "fp32": grid},
                     "batched_product_by_size": {"fp32": grid}, "attention": {"bf16": {"64": {"sequence": [8], "heads": [2, 4], "share": [1, 0.5]}}},
                     "collectives": {"network": 0.9, "nvls": True, "all_reduce": {"ranks": [2, 4], "bytes": [8], "us": [10, 20]}},
                     "spread": {"product": [0.9, 1.1], "norm": [1, 2]}, "elementwise": 0.75, "norm": 0.5, "optimizer": 1,
                     "unaligned_product": {"bf16": 0.5}, "convolution": {"fp32": 0.25}}]
        if name == "platform":
            return [schemas.load(schemas.ROOT / f"platforms/{each}.yaml") for each in ("cpu_host", "h100_pair_cxl", "a100_sxm_64", "rtx_4090_pcie4")]
        graph, chain = (schemas.load(schemas.ROOT / f"tests/program/{each}.json") for each in ("graph", "chain"))
        chain["stages"][0]["forward_made_of"] = [{"kind": "product", "m": 1, "n": 1, "k": 5, "flops": 10, "bytes": 15}]
        return [graph, chain, schemas.load(schemas.ROOT / "tests/program/pytorch_chain.json")]

    def hold(self, name):
        """Holds a schema against the program on mutants, and says how often they agree."""
        chance, bases = random.Random(1000 * TURN + len(name)), self.bases(name)
        same = by_meaning = dresses = 0
        mutants = MUTANTS * (11 if os.environ.get("PLIMSOLL_TESTS") == "all" else 1)
        schema = as_read(self.schema[name])
        validator = jsonschema.Draft7Validator(schema)
        traces = [(f["trace_from"], f["platform_from"]) for f in bases] if name == "schedule" else None
        for _ in range(mutants):
            self.row = chance.randrange(len(bases))
            self.trace_of = traces and traces[self.row]
            instance, what, dressed = mutant(schema, bases[self.row], chance)
            run, wrong = self.says_of(name, instance), complaint(validator, instance)
            told = f"{name}, {what}\n  program ({run.returncode}): {run.stderr[:400]}\n  schema: {wrong}"
            self.assertIn(run.returncode, (0, 1, 2), told)
            refused = run.returncode == 2
            if refused == (wrong is not None):
                same += 1
                continue
            self.assertTrue(refused, told)  # what the program takes, the schema takes
            first = run.stderr.split("\n")[0]
            if dressed and re.search("expected a (whole )?number", first):
                dresses += 1
                continue
            self.assertIsNone(FORM.search(first), told)
            by_meaning += 1
        print(f"{name}: {same} of {mutants} mutants as the program; {by_meaning} it refuses for what they mean, {dresses} for 2.0 in place of 2, or a number in quotes", file=sys.stderr)
        self.assertGreater(same, 2 * mutants // 3)

    def test_traces(self):
        self.hold("trace")

    def test_platforms(self):
        self.hold("platform")

    def test_efficiencies(self):
        self.hold("efficiency")

    def test_experiments(self):
        self.hold("experiment")

    def test_schedules(self):
        self.hold("schedule")

    def test_plan_libraries(self):
        self.hold("memplanlib")

    def test_results(self):
        self.hold("results")


def write():
    for name in schemas.NAMES:
        (schemas.HOME / f"{name}.json").write_text(schemas.written(schemas.described(name)) + "\n")


if __name__ == "__main__":
    PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        unittest.main()
