#include "strategies/rematerialization/dtr/dtr_part_log.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace plimsoll {
namespace {

constexpr double nanoseconds_in_second = 1e9;

class Writer {
 public:
  Writer(const Problem& problem, const Part& part)
      : problem_(problem), graph_(problem.graph), part_(part), on_storage_(graph_.storages) {}

  PartLog run() {
    find_shared_storages();
    find_fixed_ops();
    find_ends();
    logged_.resize(graph_.tensors.size());
    base_.resize(graph_.storages);
    for (std::size_t k = 0; k < part_.ops.size(); ++k) write(k);
    return std::move(result_);
  }

 private:
  bool lives_here(TensorId t) const { return per_micro_batch(graph_[t].kind); }

  void find_shared_storages() {
    overwritten_.resize(graph_.tensors.size(), false);
    std::vector<bool> seen(graph_.tensors.size(), false);
    const auto note = [&](TensorId t) {
      if (!seen[t.index] && lives_here(t)) ++on_storage_[graph_[t].storage.index];
      seen[t.index] = true;
    };
    for (const OpId id : part_.ops) {
      const Op& op = graph_[id];
      std::ranges::for_each(op.inputs, note);
      std::ranges::for_each(op.outputs, note);
      for (const TensorId t : op.mutates) overwritten_[t.index] = true;
    }
  }

  bool must_not_repeat(const Op& op) const {
    const auto shares = [&](TensorId t) { return lives_here(t) && on_storage_[graph_[t].storage.index] > 1; };
    const auto is_gradient = [&](TensorId t) { return graph_[t].kind == TensorKind::parameter_gradient; };
    const auto is_overwritten = [&](TensorId t) { return overwritten_[t.index]; };
    return !op.recomputable || !op.mutates.empty() || std::ranges::any_of(op.outputs, is_gradient) ||
           std::ranges::any_of(op.outputs, shares) || std::ranges::any_of(op.inputs, is_overwritten);
  }

  /// Backward ops that read what cannot be computed again are not computed again either: else every gradient before
  /// them would have to stay.
  void find_fixed_ops() {
    std::vector<bool> fixed_backward(graph_.tensors.size(), false);
    for (const OpId id : part_.ops) {
      const Op& op = graph_[id];
      bool fixed = must_not_repeat(op);
      if (is_backward(op.phase)) {
        fixed |= std::ranges::any_of(op.inputs, [&](TensorId t) { return fixed_backward[t.index]; });
      }
      fixed_.push_back(fixed);
      if (!fixed || !is_backward(op.phase)) continue;
      for (const TensorId t : op.outputs) fixed_backward[t.index] = true;
    }
  }

  /// last_use_: the last op of the part that reads or makes it. needed_until_: the same over all that may be computed
  /// from it again.
  void find_ends() {
    last_use_.resize(graph_.tensors.size(), 0);
    producer_fixed_.resize(graph_.tensors.size(), true);  // inputs
    for (std::size_t k = 0; k < part_.ops.size(); ++k) {
      const Op& op = graph_[part_.ops[k]];
      for (const TensorId t : op.inputs) last_use_[t.index] = k;
      for (const TensorId t : op.outputs) {
        last_use_[t.index] = k;
        producer_fixed_[t.index] = fixed_[k];
      }
    }
    needed_until_ = last_use_;
    for (std::size_t k = part_.ops.size(); k-- > 0;) {
      if (fixed_[k]) continue;
      const Op& op = graph_[part_.ops[k]];
      std::size_t until = k;
      for (const TensorId t : op.outputs) until = std::max(until, needed_until_[t.index]);
      for (const TensorId t : op.inputs) needed_until_[t.index] = std::max(needed_until_[t.index], until);
    }
    ends_at_.resize(part_.ops.size());
    for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) {
      if (!lives_here({t})) continue;
      ends_at_[producer_fixed_[t] ? needed_until_[t] : last_use_[t]].push_back({t});
    }
  }

  TensorId add_tensor(TensorId t, Bytes bytes) {
    OpLog& log = result_.log;
    std::optional<TensorId>& base = base_[graph_[t].storage.index];
    log.tensors.push_back({graph_[t].name, base ? Bytes{} : bytes, base});
    const auto made = id_at<TensorId>(log.tensors.size() - 1);
    logged_[t.index] = made;
    if (lives_here(t) && on_storage_[graph_[t].storage.index] > 1 && !base) base = made;
    return made;
  }

  void add_call(LoggedCall call, std::optional<OpId> op) {
    result_.log.events.push_back({OpLog::EventKind::call, static_cast<std::uint32_t>(result_.log.calls.size())});
    result_.log.calls.push_back(std::move(call));
    result_.op_of.push_back(op);
  }

  void bring_in(TensorId input) {
    LoggedCall call;
    call.name = graph_[input].name;
    call.results = {add_tensor(input, graph_[input].bytes)};
    call.keep = Keep::until_released;
    add_call(std::move(call), std::nullopt);
  }

  /// Bytes of a parameter gradient count where it appears. With several micro-batches it is taken as there before.
  bool appears(TensorId gradient) {
    if (problem_.gradients != Gradients::fresh || problem_.micro_batches > 1) return false;
    bool& made = made_.try_emplace(gradient.index, false).first->second;
    return !std::exchange(made, true);
  }

  void write(std::size_t k) {
    const Op& op = graph_[part_.ops[k]];
    LoggedCall call;
    call.name = op.name;
    call.phase = op.phase;
    call.keep = fixed_[k] ? Keep::until_released : Keep::evictable;
    const Seconds duration = duration_on(problem_, part_.ops[k], part_.device, Saving::keep);
    call.nanoseconds = std::llround(duration.value * nanoseconds_in_second);
    call.workspace = op.workspace;
    if (problem_.micro_batches > 1 || problem_.gradients != Gradients::fresh) {
      call.workspace = std::max(call.workspace, op.accumulate_workspace.value_or(op.workspace));
    }
    for (const TensorId t : op.inputs) {
      if (!lives_here(t)) continue;
      if (!logged_[t.index]) bring_in(t);
      call.arguments.push_back(*logged_[t.index]);
    }
    for (const TensorId t : op.outputs) {
      if (!lives_here(t) && graph_[t].kind != TensorKind::parameter_gradient) continue;
      call.results.push_back(add_tensor(t, lives_here(t) || appears(t) ? graph_[t].bytes : Bytes{}));
    }
    if (call.results.empty()) {  // the log knows a call by its results
      result_.log.tensors.push_back({op.name, {}, {}});
      call.results.push_back(id_at<TensorId>(result_.log.tensors.size() - 1));
    }
    add_call(std::move(call), part_.ops[k]);
    for (const TensorId t : ends_at_[k]) {
      if (logged_[t.index]) result_.log.events.push_back({OpLog::EventKind::release, logged_[t.index]->index});
    }
  }

  const Problem& problem_;
  const Graph& graph_;
  const Part& part_;
  PartLog result_;
  std::vector<std::uint32_t> on_storage_;             // tensors of the part, by storage
  std::vector<bool> overwritten_, producer_fixed_;    // by tensor
  std::vector<bool> fixed_;                           // by place in the part
  std::vector<std::size_t> last_use_, needed_until_;  // by tensor: places in the part
  std::vector<std::vector<TensorId>> ends_at_;        // by place in the part
  std::vector<std::optional<TensorId>> logged_;       // by tensor
  std::vector<std::optional<TensorId>> base_;         // by storage that several tensors share: its first
  std::map<std::uint32_t, bool> made_;                // parameter gradients
};

}  // namespace

PartLog part_log(const Problem& problem, const Part& part) {
  return Writer(problem, part).run();
}

}  // namespace plimsoll
