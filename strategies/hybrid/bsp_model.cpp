#include "strategies/hybrid/bsp_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "sim/core/rank_graph.h"

namespace plimsoll {
namespace {

using enum AxisLayout::Kind;

/// Of splits that no rank can run.
constexpr Seconds forbidden{1e9};

constexpr std::uint32_t nobody = UINT32_MAX;

void append(std::string& key, std::string_view text) {
  key += text;
  key += '\n';
}
template <class Number>
void append(std::string& key, Number number) {
  append(key, std::string_view(std::to_string(number)));
}

std::vector<std::uint32_t> behind(std::size_t first, std::vector<std::uint32_t> axes) {
  for (std::uint32_t& a : axes) a += static_cast<std::uint32_t>(first);
  return axes;
}

/// What it takes to lay a value out anew, whose share of the axes before has so many bytes.
Seconds relayout_seconds(const Layout& from, const Layout& to, double bytes, std::span<const Axis> axes,
                         std::size_t first, CollectiveTimes& times) {
  if (from == to) return {};
  const std::optional<std::vector<JointRelayout>> steps = joint_relayouts(from, to);
  if (!steps) return forbidden;
  const auto share = [&](const Layout& layout) {
    double ranks = 1;
    for (std::size_t a = 0; a < layout.size(); ++a) {
      if (layout[a].kind == cut) ranks *= axes[a].ranks;
    }
    return ranks;
  };
  Seconds sum;
  Layout now = from;
  for (const JointRelayout& step : *steps) {
    if (step.kind) {
      const double local = bytes / share(step.kind == CollectiveKind::all_gather ? step.after : now);
      sum += times.seconds(*step.kind, Bytes{static_cast<std::int64_t>(local)}, behind(first, step.axes));
    }
    now = step.after;
  }
  return sum;
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
  /// By tensor: the member and operand that its layout comes from.
  struct Source {
    std::uint32_t member = nobody, operand = 0;
    bool is_made = false;
  };
  std::vector<Source> source(graph.tensors.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const std::uint32_t here = member_of[o];
    if (here == nobody) continue;
    const Op& op = graph.ops[o];
    for (std::uint32_t k = 0; k < op.inputs.size(); ++k) {
      const TensorId t = op.inputs[k];
      const Source& from = source[t.index];
      if (from.member == nobody) {
        source[t.index] = {here, k, false};
      } else {
        uses_.push_back(
            {from.is_made ? Use::Kind::made : Use::Kind::given, from.member, here, from.operand, k, graph[t].bytes});
      }
    }
    for (std::uint32_t k = 0; k < op.outputs.size(); ++k) {
      const TensorId t = op.outputs[k];
      const Source& from = source[t.index];
      if (from.member == nobody) {
        source[t.index] = {here, k, true};
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
      for (const auto& [name, value] : op.attributes) {
        if (name.starts_with("loop")) append(key, std::string_view(value));
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

/// While a table is made.
class BspModel::Table {
 public:
  Table(const BspModel& model, const Mesh& mesh, std::size_t first, std::size_t last, const std::vector<Cuts>& before,
        CollectiveTimes& times)
      : model_(model),
        graph_(model.problem_->graph),
        axes_(mesh.axes),
        first_(first),
        new_axes_(std::span(mesh.axes).subspan(first, last - first)),
        before_(before),
        times_(times) {}

  SplitTable run() {
    for (std::uint32_t o = 0; o < model_.operators_.size(); ++o) add_node(o, all_cuts(o));
    add_edges();
    return std::move(made_);
  }

  SplitTable run(const std::vector<std::vector<Cuts>>& choices) {
    for (std::uint32_t o = 0; o < model_.operators_.size(); ++o) add_node(o, choices[o]);
    add_edges();
    return std::move(made_);
  }

 private:
  /// Of what is alike, was cut alike before, and may be cut alike.
  void add_node(std::uint32_t o, const std::vector<Cuts>& choices) {
    std::string key = std::to_string(model_.operators_[o].like);
    const auto append_cuts = [&](const Cuts& cuts) {
      for (const std::optional<std::uint8_t>& dim : cuts) key += dim ? static_cast<char>('a' + *dim) : '-';
      key += ' ';
    };
    key += ' ';
    append_cuts(before_[o]);
    for (const Cuts& cuts : choices) append_cuts(cuts);
    const auto [place, fresh] = alike_.try_emplace(std::move(key), o);
    like_.push_back(place->second);
    made_.edges_of.emplace_back();
    if (!fresh) return made_.nodes.push_back(made_.nodes[place->second]);
    auto made = std::make_shared<std::vector<SplitTable::Choice>>();
    for (const Cuts& cuts : choices) {
      if (divides(o, cuts)) made->push_back(choice(o, cuts));
    }
    made_.nodes.push_back(std::move(made));
    add_inner(o);
  }

  std::vector<Cuts> all_cuts(std::uint32_t o) const {
    std::vector<Cuts> all;
    Cuts cuts(new_axes_.size());
    const std::size_t dims = model_.operators_[o].dims.size();
    for (bool more = true; more;) {
      all.push_back(cuts);
      more = false;
      for (std::size_t a = cuts.size(); a-- > 0 && !more;) {  // counts: none, the first dimension, ...
        const std::size_t next = cuts[a] ? std::size_t{*cuts[a]} + 1 : 0;
        more = next < dims;
        if (more) cuts[a] = static_cast<std::uint8_t>(next);
        if (!more) cuts[a].reset();
      }
    }
    return all;
  }

  bool divides(std::uint32_t o, const Cuts& cuts) const {
    const std::vector<LoopDim>& dims = model_.operators_[o].dims;
    for (std::size_t a = 0; a < cuts.size(); ++a) {
      if (!cuts[a]) continue;
      if (!dims[*cuts[a]].cuttable) return false;
      std::int64_t ranks = 1;
      for (std::size_t other = 0; other < first_; ++other) {
        if (before_[o][other] == cuts[a]) ranks *= axes_[other].ranks;
      }
      for (std::size_t other = 0; other < cuts.size(); ++other) {
        if (cuts[other] == cuts[a]) ranks *= new_axes_[other].ranks;
      }
      if (dims[*cuts[a]].size % ranks != 0) return false;
    }
    return true;
  }

  /// Ranks of the axes before among which the operand is cut.
  double share_before(const Member& member, std::uint32_t o, std::span<const std::uint8_t> operand) const {
    double ranks = 1;
    for (std::size_t a = 0; a < first_; ++a) {
      const std::optional<std::uint8_t>& dim = before_[o][a];
      if (dim && std::ranges::find(operand, member.of_loop[*dim]) != operand.end()) ranks *= axes_[a].ranks;
    }
    return ranks;
  }

  double share_of_work(const Member& member, std::uint32_t o, const Cuts& cuts) const {
    double ranks = 1;
    for (std::size_t a = 0; a < first_; ++a) {
      if (before_[o][a] && member.of_loop[*before_[o][a]] != no_dim) ranks *= axes_[a].ranks;
    }
    for (std::size_t a = 0; a < cuts.size(); ++a) {
      if (cuts[a] && member.of_loop[*cuts[a]] != no_dim) ranks *= new_axes_[a].ranks;
    }
    return ranks;
  }

  double share_of_cut(const Layout& layout) const {
    double ranks = 1;
    for (std::size_t a = 0; a < layout.size(); ++a) {
      if (layout[a].kind == cut) ranks *= new_axes_[a].ranks;
    }
    return ranks;
  }

  SplitTable::Choice choice(std::uint32_t o, const Cuts& cuts) const {
    SplitTable::Choice made{cuts, {}, {}};
    for (const std::uint32_t m : model_.operators_[o].members) {
      const Member& member = model_.members_[m];
      const Cuts own = model_.cuts_of(member, cuts);
      made.seconds += work_seconds(member, o, cuts, own) + reductions_inside(member, o, own);
      made.sums += gradient_sums(member, o, own);
    }
    return made;
  }

  Seconds work_seconds(const Member& member, std::uint32_t o, const Cuts& cuts, const Cuts& own) const {
    const Op& op = graph_[member.op];
    const Device& device = model_.problem_->platform.devices.front();
    const double share = share_of_work(member, o, cuts);
    if (times_hold(graph_.source, device)) return (1 / share) * op.duration.value_or(Seconds{0});
    double moved = 0, whole = 0;
    const auto add = [&](const std::vector<TensorId>& tensors, const std::vector<std::vector<std::uint8_t>>& operands) {
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        const auto bytes = static_cast<double>(graph_[tensors[k]].bytes.count);
        whole += bytes;
        moved += bytes / share_before(member, o, operands[k]) / share_of_cut(layout_of(operands[k], own, false));
      }
    };
    add(op.inputs, member.loop.inputs);
    add(op.outputs, member.loop.outputs);
    if (op.bytes_moved && whole > 0) moved *= static_cast<double>(op.bytes_moved->count) / whole;
    const auto peak = device.peak.find(graph_.source.dtype);
    double seconds = device.memory_bandwidth ? moved / device.memory_bandwidth->value : 0;
    if (op.flops && peak != device.peak.end())
      seconds = std::max(seconds, op.flops->count / share / peak->second.value);
    if (model_.work_ == WorkModel::simulated) seconds += device.launch_overhead.value;
    return Seconds{seconds};
  }

  /// Of the result that a member makes, on a rank.
  Bytes local_bytes(const Member& member, std::uint32_t o, std::size_t output, const Layout& layout) const {
    const double local = static_cast<double>(graph_[graph_[member.op].outputs[output]].bytes.count) /
                         share_before(member, o, member.loop.outputs[output]) / share_of_cut(layout);
    return Bytes{static_cast<std::int64_t>(local)};
  }

  /// Maxima and sums of a softmax.
  Seconds reductions_inside(const Member& member, std::uint32_t o, const Cuts& own) const {
    Seconds sum;
    for (const LoopReduction& each : member.loop.reductions) {
      std::vector<std::uint32_t> axes;
      for (std::uint32_t a = 0; a < own.size(); ++a) {
        if (own[a] == each.dim) axes.push_back(a);
      }
      if (axes.empty()) continue;
      const Layout layout = layout_of(member.loop.outputs.front(), own, true);
      sum += each.count *
             times_.seconds(CollectiveKind::all_reduce, local_bytes(member, o, 0, layout), behind(first_, axes));
    }
    return sum;
  }

  Seconds gradient_sums(const Member& member, std::uint32_t o, const Cuts& own) const {
    const Op& op = graph_[member.op];
    Seconds sum;
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      if (graph_[op.outputs[k]].kind != TensorKind::parameter_gradient) continue;
      const Layout layout = layout_of(member.loop.outputs[k], own, true);
      std::vector<std::uint32_t> axes;
      for (std::uint32_t a = 0; a < layout.size(); ++a) {
        if (layout[a].kind == partial) axes.push_back(a);
      }
      if (axes.empty()) continue;
      sum += (1.0 / model_.problem_->micro_batches) *
             times_.seconds(CollectiveKind::all_reduce, local_bytes(member, o, k, layout), behind(first_, axes));
    }
    return sum;
  }

  /// By choice of the operator: how a member lays one of its operands out.
  std::vector<Layout> layouts(std::uint32_t m, std::span<const std::uint8_t> operand, bool is_output) const {
    std::vector<Layout> made;
    for (const SplitTable::Choice& choice : made_.choices(model_.operator_of_[m])) {
      made.push_back(layout_of(operand, model_.cuts_of(model_.members_[m], choice.cuts), is_output));
    }
    return made;
  }

  /// What it takes to lay a value out anew, by the choices of the operators that make and read it.
  class Laying {
   public:
    Laying(const Table& table, const Use& use) : table_(table), use_(use) {
      const Member &maker = table.model_.members_[use.from], &reader = table.model_.members_[use.to];
      const bool is_output = use.kind != Use::Kind::given, is_sum = use.kind == Use::Kind::summed;
      const std::vector<std::uint8_t>& source = (is_output ? maker.loop.outputs : maker.loop.inputs)[use.from_operand];
      const std::vector<std::uint8_t>& target = (is_sum ? reader.loop.outputs : reader.loop.inputs)[use.to_operand];
      made_ = table.layouts(use.from, source, is_output);
      needed_ = table.layouts(use.to, target, is_sum);
      const std::uint32_t from = table.model_.operator_of_[use.from];
      bytes_ = static_cast<double>(use.bytes.count) / table.share_before(maker, from, source);
    }

    Seconds seconds(std::size_t from, std::size_t to) const {
      if (use_.kind == Use::Kind::summed) return made_[from] == needed_[to] ? Seconds{} : forbidden;
      return relayout_seconds(made_[from], needed_[to], bytes_, table_.new_axes_, table_.first_, table_.times_);
    }

   private:
    const Table& table_;
    const Use& use_;
    std::vector<Layout> made_, needed_;
    double bytes_ = 0;
  };

  /// What an operator exchanges with itself.
  void add_inner(std::uint32_t o) {
    if (inner_.empty()) {
      inner_.resize(model_.operators_.size(), nullptr);
      for (const Between& each : model_.between_) {
        if (each.from == each.to) inner_[each.from] = &each;
      }
    }
    if (inner_[o] == nullptr) return;
    std::vector<SplitTable::Choice> choices = made_.choices(o);
    for (const std::uint32_t u : inner_[o]->uses) {
      const Laying laying(*this, model_.uses_[u]);
      for (std::size_t c = 0; c < choices.size(); ++c) choices[c].seconds += laying.seconds(c, c);
    }
    made_.nodes[o] = std::make_shared<const std::vector<SplitTable::Choice>>(std::move(choices));
  }

  void add_edges() {
    std::map<std::array<std::uint32_t, 3>, std::uint32_t> known;  // edges that are alike
    for (const Between& each : model_.between_) {
      if (each.from == each.to) continue;
      const auto number = static_cast<std::uint32_t>(made_.edges.size());
      made_.edges.push_back({each.from, each.to, nullptr});
      made_.edges_of[each.from].push_back(number);
      made_.edges_of[each.to].push_back(number);
      const auto [place, fresh] = known.try_emplace({like_[each.from], like_[each.to], each.like}, number);
      made_.edges[number].seconds = fresh ? between(each) : made_.edges[place->second].seconds;
    }
  }

  std::shared_ptr<const std::vector<Seconds>> between(const Between& each) const {
    const std::size_t rows = made_.choices(each.from).size(), columns = made_.choices(each.to).size();
    std::vector<Seconds> sums(rows * columns);
    for (const std::uint32_t u : each.uses) {
      const Laying laying(*this, model_.uses_[u]);
      const bool is_along = model_.operator_of_[model_.uses_[u].from] == each.from;
      for (std::size_t a = 0; a < rows; ++a) {
        for (std::size_t b = 0; b < columns; ++b) {
          sums[a * columns + b] += is_along ? laying.seconds(a, b) : laying.seconds(b, a);
        }
      }
    }
    return std::make_shared<const std::vector<Seconds>>(std::move(sums));
  }

  const BspModel& model_;
  const Graph& graph_;
  std::span<const Axis> axes_;
  std::size_t first_;
  std::span<const Axis> new_axes_;
  const std::vector<Cuts>& before_;
  CollectiveTimes& times_;
  SplitTable made_;
  std::map<std::string, std::uint32_t> alike_;  // the first node of its kind
  std::vector<std::uint32_t> like_;             // by node: the first that is alike
  std::vector<const Between*> inner_;           // by operator, once asked
};

SplitTable BspModel::table(const Mesh& mesh, std::size_t first, std::size_t last, const std::vector<Cuts>& before,
                           CollectiveTimes& times) const {
  return Table(*this, mesh, first, last, before, times).run();
}

SplitTable BspModel::table(const Mesh& mesh, const std::vector<std::vector<Cuts>>& choices,
                           CollectiveTimes& times) const {
  const std::vector<Cuts> none(operators_.size());
  return Table(*this, mesh, 0, mesh.axes.size(), none, times).run(choices);
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
    std::vector<std::vector<bool>> may_have;
    for (std::size_t o = 0; o < operators_.size(); ++o) {
      const auto [place, fresh] = known.try_emplace({table.nodes[o].get(), operators_[o].like});
      if (fresh) {
        for (const SplitTable::Choice& choice : table.choices(o)) {
          place->second.push_back(begins_with(o, choice, name, axes));
        }
        const bool has_none = std::ranges::find(place->second, true) == place->second.end();
        if (has_none) place->second.assign(place->second.size(), true);
      }
      may_have.push_back(place->second);
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
