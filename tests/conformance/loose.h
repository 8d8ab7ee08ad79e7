#pragma once
// Schedules whose steps can be dropped, swapped and changed, for tests that falsify them.

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "sim/core/schedule.h"
#include "sim/model/problem.h"
#include "tests/generate/random.h"

namespace plimsoll {

/// A schedule whose steps own their lists, so that steps can be dropped, swapped and changed.
struct Loose {
  struct LooseStep {
    Step step;
    std::vector<BufferId> reads, writes, allocates, frees;
    std::vector<StepId> waits;
  };

  Schedule schedule;
  std::vector<LooseStep> steps;

  explicit Loose(const Schedule& from) : schedule(from) {
    for (const Step& step : from.steps) {
      const auto list = [&](Slice slice) {
        const auto span = from.buffers_in(slice);
        return std::vector<BufferId>(span.begin(), span.end());
      };
      const auto waits = from.waits_of(step);
      steps.push_back({step,
                       list(step.reads),
                       list(step.writes),
                       list(step.allocates),
                       list(step.frees),
                       {waits.begin(), waits.end()}});
    }
  }

  /// Removes a step; whoever waited for it waits for what it waited for, so that only its effect is missing.
  void drop(std::size_t dropped) {
    const std::vector<StepId> instead = steps[dropped].waits;
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(dropped));
    for (LooseStep& s : steps) {
      std::vector<StepId> waits;
      for (const StepId wait : s.waits) {
        if (wait.index == dropped) {
          waits.insert(waits.end(), instead.begin(), instead.end());
        } else {
          waits.push_back({wait.index > dropped ? wait.index - 1 : wait.index});
        }
      }
      s.waits = waits;
    }
  }

  Schedule packed() const {
    Schedule made = schedule;
    made.steps.clear();
    made.buffer_list.clear();
    made.wait_list.clear();
    const auto append = [](auto& list, const auto& items) {
      const Slice slice{static_cast<std::uint32_t>(list.size()), static_cast<std::uint32_t>(items.size())};
      list.insert(list.end(), items.begin(), items.end());
      return slice;
    };
    for (const LooseStep& s : steps) {
      Step step = s.step;
      step.reads = append(made.buffer_list, s.reads);
      step.writes = append(made.buffer_list, s.writes);
      step.allocates = append(made.buffer_list, s.allocates);
      step.frees = append(made.buffer_list, s.frees);
      step.waits = append(made.wait_list, s.waits);
      made.steps.push_back(step);
    }
    return made;
  }
};

/// Breaks the schedule in one way at a random place; false where the schedule offers no such place.
using Mutation = std::function<bool(Loose&, const Problem&, Random&)>;

template <class Matches>
std::optional<std::size_t> pick(const Loose& loose, Random& random, Matches matches) {
  std::vector<std::size_t> places;
  for (std::size_t s = 0; s < loose.steps.size(); ++s) {
    if (matches(loose.steps[s], s)) places.push_back(s);
  }
  if (places.empty()) return std::nullopt;
  return places[random.below(static_cast<std::uint32_t>(places.size()))];
}

}  // namespace plimsoll
