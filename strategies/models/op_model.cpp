#include "strategies/models/op_model.h"

#include <algorithm>

#include "sim/core/expects.h"
#include "strategies/models/tape_cost.h"

namespace plimsoll {
namespace {

class ModelBuilder {
 public:
  explicit ModelBuilder(const PartTask& task) : problem_(task.problem), graph_(problem_.graph), part_(task.part()) {
    EXPECTS(task.partition.parts.size() == 1);
    value_of_.resize(graph_.tensors.size());
    storage_of_.resize(graph_.storages);
    gradient_of_.resize(graph_.storages);
    model_.repeats = problem_.micro_batches > 1;
    model_.resident = tape_cost(problem_, part_, Tape{}).peak;
    for (const OpId id : part_.ops) add(id);
    for (ModelOp& op : model_.ops) {
      op.sink =
          std::ranges::all_of(op.ways.front().makes, [&](std::uint32_t v) { return model_.values[v].readers.empty(); });
    }
    for (ModelOp& op : model_.ops) {
      for (OpWay& way : op.ways) way.clears = cleared_by(op, way);
    }
  }

  OpModel build() && { return std::move(model_); }

 private:
  std::uint32_t value(TensorId t) {
    if (value_of_[t.index]) return *value_of_[t.index];
    std::optional<std::uint32_t>& storage = storage_of_[graph_[t].storage.index];
    if (!storage) {
      storage = static_cast<std::uint32_t>(model_.storages.size());
      model_.storages.push_back(graph_[t].bytes);
      model_.in_storage.emplace_back();
    }
    const auto v = static_cast<std::uint32_t>(model_.values.size());
    model_.values.push_back({.tensor = t, .storage = *storage, .maker = {}, .readers = {}});
    model_.in_storage[*storage].push_back(v);
    value_of_[t.index] = v;
    return v;
  }

  void add(OpId id) {
    const Op& op = graph_[id];
    const auto number = static_cast<std::uint32_t>(model_.ops.size());
    ModelOp made;
    made.id = id;
    made.once = !op.recomputable;
    made.forward = op.phase == Phase::forward;
    for (const TensorId t : op.inputs) {
      made.once |= graph_[t].kind == TensorKind::parameter_gradient;  // which others may add to
      if (!per_micro_batch(graph_[t].kind)) continue;
      const std::uint32_t v = value(t);
      if (std::ranges::find(made.reads, v) != made.reads.end()) continue;
      made.reads.push_back(v);
      model_.values[v].readers.push_back(number);
    }
    for (const TensorId t : op.mutates) made.once |= !per_micro_batch(graph_[t].kind);
    OpWay keep{.saving = Saving::keep,
               .time = duration_on(problem_, id, part_.device, Saving::keep),
               .workspace = op.workspace,
               .makes = {},
               .clears = {}};
    OpWay nothing{.saving = Saving::nothing,
                  .time = duration_on(problem_, id, part_.device, Saving::nothing),
                  .workspace = op.nograd_workspace.value_or(op.workspace),
                  .makes = {},
                  .clears = {}};
    for (const TensorId t : op.outputs) {
      if (graph_[t].kind == TensorKind::parameter_gradient) {
        made.once = made.makes_gradient = true;
        add_gradient(made, t);
      }
      if (!per_micro_batch(graph_[t].kind)) continue;
      const std::uint32_t v = value(t);
      model_.values[v].maker = number;
      keep.makes.push_back(v);
      if (std::ranges::find(op.saved, t) == op.saved.end()) nothing.makes.push_back(v);
    }
    made.accumulate_workspace = op.accumulate_workspace.value_or(op.workspace);
    made.ways.push_back(std::move(keep));
    if (!op.saved.empty()) made.ways.push_back(std::move(nothing));
    model_.ops.push_back(std::move(made));
  }

  void add_gradient(ModelOp& op, TensorId t) {
    if (problem_.gradients == Gradients::existing) return;
    std::optional<std::uint32_t>& gradient = gradient_of_[graph_[t].storage.index];
    if (!gradient) {
      gradient = static_cast<std::uint32_t>(model_.gradients.size());
      model_.gradients.push_back(graph_[t].bytes);
      model_.makers_of.emplace_back();
      model_.all_gradients += graph_[t].bytes;
    }
    if (std::ranges::find(op.gradients, *gradient) != op.gradients.end()) return;
    op.gradients.push_back(*gradient);
    model_.makers_of[*gradient].push_back(static_cast<std::uint32_t>(model_.ops.size()));
  }

  /// A new or overwritten storage holds only what the op makes; a view leaves the others.
  std::vector<std::uint32_t> cleared_by(const ModelOp& op, const OpWay& way) const {
    std::vector<std::uint32_t> cleared;
    for (const std::uint32_t made : way.makes) {
      const std::uint32_t storage = model_.values[made].storage;
      const auto in_it = [&](std::uint32_t v) { return model_.values[v].storage == storage; };
      const bool read = std::ranges::any_of(op.reads, in_it);
      const std::vector<TensorId>& mutated = graph_[op.id].mutates;
      const bool overwritten =
          std::ranges::any_of(mutated, [&](TensorId t) { return value_of_[t.index] && in_it(*value_of_[t.index]); });
      if (read && !overwritten) continue;
      for (const std::uint32_t v : model_.in_storage[storage]) {
        if (std::ranges::find(way.makes, v) == way.makes.end() && std::ranges::find(cleared, v) == cleared.end()) {
          cleared.push_back(v);
        }
      }
    }
    return cleared;
  }

  const Problem& problem_;
  const Graph& graph_;
  const Part& part_;
  OpModel model_;
  std::vector<std::optional<std::uint32_t>> value_of_, storage_of_, gradient_of_;  // by tensor, storage, storage
};

}  // namespace

OpModel op_model(const PartTask& task) {
  return ModelBuilder(task).build();
}

OpModel with_alternatives(OpModel model, const PartTask& task) {
  const DeviceId device = task.part().device;
  for (ModelOp& op : model.ops) {
    const std::vector<Alternative>& known = task.problem.graph[op.id].alternatives;
    for (std::uint32_t k = 1; k <= known.size(); ++k) {
      op.alternatives.push_back({k, duration_on(task.problem, op.id, device, Saving::keep, k), known[k - 1].workspace});
    }
  }
  return model;
}

namespace {

Bytes beside(const OpModel& model, const ModelOp& op, Bytes workspace, Bytes accumulating,
             const GradientBytes& gradients) {
  const bool accumulates = op.makes_gradient && !gradients.any_fresh;
  const Bytes first = gradients.existing + gradients.fresh + (accumulates ? accumulating : workspace);
  if (!model.repeats) return first;
  return std::max(first, model.all_gradients + (op.makes_gradient ? accumulating : workspace));
}

}  // namespace

Bytes beside_values(const OpModel& model, const ModelOp& op, const OpWay& way, const GradientBytes& gradients) {
  return beside(model, op, way.workspace, op.accumulate_workspace, gradients);
}

Bytes beside_values(const OpModel& model, const ModelOp& op, const OpAlternative& way, const GradientBytes& gradients) {
  return beside(model, op, way.workspace, way.workspace, gradients);
}

}  // namespace plimsoll
