#include "strategies/hybrid/bsp_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "sim/mesh/rank_graph.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t nobody = UINT32_MAX;

void append(std::string& key, std::string_view text) {
  key += text;
  key += '\n';
}
template <class Number>
void append(std::string& key, Number number) {
  append(key, std::string_view(std::to_string(number)));
}

}  // namespace

std::variant<BspModel, std::string> BspModel::of(const Problem& problem, WorkModel work) {
  const Graph& graph = problem.graph;
  BspModel model;
  model.problem_ = &problem;
  model.work_ = work;
  std::vector<std::uint32_t> member_of(graph.ops.size(), nobody);
  for (const Operator& each : operators_of(graph)) {
    OperatorDims made{each, {}, {}};
    std::vector<OpId> ops{each.forward};
    ops.insert(ops.end(), each.backward.begin(), each.backward.end());
    for (const OpId op : ops) {
      std::variant<OpLoop, std::string> loop = loop_of(graph, op);
      if (std::string* why = std::get_if<std::string>(&loop)) return std::move(*why);
      Member member{op, std::get<OpLoop>(std::move(loop)), {}, {}};
      if (op == each.forward) made.dims = member.loop.dims;
      member.of_loop.assign(made.dims.size(), no_dim);
      for (std::uint8_t d = 0; d < member.loop.dims.size(); ++d) {
        const LoopDim& dim = member.loop.dims[d];
        const auto found = dim.name == "-" ? made.dims.end() : std::ranges::find(made.dims, dim.name, &LoopDim::name);
        member.of_operator.push_back(found == made.dims.end() ? no_dim
                                                              : static_cast<std::uint8_t>(found - made.dims.begin()));
        if (found == made.dims.end()) continue;
        member.of_loop[member.of_operator.back()] = d;
        found->cuttable = found->cuttable && dim.cuttable;
      }
      member_of[op.index] = static_cast<std::uint32_t>(model.members_.size());
      made.members.push_back(member_of[op.index]);
      model.operator_of_.push_back(static_cast<std::uint32_t>(model.operators_.size()));
      model.members_.push_back(std::move(member));
    }
    model.operators_.push_back(std::move(made));
  }
  model.find_uses(member_of);
  model.find_alike();
  return model;
}

void BspModel::find_uses(const std::vector<std::uint32_t>& member_of) {
  const Graph& graph = problem_->graph;
  sources_.resize(graph.tensors.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const std::uint32_t here = member_of[o];
    if (here == nobody) continue;
    const Op& op = graph.ops[o];
    for (std::uint32_t k = 0; k < op.inputs.size(); ++k) {
      const TensorId t = op.inputs[k];
      const Source& from = sources_[t.index];
      if (from.member == nobody) {
        sources_[t.index] = {here, k, false};
      } else {
        uses_.push_back(
            {from.is_made ? Use::Kind::made : Use::Kind::given, from.member, here, from.operand, k, graph[t].bytes});
      }
    }
    for (std::uint32_t k = 0; k < op.outputs.size(); ++k) {
      const TensorId t = op.outputs[k];
      const Source& from = sources_[t.index];
      if (from.member == nobody) {
        sources_[t.index] = {here, k, true};
      } else {
        uses_.push_back({Use::Kind::summed, from.member, here, from.operand, k, graph[t].bytes});
      }
    }
  }
}

/// Layers of a model repeat: what they cost is worked out once.
void BspModel::find_alike() {
  const Graph& graph = problem_->graph;
  std::map<std::string, std::uint32_t> operators, betweens;
  for (std::uint32_t o = 0; o < operators_.size(); ++o) {
    std::string key;
    for (const std::uint32_t m : operators_[o].members) {
      const Op& op = graph[members_[m].op];
      append(key, std::string_view(op.kind));
      for (const auto& [name, value] : op.attributes) {
        if (name == "of") continue;
        append(key, std::string_view(name));
        append(key, std::string_view(value));
      }
      append(key, op.flops ? op.flops->count : -1);
      append(key, op.duration ? op.duration->value : -1);
      append(key, op.bytes_moved ? op.bytes_moved->count : -1);
      for (const auto* list : {&op.inputs, &op.outputs}) {
        for (const TensorId t : *list) {
          append(key, static_cast<int>(graph[t].kind));
          append(key, graph[t].bytes.count);
          for (const std::int64_t extent : graph[t].shape) append(key, extent);
        }
      }
    }
    operators_[o].like = operators.try_emplace(std::move(key), o).first->second;
  }
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known;
  for (std::uint32_t u = 0; u < uses_.size(); ++u) {
    const auto pair = std::minmax(operator_of_[uses_[u].from], operator_of_[uses_[u].to]);
    const auto [place, fresh] = known.try_emplace(pair, static_cast<std::uint32_t>(between_.size()));
    if (fresh) between_.push_back({pair.first, pair.second, {}, 0});
    between_[place->second].uses.push_back(u);
  }
  for (std::uint32_t b = 0; b < between_.size(); ++b) {
    std::string key;
    for (const std::uint32_t u : between_[b].uses) {
      const Use& use = uses_[u];
      append(key, static_cast<int>(use.kind));
      append(key, operator_of_[use.from] == between_[b].from ? 0 : 1);
      append(key, use.from - operators_[operator_of_[use.from]].members.front());
      append(key, use.to - operators_[operator_of_[use.to]].members.front());
      append(key, use.from_operand);
      append(key, use.to_operand);
      append(key, use.bytes.count);
    }
    between_[b].like = betweens.try_emplace(std::move(key), b).first->second;
  }
}

BspModel::Cuts BspModel::cuts_of(const Member& member, const Cuts& of_operator) const {
  Cuts cuts(of_operator.size());
  for (std::size_t a = 0; a < cuts.size(); ++a) {
    if (of_operator[a] && member.of_loop[*of_operator[a]] != no_dim) cuts[a] = member.of_loop[*of_operator[a]];
  }
  return cuts;
}

void BspModel::add_memory(SplitTable& table, const Mesh& mesh, std::size_t first, const SplitCuts& before) const {
  constexpr std::uint32_t after_forward = 0, after_backward = 1, end = 2;
  const Graph& graph = problem_->graph;
  const bool gradients_stay = problem_->micro_batches > 1 || problem_->gradients == Gradients::existing;
  /// Of a tensor: for how many bytes its layout stands at each moment.
  std::vector<std::array<Bytes, end>> bytes(graph.tensors.size());
  for (std::uint32_t t = 0; t < graph.tensors.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    if (tensor.kind == TensorKind::parameter) bytes[t] = {tensor.bytes, tensor.bytes};
    if (tensor.kind == TensorKind::parameter_gradient && tensor.gradient_of) {
      std::array<Bytes, end>& both = bytes[tensor.gradient_of->index];
      both[after_backward] += tensor.bytes;
      if (gradients_stay) both[after_forward] += tensor.bytes;
    }
  }
  std::vector<bool> is_made(graph.tensors.size(), false);
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::update) {
      const auto parameter =
          std::ranges::find_if(op.inputs, [&](TensorId t) { return graph[t].kind == TensorKind::parameter; });
      for (const TensorId t : op.inputs) {
        if (graph[t].kind != TensorKind::optimizer_state || parameter == op.inputs.end()) continue;
        for (Bytes& each : bytes[parameter->index]) each += graph[t].bytes;
      }
    }
    const bool is_forward = op.phase == Phase::forward;
    for (const TensorId t : op.outputs) is_made[t.index] = is_forward;
    if (is_forward || op.phase == Phase::update) continue;
    for (const TensorId t : op.inputs) {
      const bool is_kept = is_made[t.index] || graph[t].kind == TensorKind::input;
      if (is_kept && graph[t].kind != TensorKind::parameter) bytes[t.index][after_forward] = graph[t].bytes;
    }
  }
  table.moments = end;
  table.held.assign(operators_.size(), {});
  std::vector<std::vector<std::uint32_t>> tensors(operators_.size());
  for (std::uint32_t t = 0; t < bytes.size(); ++t) {
    if (sources_[t].member != nobody && bytes[t] != std::array<Bytes, end>{}) {
      tensors[operator_of_[sources_[t].member]].push_back(t);
    }
  }
  for (std::uint32_t o = 0; o < operators_.size(); ++o) {
    std::array<std::vector<Bytes>, end> kept;
    for (const SplitTable::Choice& choice : table.choices(o)) {
      std::array<Bytes, end> sums;
      for (const std::uint32_t t : tensors[o]) {
        const std::int64_t ranks = ranks_that_share(sources_[t], mesh, first, before[o], choice.cuts);
        for (std::uint32_t m = 0; m < end; ++m) sums[m] += Bytes{bytes[t][m].count / ranks};
      }
      for (std::uint32_t m = 0; m < end; ++m) kept[m].push_back(sums[m]);
    }
    for (std::uint32_t m = 0; m < end; ++m) {
      table.held[o].push_back({m, m + 1, std::make_shared<const std::vector<Bytes>>(std::move(kept[m]))});
    }
  }
}

std::int64_t BspModel::ranks_that_share(const Source& source, const Mesh& mesh, std::size_t first, const Cuts& before,
                                        const Cuts& now) const {
  const Member& member = members_[source.member];
  const std::vector<std::uint8_t>& operand =
      (source.is_made ? member.loop.outputs : member.loop.inputs)[source.operand];
  std::int64_t ranks = 1;
  const auto count = [&](const std::optional<std::uint8_t>& dim, std::size_t axis) {
    if (!dim || member.of_loop[*dim] == no_dim) return;
    if (std::ranges::find(operand, member.of_loop[*dim]) != operand.end()) ranks *= mesh.axes[axis].ranks;
  };
  for (std::size_t a = 0; a < first; ++a) count(before[a], a);
  for (std::size_t a = 0; a < now.size(); ++a) count(now[a], first + a);
  return ranks;
}

std::vector<std::vector<BspModel::Cuts>> BspModel::choices_around(const std::vector<Cuts>& cuts,
                                                                  std::size_t outer) const {
  std::vector<std::vector<Cuts>> choices(operators_.size());
  const auto add = [&](std::uint32_t o, Cuts more) {
    if (std::ranges::find(choices[o], more) == choices[o].end()) choices[o].push_back(std::move(more));
  };
  for (std::uint32_t o = 0; o < operators_.size(); ++o) {
    add(o, cuts[o]);
    std::vector<std::optional<std::uint8_t>> dims(1);
    for (std::uint8_t d = 0; d < operators_[o].dims.size(); ++d) {
      if (operators_[o].dims[d].cuttable) dims.emplace_back(d);
    }
    for (const auto& first : dims) {
      for (const auto& second : dims) {
        Cuts both(cuts[o].size(), second);
        std::fill_n(both.begin(), outer, first);
        add(o, std::move(both));
      }
    }
  }
  const auto as_other = [&](std::uint32_t o, std::uint32_t other) {
    Cuts more(cuts[o].size());
    for (std::size_t a = 0; a < more.size(); ++a) {
      if (!cuts[other][a]) continue;
      const std::string& name = operators_[other].dims[*cuts[other][a]].name;
      const auto found = std::ranges::find(operators_[o].dims, name, &LoopDim::name);
      if (found != operators_[o].dims.end()) more[a] = static_cast<std::uint8_t>(found - operators_[o].dims.begin());
    }
    add(o, std::move(more));
  };
  for (const Use& use : uses_) {
    const std::uint32_t from = operator_of_[use.from], to = operator_of_[use.to];
    if (from == to) continue;
    as_other(from, to);
    as_other(to, from);
  }
  return choices;
}

std::vector<SplitChoices> BspModel::uniform_starts(const SplitTable& table, std::size_t outer, double weight) const {
  constexpr std::size_t most = 6;
  std::set<std::string> names;
  for (const OperatorDims& each : operators_) {
    for (const LoopDim& dim : each.dims) {
      if (dim.cuttable) names.insert(dim.name);
    }
  }
  std::vector<std::pair<Seconds, SplitChoices>> starts;
  // Whether a choice cuts the dimension of that name along each of the first axes, and no other there.
  const auto begins_with = [&](std::size_t o, const SplitTable::Choice& choice, const std::string& name,
                               std::size_t axes) {
    return std::all_of(choice.cuts.begin(), choice.cuts.begin() + static_cast<std::ptrdiff_t>(axes),
                       [&](const auto& dim) { return dim && operators_[o].dims[*dim].name == name; });
  };
  const auto add = [&](const std::string& name, std::size_t axes) {
    std::map<std::pair<const void*, std::uint32_t>, std::vector<bool>> known;  // by what is alike
    std::vector<const std::vector<bool>*> may_have;
    for (std::size_t o = 0; o < operators_.size(); ++o) {
      const auto [place, fresh] = known.try_emplace({table.nodes[o].get(), operators_[o].like});
      if (fresh) {
        for (const SplitTable::Choice& choice : table.choices(o)) {
          place->second.push_back(begins_with(o, choice, name, axes));
        }
        const bool has_none = std::ranges::find(place->second, true) == place->second.end();
        if (has_none) place->second.assign(place->second.size(), true);
      }
      may_have.push_back(&place->second);
    }
    SplitChoices start = chosen_in_order(table, may_have, weight);
    const Seconds cost = table.priced(start, weight);
    starts.emplace_back(cost, std::move(start));
  };
  const std::size_t all = table.choices(0).front().cuts.size();
  for (const std::string& name : names) {
    add(name, all);
    if (outer > 0 && outer < all) add(name, outer);
  }
  std::ranges::stable_sort(starts, {}, &std::pair<Seconds, SplitChoices>::first);
  if (starts.size() > most) starts.resize(most);
  std::vector<SplitChoices> cheapest{SplitChoices(operators_.size(), 0)};
  for (auto& [cost, start] : starts) cheapest.push_back(std::move(start));
  return cheapest;
}

SplitPlan BspModel::plan(Mesh mesh, const std::vector<Cuts>& cuts) const {
  SplitPlan made{std::move(mesh), {}};
  made.cuts.assign(problem_->graph.ops.size(), Cuts(made.mesh.axes.size()));
  for (std::size_t o = 0; o < operators_.size(); ++o) {
    for (const std::uint32_t m : operators_[o].members) {
      made.cuts[members_[m].op.index] = cuts_of(members_[m], cuts[o]);
    }
  }
  cut_followers(problem_->graph, made);
  return made;
}

}  // namespace plimsoll
