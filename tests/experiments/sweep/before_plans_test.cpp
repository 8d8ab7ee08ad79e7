// What a sweep knows and does before, between and after plans: refusals, the problem that groups of a case share, what
// is read of a record.

#include <catch2/catch.hpp>

#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/sweep/experiment_file.h"
#include "experiments/sweep/record_check.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/sweep_inputs.h"
#include "experiments/sweep/sweep_points.h"
#include "sim/io/json/json.h"
#include "sim/io/text_file.h"
#include "tests/experiments/sweep/sweep_run.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

/// Holds a dry run against the sweep itself, which tries all: the same groups refused, in the same words.
void check_dry_run(const std::string& experiment, std::size_t refused) {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml", "format: plimsoll.experiment.v1\nname: n\nengine: event\n" + experiment);
  std::ostringstream out;
  const int dry = list_sweep({.experiment = folder / "e.yaml"}, out);
  const int swept = run_sweep(folder / "e.yaml", folder / "out", {});
  CHECK(dry == 2);
  CHECK(swept == 2);
  const Json failures = Json::parse(read_text_file(folder / "out" / "manifest.json")).at("failures");
  CHECK(failures.size() == refused);
  for (const Json& each : failures) {
    const std::string line = each.at("strategy").get<std::string>() + "  no answers: ";
    INFO(line << each.at("message").get<std::string>());
    CHECK(out.str().find("  " + line + each.at("message").get<std::string>() + "\n") != std::string::npos);
  }
  INFO(out.str());
  CHECK(count_of(out.str(), "  no answers: ") == failures.size());
}

TEST_CASE("a dry run refuses the groups that the sweep refuses, with the same words, and no others", "[sweep]") {
  check_dry_run(
      "micro_batches: 4\nplatforms: pcie_4x_rtx4090\n"
      "traces: 'transformer:layers=2,width=64,heads=4,sequence=16,vocabulary=64,view=graph'\n"
      "strategies: [chimera, dualpipe, dualpipe_v, '1f1b(stages=5)', '1f1b(cut=0:4:8)', '1f1b(cut=0:2:3)', gpipe,\n"
      "  '1f1b(in_flight=3:2)', 'interleaved(group=3)', 'pipedream_2bw(group=4)', 'zb_auto(stages=9)', rotor,\n"
      "  'zb_ilp(stages=9)', 'pipeline_search(stages=9)', 'v_half(limit=0.3)', 'zb_v(cut=sapp)', 'seq1f1b(slices=2)',\n"
      "  'megatron(tensor=3)', 'megatron(tensor=2)|gpipe', 'data_parallel(ranks=3)', 'data_parallel(ranks=2)|gpipe',\n"
      "  'zb_h2|quantize', 'gpipe|quantize', 'chain|dualpipe', 'chain|rotor', 'quantize']\n",
      17);
}

TEST_CASE("a dry run refuses what searches and memory strategies refuse of a graph before they plan", "[sweep]") {
  check_dry_run(
      "micro_batches: 4\noptimizer: adam\nplatforms: pcie_4x_rtx4090\n"
      "traces: 'transformer:layers=1,width=16,heads=2,sequence=8,vocabulary=16,batch=2,view=graph'\n"
      "strategies: ['hsm2dl(devices=3)', 'tofu(devices=8)', 'optcnn(replicas=3)', 'optcnn(devices=9)', tofu,\n"
      "  'tofu(devices=2)|gpipe', 'optcnn|gpipe', 'data_parallel(ranks=2)|optcnn', 'piper(tensor=9)', 'cluster(t=3)',\n"
      "  'cluster(p=2,d=2)', 'heft(devices=5)', 'auto(devices=9)', heft, 'metis|zero_offload', 'heft|quantize',\n"
      "  'dtr(release=banish)', dtr, 'offload_greedy(to=gpu1)', 'offload_greedy(to=gpu9)', 'pool(k=50)',\n"
      "  'policy(file=/nowhere)', 'portfolio(eight_bit=yes)', 'tofu|dtr(release=banish)',\n"
      "  '1f1b(stages=2)|offload_greedy(to=gpu9)']\n",
      16);
}

TEST_CASE("a dry run judges networks that can run as other traces", "[sweep]") {
  check_dry_run(
      "micro_batches: 3\nplatforms: pcie_4x_rtx4090\ntraces: ['mlp:layers=3', 'mlp:layers=3,view=graph']\n"
      "strategies: [rotor, 'heft|rotor', heft, 'zb_h1(stages=2)', 'zero2(ranks=2)', tofu, fewbit, quantize,\n"
      "  'selective(stages=*nothing*)', zero_offload, '1f1b(stages=3)', 'tofu|gpipe', 'heft(devices=2)|quantize',\n"
      "  'heft|gist']\n",
      13);
}

TEST_CASE("a case may have a problem that one of its strategies has not", "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml",
                  "format: plimsoll.experiment.v1\nname: n\nengine: event\nmicro_batches: 4\nplatforms: h100_sxm_8\n"
                  "traces: 'mlp:layers=6'\nstrategies: ['zb_h1(stages=2)|quantize', 'zb_h1(stages=2)']\n");
  CHECK(run_sweep(folder / "e.yaml", folder / "out", {}) == 2);
  const Json failures = Json::parse(read_text_file(folder / "out" / "manifest.json")).at("failures");
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].at("strategy") == "zb_h1(stages=2)|quantize");
  CHECK(failures[0].at("message").get<std::string>().find("which of the tensors that a stage saves stay for its") !=
        std::string::npos);
}

TEST_CASE("groups of a case that share a problem are answered as each alone", "[sweep]") {
  const Experiment experiment = parse_experiment(
      "format: plimsoll.experiment.v1\nname: n\nengine: event\nmicro_batches: [1, 4]\nplatforms: ideal\n"
      "traces: ['random:stages=6,seed=1', 'transformer:layers=1,width=8,heads=2,sequence=4,vocabulary=8,view=graph']\n"
      "strategies: [store_all, rotor, 'sparse_update(train=last:2)', chen_sqrt, zb_h1, gpipe, quantize, periodic, "
      "chain,\n"
      "  greedy_recompute]\n",
      "x.yaml");
  const SweepInputs inputs({experiment, "x.yaml", ""});
  CaseProblem shared;
  const std::vector<std::optional<Bytes>> budgets(1);
  const std::size_t wanted = 0;
  std::size_t answered = 0;
  for (const std::size_t group : groups_of(experiment, {})) {
    if (!inputs.refusal(question_of(experiment, group)).why.empty()) continue;
    std::vector<Json> records;
    const auto keep = [&](const Json& each) {
      records.push_back(each);
      records.back().erase("solve_s");
      records.back().erase("simulate_s");
    };
    CaseProblem alone;
    answer_points(experiment, inputs, shared, group, budgets, std::span(&wanted, 1), keep);
    answer_points(experiment, inputs, alone, group, budgets, std::span(&wanted, 1), keep);
    CHECK(records.at(0) == records.at(1));
    ++answered;
  }
  CHECK(answered > 25);
}

TEST_CASE("of a record its own values are read, whatever it holds besides", "[sweep]") {
  const Json record{{"case", 3},
                    {"strategy", R"(x","point":7,"y\)"},
                    {"candidates", {{{"point", 8}, {"feasible", false}, {"key", "no"}, {"solve_s", 5.0}}}},
                    {"point", 12},
                    {"reason", R"(\"key\": {[)"},
                    {"key", "0123abcd"},
                    {"feasible", true},
                    {"peak", {{"simulate_s", 1.0}}},
                    {"solve_s", 0.25},
                    {"simulate_s", 1e-3}};
  const std::string text = json_text(record);
  const RecordHead head = head_of_record(text);
  CHECK(head.point == 12);
  CHECK(head.key == "0123abcd");
  CHECK(head.feasible);
  CHECK(head.taken.value == 0.25 + 1e-3);
  const std::string none = json_text(Json{{"point", 1}, {"feasible", false}, {"solve_s", nullptr}});
  CHECK(head_of_record(none).taken.value == 0);
  CHECK(!head_of_record(none).feasible);
}

}  // namespace
}  // namespace plimsoll
