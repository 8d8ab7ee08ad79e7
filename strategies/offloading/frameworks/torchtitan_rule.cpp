// The rule `torchtitan_solver.auto_perf_maxing`. Source: torchtitan, graph_trainer, auto_sac_offload_solver.py of the
// commit 163bdff (pull request 4636, 2026-09-12): plan_outer and build_inner_greedy with its defaults: nothing but
// layers' outputs is anchored, moving is free where it hides behind computing, at most 100 GiB leave. Times are the
// trace's, collectives take none, as there; a node has 8 devices; the link is the platform's.

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "strategies/models/op_sequence.h"
#include "strategies/offloading/frameworks/framework_rules.h"
#include "strategies/solve/milp.h"

namespace plimsoll {
namespace {

constexpr double titan_gib = 1LL << 30;
constexpr double titan_local_ranks = 8, titan_host_gib = 100;
constexpr Bytes titan_least_moved{4096};

/// What one layer keeps, as shares of its activations.
struct TitanShares {
  double keep = 0, repeat = 0, move = 0;

  friend auto operator<=>(const TitanShares&, const TitanShares&) = default;
};

/// An op of a layer whose outputs the backward reads.
struct TitanCandidate {
  std::size_t op = 0;
  Bytes bytes;
};

class TitanModel {
 public:
  TitanModel(const RuleTask& task, const DecoderOps& decoder)
      : task_(task), graph_(task.task.problem.graph), decoder_(decoder), candidates_(decoder.layers) {
    find_uses();
    find_layers_of_backward();
    measure();
  }

  /// Of each layer; nothing where no split fits the budget.
  std::optional<std::vector<TitanShares>> shares(Bytes budget, double bytes_per_second) const;
  OpPolicy policy(const std::vector<TitanShares>&) const;

 private:
  void find_uses();
  void find_layers_of_backward();
  void measure();
  std::vector<OpChoice> choices(const std::vector<TitanCandidate>&, const TitanShares&) const;
  double seconds(std::size_t op) const {
    if (is_collective_kind(graph_.ops[op])) return 0;
    return duration_on(task_.task.problem, id_at<OpId>(op), task_.task.part().device, Saving::keep).value;
  }

  const RuleTask& task_;
  const Graph& graph_;
  const DecoderOps& decoder_;
  std::vector<std::size_t> maker_, last_use_;               // by storage: ops
  std::vector<bool> is_read_back_;                          // by storage: by the backward
  std::vector<std::optional<std::uint32_t>> layer_;         // by op, backward too
  std::vector<std::vector<TitanCandidate>> candidates_;     // by layer
  std::vector<double> activations_, backward_temporaries_;  // by layer: GiB
  std::vector<double> outputs_;                             // by layer, GiB: of its output, whoever reads it
  double forward_ = 0, backward_ = 0;                       // seconds of a layer
  double outside_ = 0;                                      // GiB: the most that ops outside of layers hold at once
};

void TitanModel::find_uses() {
  maker_.assign(graph_.storages, graph_.ops.size());
  last_use_.assign(graph_.storages, 0);
  is_read_back_.assign(graph_.storages, false);
  for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
    const Op& op = graph_.ops[o];
    for (const TensorId t : op.inputs) {
      last_use_[graph_[t].storage.index] = o;
      if (is_backward(op.phase)) is_read_back_[graph_[t].storage.index] = true;
    }
    for (const TensorId t : op.outputs) {
      const std::uint32_t s = graph_[t].storage.index;
      if (maker_[s] == graph_.ops.size()) maker_[s] = o;
      last_use_[s] = graph_[t].kind == TensorKind::parameter_gradient ? graph_.ops.size() : o;
    }
  }
}

/// A backward op is of the last layer of which it reads a value other than the layer's output, which the next one uses;
/// one that reads none is of the layer of the op before.
void TitanModel::find_layers_of_backward() {
  layer_ = decoder_.layer;
  std::optional<std::uint32_t> now;
  for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
    if (!is_backward(graph_.ops[o].phase)) continue;
    std::optional<std::uint32_t> found;
    for (const TensorId t : graph_.ops[o].inputs) {
      const std::size_t maker = maker_[graph_[t].storage.index];
      if (maker == graph_.ops.size() || graph_.ops[maker].phase != Phase::forward) continue;
      if (decoder_.role[maker] != DecoderRole::layer_output) found = std::max(found, decoder_.layer[maker]);
    }
    if (found) now = found;
    layer_[o] = now;
  }
}

void TitanModel::measure() {
  activations_.assign(decoder_.layers, 0);
  backward_temporaries_.assign(decoder_.layers, 0);
  outputs_.assign(decoder_.layers, 0);
  std::vector<std::vector<std::uint32_t>> made(graph_.ops.size()), dies(graph_.ops.size() + 1);
  std::vector<Bytes> size(graph_.storages);
  for (const Tensor& tensor : graph_.tensors) {
    size[tensor.storage.index] = std::max(size[tensor.storage.index], tensor.bytes);
  }
  for (std::uint32_t s = 0; s < graph_.storages; ++s) {
    if (maker_[s] == graph_.ops.size()) continue;
    made[maker_[s]].push_back(s);
    dies[last_use_[s]].push_back(s);
  }
  double temporaries = 0, outside = 0;
  for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
    const bool backward = is_backward(graph_.ops[o].phase);
    Bytes read_back;
    for (const std::uint32_t s : made[o]) {
      const double bytes = static_cast<double>(size[s].count) / titan_gib;
      if (backward) temporaries += bytes;
      if (!layer_[o]) outside += bytes;
      if (!backward && is_read_back_[s]) read_back += size[s];
      if (decoder_.role[o] == DecoderRole::layer_output) outputs_[*layer_[o]] += bytes;
    }
    outside_ = std::max(outside_, outside);
    if (layer_[o]) {
      (backward ? backward_ : forward_) += seconds(o) / decoder_.layers;
      if (backward) backward_temporaries_[*layer_[o]] = std::max(backward_temporaries_[*layer_[o]], temporaries);
      if (read_back > Bytes{0}) {
        candidates_[*layer_[o]].push_back({o, read_back});
        activations_[*layer_[o]] += static_cast<double>(read_back.count) / titan_gib;
      }
    }
    for (const std::uint32_t s : dies[o]) {
      const double bytes = static_cast<double>(size[s].count) / titan_gib;
      if (is_backward(graph_.ops[maker_[s]].phase)) temporaries -= bytes;
      if (!layer_[maker_[s]]) outside -= bytes;
    }
  }
}

std::optional<std::vector<TitanShares>> TitanModel::shares(Bytes budget, double bytes_per_second) const {
  const std::size_t layers = decoder_.layers;
  const double room = static_cast<double>(budget.count) / titan_gib,
               parameters = static_cast<double>(bytes_of_kind(graph_, TensorKind::parameter).count) / titan_gib,
               gathered = (titan_local_ranks - 1) * parameters / static_cast<double>(layers);
  LinearProgram program;
  std::vector<std::size_t> keep, repeat, move;
  for (std::size_t l = 0; l < layers; ++l) {
    const double anchored = l + 1 < layers ? outputs_[l] : 0;
    const double share = activations_[l] > 0 ? std::min(1.0, anchored / activations_[l]) : 0;
    keep.push_back(program.variable({.cost = 0, .lower = share, .upper = 1}));
    repeat.push_back(program.variable({.cost = forward_, .lower = 0, .upper = 1}));
    move.push_back(program.variable({.cost = 0, .lower = 0, .upper = l + 1 < layers ? 1.0 : 0.0}));
    program.row({{keep[l], 1}, {repeat[l], 1}, {move[l], 1}}, 1, 1);
  }
  LinearProgram::Terms below, all_moved;
  for (std::size_t l = 0; l < layers; ++l) {
    LinearProgram::Terms terms = below;
    if (l > 0) terms.emplace_back(move[l - 1], activations_[l - 1]);
    const double next = l + 1 < layers ? gathered : 0;
    program.row(terms, -unbounded, room - activations_[l] - parameters - gathered - next);
    program.row(terms, -unbounded, room - activations_[l] - parameters - backward_temporaries_[l]);
    const double window = bytes_per_second / titan_gib * std::min(forward_, backward_);
    program.row({{move[l], activations_[l]}}, -unbounded, window);
    below.emplace_back(keep[l], activations_[l]);
    all_moved.emplace_back(move[l], activations_[l]);
  }
  program.row(below, -unbounded, room - outside_ - parameters - gathered);
  program.row(all_moved, -unbounded, titan_host_gib);
  constexpr double seconds = 60;
  const std::optional<std::vector<double>> values = Relaxation(program, seconds).solve();
  if (!values) return std::nullopt;
  std::vector<TitanShares> shares;
  for (std::size_t l = 0; l < layers; ++l) {
    shares.push_back({(*values)[keep[l]], (*values)[repeat[l]], (*values)[move[l]]});
  }
  return shares;
}

/// In the order of the candidates.
std::vector<OpChoice> TitanModel::choices(const std::vector<TitanCandidate>& candidates,
                                          const TitanShares& shares) const {
  enum class Decided : std::uint8_t { no, anchored, moved, repeated };
  std::vector<Decided> decided(candidates.size(), Decided::no);
  double all = 0;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    all += static_cast<double>(candidates[c].bytes.count);
    if (decoder_.role[candidates[c].op] == DecoderRole::layer_output) decided[c] = Decided::anchored;
  }
  const auto worth = [&](std::size_t c) {
    return seconds(candidates[c].op) / static_cast<double>(candidates[c].bytes.count);
  };
  std::vector<std::size_t> ranked(candidates.size());
  std::iota(ranked.begin(), ranked.end(), std::size_t{0});
  std::ranges::sort(ranked, [&](std::size_t a, std::size_t b) {
    const double one = worth(a), other = worth(b);
    return one > other || (one == other && graph_.ops[candidates[a].op].name < graph_.ops[candidates[b].op].name);
  });
  const auto bytes = [&](std::size_t c) { return static_cast<double>(candidates[c].bytes.count); };
  const auto fill = [&](double gap, Decided what, const auto& may, bool over) {
    constexpr double almost = 0.95;
    double placed = 0;
    for (const std::size_t c : ranked) {
      if (decided[c] != Decided::no || !may(c) || bytes(c) > gap - placed) continue;
      decided[c] = what;
      placed += bytes(c);
    }
    const double rest = gap - placed;
    if (!over || rest <= 0) return placed;
    std::optional<std::size_t> least;
    for (const std::size_t c : ranked) {
      if (decided[c] != Decided::no || !may(c) || bytes(c) < rest * almost) continue;
      if (!least || bytes(c) < bytes(*least)) least = c;
    }
    if (!least) return placed;
    decided[*least] = what;
    return placed + bytes(*least);
  };
  const auto may_move = [&](std::size_t c) {
    return !is_collective_kind(graph_.ops[candidates[c].op]) && candidates[c].bytes >= titan_least_moved;
  };
  const auto any = [](std::size_t) { return true; };
  const double moved = fill(shares.move * all, Decided::moved, may_move, false);
  std::ranges::reverse(ranked);  // the cheapest first
  const double repeated = fill((1 - shares.move - shares.keep) * all, Decided::repeated, any, false);
  fill(all - moved - repeated - shares.keep * all, Decided::repeated, any, true);
  std::vector<OpChoice> choices;
  for (const Decided each : decided) {
    choices.push_back(each == Decided::moved      ? OpChoice::offload
                      : each == Decided::repeated ? OpChoice::recompute
                                                  : OpChoice::save);
  }
  return choices;
}

/// Layers alike with the same shares have the choice of the first of them.
OpPolicy TitanModel::policy(const std::vector<TitanShares>& shares) const {
  OpPolicy policy(graph_.ops.size(), OpChoice::save);
  bool before_layers = true;
  for (std::size_t o = 0; o < policy.size(); ++o) {
    if (graph_.ops[o].phase != Phase::forward) continue;
    before_layers &= !decoder_.layer[o].has_value();
    const bool is_anchored = decoder_.role[o] == DecoderRole::layer_output;
    if ((decoder_.layer[o] || before_layers) && !is_anchored) policy[o] = OpChoice::recompute;
  }
  std::map<std::pair<std::vector<Bytes>, TitanShares>, std::vector<OpChoice>> known;
  for (std::size_t l = 0; l < decoder_.layers; ++l) {
    std::vector<Bytes> sizes;
    for (const TitanCandidate& each : candidates_[l]) sizes.push_back(each.bytes);
    const auto [at, is_new] = known.try_emplace({std::move(sizes), shares[l]});
    if (is_new) at->second = choices(candidates_[l], shares[l]);
    for (std::size_t c = 0; c < candidates_[l].size(); ++c) policy[candidates_[l][c].op] = at->second[c];
  }
  return with_repeatable_only(graph_, std::move(policy));
}

}  // namespace

RulePolicies torchtitan_solver(const RuleTask& task) {
  const Graph& graph = task.task.problem.graph;
  OpPolicy stored(graph.ops.size(), OpChoice::save);
  const std::variant<DecoderOps, std::string> found = decoder_ops(graph);
  if (const std::string* why = std::get_if<std::string>(&found)) return *why;
  if (!task.budget || planned_ops(task.task, store_all_ops(task.task)).peak <= *task.budget) {
    return std::vector<OpPolicy>{std::move(stored)};
  }
  const std::variant<OffloadModel, std::string> copies = offload_model(task.task, nullptr);
  if (const std::string* why = std::get_if<std::string>(&copies)) return *why;
  const auto& links = std::get<OffloadModel>(copies);
  const double rate = links.has_host ? std::min(links.out.bandwidth, links.in.bandwidth).value : 0;
  const TitanModel model(task, std::get<DecoderOps>(found));
  const std::optional<std::vector<TitanShares>> shares = model.shares(*task.budget, rate);
  if (!shares) return "its linear program over layers has no solution";
  return std::vector<OpPolicy>{model.policy(*shares)};
}

}  // namespace plimsoll
