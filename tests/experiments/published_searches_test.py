#!/usr/bin/env python3
"""experiments/papers/published_spaces.py, published_searches.py and layer_costs.py: other runs, all choices of small spaces.

    PYTHONPATH=experiments/papers tests/experiments/published_searches_test.py PROGRAM
"""
import contextlib
import io
import itertools
import math
import pathlib
import random
import re
import sys
import types
import unittest

import layer_costs
import published_searches
import published_spaces

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/plimsoll"
TRACE = "transformer:layers=4,width=256,heads=8,sequence=128,vocabulary=1024,view=graph"
PLATFORM = "h100_pair_cxl"


def given_of(**more):
    return types.SimpleNamespace(**{"program": PROGRAM, "trace": TRACE, "platform": PLATFORM, "samples": 4, "memory": ["100 MB"], "options": "t=1", **more})


class MadeUp:
    """Costs of layers by chance, as layer_costs.Costs has them."""

    def __init__(self, seed, layers, devices, host_rate=3.0):
        self.layers, self.devices, self.host_rate, self.chance, self.known = layers, devices, host_rate, random.Random(seed), {}

    def once(self, key, make):
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def number(self, most=9):
        return self.chance.randint(1, most)

    def layer(self, tensor, samples, saver, more=""):
        if (tensor, samples) not in self.known:
            forward, backward, first, last = (0.5 + self.number() * samples / 4 for _ in range(4))
            self.known[tensor, samples] = layer_costs.Layer(forward, backward, 0.25, 0.5, first, last, 20 + (6 + self.number()) * samples, self.number())
        plain = self.known[tensor, samples]
        if saver == "none":
            return plain
        again = plain.forward if saver == "full" else plain.forward / 4
        kept = 5 * samples if saver == "full" else 15 * samples
        return layer_costs.Layer(plain.forward, plain.backward + again, 0.25, 0.75, plain.first, plain.last, kept, plain.other + 9)

    def states(self, tensor):
        return self.once(tensor, lambda: layer_costs.States(*(self.number() for _ in range(6)), 0.5, 0.25))

    def exchange(self, tensor, replicas, level):
        if replicas == 1:
            return layer_costs.Exchange(0, 0, 0, 0)
        return self.once((tensor, replicas, level), lambda: layer_costs.Exchange(self.number(4), self.number(25) if level > 1 else 0, self.number(4),
                                                                                 self.number(4) if level > 1 else 0))

    def send(self, tensor, samples):
        return self.once(("send", tensor, samples), lambda: self.number(3) / 4)


class CostsOfLayers(unittest.TestCase):
    """Of runs with 3 and 4 layers: what runs with 9 take."""

    @classmethod
    def setUpClass(cls):
        cls.costs = layer_costs.Costs(PROGRAM, TRACE, PLATFORM)

    def test_other_runs(self):
        for tensor, saver in (*itertools.product((1, 2), layer_costs.SAVERS),):
            layer, states = self.costs.layer(tensor, 2, saver), self.costs.states(tensor)
            before, behind = layer_costs.SAVERS[saver]
            strategy = layer_costs.spec_of(before, layer_costs.tensor_pass(tensor), behind)
            once, twice = (self.costs.run(9, 2, strategy, micro_batches) for micro_batches in (1, 2))
            expected = 9 * (layer.forward + layer.backward) + layer.first + layer.last
            self.assertAlmostEqual((twice["makespan_s"] - once["makespan_s"]) / expected, 1, delta=1e-3, msg=strategy)
            self.assertAlmostEqual(once["makespan_s"] / (expected + 9 * states.update + states.other_update), 1, delta=0.02, msg=strategy)
            held = states.parameters + states.gradients + states.states, states.other_parameters + states.other_gradients + states.other_states
            self.assertAlmostEqual(once["peak_bytes"] / (9 * (held[0] + layer.kept) + held[1] + layer.other), 1, delta=2e-3, msg=strategy)
            if saver == "full":
                self.assertAlmostEqual(layer.backward, self.costs.layer(tensor, 2, "none").backward + layer.forward, delta=1e-3 * layer.backward)

    def test_exchanges(self):
        for level, name in enumerate(layer_costs.LEVELS):
            exchange = self.costs.exchange(1, 2, level)
            said = self.costs.run(9, 1, f"{name}(ranks=2)", 6)
            expected = 9 * (exchange.once + 3 * exchange.each) + exchange.other_once + 3 * exchange.other_each
            self.assertAlmostEqual(sum(each["exchange_s"] for each in said["exchanges"]) / expected, 1, delta=1e-6)
            self.assertEqual(exchange.each > 1e-9, level > 1)

    def test_a_device_has_its_share_of_the_link_to_the_host(self):
        self.assertEqual(layer_costs.Costs(PROGRAM, TRACE, "a100_sxm_8").host_rate, 12.5e9)


class Galvatron(unittest.TestCase):
    def test_choices_of_layers(self):
        chance = random.Random(1)
        for _ in range(60):
            layers = [[((chance.choice("ab"), at), chance.randint(0, 5), chance.randint(1, 20)) for at in range(4)] for _ in range(chance.randint(1, 4))]
            moving = lambda a, b: 0 if a == b else 3
            found = published_searches.layer_choices(layers, 12, lambda name: name[0], moving)
            for units in range(13):
                sums = [(sum(time for _, _, time in row) + sum(moving(a[0][0], b[0][0]) for a, b in zip(row, row[1:])))
                        for row in itertools.product(*layers) if sum(memory for _, memory, _ in row) <= units]
                if not sums:
                    self.assertIsNone(found[units])
                    continue
                time, names = found[units]
                self.assertEqual(time, min(sums))
                row = [next(option for option in options if option[0] == name) for options, name in zip(layers, names, strict=True)]
                self.assertLessEqual(sum(option[1] for option in row), units)
                self.assertEqual(sum(option[2] for option in row) + sum(moving(a[0], b[0]) for a, b in zip(names, names[1:])), time)

    def everything(self, costs, batch, memory, units):
        """The least promise on one stage, of all ways of all layers and of what is around them."""
        least = math.inf
        for micro_batches in (each for each in range(1, batch + 1) if batch % each == 0):
            ways = [(tensor, costs.devices // tensor, level, saver, batch // (micro_batches * (costs.devices // tensor)))
                    for tensor in (1, 2) for level in ((0, 2, 3) if tensor < costs.devices else (0,)) for saver in ("none", "full")
                    if batch % (micro_batches * (costs.devices // tensor)) == 0]

            def costs_of(way):
                tensor, replicas, level, saver, samples = way
                layer, states, exchange = costs.layer(tensor, samples, saver), costs.states(tensor), costs.exchange(tensor, replicas, level)
                kept = [states.parameters / (replicas if level == 3 else 1), states.gradients / (replicas if level >= 2 else 1),
                        states.states / (replicas if level >= 1 else 1), layer.kept]
                around = [states.other_parameters / (replicas if level == 3 else 1), states.other_gradients / (replicas if level >= 2 else 1),
                          states.other_states / (replicas if level >= 1 else 1), layer.other]
                up = lambda needed: math.ceil(sum(needed) / (memory / units))
                return (up(kept), max(layer.forward + layer.backward, exchange.each) * micro_batches + max(0, exchange.once - layer.backward),
                        up(around), max(layer.first + layer.last, exchange.other_each) * micro_batches + exchange.other_once)

            costed = {way: costs_of(way) for way in ways}
            for row in itertools.product(ways, repeat=costs.layers):
                moved = sum(2 * micro_batches * max(costs.send(a[0], a[4]), costs.send(b[0], b[4])) for a, b in zip(row, row[1:]) if a[0] != b[0])
                for other in ways:
                    if sum(costed[way][0] for way in row) + costed[other][2] <= units:
                        least = min(least, sum(costed[way][1] for way in row) + costed[other][3] + moved)
        return least

    def test_all_ways_of_all_layers(self):
        several = 0
        for seed, memory in itertools.product(range(2), (60, 80, 100, 120)):
            costs = MadeUp(seed, 3, 2)
            plan = published_searches.galvatron(costs, 4, memory, units=64)
            expected = self.everything(costs, 4, memory, 64)
            self.assertEqual(plan is None, expected == math.inf)
            if plan:
                self.assertAlmostEqual(plan.promised, expected, delta=1e-9)
                several += plan.words.count("layers t=") > 1
        self.assertGreater(several, 1)

    def test_stages_of_a_pipeline_fill_and_drain(self):
        pipelined = again = 0
        for seed, memory in itertools.product((0, 1, 3, 11, 14), (50, 60, 70, 90)):
            costs = MadeUp(seed, 2, 2)
            least = self.everything(costs, 4, memory, 64)
            up = lambda needed: math.ceil(needed * 64 / memory)
            for micro_batches in (1, 2, 4):  # two stages of one layer on one device each
                samples, states = 4 // micro_batches, costs.states(1)
                times = []
                for stage, in_flight in enumerate((min(2, micro_batches), 1)):
                    of_stage = []
                    for saver in ("none", "full"):
                        layer = costs.layer(1, samples, saver)
                        other = (states.other_parameters + states.other_gradients + states.other_states) / 2
                        for around in (costs.layer(1, samples, each) for each in ("none", "full")):
                            if (up(states.parameters + states.gradients + states.states + layer.kept * in_flight) +
                                    up(other + (around.other if stage else 0)) <= 64):
                                of_stage.append(layer.forward + layer.backward + (around.last if stage else around.first))
                    times.append(min(of_stage, default=math.inf))
                least = min(least, sum(times) + (micro_batches - 1) * max(times) + 2 * costs.send(1, samples))
            plan = published_searches.galvatron(costs, 4, memory, units=64)
            self.assertEqual(plan is None, least == math.inf)
            if plan:
                self.assertAlmostEqual(plan.promised, least, delta=1e-9)
                pipelined += plan.words.startswith("p=2")
                again += plan.words.startswith("p=2") and "again" in plan.words
        self.assertTrue(pipelined and again, (pipelined, again))


class Mist(unittest.TestCase):
    def ways(self, costs, batch, memory, micro_batches, group, layers, in_flight, first, last):
        """(time, once) of every way of a stage, whatever runs again."""
        found = []
        for tensor in (each for each in (1, 2) if group % each == 0):
            replicas = group // tensor
            if batch % (micro_batches * replicas):
                continue
            samples = batch // (micro_batches * replicas)
            plain, light, states = costs.layer(tensor, samples, "none"), costs.layer(tensor, samples, "full"), costs.states(tensor)
            ends = (first + last) / 2
            for level in range(4) if replicas > 1 else (0,):
                exchange = costs.exchange(tensor, replicas, level)
                part = [replicas if level >= least else 1 for least in (3, 2, 1)]
                whole = [(layers * states.parameters + ends * states.other_parameters) / part[0], (layers * states.gradients + ends * states.other_gradients) / part[1],
                         (layers * states.states + ends * states.other_states) / part[2]]
                for (of_parameters, of_gradients, of_states, of_values), again in itertools.product(itertools.product((0, 0.5, 1), repeat=4), range(layers + 1)):
                    values = (layers - again) * plain.kept + again * light.kept
                    need = [whole[0] * (1 - of_parameters), whole[1] * (1 - of_gradients), whole[2] * (1 - of_states), in_flight * values * (1 - of_values),
                            plain.other if last else 0, plain.kept if again else 0, 2 * states.parameters if level == 3 or of_parameters else 0,
                            states.gradients if level >= 2 or of_gradients else 0, 2 * plain.kept if of_values else 0]
                    if sum(need) > memory:
                        continue
                    time = max(layers * (plain.forward + plain.backward) + again * plain.forward + first * plain.first + last * plain.last,
                               layers * exchange.each + ends * exchange.other_each, (of_values * values + of_gradients * whole[1]) / costs.host_rate,
                               (of_values * values + 2 * of_parameters * whole[0]) / costs.host_rate)
                    once = layers * exchange.once + ends * exchange.other_once + (layers * states.update + ends * states.other_update) / part[2]
                    found.append((time, once + max(0, of_states * whole[2] / costs.host_rate - layers * plain.forward)))
        return sorted(set(found))

    def everything(self, costs, batch, memory):
        least = math.inf
        for stages, micro_batches in itertools.product((1, 2), (each for each in range(1, batch + 1) if batch % each == 0)):
            group = costs.devices // stages
            for cut in itertools.product(range(1, costs.layers + 1), repeat=stages):
                if sum(cut) != costs.layers:
                    continue
                rows = [self.ways(costs, batch, memory, micro_batches, group, layers, min(micro_batches, stages - at), at == 0, at == stages - 1)
                        for at, layers in enumerate(cut)]
                sends = 2 * (stages - 1) * costs.send(1, max(1, batch // (micro_batches * group)))
                for row in itertools.product(*rows):
                    times = [time for time, _ in row]
                    least = min(least, sum(times) + (micro_batches - 1) * max(times) + max(once for _, once in row) + sends)
        return least

    def test_all_ways_of_all_stages(self):
        again = hosted = pipelined = 0
        for seed, memory in itertools.product(range(4), (45, 70, 110)):
            costs = MadeUp(seed, 3, 2, host_rate=20.0)
            plan, expected = published_searches.mist(costs, 2, memory), self.everything(costs, 2, memory)
            self.assertEqual(plan is None, expected == math.inf, (seed, memory))
            if plan:
                self.assertAlmostEqual(plan.promised, expected, delta=1e-9, msg=(seed, memory))
                again += not re.search(r" 0 again", plan.words)
                hosted += " on the host" in plan.words
                pipelined += plan.words.startswith("p=2")
        self.assertTrue(again and hosted and pipelined, (again, hosted, pipelined))

    def test_stages_of_unlike_ways(self):
        chance = random.Random(2)
        for count, layers, micro_batches in itertools.product((1, 2, 3), (3, 5), (1, 4)):
            table = {(stage, size): [published_searches.Stage(chance.randint(1, 9) * size, chance.randint(0, 9), size, 1, 1, 0, 0, (0,) * 4, 1) for _ in range(3)]
                     for stage in range(count) for size in range(1, layers + 1)}
            found = published_searches.best_stages(layers, count, lambda stage, size, table=table: table[stage, size], micro_batches)
            expected = min(published_searches.iteration_of(row, micro_batches) for cut in itertools.product(range(1, layers + 1), repeat=count)
                           if sum(cut) == layers for row in itertools.product(*(table[at, size] for at, size in enumerate(cut))))
            self.assertEqual(found[0], expected)
            self.assertEqual(published_searches.iteration_of(found[1], micro_batches), expected)
            self.assertIsNone(published_searches.best_stages(layers, count, lambda stage, size, table=table: table[stage, size], micro_batches, expected))


class Calculon(unittest.TestCase):
    def test_a_point_by_hand(self):
        costs = MadeUp(7, 8, 8, host_rate=0.0)
        layer, states, exchange = costs.layer(2, 2, "none"), costs.states(2), costs.exchange(2, 2, 1)
        point = published_searches.Point(2, 2, 2, 2, 2, "none", True, False, (False,) * 3)
        time, memory = published_searches.calculon_cost(costs, 16, point)  # 4 layers a device, 4 micro-batches, 2 parts a device
        block = layer.forward + layer.backward
        self.assertAlmostEqual(time, 4 * 4 * block + 2 * block + 2 * 4 * 2 * costs.send(2, 2) +
                               max(4 * exchange.once - 3 * layer.backward, exchange.once) + 4 * states.update / 2)
        self.assertAlmostEqual(memory, 4 * (states.parameters + states.gradients / 2 + states.states / 2 + 2.5 * layer.kept))

    def test_the_best_that_fits(self):
        costs = MadeUp(8, 4, 4)
        points = list(published_searches.calculon_points(costs, 4))
        self.assertEqual(len(points), len(set(points)))
        for point in points:
            self.assertEqual(point.tensor * point.stages * point.replicas, 4)
            self.assertEqual((4 % (point.stages * point.chunks), 4 % (point.replicas * point.samples)), (0, 0))
        for memory in (20, 60, 200, 10**6):
            fitting = [time for time, need in (published_searches.calculon_cost(costs, 4, point) for point in points) if need <= memory]
            plan = published_searches.calculon(costs, 4, memory)
            self.assertEqual(plan and plan.promised, min(fitting, default=None))

    def test_more_memory_and_hidden_exchanges_are_no_slower(self):
        costs = MadeUp(9, 4, 4)
        for point in published_searches.calculon_points(costs, 4):
            if point.asynchronous:
                without = published_searches.Point(**{**vars(point), "asynchronous": False})
                self.assertLessEqual(published_searches.calculon_cost(costs, 4, point)[0], published_searches.calculon_cost(costs, 4, without)[0])


class Spaces(unittest.TestCase):
    def test_a_faster_part_of_the_space_is_an_error(self):
        times = {"all of it": 2.0, "Mist": 2.0, "Galvatron": 2.5, "Calculon": None, published_spaces.SPACES[4][0]: 1.9}
        names = {options: name for name, options in published_spaces.SPACES}
        def answer(proven, **other):
            return lambda given, options, memory: ({**times, **other}[names[options]], "a plan", proven)
        with contextlib.redirect_stderr(io.StringIO()):
            lines, wrong = published_spaces.table(given_of(), answer(True))
            self.assertEqual([line.split(" | ")[-1] for line in lines], ["100 MB |", "|---|---|--:|", "2.000 s |", "2.000 s |", "2.500 s, +25.0 % |", "nothing fits |", "1.900 s |"])
            self.assertEqual(len(wrong), 1)
            self.assertIn("1.9 s, the whole space 2 s", wrong[0])
            self.assertIn("the whole space 2 s, not proven", published_spaces.table(given_of(), answer(False))[1][0])
            self.assertEqual(published_spaces.table(given_of(), answer(True, **{published_spaces.SPACES[4][0]: 2.0}))[1], [])
            self.assertEqual(len(published_spaces.table(given_of(), answer(True, **{"all of it": None}))[1]), 3)

    def test_a_space_is_asked_of_the_program(self):
        seconds, plan, proven = published_spaces.of_space(given_of(), "t=1,p=1,z=0-1", "100 MB")
        self.assertTrue(seconds > 0 and proven and plan.endswith(" a micro-batch"), plan)
        self.assertIsNone(published_spaces.of_space(given_of(), "t=1,p=1,z=0-1", "1 MB")[0])

    def test_wrong_words(self):
        for words, what in (([], "program"), (["/nowhere/plimsoll"], "no program '/nowhere/plimsoll'"), ([str(PROGRAM), "80"], "expected a size such as 80GB"),
                            ([str(PROGRAM), "--samples", "0"], "--samples: expected a number above 0")):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as raised:
                published_spaces.arguments_of(words, "about")
            self.assertEqual(raised.exception.code, 2)
            self.assertIn(what, said.getvalue())
        self.assertEqual(published_spaces.bytes_of("1.5 GiB"), 3 * 2**29)

    def test_the_page_has_these_spaces(self):
        page = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
        for name, options in published_spaces.SPACES:
            self.assertTrue(f"| {name} | `{options}` |" in page, name)
        for name, _ in published_searches.SEARCHES:
            self.assertEqual(len(re.findall(rf"^\| 80 GB \| {name} \|", page, re.M)), 1)


class Whole(unittest.TestCase):
    def test_each_plan_is_simulated(self):
        asked = published_spaces.of_space
        published_spaces.of_space = lambda given, options, memory: (1e-4 if options == "t=1" else 1, "a plan", True)  # the search itself is tested elsewhere
        try:
            rows = list(published_searches.rows(given_of(memory=["100 MB", "12 MB", "1 MB"])))
        finally:
            published_spaces.of_space = asked
        self.assertEqual(len(rows), 2 + 3 * 3)
        for row in rows[2:5]:
            self.assertRegex(row, r" \| [\d.e-]+ s \| `.+`, \d+ a micro-batch.* \| [\d.e-]+ s, \+[\d.]+ % \| 0\.0001000 s \|$")
        self.assertTrue(all("nothing fits" in row for row in rows[-3:]))


if __name__ == "__main__":
    PROGRAM = next((pathlib.Path(word).resolve() for word in sys.argv[1:] if word.endswith("plimsoll")), PROGRAM)
    unittest.main(argv=[word for word in sys.argv if not word.endswith("plimsoll")])
