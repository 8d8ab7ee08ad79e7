// The design carries pipelines: tapes made for one part run inside 1F1B without knowing it.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "strategies/list.h"
#include "strategies/models/chain_pass.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

Schedule lowered(const Problem& problem, const Partition& partition, const std::vector<Tape>& tapes) {
  std::variant<Schedule, std::string> made = lower(problem, partition, tapes);
  REQUIRE(std::holds_alternative<Schedule>(made));
  return std::move(std::get<Schedule>(made));
}

Tape store_all_tape(const Problem& problem, const Partition& partition, PartId id) {
  const ChainPart part = chain_part(problem, partition.parts[id.index]);
  return chain_tape(problem, partition, id, part, store_all_sequence(part.chain.stages.size()));
}

/// The chain with nothing to send between its parts, so that memory has a closed form.
Chain with_empty_boundaries(Chain chain, std::size_t stages_a_part) {
  for (std::size_t i = stages_a_part; i + 1 < chain.stages.size(); i += stages_a_part) {
    chain.stages[i - 1].saved -= chain.stages[i - 1].output;
    chain.stages[i - 1].output = {};
    chain.stages[i].input_gradient = {};
  }
  return chain;
}

TEST_CASE("1F1B of 4 stages and 8 micro-batches takes (m + p - 1)(F + B) and keeps p - s activations", "[pipeline]") {
  Chain chain = with_empty_boundaries(even_chain(4), 1);
  chain.input = {};
  chain.stages[0].input_gradient = {};
  chain.stages[3].saved = Bytes{5};
  chain.stages[3].output = {};
  chain.stages[4].input_gradient = {};
  const Problem problem = problem_of(chain, gpus({.count = 4}), {.micro_batches = 8});
  const Partition partition = one_forward_one_backward(problem, {0, 1, 2, 3});
  std::vector<Tape> tapes;
  for (std::uint32_t p = 0; p < 4; ++p) tapes.push_back(store_all_tape(problem, partition, PartId{p}));
  const Schedule schedule = lowered(problem, partition, tapes);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  const Timeline timeline = simulate_event(schedule, problem.platform);
  CHECK(timeline.makespan == Seconds{(8 + 4 - 1) * (1.0 + 2.0)});
  for (std::int64_t s = 0; s < 4; ++s) {
    CHECK(timeline.peaks[static_cast<std::size_t>(s)].bytes == (4 - s) * Bytes{5});
  }
}

TEST_CASE("with a transfer time the first micro-batch pays it once a boundary and direction", "[pipeline]") {
  const Chain chain = with_empty_boundaries(even_chain(4), 1);
  const Problem problem = problem_of(chain, gpus({.count = 4, .peer_latency = Seconds{0.25}}), {.micro_batches = 1});
  const Partition partition = one_forward_one_backward(problem, {0, 1, 2, 3});
  std::vector<Tape> tapes;
  for (std::uint32_t p = 0; p < 4; ++p) tapes.push_back(store_all_tape(problem, partition, PartId{p}));
  const Schedule schedule = lowered(problem, partition, tapes);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  // 4 forwards, 4 backwards, 3 boundaries there and back.
  CHECK(simulate_event(schedule, problem.platform).makespan == Seconds{4 * 3 + 6 * 0.25});
}

TEST_CASE("rotor inside each pipeline stage: others keep what is alive at the cut, the running tape has its peak",
          "[pipeline]") {
  const Chain chain = with_empty_boundaries(even_chain(12), 3);
  const Problem problem = problem_of(chain, gpus({.count = 4}), {.micro_batches = 8});
  const Partition partition = one_forward_one_backward(problem, {0, 3, 6, 9});
  const Options options(rotor_strategy.options, {});
  std::vector<Tape> tapes;
  std::vector<Bytes> promised, store_all_peaks;
  for (std::uint32_t p = 0; p < 4; ++p) {
    const std::uint32_t in_flight = 4 - p;
    const PartTask task{problem, partition, PartId{p}, in_flight};
    const TapeCost plain = tape_cost(problem, partition.parts[p], store_all_tape(problem, partition, PartId{p}));
    store_all_peaks.push_back(peak_in_flight(plain, task));
    const std::optional<Bytes> budget = Bytes{store_all_peaks.back().count * 3 / 4};
    const TapeOutcome outcome = rotor_strategy.tapes(task, options, std::span(&budget, 1), nullptr).front();
    REQUIRE(std::holds_alternative<PlannedTape>(outcome));
    const auto& planned = std::get<PlannedTape>(outcome);
    CHECK(planned.peak <= *budget);
    const TapeCost cost = tape_cost(problem, partition.parts[p], planned.tape);
    promised.push_back(cost.peak + static_cast<std::int64_t>(in_flight - 1) * cost.kept);
    CHECK(planned.peak == promised.back());
    tapes.push_back(planned.tape);
  }
  const Schedule schedule = lowered(problem, partition, tapes);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  const Timeline timeline = simulate_event(schedule, problem.platform);
  const std::vector<Bytes> counted = recount(schedule, timeline, problem.platform);
  for (std::size_t d = 0; d < 4; ++d) {
    CHECK(timeline.peaks[d].bytes == counted[d]);
    CHECK(counted[d] == promised[d]);
    CHECK(counted[d] < store_all_peaks[d]);
  }
}

}  // namespace
}  // namespace plimsoll
