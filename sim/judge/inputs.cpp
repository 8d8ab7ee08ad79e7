// The judge of inputs: an op computes where its values are, and reads exactly those that it needs: of its micro-batch,
// replica and version, all bytes of them; of attention those of the slices before it, too. Rules: missing_input,
// wrong_value, and wrong_place, incomplete, repeated and lossy of what an op reads.

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "sim/core/containers/in_order.h"
#include "sim/core/slices.h"
#include "sim/judge/holdings.h"
#include "sim/judge/judges.h"
#include "sim/judge/packed_use.h"
#include "sim/judge/versions.h"

namespace plimsoll {
namespace {

class InputJudge final : public Judge {
 public:
  InputJudge(Walk& walk, VersionJudge& versions) : Judge(walk), versions_(versions) {}
  void runs_op(StepId s) override;

 private:
  /// The network's input appears where its first reader allocates it, once in every memory.
  void load_input(StepId s, const Op& op);
  /// Of the buffers in `given_`: all of the tensor, of that micro-batch.
  void judge_input(StepId s, TensorId t, std::uint32_t micro_batch);
  /// Of slices of sequences: what it reads of those before, and who must have been there before it.
  void judge_slices(StepId s, const Op& op);

  VersionJudge& versions_;
  std::map<HeldAt, Bytes> loaded_;  ///< of network inputs, by the ops that read them first
  struct Given {
    BufferId buffer;
    StorageId storage;
  };
  std::vector<Given> given_;                                   ///< what the step reads, writes and allocates
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;  ///< of an input, in those: offsets and lengths
};

void InputJudge::runs_op(StepId s) {
  const Step& step = schedule_[s];
  const Op& op = graph_[step.op];
  const std::optional<MemoryId> own = walk_.own_memory(step);
  given_.clear();
  for (const Slice& slice : {step.reads, step.writes, step.allocates}) {
    for (const BufferId b : schedule_.buffers_in(slice)) {
      if (schedule_[b].memory != own) report(Rule::wrong_place, s, b, "computes in another memory than that of");
      given_.push_back({b, walk_.storage_of(b)});
    }
  }
  load_input(s, op);
  for (const TensorId t : op.inputs) judge_input(s, t, step.micro_batch);
  if (walk_.slices > 1) judge_slices(s, op);
}

void InputJudge::load_input(StepId s, const Op& op) {
  for (const BufferId b : schedule_.buffers_in(schedule_[s].allocates)) {
    const TensorId t = schedule_[b].tensor;
    if (graph_[t].kind != TensorKind::input) continue;
    if (std::ranges::find(op.inputs, t) == op.inputs.end()) continue;
    holdings_.fill(s, b, {t});
    Bytes& loaded = loaded_[holdings_.place_of(b)];
    loaded += schedule_[b].range_length;
    if (loaded > graph_[t].bytes) report(Rule::repeated, s, b, "loads the network's input a second time, into");
  }
}

void InputJudge::judge_input(StepId s, TensorId t, std::uint32_t micro_batch) {
  const Step& step = schedule_[s];
  const std::size_t readable = step.reads.count + step.writes.count;
  const auto name = [&] {
    const std::string of = micro_batch == step.micro_batch ? "" : " of micro-batch " + std::to_string(micro_batch);
    return "'" + graph_[t].name + "'" + of;
  };
  ranges_.clear();
  std::optional<BufferId> wrong;
  std::string_view why;
  const std::uint32_t version = versions_.needed(s, t);
  bool is_reported = false;
  const StorageId storage = graph_[t].storage;
  for (std::size_t g = 0; g < given_.size(); ++g) {
    if (given_[g].storage != storage) continue;
    const BufferId b = given_[g].buffer;
    const Buffer& buffer = schedule_[b];
    if (g >= readable && graph_[t].kind != TensorKind::input) continue;
    const HeldValue& held = holdings_[b];
    if (held.life != Life::live) continue;  // reported as not resident
    if (!walk_.belongs(buffer, step, micro_batch)) {
      if (micro_batch != step.micro_batch) continue;  // its own slice's
      wrong = b;
      why = "of another micro-batch or replica";
    } else if (std::ranges::find(held.tensors, t) == held.tensors.end()) {
      wrong = b;
      why = "which does not hold it at this point";
    } else if (held.version != version) {
      wrong = b;
      why = "which has been updated already";
      if (!schedule_.updates.are_synchronous()) {
        is_reported = true;
        report(Rule::wrong_value, s, b,
               "needs version " + std::to_string(version) + " of " + name() + " but reads version " +
                   std::to_string(held.version) + " in");
      }
    } else {
      const Does does = buffer.is_packed() ? plimsoll::does(walk_, graph_[step.op], b) : Does::with_packed;
      if (does == Does::without) report(Rule::lossy, s, b, "computes on compressed");
      if (does == Does::with_packed_beside) continue;  // others of its layers read the value
      if (graph_[t].kind == TensorKind::parameter_gradient && !walk_.is_complete(b)) {
        report(Rule::incomplete, s, b, "reads, before all contributions are in it,");
      }
      if (walk_.is_update(s)) walk_.used_gradients.insert({t, step.replica});
      ranges_.emplace_back(buffer.range_offset.count, buffer.range_length.count);
    }
  }
  if (ranges_.empty() && is_reported) return;
  if (ranges_.empty() && wrong) {
    return report(Rule::wrong_value, s, wrong,
                  text(s) + " needs " + name() + " but reads " + text(*wrong) + " " + std::string(why));
  }
  if (ranges_.empty()) return report(Rule::missing_input, s, text(s) + " does not read " + name() + ", which it needs");
  put_in_order(ranges_);
  std::int64_t covered = 0;
  for (const auto& [offset, length] : ranges_) {
    if (offset <= covered) covered = std::max(covered, offset + length);
  }
  if (covered < graph_[t].bytes.count) {
    report(Rule::missing_input, s,
           text(s) + " reads only a part of " + name() + ": bytes from " + std::to_string(covered) + " on are missing");
  }
}

void InputJudge::judge_slices(StepId s, const Op& op) {
  const std::optional<TensorId> attended = attended_by(graph_, op);
  if (!attended) return;
  const Step& step = schedule_[s];
  const std::uint32_t first = step.micro_batch - step.micro_batch % walk_.slices;
  for (std::uint32_t earlier = first; earlier < step.micro_batch; ++earlier) judge_input(s, *attended, earlier);
  if (!is_backward(op.phase)) return;
  // What later slices add to its gradients must be in there.
  const std::uint32_t end = std::min(first + walk_.slices, schedule_.micro_batches);
  for (std::uint32_t later = step.micro_batch + 1; later < end; ++later) {
    if (walk_.runs_of(step.op, later, step.replica) > 0) continue;
    report(Rule::incomplete, s,
           text(s) + " comes before that of micro-batch " + std::to_string(later) +
               ", a later slice of its sequence, which adds to its gradients");
  }
  for (const auto& [b, storage] : given_) {
    if (schedule_[b].tensor != *attended || !walk_.belongs(schedule_[b], step)) continue;
    for (const StepId reader : holdings_[b].readers) {
      if (walk_.ordered(reader, s) || schedule_[reader].micro_batch == step.micro_batch) continue;
      report(Rule::not_ordered, s, b,
             "reads, without waiting for step " + std::to_string(reader.index) + " of a later slice that adds to it,");
    }
  }
}

}  // namespace

std::unique_ptr<Judge> input_judge(Walk& walk, VersionJudge& versions) {
  return std::make_unique<InputJudge>(walk, versions);
}

}  // namespace plimsoll
