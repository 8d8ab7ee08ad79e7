// Policies that users write by hand: segments, every k-th stage, Megatron's and PyTorch's options.

#include <catch2/catch.hpp>

#include "sim/io/input_error.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/rematerialization/cuts/chen.h"
#include "strategies/rematerialization/policies/policies.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"
#include "tests/strategies/chain_oracle.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

std::string text(const std::vector<Segment>& segments) {
  std::string line;
  for (const Segment& segment : segments) {
    line += (segment.recomputed ? "R" : "K") + std::to_string(segment.first) + '-' + std::to_string(segment.end) + ' ';
  }
  return line;
}

std::string text(const std::vector<bool>& flags) {
  std::string line;
  for (const bool flag : flags) line += flag ? 'R' : 'K';
  return line;
}

TEST_CASE("segments are kept, or run once forward and once saving", "[remat]") {
  CHECK(to_string(segments_sequence({{0, 2, true}, {2, 3, false}, {3, 4, true}, {4, 5, false}})) ==
        "F0 F1 S2 F3 S4 B4 S3 B3 B2 S0 S1 B1 B0");
  CHECK(text(segments_of(8, 3)) == "R0-3 R3-6 K6-8 ");
  CHECK(text(segments_of(7, 3)) == "R0-3 K3-7 ");
  CHECK(text(segments_of(1, 3)) == "K0-1 ");
}

TEST_CASE("chen_greedy closes a segment where its activations exceed b", "[remat]") {
  ChainModel model = worked_example_model();
  model.saved = {{3}, {4}, {5}, {6}, {1}, {0}};  // five stages and a loss
  CHECK(text(greedy_segments(model, Bytes{0}).segments) == "R0-1 R1-2 R2-3 R3-4 K4-6 ");
  CHECK(greedy_segments(model, Bytes{0}).next == Bytes{3});
  CHECK(text(greedy_segments(model, Bytes{3}).segments) == "R0-2 R2-3 R3-4 K4-6 ");
  CHECK(text(greedy_segments(model, Bytes{6}).segments) == "R0-2 R2-4 K4-6 ");
  CHECK(text(greedy_segments(model, Bytes{100}).segments) == "K0-6 ");
  const std::vector<Bytes> parameters = greedy_parameters(model);
  CHECK(parameters.front() == Bytes{0});
  for (std::int64_t b = 0; b < 30; ++b) {  // every b gives the segments of the last parameter up to it
    const auto above = std::ranges::upper_bound(parameters, Bytes{b});
    CHECK(greedy_segments(model, Bytes{b}).segments == greedy_segments(model, *(above - 1)).segments);
  }
}

TEST_CASE("full_recompute follows Megatron's methods", "[remat]") {
  CHECK(text(full_recompute_segments(5, RecomputeMethod::uniform, 1)) == "R0-1 R1-2 R2-3 R3-4 K4-5 ");
  CHECK(text(full_recompute_segments(6, RecomputeMethod::uniform, 2)) == "R0-2 R2-4 R4-5 K5-6 ");
  CHECK(text(full_recompute_segments(6, RecomputeMethod::block, 2)) == "R0-1 R1-2 K2-6 ");
  CHECK(text(full_recompute_segments(6, RecomputeMethod::block, 9)) == "R0-1 R1-2 R2-3 R3-4 R4-5 K5-6 ");
  CHECK(text(full_recompute_segments(1, RecomputeMethod::uniform, 1)) == "K0-1 ");
}

TEST_CASE("selective matches a stage's name or a part of it between dots", "[remat]") {
  CHECK(matches("attention", "block3.attention"));
  CHECK(matches("block1", "block1.mlp"));
  CHECK(!matches("block1", "block10.mlp"));
  CHECK(matches("block1*", "block10.mlp"));
  CHECK(matches("stem+*.mlp", "block10.mlp"));
  CHECK(matches("layer?.2", "layer3.2"));
  CHECK(!matches("layer?.2", "layer3.12"));
  CHECK(matches("*a*b*c", "xxaxxbxxbc"));
  CHECK(!matches("*a*b*c", "xxaxxbxxbd"));
  CHECK(matches("*", ""));
  const std::vector<std::string> names{"a.x", "a.y", "b.x", "b.y", "c.x", "c.y", "loss"};
  CHECK(text(selected(names, "x", {})) == "RKRKRKK");
  CHECK(text(selected(names, "*", {.recompute_every = 2, .keep_every = {}})) == "KRKRKRK");
  CHECK(text(selected(names, "*", {.recompute_every = {}, .keep_every = 3})) == "RRKRRKK");
  CHECK(text(selected(names, "x", {.recompute_every = {}, .keep_every = 3})) == "RKRKKKK");
  CHECK(text(selected(names, "*", {.recompute_every = 7, .keep_every = {}})) == "KKKKKKK");
}

TEST_CASE("selective names the stages when none matches", "[remat]") {
  const Problem problem = problem_of(worked_example(), gpus({}));
  const std::optional<Bytes> unlimited;
  try {
    plan(problem, parse_spec("selective(stages=atention)", "test"), std::span(&unlimited, 1));
    FAIL("no complaint");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()) == "selective.stages: no stage of '" + problem.chain->name +
                                           "' matches 'atention'; its first stage is '" +
                                           problem.chain->stages[0].name + "'");
  }
}

TEST_CASE("options of policies choose one schedule, auto the fastest that fits", "[remat]") {
  const Problem problem = problem_of(even_chain(12), gpus({}));
  const Bytes all = planned(problem, "store_all", std::nullopt).peak;
  CHECK(planned(problem, "selective", all).makespan == planned(problem, "store_all", all).makespan);
  CHECK(planned(problem, "periodic", all).makespan == planned(problem, "store_all", all).makespan);
  // 12 forwards and 24 s of backward; all but the last 4 stages once more.
  CHECK(planned(problem, "periodic(every=4)", std::nullopt).makespan == Seconds{36 + 8});
  CHECK(planned(problem, "full_recompute", std::nullopt).makespan == Seconds{36 + 12});
  CHECK(planned(problem, "full_recompute(method=block,layers=5)", std::nullopt).makespan == Seconds{36 + 5});
  CHECK(planned(problem, "selective(every=3)", std::nullopt).makespan == Seconds{36 + 4});
  CHECK(planned(problem, "selective(every=1,keep_every=3)", std::nullopt).makespan == Seconds{36 + 8});
  for (const std::string name : {"periodic(every=", "selective(every=", "full_recompute(method=block,layers="}) {
    for (int k = 1; k <= 12; ++k) {
      INFO(name << k);
      const Plan one = planned(problem, name + std::to_string(k) + ")", std::nullopt);
      const Plan best = planned(problem, name + "auto)", one.peak);
      CHECK(best.makespan <= one.makespan);
      CHECK(best.peak <= one.peak);
    }
  }
}

TEST_CASE("stages that may run only once are kept by every policy, and all stays legal", "[remat][property]") {
  for (const RandomCase seed : random_cases(0, 999)) {
    const ChainModel model = random_chain_model({.stages = 2 + seed % 9, .once_percent = 30}, seed);
    std::vector<ChainSequence> plans{
        segments_sequence(segments_of(model.stages(), 1 + seed % 4)),
        segments_sequence(greedy_segments(model, Bytes{static_cast<std::int64_t>(seed % 12)}).segments),
        segments_sequence(full_recompute_segments(model.stages(), RecomputeMethod::uniform, 1 + seed % 3)),
    };
    for (const ChainSequence& plan : plans) {
      const ChainSequence repaired = without_forbidden_repeats(model, plan);
      CAPTURE(seed, to_string(plan), to_string(repaired));
      REQUIRE(evaluate(model, repaired).violation == "");
    }
  }
}

}  // namespace
}  // namespace plimsoll
