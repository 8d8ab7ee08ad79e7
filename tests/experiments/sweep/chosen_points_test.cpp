// Which points an experiment has: values in braces, aliases, bases, presets, settings, zipped and excluded lists.

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "experiments/sweep/experiment_file.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/sweep_store.h"
#include "experiments/sweep/value_ranges.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "tests/experiments/sweep/sweep_run.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

using Words = std::vector<std::string>;

const std::string head = "format: plimsoll.experiment.v1\nname: n\nplatforms: [ideal]\n";

std::string refused(const std::string& text, const ExperimentChanges& changes = {}) {
  try {
    parsed_experiment(text, "x.yaml", changes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Words strategies_of(const Experiment& e) {
  Words words;
  for (const Pipeline& each : e.strategies) words.push_back(each.text);
  return words;
}

/// Trace, micro-batches and strategy of each group that is asked.
std::set<std::string> asked(const Experiment& e) {
  std::set<std::string> words;
  for (const std::size_t g : groups_of(e, {})) {
    const Question q = question_of(e, g);
    words.insert(q.trace + " " + std::to_string(q.micro_batches) + " " + q.strategy.text);
  }
  return words;
}

TEST_CASE("a word with braces stands for several", "[sweep]") {
  CHECK(words_meant_by("rotor").value == Words{"rotor"});
  CHECK(words_meant_by("rotor(slots={100, 200})").value == Words{"rotor(slots=100)", "rotor(slots=200)"});
  CHECK(words_meant_by("{a,b}:{1..3}").value == Words{"a:1", "a:2", "a:3", "b:1", "b:2", "b:3"});
  CHECK(words_meant_by("{8..20 step 5}").value == Words{"8", "13", "18"});
  CHECK(words_meant_by("{1..64 factor 4}").value == Words{"1", "4", "16", "64"});
  CHECK(words_meant_by("{0.1..0.3 step 0.1}").value == Words{"0.1", "0.2", "0.3"});
  CHECK(words_meant_by("{3..3}").value == Words{"3"});
}

TEST_CASE("braces that stand for nothing are refused", "[sweep]") {
  CHECK(words_meant_by("a{1").complaint == "a '{' without its '}': quote a word that has commas");
  CHECK(words_meant_by("a}").complaint == "a '}' without its '{'");
  CHECK(words_meant_by("{1,,2}").complaint == "an empty value in '{1,,2}'");
  CHECK(words_meant_by("{8..1}").complaint == "the range '{8..1}' ends before it begins");
  CHECK(words_meant_by("{0..8 factor 2}").complaint.starts_with("the range '{0..8 factor 2}' does not grow"));
  CHECK(words_meant_by("{1..8 by 2}").complaint.starts_with("expected a range such as {1..8}"));
  CHECK(words_meant_by("{1..10001}").complaint == "a range of more than 10000 values");
  CHECK(words_meant_by("{1..200}{1..200}").complaint == "stands for more than 10000 words");
}

TEST_CASE("lists of an experiment take braces and aliases", "[sweep]") {
  const ExperimentFile file = parsed_experiment(
      head +
          "traces: [small, 'uniform:{8,9}']\nstrategies: ['rotor(slots={50..150 step 50})', store_all]\n"
          "micro_batches: '{1..8 factor 2}'\nalias: {small: 'uniform:6'}\n",
      "x.yaml");
  CHECK(file.experiment.traces == Words{"uniform:6", "uniform:8", "uniform:9"});
  CHECK(strategies_of(file.experiment) ==
        Words{"rotor(slots=50)", "rotor(slots=100)", "rotor(slots=150)", "store_all"});
  CHECK(file.experiment.micro_batches == std::vector<std::uint32_t>{1, 2, 4, 8});
  CHECK(file.experiment.aliases.at("uniform:6") == "small");
  CHECK(complaint_about(file, "traces", 2, "is odd") == "x.yaml:4:17: traces[1]: is odd");
  CHECK(refused(head + "traces: ['uniform:{6,7}', 'uniform:7']\nstrategies: [store_all]\n") ==
        "x.yaml:4:27: traces[1]: is listed twice, found 'uniform:7'");
  CHECK(refused(head + "traces: ['uniform:6']\nstrategies: [store_all]\nmicro_batches: '{0..2}'\n") ==
        "x.yaml:6:16: micro_batches: expected a whole number from 1 to 1000000, found '0'");
}

TEST_CASE("a word that YAML cuts at its comma is to be quoted", "[sweep]") {
  CHECK(refused(head + "traces: ['uniform:6']\nstrategies: [rotor(slots=9, x=1), store_all]\n") ==
        "x.yaml:5:14: strategies[0]: is cut at its comma: quote it, found 'rotor(slots=9'");
  CHECK(refused(head + "traces: [transformer:layers=2, hidden=64]\nstrategies: [store_all]\n") ==
        "x.yaml:4:32: traces[1]: is the rest of a word with a comma: quote that, found 'hidden=64'");
}

TEST_CASE("zipped lists advance together, and patterns leave out", "[sweep]") {
  const std::string text = head +
                           "traces: ['uniform:6', 'uniform:8', 'uniform:9']\nmicro_batches: [1, 2, 4]\n"
                           "strategies: [store_all, rotor, chen_sqrt]\n";
  CHECK(asked(parse_experiment(text, "x.yaml")).size() == 27);
  CHECK(asked(parse_experiment(text + "zip: [traces, micro_batches]\nexclude: {traces: 'uniform:[89]', "
                                      "strategies: [rotor, 'chen*']}\n",
                               "x.yaml")) == std::set<std::string>{"uniform:6 1 store_all", "uniform:6 1 rotor",
                                                                   "uniform:6 1 chen_sqrt", "uniform:8 2 store_all",
                                                                   "uniform:9 4 store_all"});
  CHECK(points(parse_experiment(text + "zip: [traces, micro_batches]\nmemory: [1 GB, 2 GB]\n", "x.yaml")) == 18);
  CHECK(refused(text + "zip: [traces, strategies, platforms]\n") ==
        "x.yaml:7:6: zip: expected lists of one length, found traces of 3 and platforms of 1");
  CHECK(refused(text + "zip: [[traces, strategies], [traces, micro_batches]]\n") ==
        "x.yaml:7:6: zip: names traces twice");
  CHECK(refused(text + "zip: [traces, strategy]\n").starts_with("x.yaml:7:15: zip[1]: expected traces, platforms"));
  CHECK(refused(text + "exclude: [{strategies: [roto]}]\n") ==
        "x.yaml:7:11: exclude[0]: 'roto' is none of the strategies; did you mean 'rotor'?");
}

TEST_CASE("a base, a preset and a setting each change what comes before", "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "base.yaml", head +
                                            "traces: ['uniform:6']\nstrategies: [store_all]\nmemory: [1 GB]\n"
                                            "presets: {wide: {micro_batches: [1, 2, 4]}}\n");
  write_text_file(folder / "e.yaml",
                  "format: plimsoll.experiment.v1\nbase: base.yaml\nname: over\n"
                  "strategies: [rotor]\npresets: {long: {traces: ['uniform:60']}}\n");
  const Experiment plain = read_experiment(folder / "e.yaml").experiment;
  CHECK(plain.name == "over");
  CHECK(plain.traces == Words{"uniform:6"});
  CHECK(strategies_of(plain) == Words{"rotor"});
  CHECK(std::get<BudgetList>(plain.memory) == BudgetList{Bytes{1'000'000'000}});
  const Experiment changed =
      read_experiment(folder / "e.yaml", {.settings = {"memory=[2 GB, 3 GB]", "engine=event"}, .preset = "long"})
          .experiment;
  CHECK(changed.traces == Words{"uniform:60"});
  CHECK(std::get<BudgetList>(changed.memory).size() == 2);
  CHECK(changed.engine == Engine::event);
  CHECK(read_experiment(folder / "base.yaml", {.preset = "wide"}).experiment.micro_batches.size() == 3);
}

TEST_CASE("what is wrong with a base, a preset or a setting is told with its place", "[sweep]") {
  const TemporaryFolder folder;
  const std::string whole = head + "traces: ['uniform:6']\nstrategies: [store_all]\n";
  write_text_file(folder / "a.yaml", whole + "base: b.yaml\n");
  write_text_file(folder / "b.yaml", whole + "base: a.yaml\n");
  const auto complaint = [&](const std::string& name) {
    try {
      read_experiment(folder / name);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(complaint("a.yaml").ends_with("b.yaml:6:7: base: leads back to this file, found 'a.yaml'"));
  write_text_file(folder / "c.yaml", whole + "base: none.yaml\n");
  CHECK(complaint("c.yaml").find("c.yaml:6:7: base: ") != std::string::npos);
  CHECK(refused(whole, {.settings = {"engin=event"}}) ==
        "--set engin=event:1:1: engin: unknown key; did you mean 'engine'?");
  CHECK(refused(whole, {.settings = {"engine=evnt"}}).starts_with("--set engine=evnt:1:9: engine: expected"));
  CHECK(refused(whole, {.settings = {"engine"}}) ==
        "--set: expected KEY=VALUE such as micro_batches=8, found 'engine'");
  CHECK(refused(whole + "presets: {quick: {}}\n", {.preset = "quik"}) ==
        "x.yaml: presets: no preset 'quik', expected quick; did you mean 'quick'?");
  CHECK(
      refused(whole + "presets: {quick: {engine: evnt}}\n").starts_with("x.yaml:6:27: presets.quick.engine: expected"));
  CHECK(refused("format: plimsoll.experiment.v1\nname: n\ntraces: ['uniform:6']\n").find("missing key 'platforms'") !=
        std::string::npos);
}

TEST_CASE("a sweep answers what is asked, and drops results that are no longer", "[sweep]") {
  const TemporaryFolder folder;
  const std::string text = head +
                           "traces: ['uniform:6', 'uniform:9']\nstrategies: [store_all, rotor]\nengine: event\n"
                           "memory: {from: smallest, to: store_all, count: 3}\nalias: {six: 'uniform:6'}\n";
  write_text_file(folder / "e.yaml", text);
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out") == 0);
  CHECK(read_sweep(folder / "out").records.size() == 12);
  CHECK(read_sweep(folder / "out").cases.at(0).model == "six");
  write_text_file(folder / "e.yaml", text + "exclude: {traces: 'uniform:9', strategies: rotor}\n");
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out", {.resume = true}) == 0);
  const SweepContents kept = read_sweep(folder / "out");
  CHECK(kept.records.size() == 9);
  for (const auto& [point, record] : kept.records) {
    const bool of_nine = record.find("\"trace\":\"uniform:9\"") != std::string::npos;
    CHECK((!of_nine || record.find("\"strategy\":\"store_all\"") != std::string::npos));
  }
  CHECK(kept.cases.at(1).smallest == kept.cases.at(1).store_all);  // rotor needs less, and is not asked
}

}  // namespace
}  // namespace plimsoll
