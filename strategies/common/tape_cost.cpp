#include "strategies/common/tape_cost.h"

#include <algorithm>
#include <vector>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

class TapeWalk {
 public:
  TapeWalk(const Problem& problem, const Part& part)
      : problem_(problem), graph_(problem.graph), part_(part), there_(graph_.storages) {
    if (holds_first_op(graph_, part)) {
      for (const TensorId t : unread_parameters(graph_)) make(t);
    }
    for (const OpId op : part.ops) {
      for (const TensorId t : graph_[op].inputs) {
        if (graph_[t].kind == TensorKind::parameter) make(t);
      }
      if (problem.gradients == Gradients::fresh) continue;
      for (const TensorId t : graph_[op].outputs) {
        if (graph_[t].kind == TensorKind::parameter_gradient) make(t);
      }
    }
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::update) continue;
      for (const TensorId t : op.inputs) {
        if (graph_[t].kind == TensorKind::optimizer_state && updated_here(op)) make(t);
      }
    }
    peak_ = live_;
    gradients_exist_ = problem.gradients == Gradients::existing;
  }

  void run(const Tape& tape) {
    backprop_ = tape.backprop;
    piece_ = PieceName::forward;
    for (const Action& action : tape.actions) {
      switch (action.kind) {
        case ActionKind::run:
          if (action.at == place::device) compute(action);
          break;
        case ActionKind::copy:
        case ActionKind::move:
          if (action.to == place::device) arrive(action.tensor, action.chunk);
          break;
        case ActionKind::receive:
          arrive(action.tensor, {});
          break;
        case ActionKind::drop:
          if (action.at == place::device) drop(action.tensor, action.chunk);
          break;
        case ActionKind::cut:
          note_kept(action.next);
          break;
        case ActionKind::pack:
        case ActionKind::unpack:
          EXPECTS(false && "a tape without packed forms");
        case ActionKind::send:
        case ActionKind::wait:
          break;
      }
    }
    gradients_exist_ = true;
  }

  /// Where updates run on the device, once the tape has ended.
  Bytes at_updates() const {
    Bytes workspace;
    for (const Op& op : graph_.ops) {
      if (op.phase == Phase::update && updated_here(op)) workspace = std::max(workspace, op.workspace);
    }
    return workspace > Bytes{0} ? live_ + workspace : Bytes{0};
  }

  Bytes peak() const { return peak_; }
  Bytes kept() const { return kept_; }
  Bytes kept_for_weights() const { return kept_for_weights_; }
  Seconds time() const { return time_; }

 private:
  /// Views are never run.
  static bool holds_first_op(const Graph& graph, const Part& part) {
    const auto first = std::ranges::find(graph.ops, false, &Op::is_view);
    const OpId id = id_at<OpId>(static_cast<std::size_t>(first - graph.ops.begin()));
    return std::ranges::find(part.ops, id) != part.ops.end();
  }

  bool updated_here(const Op& update) const {
    return std::ranges::any_of(update.inputs, [&](TensorId t) {
      return graph_[t].kind == TensorKind::parameter && there_[graph_[t].storage.index].is_whole;
    });
  }

  /// What of a storage is on the device.
  struct There {
    bool is_whole = false;
    Bytes bytes;
  };

  void count(TensorId t, Bytes bytes) {
    live_ += bytes;
    if (per_micro_batch(graph_[t].kind)) in_flight_ += bytes;
  }

  void make(TensorId t) {
    There& there = there_[graph_[t].storage.index];
    if (there.is_whole) return;
    count(t, graph_[t].bytes - there.bytes);
    there = {true, graph_[t].bytes};
  }

  void arrive(TensorId t, Chunk chunk) {
    if (chunk.count == 1) {
      make(t);
    } else {
      There& there = there_[graph_[t].storage.index];
      const Bytes length = range_of(graph_[t].bytes, chunk).length;
      count(t, length);
      there.bytes += length;
      there.is_whole = there.bytes == graph_[t].bytes;
    }
    peak_ = std::max(peak_, live_);
  }

  void drop(TensorId t, Chunk chunk) {
    There& there = there_[graph_[t].storage.index];
    const Bytes length = chunk.count == 1 ? there.bytes : range_of(graph_[t].bytes, chunk).length;
    EXPECTS((chunk.count > 1 || there.is_whole) && length <= there.bytes);
    count(t, -1 * length);
    there.bytes -= length;
    there.is_whole = false;
  }

  void note_kept(PieceName next) {
    if (next == PieceName::weights) kept_for_weights_ = in_flight_;
    if (piece_ == PieceName::forward) kept_ = in_flight_;
    piece_ = next;
  }

  void compute(const Action& action) {
    const Op& op = graph_[action.op];
    const Saving saving = action.saving;
    for (const TensorId t : op.inputs) {
      if (graph_[t].kind == TensorKind::input) make(t);
      EXPECTS(there_[graph_[t].storage.index].is_whole);
    }
    bool makes_gradient = false, new_gradient = false;
    for (const TensorId t : op.outputs) {
      if (saving == Saving::nothing && std::ranges::find(op.saved, t) != op.saved.end()) continue;
      if (graph_[t].kind == TensorKind::parameter_gradient) {
        makes_gradient = true;
        new_gradient |= !there_[graph_[t].storage.index].is_whole;
      }
      make(t);
    }
    const bool existed = backprop_ == Backprop::by_stage ? !new_gradient : gradients_exist_;
    const bool accumulates = makes_gradient && existed;
    peak_ = std::max(peak_, live_ + workspace(op, saving, accumulates, action.implementation, backprop_));
    time_ += duration_on(problem_, action.op, part_.device, saving, action.implementation);
  }

  const Problem& problem_;
  const Graph& graph_;
  const Part& part_;
  std::vector<There> there_;  // by storage
  Bytes live_, in_flight_, peak_, kept_, kept_for_weights_;
  PieceName piece_ = PieceName::forward;
  Seconds time_;
  Backprop backprop_ = Backprop::by_stage;
  bool gradients_exist_ = false;  // before the backward
};

}  // namespace

TapeCost tape_cost(const Problem& problem, const Part& part, const Tape& tape) {
  TapeWalk walk(problem, part);
  walk.run(tape);
  const Seconds once = walk.time();
  if (problem.micro_batches > 1) walk.run(tape);
  Seconds all = static_cast<double>(problem.micro_batches) * once;
  for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
    if (problem.graph.ops[o].phase != Phase::update) continue;
    all += duration_on(problem, id_at<OpId>(o), part.device, Saving::keep);
  }
  return {.makespan = all,
          .peak = walk.peak(),
          .kept = walk.kept(),
          .kept_for_weights = walk.kept_for_weights(),
          .at_updates = walk.at_updates()};
}

}  // namespace plimsoll
