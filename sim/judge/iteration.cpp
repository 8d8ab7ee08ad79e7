// The whole: every op has run, every gradient is complete, the next iteration finds what this one found.

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "sim/judge/judge.h"

namespace plimsoll {
namespace {

using FinalRanges = std::vector<std::pair<std::int64_t, std::int64_t>>;  // from, to

bool cover(FinalRanges ranges, std::int64_t bytes) {
  std::ranges::sort(ranges);
  std::int64_t covered = 0;
  for (const auto& [from, to] : ranges) {
    if (from <= covered) covered = std::max(covered, to);
  }
  return !ranges.empty() && covered >= bytes;
}

}  // namespace

void Judge::judge_completeness() {
  for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
    const Op& op = graph_.ops[o];
    if (op.is_view) continue;
    const bool is_update = op.phase == Phase::update;
    const std::size_t runs = std::size_t{is_update ? updates() : schedule_.micro_batches} * schedule_.replicas;
    const std::string_view what = is_update && !schedule_.updates.are_synchronous() ? "' never runs for update "
                                                                                    : "' never runs for micro-batch ";
    for (std::size_t run = 0; run < runs && found_.size() < limit_; ++run) {
      if (ran_[first_run_[o] + run] > 0) continue;
      report(Rule::incomplete, std::nullopt, std::nullopt,
             "'" + op.name + std::string(what) + std::to_string(run / schedule_.replicas));
    }
  }
  judge_places_of_ops();
  judge_final_gradients();
  judge_next_iteration();
  judge_approximate_list();
  judge_staleness();
}

void Judge::judge_final_gradients() {
  std::map<std::pair<TensorId, std::uint32_t>, FinalRanges> complete_ranges;  // by gradient and replica
  for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    if (makers_[buffer.tensor.index].empty() || buffer.is_packed() || life_of(id_at<BufferId>(b)) != Life::live)
      continue;
    if (!complete(id_at<BufferId>(b))) continue;
    complete_ranges[{buffer.tensor, buffer.replica}].emplace_back(buffer.range_offset.count,
                                                                  (buffer.range_offset + buffer.range_length).count);
  }
  for (std::size_t t = 0; t < makers_.size(); ++t) {
    if (makers_[t].empty()) continue;
    for (std::uint32_t r = 0; r < schedule_.replicas && found_.size() < limit_; ++r) {
      const std::pair gradient{id_at<TensorId>(t), r};
      const auto ranges = complete_ranges.find(gradient);
      if (ranges != complete_ranges.end() && cover(ranges->second, graph_.tensors[t].bytes.count)) continue;
      if (used_.contains(gradient)) continue;
      report(Rule::incomplete, std::nullopt, std::nullopt,
             "'" + graph_.tensors[t].name + "' does not end with all contributions of replica " + std::to_string(r));
    }
  }
}

void Judge::judge_next_iteration() {
  const std::vector<bool> is_home = newest_at_home();
  for (std::size_t r = 0; r < is_home.size(); ++r) {
    const BufferId b = schedule_.resident[r];
    const TensorKind kind = graph_[schedule_[b].tensor].kind;
    if (kind == TensorKind::input) continue;
    const bool is_updated = is_updated_[graph_[schedule_[b].tensor].storage.index];
    if (is_updated && is_home[r]) continue;
    if (life_of(b) != Life::live) {
      report(Rule::incomplete, std::nullopt, b, text(b) + " is there at the start but not at the end");
    } else if (is_updated && held_in(b).version < updates()) {
      report(Rule::incomplete, std::nullopt, b, text(b) + " does not end with the updated value");
    }
  }
}

}  // namespace plimsoll
