// The transform that freezes the first stages and reads their outputs from a store.

#include <algorithm>
#include <catch2/catch.hpp>

#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"
#include "traces/imports/framework_graphs.h"

namespace plimsoll {
namespace {

Problem stored(const Problem& problem, const std::string& spec) {
  return transformed(problem, parse_spec(spec, "test"));
}

std::string seer_refusal(const Problem& problem, const std::string& spec) {
  try {
    stored(problem, spec);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// Stages of 1 s forward and 2 s backward, half of it for the weights; x of 10 bytes, 5 more saved; a weight of 8 bytes
/// and a bias of 1 each.
Chain chain_of_layers(std::size_t stages) {
  Chain chain = even_chain(stages);
  for (std::size_t s = 0; s <= stages; ++s) chain.stages[s].has_backward_weight = true;
  for (std::size_t s = 0; s < stages; ++s) {
    chain.stages[s].backward_weight = Seconds{1};
    for (const auto& [what, bytes] : {std::pair{".weight", Bytes{8}}, std::pair{".bias", Bytes{1}}}) {
      chain.stages[s].parameters.push_back(static_cast<std::uint32_t>(chain.parameters.size()));
      chain.parameters.push_back({"stage" + std::to_string(s) + what, bytes});
    }
  }
  return chain;
}

// Of four stages two are frozen. After: forwards of the third and fourth, the fourth's backward of 2 s, and of the
// third's only the weights' second.
TEST_CASE("seer by hand: after the outputs are stored the first stages are not there", "[seer]") {
  const Problem whole = problem_of(chain_of_layers(4), gpus({}), {.optimizer = Optimizer::adam});
  const Plan after = judged(whole, "seer"), before = judged(whole, "seer(phase=before)");
  CHECK(after.makespan.value == 2 + 2 + 1);
  CHECK(before.makespan.value == 4 + 2 + 1);
  // Parameters 18, states 36; at the fourth's backward the input (10), what two stages saved (15 each), the gradient of
  // its output (10), of its input (10) and of its parameters (9).
  CHECK(after.peak.count == 18 + 36 + 10 + 15 + 15 + 10 + 10 + 9);
  CHECK(before.peak.count == 36 + 36 + 10 + 15 + 15 + 10 + 10 + 9);
  const Problem made = stored(whole, "seer");
  CHECK(made.chain->stages.size() == 3);
  CHECK(made.chain->input == Bytes{10});
  CHECK(made.chain->parameters.size() == 4);
  CHECK(made.graph.ops.size() == 3 + 3 + 4);
  CHECK(bytes_of_kind(made.graph, TensorKind::input) == Bytes{10});
  CHECK(stored(whole, "seer(layers=3)").chain->stages.size() == 2);
  CHECK(stored(whole, "seer(fraction=0.8)").chain->stages.size() == 2);
}

TEST_CASE("seer before the outputs are stored is sparse_update of the other stages", "[seer]") {
  const Problem whole = problem_of(chain_of_layers(5), gpus({}), {.optimizer = Optimizer::adam});
  const Problem a = stored(whole, "seer(layers=3, phase=before)"), b = stored(whole, "sparse_update(train=last:2)");
  CHECK(a.graph == b.graph);
  CHECK(a.chain == b.chain);
}

/// The stages from `first` on as a trace of their own: the input has no gradient, so that of the first backward only
/// the weights' part is left, where the trace states it.
Chain cut_by_hand(const Chain& whole, std::size_t first) {
  Chain chain = whole;
  chain.input = boundary_bytes(whole, first);
  chain.stages.erase(chain.stages.begin(), chain.stages.begin() + static_cast<std::ptrdiff_t>(first));
  Stage& stage = chain.stages[0];
  stage.input_gradient = Bytes{0};
  if (stage.has_backward_weight && stage.backward.value > 0) stage.backward = stage.backward_weight;
  std::vector<Parameter> used;
  std::vector<std::uint32_t> place(whole.parameters.size());
  for (std::uint32_t p = 0; p < whole.parameters.size(); ++p) {
    place[p] = static_cast<std::uint32_t>(used.size());
    const auto reads = [p](const Stage& s) { return std::ranges::find(s.parameters, p) != s.parameters.end(); };
    const bool is_theirs = std::ranges::any_of(whole.stages, reads) && std::ranges::none_of(chain.stages, reads);
    if (!is_theirs) used.push_back(whole.parameters[p]);
  }
  for (Stage& each : chain.stages) {
    for (std::uint32_t& p : each.parameters) p = place[p];
  }
  chain.parameters = used;
  return chain;
}

TEST_CASE("what seer leaves plans as the trace of the other stages does", "[seer]") {
  std::size_t compared = 0;
  for (const RandomCase seed : fewer_cases(1, 60)) {
    Random random(seed);
    Chain whole = random_small_chain(seed, random.between(2, 6));
    whole.boundaries.clear();
    whole.tensors.clear();
    whole.shared.clear();
    for (std::size_t s = 0; s < whole.stages.size(); ++s) {
      Stage& stage = whole.stages[s];
      stage.tensors.reset();
      stage.parameter_gradient.reset();
      stage.parameters.clear();
      if (s + 1 < whole.stages.size() || stage.output > Bytes{0}) {
        stage.parameters = {static_cast<std::uint32_t>(whole.parameters.size())};
        whole.parameters.push_back({"own" + std::to_string(s), Bytes{random.between(1, 9)}});
      }
    }
    const ProblemOptions options{.micro_batches = random.between(1, 2), .optimizer = Optimizer::adam};
    const Problem problem = problem_of(whole, gpus({.to_host = BytesPerSecond{8}}), options);
    const std::size_t first = random.between(1, static_cast<std::uint32_t>(whole.stages.size() - 1));
    if (whole.stages[first].parameters.empty()) continue;
    const Problem cut = problem_of(cut_by_hand(whole, first), gpus({.to_host = BytesPerSecond{8}}), options);
    const std::string spec = "seer(layers=" + std::to_string(first) + ")|";
    for (const std::string each : {"store_all", "rotor", "chen_sqrt", "offload_greedy", "rockmate"}) {
      INFO(spec << each << ", seed " << seed);
      const Plan ours = judged(problem, spec + each), theirs = judged(cut, each);
      CHECK(ours.peak == theirs.peak);
      CHECK(ours.makespan.value == Approx(theirs.makespan.value));
      const Bytes least = smallest(problem, spec + each);
      CHECK(least == smallest(cut, each));
      CHECK(judged(problem, spec + each, least).makespan.value == Approx(judged(cut, each, least).makespan.value));
      ++compared;
    }
  }
  if (all_cases()) CHECK(compared > cases_of(std::size_t{150}));
}

TEST_CASE("seer stands before pipelines, compression and other transforms", "[seer]") {
  Chain chain = chain_of_layers(6);
  chain.source.dtype = "fp32";
  const Problem whole = problem_of(chain, gpus({.count = 2}), {.micro_batches = 4, .optimizer = Optimizer::adam});
  for (const std::string each : {"seer(layers=2)|1f1b(stages=2)", "seer(layers=2)|gpipe(stages=2)|rotor",
                                 "seer(layers=2)|adam8bit|1f1b(stages=2)", "adam8bit|seer(layers=2)|rotor",
                                 "sparse_update(train=last:3)|seer(layers=2)"}) {
    INFO(each);
    const Plan made = planned(whole, each);
    const Problem changed = stored(whole, each);
    CHECK(changed.chain->stages.size() == 5);
    CHECK(check(made.schedule, changed.graph, changed.platform, 1).empty());
  }
}

// ResNet-18's first stages are the stem and two blocks of 64 channels; the third hands on 2 x 64 x 56 x 56 numbers.
TEST_CASE("seer cuts graphs of known models where their stages end", "[seer]") {
  const Problem whole =
      problem_of(framework_graph("resnet18:batch=2"), load_platform("h200"), {.optimizer = Optimizer::adam});
  const Problem after = stored(whole, "seer(layers=3)");
  CHECK(bytes_of_kind(after.graph, TensorKind::input) == Bytes{4 * 2 * 64 * 56 * 56});
  const std::int64_t stem = 64 * 3 * 49 + 2 * 64, block = 2 * (64 * 64 * 9 + 2 * 64);
  const Bytes gone{4 * (stem + 2 * block)};
  CHECK(bytes_of_kind(after.graph, TensorKind::parameter) + gone == bytes_of_kind(whole.graph, TensorKind::parameter));
  CHECK(bytes_of_kind(after.graph, TensorKind::optimizer_state) ==
        2 * bytes_of_kind(after.graph, TensorKind::parameter));
  for (const Op& op : after.graph.ops) CHECK_FALSE(op.name.starts_with("stem"));
  for (const std::string each : {"store_all", "quantize", "greedy_recompute", "offload_greedy"}) {
    const std::string spec = "seer(layers=3)|" + each;
    INFO(spec);
    const Plan made = judged(whole, spec);
    CHECK(made.makespan < planned(whole, each).makespan);
    judged(whole, spec, smallest(whole, spec));
  }
  REQUIRE(after.notes.size() == 1);
  CHECK(after.notes[0].starts_with("seer stores 1.61 MB a micro-batch, 1.61 MB in all at "));
}

TEST_CASE("seer says what it cannot freeze or store", "[seer]") {
  const Problem whole = problem_of(chain_of_layers(4), gpus({}));
  CHECK(seer_refusal(whole, "seer(layers=5)") ==
        "seer: 5 of the 4 stages before the loss would be frozen: expected from 1 to 4");
  CHECK(seer_refusal(whole, "seer(fraction=0.1)") ==
        "seer: 0 of the 4 stages before the loss would be frozen: expected from 1 to 4");
  CHECK(seer_refusal(whole, "seer(layers=4)") ==
        "seer: no stage behind the frozen ones has parameters that could be trained");
  CHECK(seer_refusal(problem_of(chain_of_layers(4), load_platform("ideal")), "seer(store=disk)") ==
        "seer: platform 'ideal' has no disk to store outputs in");
  Chain sharing = chain_of_layers(4);
  sharing.stages[3].parameters.push_back(0);
  CHECK(seer_refusal(problem_of(sharing, gpus({})), "seer") ==
        "seer: 'stage0.weight' is read by stages that would be frozen and by others");
  Problem small = whole;
  for (Memory& memory : small.platform.memories) {
    if (!memory.device) memory.capacity = Bytes{999};
  }
  CHECK(seer_refusal(small, "seer(iterations=99)").empty());
  CHECK(seer_refusal(small, "seer(iterations=100)") == "seer: 1.00 kB of outputs do not fit into the host");
  for (const std::string spec : {"seer(fraction=1.5)", "seer(layers=0)", "seer(phase=during)", "rotor|seer"}) {
    CHECK_THROWS_AS(parse_spec(spec, "test"), InputError);
  }
}

}  // namespace
}  // namespace plimsoll
