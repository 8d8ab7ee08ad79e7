#include "strategies/common/tape_cost.h"

#include <algorithm>
#include <vector>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

class TapeWalk {
 public:
  TapeWalk(const Problem& problem, const Part& part)
      : problem_(problem), graph_(problem.graph), part_(part), alive_(graph_.storages, false) {
    if (holds_first_op(part)) {
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
    const Bytes before = live_;
    for (const Action& action : tape.actions) {
      switch (action.kind) {
        case ActionKind::run:
          if (action.at == place::device) compute(action);
          break;
        case ActionKind::copy:
        case ActionKind::move:
          if (action.to == place::device) arrive(action.tensor);
          break;
        case ActionKind::receive:
          arrive(action.tensor);
          break;
        case ActionKind::drop:
          if (action.at == place::device) drop(action.tensor);
          break;
        case ActionKind::cut:
          (action.next == PieceName::weights ? kept_for_weights_ : kept_) = live_ - before;
          break;
        case ActionKind::send:
        case ActionKind::wait:
          break;
      }
    }
    gradients_exist_ = true;
  }

  Bytes peak() const { return peak_; }
  Bytes kept() const { return kept_; }
  Bytes kept_for_weights() const { return kept_for_weights_; }
  Seconds time() const { return time_; }

 private:
  static bool holds_first_op(const Part& part) { return std::ranges::find(part.ops, OpId{0}) != part.ops.end(); }

  bool updated_here(const Op& update) const {
    return std::ranges::any_of(update.inputs, [&](TensorId t) {
      return graph_[t].kind == TensorKind::parameter && alive_[graph_[t].storage.index];
    });
  }

  void make(TensorId t) {
    if (alive_[graph_[t].storage.index]) return;
    alive_[graph_[t].storage.index] = true;
    live_ += graph_[t].bytes;
  }

  void arrive(TensorId t) {
    make(t);
    peak_ = std::max(peak_, live_);
  }

  void drop(TensorId t) {
    EXPECTS(alive_[graph_[t].storage.index]);
    alive_[graph_[t].storage.index] = false;
    live_ -= graph_[t].bytes;
  }

  void compute(const Action& action) {
    const Op& op = graph_[action.op];
    const Saving saving = action.saving;
    for (const TensorId t : op.inputs) {
      if (graph_[t].kind == TensorKind::input) make(t);
      EXPECTS(alive_[graph_[t].storage.index]);
    }
    bool makes_gradient = false, new_gradient = false;
    for (const TensorId t : op.outputs) {
      if (saving == Saving::nothing && std::ranges::find(op.saved, t) != op.saved.end()) continue;
      if (graph_[t].kind == TensorKind::parameter_gradient) {
        makes_gradient = true;
        new_gradient |= !alive_[graph_[t].storage.index];
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
  std::vector<bool> alive_;  // by storage
  Bytes live_, peak_, kept_, kept_for_weights_;
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
  return {.makespan = all, .peak = walk.peak(), .kept = walk.kept(), .kept_for_weights = walk.kept_for_weights()};
}

}  // namespace plimsoll
