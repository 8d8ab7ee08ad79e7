// Replays from one block a device, at planned addresses: they train what replays without do, and a block that is wrong
// is refused before anything runs.

#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/memory/addresses.h"
#include "strategies/list.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"
#include "tests/training/training.h"

namespace plimsoll {
namespace {

constexpr OffsetSearch short_search{.most_buffers = 200, .nodes = 1'000};

const Schedule& schedule_out_of(const PlanOutcome& outcome) {
  REQUIRE(std::holds_alternative<Plan>(outcome));
  return std::get<Plan>(outcome).schedule;
}

/// With poisoned memory: what another one has written, or nobody, spoils the training.
std::variant<Replayed, ReplayFailure> run_in_blocks(const Training& training, const Schedule& schedule,
                                                    const Addresses& addresses) {
  return run_of(training, schedule, {.poisons = true, .keeps_values = true, .addresses = &addresses});
}

void hold_to_run_without(const Training& training, const Schedule& schedule) {
  const Platform& platform = training.problem.platform;
  const Addresses addresses = plan_addresses(schedule, platform, short_search);
  const auto outcome = run_in_blocks(training, schedule, addresses);
  if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) FAIL(failure->what);
  const Replayed& run = std::get<Replayed>(outcome);
  const Replayed without = replayed(training, schedule);
  CHECK(differing(run, without).empty());
  CHECK(run.values.size() == without.values.size());
  CHECK(run.values.size() > 2);
  for (const AddressBlock& block : addresses.blocks) {
    const std::optional<AllocatorPeaks>& measured = run.allocators.at(block.memory.index);
    REQUIRE(measured);
    CHECK(measured->reserved == block.size);
    CHECK(measured->allocated == run.timeline.peaks[block.memory.index].bytes);
    CHECK(measured->allocated <= block.size);
  }
}

/// At the least budget, or without one where it does as well.
PlanOutcome least_plan(const Training& training, const std::string& spec) {
  const PlanOutcome nothing = planned(training.problem, spec, Bytes{0});
  const auto* infeasible = std::get_if<Infeasible>(&nothing);
  return planned(training.problem, spec, infeasible != nullptr ? infeasible->smallest : std::nullopt);
}

TEST_CASE("every strategy for chains trains from one block what it trains without", "[validate][arena]") {
  const std::string network =
      GENERATE("mlp:layers=5,width=24,batch=6,classes=4", "lstm:steps=6,width=8,batch=4,classes=3");
  const Training training = training_of(network, one_gpu(), {.micro_batches = 2, .optimizer = Optimizer::adam});
  for (const RandomCase k : fewer_cases(0, std::size(strategies()) - 1)) {
    const StrategyInfo& strategy = *strategies()[k];
    if (!strategy.makes_tapes() || strategy.family == Family::compression) continue;
    INFO(network << ", " << strategy.name);
    const PlanOutcome outcome = least_plan(training, std::string(strategy.name));
    if (std::holds_alternative<Plan>(outcome)) hold_to_run_without(training, schedule_out_of(outcome));
  }
}

TEST_CASE("ops whose values are moved or packed train from one block, too", "[validate][arena]") {
  const char* spec = GENERATE("offload_greedy", "greedy_recompute|offload_greedy", "quantize");
  INFO(spec);
  const Training training =
      training_of("mlp:layers=5,width=24,batch=6,classes=4,view=graph,updates=adam", one_gpu(), {.micro_batches = 2});
  const PlanOutcome outcome = least_plan(training, spec);
  hold_to_run_without(training, schedule_out_of(outcome));
}

/// Over links as slow as kernels, so that values move in chunks.
Training chunked_training(const std::string& view) {
  return training_of("gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20" + view,
                     gpus({.to_host = BytesPerSecond{1e9}}));
}

/// The first buffer of a device that is a later part of its value.
std::optional<std::size_t> later_part(const Schedule& schedule, const Addresses& addresses) {
  for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
    if (addresses.of_buffer[b] && schedule.buffers[b].range_offset > Bytes{0}) return b;
  }
  return std::nullopt;
}

TEST_CASE("values that move in chunks lie in one piece where a kernel takes them", "[validate][arena]") {
  const std::string view = GENERATE("", ",view=graph");
  const char* spec = GENERATE("offload_fractional", "offload_greedy");
  INFO(spec << view);
  const Training training = chunked_training(view);
  const PlanOutcome outcome = least_plan(training, spec);
  hold_to_run_without(training, schedule_out_of(outcome));
}

TEST_CASE("stages on several devices have a block each", "[validate][arena]") {
  const char* spec = GENERATE("1f1b", "interleaved", "zb_h1", "1f1b|rotor");
  INFO(spec);
  const Training training =
      training_of("mlp:layers=8,width=24,batch=6,classes=4",
                  gpus({.count = 2, .to_host = BytesPerSecond{20e9}, .to_peers = BytesPerSecond{20e9}}),
                  {.micro_batches = 3, .optimizer = Optimizer::sgd, .backward = Backward::split});
  const PlanOutcome outcome = planned(training.problem, spec);
  hold_to_run_without(training, schedule_out_of(outcome));
}

TEST_CASE("addresses that may be wrong by some timing are refused before anything runs", "[validate][arena]") {
  const Training training = training_of("mlp:layers=5,width=24,batch=6,classes=4", one_gpu());
  const PlanOutcome outcome = planned(training.problem, "store_all");
  const Schedule& schedule = schedule_out_of(outcome);
  const Addresses good = plan_addresses(schedule, training.problem.platform, short_search);
  const auto why = [&](const Addresses& addresses) {
    const auto run = run_in_blocks(training, schedule, addresses);
    REQUIRE(std::holds_alternative<ReplayFailure>(run));
    return std::get<ReplayFailure>(run).what;
  };
  Addresses shared = good;
  shared.of_buffer[1] = shared.of_buffer[0];
  CHECK(why(shared) ==
        "refused, addresses are wrong: buffer 1 may be live together with buffer 0, with which it shares bytes");
  Addresses nowhere = good;
  nowhere.of_buffer[2].reset();
  CHECK(why(nowhere) == "refused, addresses are wrong: buffer 2 has no address");
  Addresses odd = good;
  odd.blocks[0].size += Bytes{512};
  for (std::optional<Bytes>& at : odd.of_buffer) {
    if (at) *at += Bytes{100};
  }
  for (std::optional<Bytes>& at : odd.of_workspace) {
    if (at) *at += Bytes{100};
  }
  CHECK(why(odd).ends_with(" of its block, not at a multiple of 64"));
}

TEST_CASE("a block above the capacity is out of memory", "[validate][arena]") {
  Training training = training_of("mlp:layers=5,width=24,batch=6,classes=4", one_gpu());
  const PlanOutcome outcome = planned(training.problem, "store_all");
  const Schedule& schedule = schedule_out_of(outcome);
  const Addresses addresses = plan_addresses(schedule, training.problem.platform, short_search);
  const Bytes block = addresses.blocks[0].size;
  training.problem.platform.memories[0].capacity = block;
  CHECK(std::holds_alternative<Replayed>(run_in_blocks(training, schedule, addresses)));
  training.problem.platform.memories[0].capacity = block - Bytes{1};
  const auto run = run_in_blocks(training, schedule, addresses);
  REQUIRE(std::holds_alternative<ReplayFailure>(run));
  CHECK(
      std::get<ReplayFailure>(run).what.starts_with("out of memory in 'gpu0': its block of planned addresses needs "));
}

TEST_CASE("parts of a value that lie apart are refused where a kernel takes it in one piece", "[validate][arena]") {
  const Training training = chunked_training("");
  const PlanOutcome outcome = least_plan(training, "offload_fractional");
  const Schedule& schedule = schedule_out_of(outcome);
  Addresses addresses = plan_addresses(schedule, training.problem.platform, short_search);
  const std::optional<std::size_t> moved = later_part(schedule, addresses);
  REQUIRE(moved);
  Bytes& block = addresses.blocks[0].size;
  addresses.of_buffer[*moved] = block;
  block += schedule.buffers[*moved].bytes;
  const auto run = run_in_blocks(training, schedule, addresses);
  REQUIRE(std::holds_alternative<ReplayFailure>(run));
  CHECK(std::get<ReplayFailure>(run).what.ends_with(" do not lie as its parts"));
}

}  // namespace
}  // namespace plimsoll
