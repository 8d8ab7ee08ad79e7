// The whole: every op has run, every gradient is complete, the next iteration finds what this one found.

#include "sim/core/judge.h"

#include <map>
#include <set>

namespace plimsoll {

void Judge::judge_completeness() {
  for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
    const Op& op = graph_.ops[o];
    const std::uint32_t micro_batches = op.phase == Phase::update ? 1 : schedule_.micro_batches;
    for (std::uint32_t m = 0; m < micro_batches; ++m) {
      for (std::uint32_t r = 0; r < schedule_.replicas; ++r) {
        if (ran_.contains({static_cast<std::uint32_t>(o), m, r})) continue;
        report(Rule::incomplete, std::nullopt, std::nullopt,
               "'" + op.name + "' never runs for micro-batch " + std::to_string(m));
      }
    }
  }
  std::map<std::pair<TensorId, std::uint32_t>, bool> done;
  for (const auto& [tensor, makers] : makers_) {
    for (std::uint32_t r = 0; r < schedule_.replicas; ++r) done[{tensor, r}] = false;
  }
  for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
    const auto id = id_at<BufferId>(b);
    const auto place = done.find({schedule_[id].tensor, schedule_[id].replica});
    if (place != done.end() && held_[b].life == Life::live && complete(id)) place->second = true;
  }
  for (const auto& [gradient, is_done] : done) {
    if (is_done || used_.contains(gradient)) continue;
    report(Rule::incomplete, std::nullopt, std::nullopt,
           "'" + graph_[gradient.first].name + "' does not end with all contributions of replica " +
               std::to_string(gradient.second));
  }
  judge_next_iteration();
}

void Judge::judge_next_iteration() {
  std::set<TensorId> updated;
  for (const Op& op : graph_.ops) {
    if (op.phase == Phase::update) updated.insert(op.mutates.begin(), op.mutates.end());
  }
  for (const BufferId b : schedule_.resident) {
    const TensorKind kind = graph_[schedule_[b].tensor].kind;
    if (kind != TensorKind::parameter && kind != TensorKind::optimizer_state) continue;
    if (held_[b.index].life != Life::live) {
      report(Rule::incomplete, std::nullopt, b, text(b) + " is there at the start but not at the end");
    } else if (updated.contains(schedule_[b].tensor) && held_[b.index].version == 0) {
      report(Rule::incomplete, std::nullopt, b, text(b) + " does not end with the updated value");
    }
  }
}

}  // namespace plimsoll
