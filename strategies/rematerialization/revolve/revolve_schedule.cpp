#include "strategies/rematerialization/revolve/revolve_schedule.h"

#include "sim/core/expects.h"

namespace plimsoll {

RevolveSchedule::RevolveSchedule(std::size_t stages, std::size_t most_slots) : stages_{stages} {
  EXPECTS(stages > 0 && most_slots > 0);
  table_.resize(most_slots * (stages + 1));
  for (std::size_t s = 1; s <= most_slots; ++s) {
    for (std::size_t n = 2; n <= stages; ++n) {
      const auto all = static_cast<std::int64_t>(n);
      Entry best{all * (all - 1) / 2, static_cast<std::uint32_t>(n - 1)};
      // The cost is convex in j, and the best j does not fall from n - 1 to n and moves by one at most.
      const std::size_t from = s > 1 && n > 2 ? entry(n - 1, s).split : 1;
      for (std::size_t j = from; s > 1 && j <= from + 1 && j < n; ++j) {
        const std::int64_t forwards =
            static_cast<std::int64_t>(j) + entry(n - j, s - 1).forwards + entry(j, s).forwards;
        if (forwards < best.forwards || (forwards == best.forwards && j < best.split)) {
          best = {forwards, static_cast<std::uint32_t>(j)};
        }
      }
      table_[(s - 1) * (stages + 1) + n] = best;
    }
  }
}

ChainSequence RevolveSchedule::sequence(std::size_t slots) const {
  ChainSequence sequence;
  append(sequence, 0, stages_, slots);
  return sequence;
}

void RevolveSchedule::append(ChainSequence& sequence, std::size_t first, std::size_t stages, std::size_t slots) const {
  using Kind = ChainStep::Kind;
  // The first checkpoint stays while what is behind the next one is reversed, then the stages before that one follow.
  while (stages > 1) {
    const std::size_t j = entry(stages, slots).split;
    for (std::size_t i = first; i < first + j; ++i) sequence.push_back({Kind::forward, i});
    append(sequence, first + j, stages - j, slots > 1 ? slots - 1 : 1);
    stages = j;
  }
  sequence.push_back({Kind::forward_saving, first});
  sequence.push_back({Kind::backward, first});
}

}  // namespace plimsoll
