#include "sim/judge/versions.h"

#include <algorithm>

#include "sim/core/collective_op.h"

namespace plimsoll {

void judge_header_updates(const Schedule& schedule, Findings& findings) {
  const auto bad = [&](const std::string& what) { findings.report(Rule::malformed, std::nullopt, std::nullopt, what); };
  const std::uint32_t every = schedule.updates.every, all = schedule.micro_batches;
  if (schedule.updates.are_synchronous()) {
    if (every != 0 || schedule.staleness != 0) {
      bad("the header states what only updates within an iteration have: 'update_every' or 'staleness'");
    }
    return;
  }
  if (every == 0 || all % every != 0) {
    bad("an update every " + std::to_string(every) + " micro-batches does not take " + std::to_string(all));
  }
  if (schedule.gradients == Gradients::existing) {
    bad("gradients that exist from the start, which nothing clears between the updates of an iteration");
  }
}

/// An update reads what the updates before it have left. What a micro-batch has read of a parameter once, it reads
/// again; the first time it is the newest version that any step before has made, or what the second buffer holds.
/// What hands an updated parameter's shares out reads what the update has left.
std::uint32_t VersionJudge::needed(StepId s, TensorId t) {
  if (hands_out(s) && graph_[t].kind == TensorKind::parameter) return updates_of(schedule_);
  if (schedule_.updates.are_synchronous()) return 0;
  const Step& step = schedule_[s];
  const StorageId storage = graph_[t].storage;
  const bool is_gradient = graph_[t].kind == TensorKind::parameter_gradient;
  if (walk_.is_update(s)) return is_gradient || walk_.is_updated[storage.index] ? step.micro_batch : 0;
  if (!walk_.is_updated[storage.index]) return 0;
  const std::uint32_t own = walk_.update_of(step.micro_batch);
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

bool VersionJudge::hands_out(StepId s) const {
  return walk_.is_update(s) && collective_of(graph_[schedule_[s].op]).has_value();
}

void VersionJudge::note_updated(StepId s, BufferId b) {
  const Step& step = schedule_[s];
  HeldValue& held = holdings_[b];
  if (hands_out(s) && graph_[schedule_[b].tensor].kind == TensorKind::parameter) return;
  const std::uint32_t after = walk_.is_update(s) ? step.micro_batch + 1 : 1;
  if (held.version >= after) report(Rule::repeated, s, b, "updates again");
  held.version = after;
  std::uint32_t& newest = newest_[{graph_[schedule_[b].tensor].storage, step.replica}];
  newest = std::max(newest, after);
}

void VersionJudge::end() {
  if (most_stale_ >= schedule_.staleness) return;
  report(Rule::malformed, std::nullopt, std::nullopt,
         "the header declares that " + std::to_string(schedule_.staleness) + " updates are not read, but " +
             std::to_string(most_stale_) + " are at most");
}

}  // namespace plimsoll
