#include "tests/core/bound_oracle.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/generate/random.h"

namespace plimsoll {
namespace {

using Set = std::uint32_t;

Set with(TensorId t) {
  return Set{1} << t.index;
}

bool lists(const std::vector<TensorId>& list, TensorId t) {
  return std::find(list.begin(), list.end(), t) != list.end();
}

/// A way to run an op.
struct Way {
  double seconds;
  std::int64_t workspace, accumulating;
  bool saves;
};

/// Between two ops: what has run, which inputs have been loaded, and the buffers, each with the tensors that it holds.
struct State {
  Set ran = 0, loaded = 0;
  std::vector<Set> buffers;

  auto operator<=>(const State&) const = default;
};

class Trying {
 public:
  Trying(const Problem& problem, std::int64_t budget) : problem_(problem), graph_(problem.graph), budget_(budget) {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (op.is_view) done_ |= Set{1} << o;
      all_ |= Set{1} << o;
    }
    std::vector<bool> seen(graph_.storages, false);
    for (const Tensor& tensor : graph_.tensors) {
      const bool stays = tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state ||
                         (tensor.kind == TensorKind::parameter_gradient && problem.gradients == Gradients::existing);
      if (!stays || seen[tensor.storage.index]) continue;
      seen[tensor.storage.index] = true;
      resident_ += tensor.bytes.count;
    }
  }

  std::optional<double> fastest() {
    if (resident_ > budget_) return std::nullopt;
    reach({done_, 0, {}}, 0);
    while (!queue_.empty()) {
      const auto [seconds, state] = queue_.top();
      queue_.pop();
      if (seconds > best_.at(state)) continue;
      if (state.ran == all_) return seconds;
      go_on(state, seconds);
    }
    return std::nullopt;
  }

 private:
  using Reached = std::pair<double, State>;

  void reach(State state, double seconds) {
    std::sort(state.buffers.begin(), state.buffers.end());
    const auto [place, is_new] = best_.try_emplace(state, seconds);
    if (!is_new && place->second <= seconds) return;
    place->second = seconds;
    queue_.emplace(seconds, std::move(state));
  }

  std::int64_t bytes_in(Set buffer) const {
    for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) {
      if ((buffer >> t & 1U) != 0) return graph_.tensors[t].bytes.count;
    }
    return 0;
  }

  std::int64_t gradients(Set ran) const {
    if (problem_.gradients == Gradients::existing) return 0;
    std::vector<bool> seen(graph_.storages, false);
    std::int64_t sum = 0;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if ((ran >> o & 1U) == 0) continue;
      for (const TensorId t : graph_.ops[o].outputs) {
        if (graph_[t].kind != TensorKind::parameter_gradient || seen[graph_[t].storage.index]) continue;
        seen[graph_[t].storage.index] = true;
        sum += graph_[t].bytes.count;
      }
    }
    return sum;
  }

  bool all_contributed(Set ran, TensorId gradient) const {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (lists(graph_.ops[o].outputs, gradient) && (ran >> o & 1U) == 0) return false;
    }
    return true;
  }

  void go_on(const State& state, double seconds) {
    for (std::size_t b = 0; b < state.buffers.size(); ++b) {
      State freed = state;
      freed.buffers.erase(freed.buffers.begin() + static_cast<std::ptrdiff_t>(b));
      reach(std::move(freed), seconds);
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (op.is_view) continue;
      const bool makes_gradient = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId t) {
        return graph_[t].kind == TensorKind::parameter_gradient;
      });
      const bool once = !op.recomputable || makes_gradient || op.phase == Phase::update;
      if (once && (state.ran >> o & 1U) != 0) continue;
      std::vector<Way> ways;
      const std::int64_t accumulating = op.accumulate_workspace.value_or(op.workspace).count;
      ways.push_back({op.duration->value, op.workspace.count, accumulating, true});
      if (!op.saved.empty()) {
        ways.push_back({op.nograd_duration.value_or(*op.duration).value,
                        op.nograd_workspace.value_or(op.workspace).count, accumulating, false});
      }
      for (const Alternative& other : op.alternatives) {
        ways.push_back({other.duration->value, other.workspace.count, other.workspace.count, true});
      }
      for (const Way& way : ways) try_to_run(state, seconds, o, way);
    }
  }

  void try_to_run(const State& state, double seconds, std::size_t o, const Way& way) {
    const Op& op = graph_.ops[o];
    State after = state;
    after.ran |= Set{1} << o;
    for (const TensorId t : op.inputs) {
      if (graph_[t].kind == TensorKind::parameter_gradient && !all_contributed(state.ran, t)) return;
      if (!per_micro_batch(graph_[t].kind)) continue;
      const auto holds = [&](Set buffer) { return (buffer & with(t)) != 0; };
      if (std::any_of(after.buffers.begin(), after.buffers.end(), holds)) continue;
      if (graph_[t].kind != TensorKind::input || (state.loaded & with(t)) != 0) return;
      after.loaded |= with(t);
      after.buffers.push_back(with(t));
    }
    std::map<std::uint32_t, Set> made;  // by storage
    for (const TensorId t : op.outputs) {
      if (!per_micro_batch(graph_[t].kind) || (!way.saves && lists(op.saved, t))) continue;
      made[graph_[t].storage.index] |= with(t);
    }
    for (const TensorId t : op.mutates) {
      if (!per_micro_batch(graph_[t].kind)) continue;
      const auto holds = [&](Set buffer) { return (buffer & with(t)) != 0; };
      *std::find_if(after.buffers.begin(), after.buffers.end(), holds) = made[graph_[t].storage.index];
      made.erase(graph_[t].storage.index);
    }
    std::int64_t live = resident_ + gradients(after.ran);
    const bool is_new = gradients(after.ran) != gradients(state.ran);
    const bool contributes = std::any_of(op.outputs.begin(), op.outputs.end(),
                                         [&](TensorId t) { return graph_[t].kind == TensorKind::parameter_gradient; });
    live += contributes && !is_new ? way.accumulating : way.workspace;
    for (const auto& [storage, tensors] : made) after.buffers.push_back(tensors);
    for (const Set buffer : after.buffers) live += bytes_in(buffer);
    if (live <= budget_) reach(std::move(after), seconds + way.seconds);
  }

  const Problem& problem_;
  const Graph& graph_;
  std::int64_t budget_, resident_ = 0;
  Set all_ = 0, done_ = 0;
  std::map<State, double> best_;
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> queue_;
};

class TinyGraph {
 public:
  TinyGraph(std::uint64_t seed, std::uint32_t ops) : random_(seed), count_(ops) {}

  Graph make() && {
    graph_.name = "tiny";
    for (std::uint32_t i = 0, inputs = 1 + random_.below(2); i < inputs; ++i) {
      readable_.push_back(tensor(TensorKind::input, random_.between(1, 6)));
    }
    const TensorId parameter = tensor(TensorKind::parameter, random_.between(1, 6));
    const TensorId gradient = tensor(TensorKind::parameter_gradient, random_.between(1, 6));
    for (std::uint32_t o = 0; o < count_; ++o) {
      const bool forward = 2 * o < count_;
      add_op(o, forward);
      Op& op = graph_.ops.back();
      if (random_.chance(0.2)) op.inputs.push_back(parameter);
      if (forward || !random_.chance(0.25)) continue;
      op.outputs.push_back(gradient);
      if (random_.chance(0.5)) op.accumulate_workspace = Bytes{random_.below(4)};
    }
    return std::move(graph_);
  }

 private:
  TensorId tensor(TensorKind kind, std::int64_t bytes, std::optional<StorageId> storage = {}) {
    const TensorId id = id_at<TensorId>(graph_.tensors.size());
    Tensor made;
    made.name = "t" + std::to_string(id.index);
    made.kind = kind;
    made.bytes = Bytes{bytes};
    made.storage = storage ? *storage : id_at<StorageId>(graph_.storages++);
    graph_.tensors.push_back(made);
    return id;
  }

  void add_op(std::uint32_t o, bool forward) {
    Op op;
    op.name = "o" + std::to_string(o);
    op.phase = forward ? Phase::forward : Phase::backward;
    op.duration = Seconds{static_cast<double>(random_.below(6))};
    op.workspace = Bytes{random_.below(4)};
    op.recomputable = !random_.chance(0.1);
    // Mostly what the op before has made, and backwards also what the forward on the same level has.
    const auto size = static_cast<std::uint32_t>(readable_.size());
    for (std::uint32_t i = 0, reads = random_.between(1, forward ? 2 : 3); i < reads; ++i) {
      const std::uint32_t mirrored = std::min(size - 1, count_ - 1 - o);
      const std::uint32_t r = i == 0 ? size - 1 : random_.chance(0.7) && !forward ? mirrored : random_.below(size);
      if (!lists(op.inputs, readable_[r])) op.inputs.push_back(readable_[r]);
    }
    if (!forward && random_.chance(0.15)) op.inputs.push_back(tensor(TensorKind::input, random_.between(1, 6)));
    const TensorKind kind = forward ? TensorKind::activation : TensorKind::gradient;
    std::vector<TensorId> made;
    const TensorId first = op.inputs.front();
    if (random_.chance(0.1) && graph_[first].kind != TensorKind::input) {
      op.mutates = {first};
      made.push_back(tensor(kind, graph_[first].bytes.count, graph_[first].storage));
      std::erase(readable_, first);
    } else {
      made.push_back(tensor(kind, random_.between(1, 8)));
    }
    if (random_.chance(forward ? 0.4 : 0.2)) {
      const Tensor beside = graph_[made.front()];
      const bool together = random_.chance(0.3);
      const std::int64_t bytes = together ? beside.bytes.count : random_.between(1, 8);
      made.push_back(tensor(kind, bytes, together ? std::optional(beside.storage) : std::nullopt));
      if (forward && !together && random_.chance(0.8)) {
        op.saved = {made.back()};
        op.nograd_duration = Seconds{static_cast<double>(random_.below(6))};
        op.nograd_workspace = Bytes{random_.below(4)};
      }
    }
    if (op.saved.empty() && random_.chance(0.1)) {
      op.alternatives.push_back({.name = "other",
                                 .duration = Seconds{static_cast<double>(random_.below(6))},
                                 .flops = {},
                                 .bytes_moved = {},
                                 .workspace = Bytes{random_.below(4)}});
    }
    op.outputs = made;
    for (const TensorId t : made) readable_.push_back(t);
    graph_.ops.push_back(std::move(op));
  }

  Random random_;
  std::uint32_t count_;
  Graph graph_;
  std::vector<TensorId> readable_;
};

}  // namespace

std::optional<double> fastest_by_trying(const Problem& problem, std::int64_t budget) {
  return Trying(problem, budget).fastest();
}

Graph tiny_graph(std::uint64_t seed, std::uint32_t ops) {
  return TinyGraph(seed, ops).make();
}

}  // namespace plimsoll
