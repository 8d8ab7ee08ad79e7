// Versions: which value of its parameters a step must read where updates come within an iteration, by what the header
// declares and what the steps before have done.

#include <algorithm>

#include "sim/core/collective_op.h"
#include "sim/judge/judge.h"

namespace plimsoll {

void Judge::judge_header_updates() {
  const auto bad = [this](const std::string& what) { report(Rule::malformed, std::nullopt, std::nullopt, what); };
  const std::uint32_t every = schedule_.updates.every, all = schedule_.micro_batches;
  if (schedule_.updates.are_synchronous()) {
    if (every != 0 || schedule_.staleness != 0) {
      bad("the header states what only updates within an iteration have: 'update_every' or 'staleness'");
    }
    return;
  }
  if (every == 0 || all % every != 0) {
    bad("an update every " + std::to_string(every) + " micro-batches does not take " + std::to_string(all));
  }
  if (schedule_.gradients == Gradients::existing) {
    bad("gradients that exist from the start, which nothing clears between the updates of an iteration");
  }
}

std::uint32_t Judge::updates() const {
  const std::uint32_t every = schedule_.updates.every;
  return schedule_.updates.are_synchronous() || every == 0 ? 1 : schedule_.micro_batches / every;
}

std::uint32_t Judge::micro_batches_of_update() const {
  const std::uint32_t every = schedule_.updates.every;
  return schedule_.updates.are_synchronous() || every == 0 ? schedule_.micro_batches : every;
}

/// An update reads what the updates before it have left. What a micro-batch has read of a parameter once, it reads
/// again; the first time it is the newest version that any step before has made, or what the second buffer holds.
/// What hands an updated parameter's shares out reads what the update has left.
std::uint32_t Judge::needed_version(StepId s, TensorId t) {
  if (hands_out(s) && graph_[t].kind == TensorKind::parameter) return updates();
  if (schedule_.updates.are_synchronous()) return 0;
  const Step& step = schedule_[s];
  const StorageId storage = graph_[t].storage;
  const bool is_gradient = graph_[t].kind == TensorKind::parameter_gradient;
  if (step_is_update(s)) return is_gradient || is_updated_[storage.index] ? step.micro_batch : 0;
  if (!is_updated_[storage.index]) return 0;
  const std::uint32_t own = update_of(step.micro_batch);
  std::uint32_t version = own == 0 ? 0 : own - 1;
  if (schedule_.updates.versions == Versions::stashed) {
    const std::uint32_t newest = newest_[{storage, step.replica}];
    version = read_.try_emplace({storage, step.micro_batch, step.replica}, newest).first->second;
  }
  const std::uint32_t lacking = own > version ? own - version : 0;
  most_stale_ = std::max(most_stale_, lacking);
  if (lacking > schedule_.staleness) {
    report(Rule::wrong_value, s,
           text(s) + " reads '" + graph_[t].name + "' without " + std::to_string(lacking) +
               " of the updates before its own; the header declares " + std::to_string(schedule_.staleness));
  }
  return version;
}

bool Judge::hands_out(StepId s) const {
  return step_is_update(s) && collective_of(graph_[schedule_[s].op]).has_value();
}

void Judge::note_updated(StepId s, BufferId b) {
  const Step& step = schedule_[s];
  Held& held = held_in(b);
  if (hands_out(s) && graph_[schedule_[b].tensor].kind == TensorKind::parameter) return;
  const std::uint32_t after = step_is_update(s) ? step.micro_batch + 1 : 1;
  if (held.version >= after) report(Rule::repeated, s, b, "updates again");
  held.version = after;
  std::uint32_t& newest = newest_[{graph_[schedule_[b].tensor].storage, step.replica}];
  newest = std::max(newest, after);
}

void Judge::judge_staleness() {
  if (most_stale_ >= schedule_.staleness) return;
  report(Rule::malformed, std::nullopt, std::nullopt,
         "the header declares that " + std::to_string(schedule_.staleness) + " updates are not read, but " +
             std::to_string(most_stale_) + " are at most");
}

std::vector<bool> Judge::newest_at_home() {
  using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;  // from, to
  std::vector<bool> there(schedule_.resident.size(), false);
  if (schedule_.updates.are_synchronous()) return there;
  std::map<Place, Ranges> newest;
  for (std::size_t index = 0; index < schedule_.buffers.size(); ++index) {
    const auto b = id_at<BufferId>(index);
    const Buffer& buffer = schedule_[b];
    if (life_of(b) != Life::live || held_in(b).version != updates() || buffer.is_packed()) continue;
    newest[place_of(b)].emplace_back(buffer.range_offset.count, (buffer.range_offset + buffer.range_length).count);
  }
  for (auto& [place, ranges] : newest) std::ranges::sort(ranges);
  for (std::size_t r = 0; r < there.size(); ++r) {
    const Buffer& home = schedule_[schedule_.resident[r]];
    const auto found = newest.find(place_of(schedule_.resident[r]));
    if (found == newest.end()) continue;
    std::int64_t covered = home.range_offset.count;
    for (const auto& [from, to] : found->second) {
      if (from <= covered) covered = std::max(covered, to);
    }
    there[r] = covered >= (home.range_offset + home.range_length).count;
  }
  return there;
}

}  // namespace plimsoll
