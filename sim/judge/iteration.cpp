// The judge of iterations: an iteration finds all parameters, and the next one finds what this one found, updated; its
// gradients have all contributions. Rules: incomplete, and malformed for a header that says otherwise when gradients
// appear.

#include <algorithm>
#include <map>
#include <set>

#include "sim/judge/holdings.h"
#include "sim/judge/judges.h"

namespace plimsoll {
namespace {

using FinalRanges = std::vector<std::pair<std::int64_t, std::int64_t>>;  // from, to

/// Whether the ranges have all bytes from the first to the last one.
bool cover(FinalRanges ranges, std::int64_t first, std::int64_t last) {
  std::ranges::sort(ranges);
  std::int64_t covered = first;
  for (const auto& [from, to] : ranges) {
    if (from <= covered) covered = std::max(covered, to);
  }
  return !ranges.empty() && covered >= last;
}

class IterationJudge final : public Judge {
 public:
  using Judge::Judge;
  void begin() override;
  void end() override;

 private:
  void judge_parameters();
  void judge_header_gradients();
  void judge_final_gradients();
  /// What was there at the start must be there at the end, updated: the next iteration begins with it.
  void judge_next_iteration();
  /// By resident buffer: whether the newest version of what it holds is where it is, in this buffer or another.
  std::vector<bool> newest_at_home();
};

void IterationJudge::begin() {
  judge_parameters();
  judge_header_gradients();
}

void IterationJudge::end() {
  judge_final_gradients();
  judge_next_iteration();
}

/// Every parameter is somewhere when an iteration begins, in every replica, whether an op reads it or not.
void IterationJudge::judge_parameters() {
  std::map<std::pair<StorageId, std::uint32_t>, Bytes> there;
  for (const BufferId b : schedule_.resident) {
    there[{graph_[schedule_[b].tensor].storage, schedule_[b].replica}] += schedule_[b].range_length;
  }
  for (const Tensor& tensor : graph_.tensors) {
    if (tensor.kind != TensorKind::parameter) continue;
    for (std::uint32_t r = 0; r < schedule_.replicas && !findings_.are_enough(); ++r) {
      const auto found = there.find({tensor.storage, r});
      if (found != there.end() && found->second >= tensor.bytes) continue;
      report(Rule::incomplete, std::nullopt, std::nullopt,
             "parameter '" + tensor.name + "' is nowhere in replica " + std::to_string(r) + " at the start");
    }
  }
}

/// Whether parameter gradients are there from the start is what the header says.
void IterationJudge::judge_header_gradients() {
  std::set<std::pair<TensorId, std::uint32_t>> there;
  for (const BufferId b : schedule_.resident) {
    const TensorId t = schedule_[b].tensor;
    if (walk_.makers[t.index].empty()) continue;
    there.insert({t, schedule_[b].replica});
    if (schedule_.gradients == Gradients::existing) continue;
    report(Rule::malformed, std::nullopt, b, text(b) + " is resident, but the header says that gradients are new");
  }
  if (schedule_.gradients == Gradients::fresh) return;
  for (std::size_t t = 0; t < walk_.makers.size(); ++t) {
    if (walk_.makers[t].empty()) continue;
    for (std::uint32_t r = 0; r < schedule_.replicas && !findings_.are_enough(); ++r) {
      if (there.contains({id_at<TensorId>(t), r})) continue;
      report(Rule::malformed, std::nullopt, std::nullopt,
             "'" + graph_.tensors[t].name + "' is not resident in replica " + std::to_string(r) +
                 ", but the header says that gradients exist from the start");
    }
  }
}

void IterationJudge::judge_final_gradients() {
  std::map<std::pair<TensorId, std::uint32_t>, FinalRanges> complete_ranges;  // by gradient and replica
  for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    if (walk_.makers[buffer.tensor.index].empty() || buffer.is_packed() ||
        holdings_.life_of(id_at<BufferId>(b)) != Life::live)
      continue;
    if (!walk_.is_complete(id_at<BufferId>(b))) continue;
    complete_ranges[{buffer.tensor, buffer.replica}].emplace_back(buffer.range_offset.count,
                                                                  (buffer.range_offset + buffer.range_length).count);
  }
  for (std::size_t t = 0; t < walk_.makers.size(); ++t) {
    if (walk_.makers[t].empty()) continue;
    for (std::uint32_t r = 0; r < schedule_.replicas && !findings_.are_enough(); ++r) {
      const std::pair gradient{id_at<TensorId>(t), r};
      const auto ranges = complete_ranges.find(gradient);
      if (ranges != complete_ranges.end() && cover(ranges->second, 0, graph_.tensors[t].bytes.count)) continue;
      if (walk_.used_gradients.contains(gradient)) continue;
      report(Rule::incomplete, std::nullopt, std::nullopt,
             "'" + graph_.tensors[t].name + "' does not end with all contributions of replica " + std::to_string(r));
    }
  }
}

void IterationJudge::judge_next_iteration() {
  const std::vector<bool> is_home = newest_at_home();
  for (std::size_t r = 0; r < is_home.size(); ++r) {
    const BufferId b = schedule_.resident[r];
    const TensorKind kind = graph_[schedule_[b].tensor].kind;
    if (kind == TensorKind::input) continue;
    const bool is_updated = walk_.is_updated[graph_[schedule_[b].tensor].storage.index];
    if (is_updated && is_home[r]) continue;
    if (holdings_.life_of(b) != Life::live) {
      report(Rule::incomplete, std::nullopt, b, text(b) + " is there at the start but not at the end");
    } else if (is_updated && holdings_[b].version < updates_of(schedule_)) {
      report(Rule::incomplete, std::nullopt, b, text(b) + " does not end with the updated value");
    }
  }
}

std::vector<bool> IterationJudge::newest_at_home() {
  std::vector<bool> there(schedule_.resident.size(), false);
  if (schedule_.updates.are_synchronous()) return there;
  std::map<HeldAt, FinalRanges> newest;
  for (std::size_t index = 0; index < schedule_.buffers.size(); ++index) {
    const auto b = id_at<BufferId>(index);
    const Buffer& buffer = schedule_[b];
    if (buffer.is_packed() || holdings_.life_of(b) != Life::live) continue;
    if (holdings_[b].version != updates_of(schedule_)) continue;
    newest[holdings_.place_of(b)].emplace_back(buffer.range_offset.count,
                                               (buffer.range_offset + buffer.range_length).count);
  }
  for (std::size_t r = 0; r < there.size(); ++r) {
    const Buffer& home = schedule_[schedule_.resident[r]];
    const auto found = newest.find(holdings_.place_of(schedule_.resident[r]));
    there[r] = found != newest.end() &&
               cover(found->second, home.range_offset.count, (home.range_offset + home.range_length).count);
  }
  return there;
}

}  // namespace

std::unique_ptr<Judge> iteration_judge(Walk& walk) {
  return std::make_unique<IterationJudge>(walk);
}

}  // namespace plimsoll
