#include "strategies/hybrid/bsp_model.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/core/rank_graph.h"

namespace plimsoll {
namespace {

using enum AxisLayout::Kind;

/// Of splits that no rank can run.
constexpr Seconds forbidden{1e9};

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
  constexpr std::uint32_t nobody = UINT32_MAX;
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
        model.uses_.push_back({from.is_made ? Use::Kind::made : Use::Kind::given, from.member, here, from.operand, k,
                               graph[t].bytes});
      }
    }
    for (std::uint32_t k = 0; k < op.outputs.size(); ++k) {
      const TensorId t = op.outputs[k];
      const Source& from = source[t.index];
      if (from.member == nobody) {
        source[t.index] = {here, k, true};
      } else {
        model.uses_.push_back({Use::Kind::summed, from.member, here, from.operand, k, graph[t].bytes});
      }
    }
  }
  return model;
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
  Table(const BspModel& model, const Mesh& mesh, std::size_t first, std::size_t last,
        const std::vector<Cuts>& before, CollectiveTimes& times)
      : model_(model),
        graph_(model.problem_->graph),
        axes_(mesh.axes),
        first_(first),
        new_axes_(std::span(mesh.axes).subspan(first, last - first)),
        before_(before),
        times_(times) {}

  SplitTable run() {
    for (std::uint32_t o = 0; o < model_.operators_.size(); ++o) add_all(o);
    add_edges();
    return std::move(made_);
  }

  SplitTable run(const std::vector<std::vector<Cuts>>& choices) {
    for (std::uint32_t o = 0; o < model_.operators_.size(); ++o) {
      begin_node();
      for (const Cuts& cuts : choices[o]) add(o, cuts);
    }
    add_edges();
    return std::move(made_);
  }

 private:
  void begin_node() {
    made_.nodes.emplace_back();
    made_.edges_of.emplace_back();
  }

  void add(std::uint32_t o, const Cuts& cuts) {
    if (divides(o, cuts)) made_.nodes[o].push_back({cuts, node_seconds(o, cuts)});
  }

  void add_all(std::uint32_t o) {
    begin_node();
    Cuts cuts(new_axes_.size());
    const std::size_t dims = model_.operators_[o].dims.size();
    for (bool more = true; more;) {
      add(o, cuts);
      more = false;
      for (std::size_t a = cuts.size(); a-- > 0 && !more;) {  // counts: none, the first dimension, ...
        const std::size_t next = cuts[a] ? std::size_t{*cuts[a]} + 1 : 0;
        more = next < dims;
        if (more) cuts[a] = static_cast<std::uint8_t>(next);
        if (!more) cuts[a].reset();
      }
    }
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

  Seconds node_seconds(std::uint32_t o, const Cuts& cuts) const {
    Seconds sum;
    for (const std::uint32_t m : model_.operators_[o].members) {
      const Member& member = model_.members_[m];
      const Cuts own = model_.cuts_of(member, cuts);
      sum += work_seconds(member, o, cuts, own);
      sum += exchanged_inside(member, o, own);
    }
    return sum;
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
    if (op.flops && peak != device.peak.end()) seconds = std::max(seconds, op.flops->count / share / peak->second.value);
    if (model_.work_ == WorkModel::simulated) seconds += device.launch_overhead.value;
    return Seconds{seconds};
  }

  /// Maxima and sums of a softmax, and gradients of parameters.
  Seconds exchanged_inside(const Member& member, std::uint32_t o, const Cuts& own) const {
    const Op& op = graph_[member.op];
    Seconds sum;
    const auto bytes_of = [&](std::size_t k, const Layout& layout) {
      const double local = static_cast<double>(graph_[op.outputs[k]].bytes.count) /
                           share_before(member, o, member.loop.outputs[k]) / share_of_cut(layout);
      return Bytes{static_cast<std::int64_t>(local)};
    };
    for (const LoopReduction& each : member.loop.reductions) {
      std::vector<std::uint32_t> axes;
      for (std::uint32_t a = 0; a < own.size(); ++a) {
        if (own[a] == each.dim) axes.push_back(a);
      }
      if (axes.empty()) continue;
      const Layout layout = layout_of(member.loop.outputs.front(), own, true);
      sum += each.count * times_.seconds(CollectiveKind::all_reduce, bytes_of(0, layout), behind(first_, axes));
    }
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      if (graph_[op.outputs[k]].kind != TensorKind::parameter_gradient) continue;
      const Layout layout = layout_of(member.loop.outputs[k], own, true);
      std::vector<std::uint32_t> axes;
      for (std::uint32_t a = 0; a < layout.size(); ++a) {
        if (layout[a].kind == partial) axes.push_back(a);
      }
      if (axes.empty()) continue;
      sum += (1.0 / model_.problem_->micro_batches) *
             times_.seconds(CollectiveKind::all_reduce, bytes_of(k, layout), behind(first_, axes));
    }
    return sum;
  }

  /// By choice of the operator: how a member lays one of its operands out.
  std::vector<Layout> layouts(std::uint32_t m, std::span<const std::uint8_t> operand, bool is_output) const {
    std::vector<Layout> made;
    for (const SplitTable::Choice& choice : made_.nodes[model_.operator_of_[m]]) {
      made.push_back(layout_of(operand, model_.cuts_of(model_.members_[m], choice.cuts), is_output));
    }
    return made;
  }

  void add_edges() {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known;
    for (const Use& use : model_.uses_) {
      const Member &maker = model_.members_[use.from], &reader = model_.members_[use.to];
      const std::uint32_t from = model_.operator_of_[use.from], to = model_.operator_of_[use.to];
      const bool is_output = use.kind != Use::Kind::given;
      const std::vector<std::uint8_t>& source =
          is_output ? maker.loop.outputs[use.from_operand] : maker.loop.inputs[use.from_operand];
      const bool is_sum = use.kind == Use::Kind::summed;
      const std::vector<std::uint8_t>& target =
          is_sum ? reader.loop.outputs[use.to_operand] : reader.loop.inputs[use.to_operand];
      const std::vector<Layout> made = layouts(use.from, source, is_output), needed = layouts(use.to, target, is_sum);
      const double bytes = static_cast<double>(use.bytes.count) / share_before(maker, from, source);
      const auto seconds = [&](std::size_t a, std::size_t b) {
        if (is_sum) return made[a] == needed[b] ? Seconds{} : forbidden;
        return relayout_seconds(made[a], needed[b], bytes, new_axes_, first_, times_);
      };
      if (from == to) {
        for (std::size_t c = 0; c < made.size(); ++c) made_.nodes[from][c].seconds += seconds(c, c);
        continue;
      }
      const auto [place, fresh] =
          known.try_emplace(std::minmax(from, to), static_cast<std::uint32_t>(made_.edges.size()));
      if (fresh) {
        made_.edges.push_back({std::min(from, to), std::max(from, to), {}});
        made_.edges.back().seconds.resize(made.size() * needed.size());
        made_.edges_of[from].push_back(place->second);
        made_.edges_of[to].push_back(place->second);
      }
      SplitTable::Edge& edge = made_.edges[place->second];
      for (std::size_t a = 0; a < made.size(); ++a) {
        for (std::size_t b = 0; b < needed.size(); ++b) {
          const std::size_t at = from < to ? a * needed.size() + b : b * made.size() + a;
          edge.seconds[at] += seconds(a, b);
        }
      }
    }
  }

  const BspModel& model_;
  const Graph& graph_;
  std::span<const Axis> axes_;
  std::size_t first_;
  std::span<const Axis> new_axes_;
  const std::vector<Cuts>& before_;
  CollectiveTimes& times_;
  SplitTable made_;
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

std::vector<std::vector<BspModel::Cuts>> BspModel::choices_around(const std::vector<Cuts>& cuts) const {
  std::vector<std::vector<Cuts>> choices(operators_.size());
  const auto add = [&](std::uint32_t o, Cuts more) {
    if (std::ranges::find(choices[o], more) == choices[o].end()) choices[o].push_back(std::move(more));
  };
  for (std::uint32_t o = 0; o < operators_.size(); ++o) {
    add(o, cuts[o]);
    for (std::uint8_t d = 0; d < operators_[o].dims.size(); ++d) add(o, Cuts(cuts[o].size(), d));
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

std::vector<SplitChoices> BspModel::uniform_starts(const SplitTable& table) const {
  std::set<std::string> names;
  for (const OperatorDims& each : operators_) {
    for (const LoopDim& dim : each.dims) {
      if (dim.cuttable) names.insert(dim.name);
    }
  }
  std::vector<SplitChoices> starts{SplitChoices(operators_.size(), 0)};
  for (const std::string& name : names) {
    SplitChoices& start = starts.emplace_back(operators_.size(), 0);
    for (std::size_t o = 0; o < operators_.size(); ++o) {
      for (std::uint32_t c = 0; c < table.nodes[o].size(); ++c) {
        const Cuts& cuts = table.nodes[o][c].cuts;
        const auto is_it = [&](const auto& dim) { return dim && operators_[o].dims[*dim].name == name; };
        if (std::ranges::all_of(cuts, is_it)) start[o] = c;
      }
    }
  }
  return starts;
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
