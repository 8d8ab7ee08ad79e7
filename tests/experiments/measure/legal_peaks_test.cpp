// The range of peaks that a schedule's order allows, against a walk through every order.

#include "experiments/measure/legal_peaks.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <string_view>

#include "sim/engine/event/event_engine.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// Every state that some order of starts and finishes comes to: how far each stream is, in half steps.
class EveryOrder {
 public:
  EveryOrder(const Schedule& schedule, MemoryId memory) : schedule_(schedule), memory_(memory) {
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      own_.resize(schedule.streams.size());
      own_[schedule.steps[s].stream.index].push_back(s);
    }
    for (const BufferId b : schedule.resident) resident_ += bytes_of(b);
    least_ = least_from(std::vector<std::size_t>(schedule.streams.size()), resident_);
  }

  std::int64_t least() const { return least_; }
  std::int64_t most() const { return most_; }
  std::size_t states() const { return seen_.size(); }

 private:
  std::int64_t bytes_of(BufferId b) const { return schedule_[b].memory == memory_ ? schedule_[b].bytes.count : 0; }
  std::int64_t sum(Slice slice) const {
    std::int64_t bytes = 0;
    for (const BufferId b : schedule_.buffers_in(slice)) bytes += bytes_of(b);
    return bytes;
  }
  bool has_finished(const std::vector<std::size_t>& state, StepId s) const {
    const std::size_t stream = schedule_[s].stream.index;
    const auto place = std::ranges::find(own_[stream], std::size_t{s.index}) - own_[stream].begin();
    return state[stream] >= 2 * (static_cast<std::size_t>(place) + 1);
  }

  /// The smallest peak that an order from here on can have, this state included.
  std::int64_t least_from(std::vector<std::size_t> state, std::int64_t live) {
    const auto found = seen_.find(state);
    if (found != seen_.end()) return found->second;
    most_ = std::max(most_, live);
    std::optional<std::int64_t> best;
    for (std::size_t stream = 0; stream < own_.size(); ++stream) {
      if (state[stream] == 2 * own_[stream].size()) continue;
      const Step& step = schedule_.steps[own_[stream][state[stream] / 2]];
      const bool starts = state[stream] % 2 == 0;
      if (starts && !std::ranges::all_of(schedule_.waits_of(step), [&](StepId w) { return has_finished(state, w); })) {
        continue;
      }
      const std::int64_t workspace = memory_ == MemoryId{0} ? step.workspace.count : 0;  // one device, its memory first
      const std::int64_t change = starts ? sum(step.allocates) + workspace : -sum(step.frees) - workspace;
      ++state[stream];
      const std::int64_t after = least_from(state, live + change);
      --state[stream];
      best = std::min(best.value_or(after), after);
    }
    return seen_[state] = std::max(live, best.value_or(live));
  }

  const Schedule& schedule_;
  MemoryId memory_;
  std::vector<std::vector<std::size_t>> own_;
  std::map<std::vector<std::size_t>, std::int64_t> seen_;
  std::int64_t resident_ = 0, least_ = 0, most_ = 0;
};

TEST_CASE("the range of legal peaks holds every order, and its upper end is one of them", "[legal_peaks]") {
  constexpr BytesPerSecond slow{7};
  std::size_t wide = 0, tight = 0, all = 0;
  for (const RandomCase seed : random_cases(1, 12)) {
    const Problem problem = problem_of(random_small_chain(seed, 3 + seed % 3), gpus({.to_host = slow, .adam = slow}),
                                       {.optimizer = Optimizer::adam});
    for (const char* spec : {"store_all", "vdnn", "save_on_cpu", "capuchin", "zero_offload", "rotor|offload_greedy"}) {
      INFO("seed " << seed << ", " << spec);
      const auto is_update = [](const Op& op) { return op.phase == Phase::update; };
      if (spec == std::string_view("zero_offload") && std::ranges::none_of(problem.graph.ops, is_update)) continue;
      const std::optional<Bytes> none;
      const PlanOutcome outcome = plan(problem, parse_spec(spec, "strategy"), none);
      if (!std::holds_alternative<Plan>(outcome)) continue;
      const Schedule& schedule = std::get<Plan>(outcome).schedule;
      const Timeline simulated = simulate_event(schedule, problem.platform);
      for (const MemoryId memory : {MemoryId{0}, MemoryId{1}}) {
        const LegalPeaks legal = legal_peaks(schedule, problem.platform, memory);
        const EveryOrder every(schedule, memory);
        REQUIRE(every.states() < 200'000);
        CHECK(legal.most == Bytes{every.most()});
        CHECK(legal.least <= Bytes{every.least()});
        CHECK(simulated.peaks[memory.index].bytes <= legal.most);
        CHECK(simulated.peaks[memory.index].bytes >= legal.least);
        ++all;
        wide += legal.least < legal.most ? 1 : 0;
        tight += legal.least == Bytes{every.least()} ? 1 : 0;
      }
    }
  }
  CHECK(wide > 10);        // or nothing was tested
  CHECK(2 * tight > all);  // the bound below is no idle one
}

}  // namespace
}  // namespace plimsoll
