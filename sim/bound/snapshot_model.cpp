#include "sim/bound/snapshot_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/measure/least_costs.h"

namespace plimsoll {
namespace {

bool contains(const std::vector<TensorId>& list, TensorId t) {
  return std::ranges::find(list, t) != list.end();
}

class ModelOfProblem {
 public:
  ModelOfProblem(const Problem& problem, DeviceId device, const BoundRules& rules)
      : problem_(problem), graph_(problem.graph), device_(device), rules_(rules) {
    model_.problem = &problem;
    model_.rules = rules;
    model_.ops.resize(graph_.ops.size());
    model_.value_of.resize(graph_.tensors.size());
    on_host_.resize(graph_.storages, false);
    for (const Op& op : graph_.ops) {
      if (!is_pinned_to_host(op)) continue;
      for (const auto* list : {&op.inputs, &op.outputs}) {
        for (const TensorId t : *list) on_host_[graph_[t].storage.index] = true;
      }
    }
    for (std::uint32_t o = 0; o < graph_.ops.size(); ++o) add_values(o);
    for (std::uint32_t o = 0; o < graph_.ops.size(); ++o) add_reads(o);
    add_order();
    for (std::uint32_t o = 0; o < graph_.ops.size(); ++o) add_costs(o);
  }

  SnapshotModel model() && { return std::move(model_); }

 private:
  void add_value(TensorId t, std::optional<std::uint32_t> maker, bool only_saved) {
    if (!per_micro_batch(graph_[t].kind) || on_host_[graph_[t].storage.index]) return;
    const Bytes bytes = smallest_form(graph_, t, rules_.codecs, nullptr);
    if (bytes <= Bytes{0}) return;
    if (maker) {
      for (const std::uint32_t v : model_.ops[*maker].makes) {
        SnapshotValue& other = model_.values[v];
        if (graph_[other.tensor].storage != graph_[t].storage) continue;
        other.bytes = std::min(other.bytes, bytes);
        other.only_saved &= only_saved;
        model_.value_of[t.index] = v;
        return;
      }
    }
    const auto v = static_cast<std::uint32_t>(model_.values.size());
    model_.values.push_back({.tensor = t, .bytes = bytes, .maker = maker, .readers = {}, .only_saved = only_saved});
    model_.value_of[t.index] = v;
    if (maker) model_.ops[*maker].makes.push_back(v);
  }

  void add_values(std::uint32_t o) {
    const Op& op = graph_.ops[o];
    if (op.is_view) return;
    for (const TensorId t : op.outputs) add_value(t, o, contains(op.saved, t));
  }

  void add_reads(std::uint32_t o) {
    const Op& op = graph_.ops[o];
    for (const TensorId t : op.inputs) {
      if (graph_[t].kind == TensorKind::input && !model_.value_of[t.index]) add_value(t, std::nullopt, false);
      const std::optional<std::uint32_t> v = model_.value_of[t.index];
      if (!v || std::ranges::find(model_.ops[o].reads, *v) != model_.ops[o].reads.end()) continue;
      model_.ops[o].reads.push_back(*v);
      model_.values[*v].readers.push_back(o);
    }
  }

  /// Who reads a parameter's gradient waits for all that add to it; others wait for who makes what they read.
  void add_order() {
    std::vector<std::vector<std::uint32_t>> makers(graph_.tensors.size());
    for (std::uint32_t o = 0; o < graph_.ops.size(); ++o) {
      for (const TensorId t : graph_.ops[o].outputs) {
        if (!is_given(graph_[t].kind)) makers[t.index].push_back(o);  // an update's parameter was there before
      }
    }
    for (std::uint32_t o = 0; o < graph_.ops.size(); ++o) {
      std::vector<std::uint32_t>& after = model_.ops[o].after;
      for (const TensorId t : graph_.ops[o].inputs) {
        const std::vector<std::uint32_t>& of = makers[t.index];
        if (std::ranges::find(of, o) == of.end()) after.insert(after.end(), of.begin(), of.end());
      }
      std::ranges::sort(after);
      after.erase(std::unique(after.begin(), after.end()), after.end());
      EXPECTS(after.empty() || after.back() < o);  // ops are in a valid order
    }
  }

  void add_costs(std::uint32_t o) {
    const Op& op = graph_.ops[o];
    SnapshotOp& made = model_.ops[o];
    const bool is_update = op.phase == Phase::update;
    made.is_there = !op.is_view && !is_pinned_to_host(op) && !(is_update && rules_.stay != Stays::all);
    made.once = !op.recomputable || is_update || makes_gradient(op);
    if (!made.is_there) return;
    made.saves = std::ranges::any_of(
        made.makes, [&](std::uint32_t v) { return model_.values[v].only_saved && !model_.values[v].readers.empty(); });
    made.workspace = least_workspace(op, rules_.one_call ? Backprop::in_one_call : Backprop::by_stage);
    if (!made.saves) made.workspace = std::min(made.workspace, op.nograd_workspace.value_or(made.workspace));
    add_times(o, made);
    model_.base += made.first;
    if (is_update) model_.updates += made.first;
  }

  bool makes_gradient(const Op& op) const {
    return std::ranges::any_of(op.outputs,
                               [&](TensorId t) { return graph_[t].kind == TensorKind::parameter_gradient; });
  }

  /// All that runs of an op take: one of them makes what is only saved, if anybody reads that; the first one loads.
  void add_times(std::uint32_t o, SnapshotOp& made) const {
    const Op& op = graph_.ops[o];
    if (runs_beside(op)) return;
    const OpId id = id_at<OpId>(o);
    const double streams = std::max(1U, problem_.platform[device_].compute_streams);
    const Backprop backprop = rules_.one_call ? Backprop::in_one_call : Backprop::by_stage;
    const auto load = [&](Saving saving) { return load_on(graph_, op, problem_.platform[device_], saving); };
    const Seconds keeps = fastest_on(problem_, id, device_, rules_.codecs, Saving::keep, backprop);
    Seconds least = keeps;
    Seconds loads = op.alternatives.empty() ? load(Saving::keep) : Seconds{0};
    if (!op.saved.empty()) {
      least = std::min(least, fastest_on(problem_, id, device_, rules_.codecs, Saving::nothing, backprop));
      loads = std::min(loads, load(Saving::nothing));
    }
    made.first = 1 / streams * (made.saves ? first_of(keeps, load(Saving::keep), loads) : least);
    // The durations of runs that load are longer than of those that do not.
    made.again = 1 / streams * std::max(Seconds{0}, least - std::max(load(Saving::keep), load(Saving::nothing)));
  }

  /// The run that saves may be another one than the run that loads.
  static Seconds first_of(Seconds keeps, Seconds its_load, Seconds least_load) {
    return keeps - its_load + std::min(its_load, least_load);
  }

  const Problem& problem_;
  const Graph& graph_;
  DeviceId device_;
  const BoundRules& rules_;
  std::vector<bool> on_host_;  // by storage: its values may be on a host, where an op of the host's uses them
  SnapshotModel model_;
};

/// Which ops the instant needs, and which need it. Of an op that makes what is only saved, only those need the instant
/// that need that: it may have run without saving before.
std::vector<Side> sides_of(const SnapshotModel& model, std::uint32_t c) {
  std::vector<Side> side(model.ops.size(), Side::beside);
  side[c] = Side::itself;
  for (std::uint32_t o = c + 1; o-- > 0;) {
    if (side[o] == Side::beside) continue;
    for (const std::uint32_t earlier : model.ops[o].after) side[earlier] = Side::before;
  }
  for (auto o = c + 1; o < model.ops.size(); ++o) {
    const std::vector<std::uint32_t>& after = model.ops[o].after;
    const auto is_after = [&](std::uint32_t earlier) { return side[earlier] == Side::after; };
    if (std::ranges::any_of(after, is_after)) side[o] = Side::after;
    if (!std::ranges::binary_search(after, c)) continue;
    const auto reads_saved = [&](std::uint32_t v) { return model.values[v].maker == c && model.values[v].only_saved; };
    if (!model.ops[c].saves || std::ranges::any_of(model.ops[o].reads, reads_saved)) side[o] = Side::after;
  }
  return side;
}

}  // namespace

SnapshotModel snapshot_model(const Problem& problem, DeviceId device, const BoundRules& rules) {
  return ModelOfProblem(problem, device, rules).model();
}

Instant instant_at(const SnapshotModel& model, OpId op, MicroBatch micro_batch) {
  EXPECTS(op.index < model.ops.size() && model.ops[op.index].is_there);
  const Problem& problem = *model.problem;
  const Graph& graph = problem.graph;
  Instant instant{.op = op, .side = sides_of(model, op.index), .counted = {}, .bytes = {}};
  const auto has_run = [&](std::uint32_t o) {
    return instant.side[o] == Side::before || instant.side[o] == Side::itself;
  };
  StorageSum set(graph);
  set.restart();
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const TensorKind kind = graph.tensors[t].kind;
    if ((kind == TensorKind::parameter && model.rules.stay != Stays::nothing) ||
        (kind == TensorKind::optimizer_state && model.rules.stay == Stays::all) ||
        (kind == TensorKind::parameter_gradient && model.rules.stay == Stays::all &&
         (problem.gradients == Gradients::existing || micro_batch == MicroBatch::later))) {
      set.add(id_at<TensorId>(t));
    }
  }
  for (std::size_t o = 0; o < graph.ops.size() && model.rules.stay == Stays::all; ++o) {
    if (!has_run(static_cast<std::uint32_t>(o)) || !model.ops[o].is_there) continue;
    for (const TensorId t : graph.ops[o].outputs) {
      if (graph[t].kind == TensorKind::parameter_gradient) set.add(t);
    }
  }
  const Op& runs = graph[op];
  for (const TensorId t : runs.inputs) set.add(t, smallest_form(graph, t, model.rules.codecs, &runs));
  for (const TensorId t : runs.outputs) {
    if (model.ops[op.index].saves || !contains(runs.saved, t)) set.add(t);
  }
  instant.bytes = set.sum() + model.ops[op.index].workspace;

  instant.counted.resize(model.values.size(), false);
  for (const std::uint32_t v : model.ops[op.index].reads) instant.counted[v] = true;
  for (std::size_t v = 0; v < model.values.size(); ++v) {
    const SnapshotValue& value = model.values[v];
    const auto is_after = [&](std::uint32_t o) { return instant.side[o] == Side::after; };
    if (value.maker || instant.counted[v] || std::ranges::none_of(value.readers, has_run) ||
        std::ranges::none_of(value.readers, is_after)) {
      continue;
    }
    instant.counted[v] = true;
    instant.bytes += value.bytes;
  }
  return instant;
}

}  // namespace plimsoll
