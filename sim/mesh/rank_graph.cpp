#include "sim/mesh/rank_graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/core/names.h"
#include "sim/core/op_kind.h"
#include "sim/mesh/gradient_reduction.h"
#include "sim/mesh/ring_blocks.h"
#include "sim/ops/operators.h"

namespace plimsoll {
namespace {

using Cuts = std::vector<std::optional<std::uint8_t>>;

bool is_cut(const Cuts& cuts) {
  return std::ranges::any_of(cuts, [](const auto& dim) { return dim.has_value(); });
}

/// The sizes next to `ranks` that divide the extent, in words.
std::string next_divisors(std::int64_t extent, std::int64_t ranks) {
  std::int64_t below = ranks, above = ranks;
  while (below > 1 && extent % below != 0) --below;
  while (above < extent && extent % above != 0) ++above;
  std::string text = std::to_string(std::max<std::int64_t>(below, 1));
  if (above <= extent && above != below && extent % above == 0) text += " or " + std::to_string(above);
  return text;
}

struct CannotSplit {
  std::string why;
};

class SplitGraph {
 public:
  SplitGraph(const Graph& graph, const SplitPlan& plan)
      : graph_(graph), plan_(plan), layout_(graph.tensors.size()), is_laid_(graph.tensors.size(), false) {
    made_ = graph;
    made_.ops.clear();
    new_id_.resize(graph.ops.size(), no_op);
  }

  Graph run() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (graph_.ops[o].phase == Phase::update) {
        update(o);
      } else {
        compute(o);
      }
    }
    for (std::vector<OpId>& group : made_.colocate) {
      for (OpId& op : group) op = new_id_[op.index];
    }
    sum_partial_gradients();
    return plan_.around.empty() ? std::move(made_) : with_ring_blocks(std::move(made_), plan_.mesh);
  }

 private:
  /// How a value is kept: as it was made or, of partial sums, as it was first summed. From that it is laid out anew, in
  /// the backward again, rather than kept in a second layout until then. What the forward has exchanged (all_to_all) is
  /// as small as what was made, and stays for the backward.
  struct Home {
    TensorId tensor;
    Layout layout;
  };

  Layout whole() const { return Layout(plan_.mesh.axes.size()); }

  std::int64_t share(const Layout& layout) const {
    std::int64_t ranks = 1;
    for (std::size_t a = 0; a < layout.size(); ++a) {
      if (layout[a].kind == AxisLayout::Kind::cut) ranks *= plan_.mesh.axes[a].ranks;
    }
    return ranks;
  }

  /// The first tensor that has the dimension, in words.
  std::string holder(const OpLoop& loop, std::uint8_t dim, const Op& op) const {
    for (std::size_t k = 0; k < loop.inputs.size() + loop.outputs.size(); ++k) {
      const bool is_input = k < loop.inputs.size();
      const std::size_t place = is_input ? k : k - loop.inputs.size();
      if (std::ranges::count((is_input ? loop.inputs : loop.outputs)[place], dim) == 0) continue;
      return " in '" + graph_[(is_input ? op.inputs : op.outputs)[place]].name + "'";
    }
    return "";
  }

  void refuse_unless_divisible(const OpLoop& loop, const Cuts& cuts, const Op& op) const {
    for (std::uint8_t d = 0; d < loop.dims.size(); ++d) {
      std::int64_t ranks = 1;
      for (std::size_t a = 0; a < cuts.size(); ++a) {
        if (cuts[a] == d) ranks *= plan_.mesh.axes[a].ranks;
      }
      if (ranks == 1) continue;
      const LoopDim& dim = loop.dims[d];
      if (!dim.cuttable && !dim.by_halves)
        throw CannotSplit{"'" + op.name + "' needs all of its dimension '" + dim.name + "'"};
      if (dim.size % ranks == 0) continue;
      throw CannotSplit{"'" + dim.name + "' of '" + op.name + "' has " + std::to_string(dim.size) +
                        holder(loop, d, op) + ", which " + std::to_string(ranks) + " ranks do not divide; " +
                        next_divisors(dim.size, ranks) + " would"};
    }
  }

  /// Gives the tensor its layout: bytes and shape of a rank's share.
  void lay(TensorId t, Layout layout) {
    Tensor& tensor = made_.tensors[t.index];
    tensor.bytes = Bytes{graph_[t].bytes.count / share(layout)};
    if (!tensor.shape.empty()) tensor.shape = local_shape(graph_[t].shape, layout, plan_.mesh);
    layout_[t.index] = std::move(layout);
    is_laid_[t.index] = true;
  }

  /// The value as it is needed: itself, or what collectives make of it.
  TensorId laid_out(TensorId t, const Layout& needed, const Op& reader) {
    if (!is_laid_[t.index]) {
      lay(t, needed);
      return t;
    }
    const bool backward = is_backward(reader.phase);
    Home& home = home_.try_emplace(t, Home{t, layout_[t.index]}).first->second;
    if (home.layout == needed) return home.tensor;
    if (const auto known = exchanged_.find({t, needed}); known != exchanged_.end()) return known->second;
    const std::optional<std::vector<JointRelayout>> steps = joint_relayouts(home.layout, needed);
    if (!steps) {
      throw CannotSplit{"'" + graph_[t].name + "' would have to become a partial sum for '" + reader.name + "'"};
    }
    Home now = home;
    for (const JointRelayout& step : *steps) {
      now.layout = step.after;
      const auto [known, is_new] = relaid_.try_emplace({t, now.layout, backward}, now.tensor);
      if (is_new) known->second = relaid(t, now.tensor, step, now.layout, reader);
      now.tensor = known->second;
      if (step.kind == CollectiveKind::all_reduce || step.kind == CollectiveKind::reduce_scatter) home = now;
      if (step.kind == CollectiveKind::all_to_all && !backward) exchanged_[{t, now.layout}] = now.tensor;
    }
    return now.tensor;
  }

  TensorId relaid(TensorId whole, TensorId from, const JointRelayout& step, const Layout& layout, const Op& reader) {
    const std::string axis = plan_.mesh.names_of(step.axes);
    const TensorId to = id_at<TensorId>(made_.tensors.size());
    Tensor tensor = graph_[whole];
    if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::input) tensor.kind = TensorKind::activation;
    const std::string what = step.kind ? std::string(written(*step.kind)) : std::string(name_of(OpKind::share));
    tensor.name = what + " over " + axis + " of " + made_[from].name;
    tensor.bytes = Bytes{graph_[whole].bytes.count / share(layout)};
    if (!tensor.shape.empty()) tensor.shape = local_shape(graph_[whole].shape, layout, plan_.mesh);
    tensor.storage = id_at<StorageId>(made_.storages++);
    Op op = step.kind ? collective_op(tensor.name, {*step.kind, axis}, reader.phase) : Op{};
    op.name = tensor.name;
    op.phase = reader.phase;
    op.stage = reader.stage;
    op.inputs = {from};
    op.outputs = {to};
    if (!step.kind) {
      op.kind = name_of(OpKind::share);
      op.attributes.emplace_back("axis", axis);
      op.flops = Flops{0};
      op.bytes_moved = 2 * tensor.bytes;
      if (graph_.ops.front().duration) op.duration = Seconds{0};
    }
    made_.tensors.push_back(std::move(tensor));
    made_.ops.push_back(std::move(op));
    return to;
  }

  void compute(std::size_t o) {
    const Op& whole_op = graph_.ops[o];
    Op op = whole_op;
    const Cuts& cuts = plan_.cuts[o];
    std::optional<OpLoop> loop;
    if (is_cut(cuts)) {
      std::variant<OpLoop, std::string> found = loop_of(graph_, id_at<OpId>(o));
      if (std::string* why = std::get_if<std::string>(&found)) throw CannotSplit{std::move(*why)};
      loop = std::get<OpLoop>(std::move(found));
      refuse_unless_divisible(*loop, cuts, op);
    }
    for (std::size_t k = 0; k < op.inputs.size(); ++k) {
      const TensorId t = op.inputs[k];
      op.inputs[k] =
          laid_out(t, loop ? layout_of(loop->inputs[k], cuts_by(o, loop->inputs[k]), false) : whole(), whole_op);
      for (TensorId& changed : op.mutates) {
        if (changed == t) changed = op.inputs[k];
      }
    }
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      make(op.outputs[k], loop ? layout_of_output(*loop, k, cuts_by(o, loop->outputs[k])) : whole(), op, whole_op);
    }
    if (loop) {
      std::int64_t ranks = 1;
      for (std::size_t a = 0; a < cuts.size(); ++a) {
        if (cuts[a]) ranks *= plan_.mesh.axes[a].ranks;
      }
      take_share(op, whole_op, ranks);
      op.attributes.emplace_back("cuts", cuts_text(*loop, cuts));
      go_round(*loop, o, op);
    }
    new_id_[o] = id_at<OpId>(made_.ops.size());
    made_.ops.push_back(std::move(op));
    if (loop) exchange_inside(*loop, cuts, made_.ops.back());
  }

  bool goes_round(std::size_t o, std::size_t axis) const {
    return !plan_.around.empty() && plan_.around[o][axis].has_value();
  }

  /// An operand with the dimension that goes round is cut along that one instead.
  Cuts cuts_by(std::size_t o, const std::vector<std::uint8_t>& operand) const {
    Cuts cuts = plan_.cuts[o];
    for (std::size_t a = 0; a < cuts.size(); ++a) {
      if (!goes_round(o, a)) continue;
      const std::uint8_t around = *plan_.around[o][a];
      if (std::ranges::find(operand, around) != operand.end()) cuts[a] = around;
    }
    return cuts;
  }

  /// Of an op that runs in blocks: along which axis, and which work (ring_blocks.h).
  void go_round(const OpLoop& loop, std::size_t o, Op& op) const {
    for (std::size_t a = 0; a < plan_.mesh.axes.size(); ++a) {
      if (!goes_round(o, a)) continue;
      const LoopDim& around = loop.dims[*plan_.around[o][a]];
      const std::uint32_t ranks = plan_.mesh.axes[a].ranks;
      if (around.size % ranks != 0) {
        throw CannotSplit{"'" + around.name + "' of '" + op.name + "' has " + std::to_string(around.size) + ", which " +
                          std::to_string(ranks) + " ranks do not divide; " + next_divisors(around.size, ranks) +
                          " would"};
      }
      op.attributes.emplace_back(ring_key, plan_.mesh.axes[a].name);
      op.attributes.emplace_back(around_key, around.name);
    }
  }

  /// `axis:dimension` for each axis that cuts one.
  std::string cuts_text(const OpLoop& loop, const Cuts& cuts) const {
    std::string text;
    for (std::size_t a = 0; a < cuts.size(); ++a) {
      if (cuts[a]) text += (text.empty() ? "" : " ") + plan_.mesh.axes[a].name + ":" + loop.dims[*cuts[a]].name;
    }
    return text;
  }

  void make(TensorId t, Layout layout, const Op& op, const Op& whole_op) {
    if (is_laid_[t.index]) {  // another contribution to a gradient
      if (layout_[t.index] == layout) return;
      throw CannotSplit{"'" + op.name + "' and an op before it lay '" + graph_[t].name + "' out differently"};
    }
    lay(t, std::move(layout));
    for (std::size_t m = 0; m < op.mutates.size(); ++m) {  // in place of what was laid out anew
      if (graph_[whole_op.mutates[m]].storage == graph_[t].storage) {
        made_.tensors[t.index].storage = made_[op.mutates[m]].storage;
      }
    }
  }

  template <class Amount>
  static void divide(std::optional<Amount>& amount, std::int64_t ranks) {
    if (!amount) return;
    if constexpr (std::is_same_v<Amount, Bytes>) {
      amount = Bytes{(amount->count + ranks - 1) / ranks};
    } else if constexpr (std::is_same_v<Amount, Flops>) {
      amount = Flops{amount->count / static_cast<double>(ranks)};
    } else {
      amount = (1.0 / static_cast<double>(ranks)) * *amount;
    }
  }

  /// Work and workspaces in proportion to the loop; memory traffic to the operands.
  void take_share(Op& op, const Op& whole_op, std::int64_t ranks) const {
    const auto bytes_of = [](const Graph& graph, const Op& of) {
      double sum = 0;
      for (const auto* list : {&of.inputs, &of.outputs}) {
        for (const TensorId t : *list) sum += static_cast<double>(graph[t].bytes.count);
      }
      return sum;
    };
    const double all = bytes_of(graph_, whole_op), own = bytes_of(made_, op);
    const auto traffic = [&](std::optional<Bytes>& moved) {
      if (moved)
        moved = Bytes{static_cast<std::int64_t>(static_cast<double>(moved->count) * (all > 0 ? own / all : 1))};
    };
    divide(op.duration, ranks);
    divide(op.nograd_duration, ranks);
    divide(op.flops, ranks);
    traffic(op.bytes_moved);
    op.workspace = Bytes{(op.workspace.count + ranks - 1) / ranks};
    for (auto* space :
         {&op.nograd_workspace, &op.accumulate_workspace, &op.released_workspace, &op.released_accumulate_workspace}) {
      divide(*space, ranks);
    }
    for (Alternative& other : op.alternatives) {
      divide(other.duration, ranks);
      divide(other.flops, ranks);
      traffic(other.bytes_moved);
      other.workspace = Bytes{(other.workspace.count + ranks - 1) / ranks};
    }
  }

  /// What an op exchanges on top, such as the maximum and the sum of a softmax.
  void exchange_inside(const OpLoop& loop, const Cuts& cuts, const Op& of) {
    const Op op = of;
    for (const LoopReduction& each : loop.reductions) {
      std::vector<std::uint32_t> axes;
      for (std::size_t a = 0; a < cuts.size(); ++a) {
        if (cuts[a] == each.dim) axes.push_back(static_cast<std::uint32_t>(a));
      }
      const std::string axis = plan_.mesh.names_of(axes);
      for (std::uint32_t k = 0; k < each.count && !axes.empty(); ++k) {
        Op made = collective_op("all_reduce " + std::to_string(k) + " of " + op.name + " over " + axis,
                                {CollectiveKind::all_reduce, axis}, op.phase);
        made.stage = op.stage;
        made.inputs = {reduced_tensor(op, each)};
        made_.ops.push_back(std::move(made));
      }
    }
  }

  /// As its parameters lie.
  void update(std::size_t o) {
    Op op = graph_.ops[o];
    std::optional<Layout> layout;
    for (const TensorId t : op.inputs) {
      if (graph_[t].kind != TensorKind::parameter) continue;
      if (!is_laid_[t.index]) lay(t, whole());
      if (layout && *layout != layout_[t.index]) {
        throw CannotSplit{"'" + op.name + "' updates parameters that lie differently"};
      }
      layout = layout_[t.index];
    }
    if (!layout) layout = whole();
    for (const TensorId t : op.inputs) {
      if (graph_[t].kind == TensorKind::parameter_gradient) {
        Layout summed = layout_[t.index];
        for (AxisLayout& along : summed) {
          if (along.kind == AxisLayout::Kind::partial) along = {};
        }
        if (is_laid_[t.index] && summed == *layout) continue;
        throw CannotSplit{"'" + graph_[t].name + "' does not lie as its parameter does"};
      }
      if (!is_laid_[t.index]) lay_state(t, *layout);
    }
    take_share(op, graph_.ops[o], share(*layout));
    new_id_[o] = id_at<OpId>(made_.ops.size());
    made_.ops.push_back(std::move(op));
  }

  void lay_state(TensorId t, const Layout& layout) {
    if (graph_[t].shape.empty()) {
      made_.tensors[t.index].bytes = Bytes{graph_[t].bytes.count / share(layout)};
      layout_[t.index] = layout;
      is_laid_[t.index] = true;
    } else {
      lay(t, layout);
    }
  }

  void sum_partial_gradients() {
    std::vector<GradientSum> sums;
    std::unordered_set<std::uint32_t> seen;
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (graph_.tensors[t].kind != TensorKind::parameter_gradient || !is_laid_[t]) continue;
      if (!seen.insert(made_.tensors[t].storage.index).second) continue;
      std::vector<std::uint32_t> axes;
      for (std::uint32_t a = 0; a < layout_[t].size(); ++a) {
        if (layout_[t][a].kind == AxisLayout::Kind::partial) axes.push_back(a);
      }
      if (!axes.empty()) sums.push_back({id_at<TensorId>(t), plan_.mesh.names_of(axes), CollectiveKind::all_reduce});
    }
    made_ = with_gradient_sums(std::move(made_), sums);
  }

  const Graph& graph_;
  const SplitPlan& plan_;
  Graph made_;
  std::vector<Layout> layout_;  // by tensor of the model
  std::vector<bool> is_laid_;
  std::map<TensorId, Home> home_;
  std::map<std::tuple<TensorId, Layout>, TensorId> exchanged_;     // of the forward
  std::map<std::tuple<TensorId, Layout, bool>, TensorId> relaid_;  // by whether the backward made it
  std::vector<OpId> new_id_;
};

}  // namespace

std::variant<Graph, std::string> rank_graph(const Graph& graph, const SplitPlan& plan) {
  try {
    return SplitGraph(graph, plan).run();
  } catch (CannotSplit& cannot) {
    return std::move(cannot.why);
  }
}

void cut_followers(const Graph& graph, SplitPlan& plan) {
  std::vector<bool> is_led(graph.ops.size(), false);
  for (const Operator& each : operators_of(graph)) {
    is_led[each.forward.index] = true;
    for (const OpId op : each.backward) is_led[op.index] = true;
  }
  std::vector<Layout> layouts(graph.tensors.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase == Phase::update) continue;
    const std::variant<OpLoop, std::string> found = loop_of(graph, id_at<OpId>(o));
    const OpLoop* loop = std::get_if<OpLoop>(&found);
    if (loop == nullptr) continue;
    Cuts& cuts = plan.cuts[o];
    for (std::size_t a = 0; !is_led[o] && a < cuts.size(); ++a) {
      for (std::size_t k = 0; k < op.inputs.size() && !cuts[a]; ++k) {
        const Layout& read = layouts[op.inputs[k].index];
        if (read.empty() || read[a].kind != AxisLayout::Kind::cut) continue;
        const std::uint8_t dim = loop->inputs[k][read[a].dim];
        if (loop->dims[dim].cuttable) cuts[a] = dim;
      }
    }
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      layouts[op.outputs[k].index] = layout_of_output(*loop, k, cuts);
    }
  }
}

}  // namespace plimsoll
