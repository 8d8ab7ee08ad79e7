// Tables of what splits cost, by the model of bsp_model.h.

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

#include "strategies/hybrid/bsp_model.h"

namespace plimsoll {
namespace {

using enum AxisLayout::Kind;

/// Of splits that no rank can run.
constexpr Seconds forbidden{1e9};

std::vector<std::uint32_t> behind(std::size_t first, std::vector<std::uint32_t> axes) {
  for (std::uint32_t& a : axes) a += static_cast<std::uint32_t>(first);
  return axes;
}

/// What it takes to lay values out anew, whose shares of the axes before `first` have so many bytes. Each way is worked
/// out once.
class RelayoutSeconds {
 public:
  RelayoutSeconds(std::span<const Axis> axes, std::size_t first, CollectiveTimes& times)
      : axes_(axes), first_(first), times_(times) {}

  Seconds between(const Layout& from, const Layout& to, double bytes) {
    if (from == to) return {};
    std::string key(sizeof bytes, '\0');
    std::memcpy(key.data(), &bytes, sizeof bytes);
    for (const Layout* layout : {&from, &to}) {
      for (const AxisLayout& along : *layout) {
        key += static_cast<char>(along.kind);
        key += static_cast<char>(along.dim);
      }
    }
    const auto [place, fresh] = known_.try_emplace(std::move(key));
    if (fresh) place->second = worked_out(from, to, bytes);
    return place->second;
  }

 private:
  double ranks_that_cut(const Layout& layout) const {
    double ranks = 1;
    for (std::size_t a = 0; a < layout.size(); ++a) {
      if (layout[a].kind == cut) ranks *= axes_[a].ranks;
    }
    return ranks;
  }

  Seconds worked_out(const Layout& from, const Layout& to, double bytes) {
    const std::optional<std::vector<JointRelayout>> steps = joint_relayouts(from, to);
    if (!steps) return forbidden;
    Seconds sum;
    const Layout* now = &from;
    for (const JointRelayout& step : *steps) {
      if (step.kind) {
        const double local = bytes / ranks_that_cut(step.kind == CollectiveKind::all_gather ? step.after : *now);
        sum += times_.seconds(*step.kind, Bytes{static_cast<std::int64_t>(local)}, behind(first_, step.axes));
      }
      now = &step.after;
    }
    return sum;
  }

  std::span<const Axis> axes_;
  std::size_t first_;
  CollectiveTimes& times_;
  std::unordered_map<std::string, Seconds> known_;  // by bytes and layouts
};

}  // namespace

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
        times_(times),
        relayouts_(new_axes_, first, times) {}

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
    const std::string_view own_type = computed_in(graph_, op);
    const std::optional<FlopsPerSecond> peak = peak_of(device, own_type.empty() ? graph_.source.dtype : own_type);
    double seconds = device.memory_bandwidth ? moved / device.memory_bandwidth->value : 0;
    if (op.flops && peak) seconds = std::max(seconds, op.flops->count / share / peak->value);
    if (model_.work_ == WorkModel::simulated) seconds += device.launch_overhead.value;
    return Seconds{seconds};
  }

  /// Of an operand of a member, on a rank.
  Bytes local_bytes(const Member& member, std::uint32_t o, TensorId t, std::span<const std::uint8_t> operand,
                    const Layout& layout) const {
    const double local =
        static_cast<double>(graph_[t].bytes.count) / share_before(member, o, operand) / share_of_cut(layout);
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
      const std::size_t inputs = member.loop.inputs.size(), k = each.operand.value_or(inputs);
      const bool is_input = k < inputs;
      const std::vector<std::uint8_t>& operand = is_input ? member.loop.inputs[k] : member.loop.outputs[k - inputs];
      const Layout layout = is_input ? layout_of(operand, own, false) : layout_of_output(member.loop, k - inputs, own);
      const Bytes bytes = local_bytes(member, o, reduced_tensor(graph_[member.op], each), operand, layout);
      sum += each.count * times_.seconds(CollectiveKind::all_reduce, bytes, behind(first_, axes));
    }
    return sum;
  }

  Seconds gradient_sums(const Member& member, std::uint32_t o, const Cuts& own) const {
    const Op& op = graph_[member.op];
    Seconds sum;
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      if (graph_[op.outputs[k]].kind != TensorKind::parameter_gradient) continue;
      const Layout layout = layout_of_output(member.loop, k, own);
      std::vector<std::uint32_t> axes;
      for (std::uint32_t a = 0; a < layout.size(); ++a) {
        if (layout[a].kind == partial) axes.push_back(a);
      }
      if (axes.empty()) continue;
      sum +=
          (1.0 / model_.problem_->micro_batches) *
          times_.seconds(CollectiveKind::all_reduce,
                         local_bytes(member, o, op.outputs[k], member.loop.outputs[k], layout), behind(first_, axes));
    }
    return sum;
  }

  /// By choice of the operator: how a member lays one of its operands out.
  std::vector<Layout> layouts(std::uint32_t m, std::size_t operand, bool is_output) const {
    const Member& member = model_.members_[m];
    std::vector<Layout> made;
    for (const SplitTable::Choice& choice : made_.choices(model_.operator_of_[m])) {
      const Cuts own = model_.cuts_of(member, choice.cuts);
      made.push_back(is_output ? layout_of_output(member.loop, operand, own)
                               : layout_of(member.loop.inputs[operand], own, false));
    }
    return made;
  }

  /// What it takes to lay a value out anew, by the choices of the operators that make and read it.
  class Laying {
   public:
    Laying(Table& table, const Use& use) : table_(table), use_(use) {
      const Member& maker = table.model_.members_[use.from];
      const bool is_output = use.kind != Use::Kind::given, is_sum = use.kind == Use::Kind::summed;
      const std::vector<std::uint8_t>& source = (is_output ? maker.loop.outputs : maker.loop.inputs)[use.from_operand];
      made_ = numbered(table.layouts(use.from, use.from_operand, is_output));
      needed_ = numbered(table.layouts(use.to, use.to_operand, is_sum));
      seconds_.assign(made_.different.size() * needed_.different.size(), unknown);
      const std::uint32_t from = table.model_.operator_of_[use.from];
      bytes_ = static_cast<double>(use.bytes.count) / table.share_before(maker, from, source);
    }

    Seconds seconds(std::size_t from, std::size_t to) {
      const std::uint32_t one = made_.of_choice[from], other = needed_.of_choice[to];
      double& known = seconds_[one * needed_.different.size() + other];
      if (known == unknown) known = between(made_.different[one], needed_.different[other]).value;
      return Seconds{known};
    }

   private:
    static constexpr double unknown = -1;
    /// Choices that lay an operand out alike have one number.
    struct Numbered {
      std::vector<Layout> different;
      std::vector<std::uint32_t> of_choice;
    };
    static Numbered numbered(const std::vector<Layout>& layouts) {
      Numbered made;
      for (const Layout& layout : layouts) {
        const auto known = std::ranges::find(made.different, layout);
        made.of_choice.push_back(static_cast<std::uint32_t>(known - made.different.begin()));
        if (known == made.different.end()) made.different.push_back(layout);
      }
      return made;
    }
    Seconds between(const Layout& from, const Layout& to) {
      if (use_.kind == Use::Kind::summed) return from == to ? Seconds{} : forbidden;
      return table_.relayouts_.between(from, to, bytes_);
    }

    Table& table_;
    const Use& use_;
    Numbered made_, needed_;
    std::vector<double> seconds_;  // by different layouts
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
      Laying laying(*this, model_.uses_[u]);
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

  std::shared_ptr<const std::vector<Seconds>> between(const Between& each) {
    const std::size_t rows = made_.choices(each.from).size(), columns = made_.choices(each.to).size();
    std::vector<Seconds> sums(rows * columns);
    for (const std::uint32_t u : each.uses) {
      Laying laying(*this, model_.uses_[u]);
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
  RelayoutSeconds relayouts_;
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

}  // namespace plimsoll
