#include "tests/strategies/graph_oracle.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

#include "sim/core/expects.h"
#include "tests/generate/random.h"

namespace plimsoll {
namespace {

/// Which tensors each storage holds (none: it is not there), and which ops have run.
struct Situation {
  std::vector<std::set<std::uint32_t>> held;
  std::vector<bool> ran, loaded;  // ops; tensors that are inputs

  friend bool operator<(const Situation& a, const Situation& b) {
    return std::tie(a.held, a.ran, a.loaded) < std::tie(b.held, b.ran, b.loaded);
  }
};

class Oracle {
 public:
  Oracle(const Problem& problem, std::int64_t budget) : problem_(problem), graph_(problem.graph), budget_(budget) {
    EXPECTS(problem.micro_batches == 1);
  }

  std::optional<double> solve() {
    Situation start{std::vector<std::set<std::uint32_t>>(graph_.storages), std::vector<bool>(graph_.ops.size(), false),
                    std::vector<bool>(graph_.tensors.size(), false)};
    for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) {
      const TensorKind kind = graph_.tensors[t].kind;
      const bool exists = kind == TensorKind::parameter_gradient && problem_.gradients == Gradients::existing;
      if (kind == TensorKind::parameter || exists) start.held[graph_.tensors[t].storage.index].insert(t);
    }
    if (bytes(start) > budget_) return std::nullopt;
    offer(start, {});
    while (!open_.empty()) {
      const auto [time, situation] = open_.top();
      open_.pop();
      const std::vector<Dates>& known = best_.at(situation);
      if (std::ranges::find(known, time) == known.end()) continue;
      if (std::ranges::all_of(situation.ran, [](bool r) { return r; })) return time.device;
      for (std::uint32_t s = 0; s < graph_.storages; ++s) drop(situation, time, s);
      for (std::uint32_t o = 0; o < graph_.ops.size(); ++o) {
        run(situation, time, o, false);
        for (std::size_t k = 1; k <= graph_.ops[o].alternatives.size(); ++k) run(situation, time, o, false, k);
        if (!graph_.ops[o].saved.empty()) run(situation, time, o, true);
      }
    }
    return std::nullopt;
  }

 private:
  std::int64_t bytes(const Situation& situation) const {
    std::int64_t sum = 0;
    for (const Tensor& tensor : graph_.tensors) size_[tensor.storage.index] = tensor.bytes.count;
    for (std::uint32_t s = 0; s < graph_.storages; ++s) sum += situation.held[s].empty() ? 0 : size_[s];
    return sum;
  }

  /// When the device has run all so far, and when its host, which is ahead, has issued it.
  struct Dates {
    double device = 0, host = 0;
    friend auto operator<=>(const Dates&, const Dates&) = default;
  };

  Dates after(const Dates& dates, const Op& op, double seconds) const {
    const double issued = dates.host + issued_kernels(op) * problem_.platform.devices.front().host_launch.value;
    return {std::max(dates.device, issued) + seconds, issued};
  }

  /// Kept unless others with the same left are as early, both.
  void offer(const Situation& situation, const Dates& time) {
    std::vector<Dates>& known = best_[situation];
    const auto as_early = [&](const Dates& each) { return each.device <= time.device && each.host <= time.host; };
    if (std::ranges::any_of(known, as_early)) return;
    std::erase_if(known, [&](const Dates& each) { return time.device <= each.device && time.host <= each.host; });
    known.push_back(time);
    open_.emplace(time, situation);
  }

  void drop(Situation situation, const Dates& time, std::uint32_t storage) {
    if (situation.held[storage].empty()) return;
    if (!per_micro_batch(graph_.tensors[*situation.held[storage].begin()].kind)) return;
    situation.held[storage].clear();
    offer(situation, time);
  }

  void run(Situation situation, const Dates& time, std::uint32_t number, bool nothing, std::size_t implementation = 0) {
    const Op& op = graph_.ops[number];
    bool once = !op.recomputable, gradient = false, new_gradient = false;
    for (const TensorId t : op.inputs) {
      std::set<std::uint32_t>& held = situation.held[graph_[t].storage.index];
      if (graph_[t].kind == TensorKind::input && !situation.loaded[t.index]) {
        situation.loaded[t.index] = true;
        held.insert(t.index);
      }
      if (!held.contains(t.index)) return;
    }
    for (const TensorId t : op.mutates) situation.held[graph_[t].storage.index].clear();
    std::set<std::uint32_t> fresh;
    for (const TensorId t : op.outputs) {
      if (nothing && std::ranges::find(op.saved, t) != op.saved.end()) continue;
      const std::uint32_t s = graph_[t].storage.index;
      std::set<std::uint32_t>& held = situation.held[s];
      if (graph_[t].kind == TensorKind::parameter_gradient) {
        once = gradient = true;
        new_gradient |= held.empty();
      } else {
        const bool shares = std::ranges::any_of(op.inputs, [&](TensorId in) { return graph_[in].storage.index == s; });
        if (!shares && fresh.insert(s).second) held.clear();
      }
      held.insert(t.index);
    }
    if (once && situation.ran[number]) return;
    situation.ran[number] = true;
    std::int64_t workspace = (nothing ? op.nograd_workspace.value_or(op.workspace) : op.workspace).count;
    if (gradient && !new_gradient) workspace = op.accumulate_workspace.value_or(op.workspace).count;
    if (implementation > 0) {
      const Alternative& way = op.alternatives[implementation - 1];
      if (bytes(situation) + way.workspace.count <= budget_) offer(situation, after(time, op, way.duration->value));
      return;
    }
    if (bytes(situation) + workspace > budget_) return;
    const Saving saving = nothing ? Saving::nothing : Saving::keep;
    offer(situation, after(time, op, duration_on(problem_, OpId{number}, DeviceId{0}, saving).value));
  }

  const Problem& problem_;
  const Graph& graph_;
  std::int64_t budget_;
  mutable std::map<std::uint32_t, std::int64_t> size_;
  std::map<Situation, std::vector<Dates>> best_;
  using Entry = std::pair<Dates, Situation>;
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const { return a.first > b.first; }
  };
  std::priority_queue<Entry, std::vector<Entry>, Later> open_;
};

TensorId unit(Graph& graph, TensorKind kind, std::int64_t bytes) {
  graph.tensors.push_back({.name = "t" + std::to_string(graph.tensors.size()),
                           .kind = kind,
                           .bytes = Bytes{bytes},
                           .storage = id_at<StorageId>(graph.storages++),
                           .shape = {},
                           .dtype = {}});
  return id_at<TensorId>(graph.tensors.size() - 1);
}

TensorId add(Graph& graph, Phase phase, std::vector<TensorId> inputs, double seconds, std::int64_t bytes) {
  Op op;
  op.name = "op" + std::to_string(graph.ops.size());
  op.phase = phase;
  op.duration = Seconds{seconds};
  op.inputs = std::move(inputs);
  op.outputs = {unit(graph, phase == Phase::forward ? TensorKind::activation : TensorKind::gradient, bytes)};
  graph.ops.push_back(op);
  return graph.ops.back().outputs.front();
}

}  // namespace

std::optional<double> least_time_of_graph(const Problem& problem, std::int64_t budget) {
  return Oracle(problem, budget).solve();
}

std::int64_t least_budget_of_graph(const Problem& problem, std::int64_t enough) {
  while (enough > 0 && least_time_of_graph(problem, enough - 1)) --enough;
  return enough;
}

Graph unit_net(std::size_t layers) {
  Graph graph;
  graph.name = "unit net";
  std::vector<TensorId> v;
  for (std::size_t i = 0; i < layers; ++i) {
    const std::vector<TensorId> inputs = v.empty() ? std::vector<TensorId>{} : std::vector<TensorId>{v.back()};
    v.push_back(add(graph, Phase::forward, inputs, 1, 1));
  }
  TensorId g = add(graph, Phase::forward, {v.back()}, 1, 1);
  for (std::size_t i = layers; i-- > 0;) g = add(graph, Phase::backward, {g, v[i]}, 1, 1);
  return graph;
}

Graph random_single_sink(std::uint64_t seed, std::size_t ops, double reads_newest) {
  Random random(seed);
  Graph graph;
  graph.name = "single sink " + std::to_string(seed);
  std::vector<TensorId> values;
  std::vector<bool> read;
  for (std::size_t o = 0; o < ops; ++o) {
    const bool last = o + 1 == ops;
    std::vector<TensorId> inputs;
    for (std::size_t v = 0; v < values.size(); ++v) {
      const bool newest = v + 1 == values.size() && random.chance(reads_newest);
      if (!newest && !random.chance(0.4) && !(last && !read[v])) continue;
      inputs.push_back(values[v]);
      read[v] = true;
    }
    const Phase phase = 2 * o < ops ? Phase::forward : Phase::backward;
    values.push_back(add(graph, phase, inputs, random.between(1, 5), random.between(1, 9)));
    read.push_back(false);
  }
  return graph;
}

}  // namespace plimsoll
