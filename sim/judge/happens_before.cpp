#include "sim/judge/happens_before.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {

HappensBefore::HappensBefore(const Schedule& schedule, std::size_t most_entries, std::size_t copy_entries)
    : schedule_(schedule), most_entries_(most_entries) {
  find_waited_for(copy_entries);
  clocks_.emplace_back(columns_, 0U);
  clock_of_stream_.assign(schedule.streams.size(), Clock{0});
  holders_.push_back(static_cast<std::uint32_t>(schedule.streams.size()) + 1);  // the first clock is never given back
  clock_of_step_.resize(schedule.steps.size());
}

void HappensBefore::find_waited_for(std::size_t copy_entries) {
  std::vector<std::uint32_t> issued(schedule_.streams.size(), 0);
  std::vector<bool> needs_column(schedule_.streams.size(), false);
  std::size_t computing = 0, copying = 0;
  column_.assign(schedule_.streams.size(), no_column);
  gates_.resize(schedule_.streams.size());
  waiters_.assign(schedule_.steps.size(), 0);
  position_.reserve(schedule_.steps.size());
  for (const Step& step : schedule_.steps) {
    for (const StepId wait : schedule_.waits_of(step)) {
      EXPECTS(wait.index < position_.size());
      const StreamId on = schedule_[wait].stream;
      if (on == step.stream) continue;
      ++waiters_[wait.index];
      const bool computes = schedule_[on].way.computes();
      if (needs_column[on.index] || (!computes && schedule_[step.stream].way.computes())) continue;
      needs_column[on.index] = true;
      ++(computes ? computing : copying);
    }
    position_.push_back(++issued[step.stream.index]);
  }
  const bool copies_have = copying <= copy_entries * computing;
  for (std::size_t s = 0; s < column_.size(); ++s) {
    if (needs_column[s] && (copies_have || schedule_.streams[s].way.computes()))
      column_[s] = static_cast<std::uint32_t>(columns_++);
  }
}

bool HappensBefore::next() {
  ++current_.index;  // from its largest value to 0 at first
  const Step& step = schedule_[current_];
  if (!merge_waits(step)) return false;
  if (waiters_[current_.index] > 0) {
    clock_of_step_[current_.index] = clock_of_stream_[step.stream.index];
    ++holders_[clock_of_step_[current_.index]];
  }
  return true;
}

bool HappensBefore::merge_waits(const Step& step) {
  Clock& own = clock_of_stream_[step.stream.index];
  for (const StepId wait : schedule_.waits_of(step)) {
    const StreamId on = schedule_[wait].stream;
    if (on == step.stream) continue;
    const std::uint32_t column = column_[on.index], position = position_[wait.index];
    const bool known = is_known(wait);  // and with it all that it waited for
    if (!known && holders_[own] > 1) {  // others hold it as it is
      const std::optional<Clock> copy = new_clock();
      if (!copy) return false;
      clocks_[*copy] = clocks_[own];
      --holders_[own];
      own = *copy;
    }
    if (!known) {
      std::vector<std::uint32_t>& mine = clocks_[own];
      const std::vector<std::uint32_t>& theirs = clocks_[clock_of_step_[wait.index]];
      for (std::size_t c = 0; c < columns_; ++c) mine[c] = std::max(mine[c], theirs[c]);
      if (column != no_column) mine[column] = position;
    }
    if (column == no_column) pass_gate(on, position);
    if (--waiters_[wait.index] == 0) release(clock_of_step_[wait.index]);
  }
  return true;
}

std::optional<HappensBefore::Clock> HappensBefore::new_clock() {
  if (!unused_.empty()) {
    const Clock clock = unused_.back();
    unused_.pop_back();
    holders_[clock] = 1;
    return clock;
  }
  if ((clocks_.size() + 1) * columns_ > most_entries_) return std::nullopt;
  clocks_.emplace_back();
  holders_.push_back(1);
  return static_cast<Clock>(clocks_.size() - 1);
}

void HappensBefore::release(Clock clock) {
  if (--holders_[clock] == 0) unused_.push_back(clock);
}

bool HappensBefore::finished(StepId earlier) const {
  return schedule_[earlier].stream == schedule_[current_].stream ? earlier < current_ : is_known(earlier);
}

/// Of a step on another stream.
bool HappensBefore::is_known(StepId earlier) const {
  std::vector<Reached> asked;
  return is_known({schedule_[earlier].stream, position_[earlier.index]}, asked);
}

/// `asked` are steps of streams without a column that the search has come to; none of them is looked at twice.
bool HappensBefore::is_known(Reached of, std::vector<Reached>& asked) const {
  const StreamId here = schedule_[current_].stream;
  const std::vector<std::uint32_t>& mine = clocks_[clock_of_stream_[here.index]];
  if (column_[of.on.index] != no_column) return mine[column_[of.on.index]] >= of.steps;
  const std::vector<Gate>& gates = gates_[of.on.index];
  /// The first step of the gate's stream that has waited for them; none: one that is never reached.
  const auto waiting = [&](const Gate& gate) {
    const auto first = std::ranges::lower_bound(gate.waits, of.steps, {}, &Gate::Wait::reached);
    return first == gate.waits.end() ? UINT32_MAX : first->step;
  };
  for (const Gate& gate : gates) {
    const std::uint32_t its_column = column_[gate.by.index];
    const std::uint32_t steps = gate.by == here           ? position_[current_.index]
                                : its_column == no_column ? 0
                                                          : mine[its_column];
    if (waiting(gate) <= steps) return true;
  }
  for (const Gate& gate : gates) {
    if (gate.by == here || column_[gate.by.index] != no_column) continue;
    const Reached next{gate.by, waiting(gate)};
    if (next.steps == UINT32_MAX) continue;
    const auto before = std::ranges::find(asked, next.on, &Reached::on);
    if (before == asked.end()) {
      asked.push_back(next);
    } else if (next.steps < before->steps) {
      before->steps = next.steps;
    } else {
      continue;
    }
    if (is_known(next, asked)) return true;
  }
  return false;
}

/// The current step waits for the stream's first `reached` steps.
void HappensBefore::pass_gate(StreamId of, std::uint32_t reached) {
  const StreamId here = schedule_[current_].stream;
  std::vector<Gate>& gates = gates_[of.index];
  auto gate = std::ranges::find(gates, here, &Gate::by);
  if (gate == gates.end()) gate = gates.insert(gate, Gate{here, {}});
  if (gate->waits.empty() || gate->waits.back().reached < reached) {
    gate->waits.push_back({position_[current_.index], reached});
  }
}

}  // namespace plimsoll
