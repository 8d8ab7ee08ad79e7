#include "sim/mesh/gradient_reduction.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "sim/core/collective_op.h"
#include "sim/core/names.h"
#include "sim/core/op_kind.h"

namespace plimsoll {
namespace {

bool is_update(const Op& op) {
  return op.phase == Phase::update;
}

Bytes share_of(Bytes whole, std::uint32_t ranks) {
  return Bytes{(whole.count + ranks - 1) / ranks};
}

/// Gradients that one collective sums.
struct Bucket {
  std::vector<TensorId> gradients;
  Bytes bytes;
  std::uint32_t stage = 0;  ///< that makes them
};

Op sum_op(const Graph& graph, const GradientSum& like, const Bucket& bucket) {
  std::string name = std::string(written(like.kind)) + " over " + like.axis + " of " + graph[like.gradient].name;
  if (bucket.gradients.size() > 1) name += " and " + std::to_string(bucket.gradients.size() - 1) + " more";
  Op op = collective_op(std::move(name), {like.kind, like.axis, like.overlaps}, Phase::update);
  op.stage = bucket.stage;
  op.inputs = op.mutates = bucket.gradients;
  op.recomputable = false;
  return op;
}

/// What the sum takes its gradients through, as large as all of them. It belongs to the update as states do.
void add_buffer(Graph& graph, Op& sum, Bytes bytes) {
  const Tensor& first = graph[sum.inputs.front()];
  Tensor buffer{.name = "bucket of " + first.name,
                .kind = TensorKind::optimizer_state,
                .bytes = bytes,
                .storage = id_at<StorageId>(graph.storages++),
                .shape = {},
                .dtype = first.dtype};
  sum.inputs.push_back(id_at<TensorId>(graph.tensors.size()));
  sum.mutates.push_back(sum.inputs.back());
  graph.tensors.push_back(std::move(buffer));
}

/// By storage of a gradient: the last op that makes it.
std::map<StorageId, std::size_t> makers_of_gradients(const Graph& graph) {
  std::map<StorageId, std::size_t> made_at;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    for (const TensorId t : graph.ops[o].outputs) {
      if (graph[t].kind == TensorKind::parameter_gradient) made_at[graph[t].storage] = o;
    }
  }
  return made_at;
}

/// Of gradients that several stages make.
std::set<StorageId> shared_by_stages(const Graph& graph) {
  std::map<StorageId, std::uint32_t> stage_of;
  std::set<StorageId> shared;
  for (const Op& op : graph.ops) {
    for (const TensorId t : op.outputs) {
      if (graph[t].kind != TensorKind::parameter_gradient) continue;
      if (stage_of.try_emplace(graph[t].storage, op.stage).first->second != op.stage) shared.insert(graph[t].storage);
    }
  }
  return shared;
}

/// Ops in a new order, among them new ones; what names the graph's own ops names them there.
class NewOrder {
 public:
  explicit NewOrder(Graph& graph) : graph_(graph), new_id_(graph.ops.size()) {}

  void take(std::size_t o) {
    new_id_[o] = id_at<OpId>(ops_.size());
    ops_.push_back(std::move(graph_.ops[o]));
  }
  void add(Op op) { ops_.push_back(std::move(op)); }
  void finish() {
    graph_.ops = std::move(ops_);
    for (std::vector<OpId>& group : graph_.colocate) {
      for (OpId& op : group) op = new_id_[op.index];
    }
  }

 private:
  Graph& graph_;
  std::vector<Op> ops_;
  std::vector<OpId> new_id_;
};

/// Sums, updates, gathers; each in the order in which the backward makes the gradients that they are about.
void order_ends(Graph& graph) {
  const std::map<StorageId, std::size_t> made_at = makers_of_gradients(graph);
  std::map<StorageId, std::size_t> update_at;  // of parameters: when the gradient is made that updates it
  const auto date = [&](const Op& op, const std::map<StorageId, std::size_t>& dates) {
    std::size_t last = 0;
    for (const TensorId t : op.inputs) {
      const auto found = dates.find(graph[t].storage);
      if (found != dates.end()) last = std::max(last, found->second);
    }
    return last;
  };
  for (const Op& op : graph.ops) {
    if (!is_update(op) || collective_of(op)) continue;
    for (const TensorId t : op.mutates) update_at[graph[t].storage] = date(op, made_at);
  }
  using Key = std::tuple<int, std::size_t>;
  const auto key = [&](const Op& op) {
    const std::optional<OpCollective> exchange = collective_of(op);
    if (!exchange) return Key{1, date(op, made_at)};
    if (exchange->kind == CollectiveKind::all_gather) return Key{2, date(op, update_at)};
    return Key{0, date(op, made_at)};
  };
  std::vector<std::pair<Key, std::size_t>> order;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (is_update(graph.ops[o])) order.emplace_back(key(graph.ops[o]), o);
  }
  std::ranges::sort(order);
  NewOrder made(graph);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (!is_update(graph.ops[o])) made.take(o);
  }
  for (const auto& [by, o] : order) made.take(o);
  made.finish();
}

/// One of each storage.
std::vector<TensorId> parameter_gradients(const Graph& graph) {
  std::vector<TensorId> gradients;
  std::set<StorageId> seen;
  for (const Op& op : graph.ops) {
    for (const TensorId t : op.outputs) {
      if (graph[t].kind == TensorKind::parameter_gradient && seen.insert(graph[t].storage).second)
        gradients.push_back(t);
    }
  }
  return gradients;
}

class Sharing {
 public:
  Sharing(Graph graph, const Axis& axis, const Together& how)
      : graph_(std::move(graph)), axis_(axis), how_(how), sharded_(how.sharded) {}

  std::variant<Graph, std::string> run() {
    if (sharded_ != Sharded::nothing && std::ranges::none_of(graph_.ops, is_update)) {
      return "there are no updates whose states could be shared out: give an optimizer";
    }
    for (const Op& op : graph_.ops) {
      if (is_update(op) && !collective_of(op)) updated_.insert(op.mutates.begin(), op.mutates.end());
    }
    if (sharded_ != Sharded::nothing) share_updates();
    if (sharded_ == Sharded::parameters) share_parameters();
    std::vector<GradientSum> sums;
    if (sharded_ == Sharded::gradients || sharded_ == Sharded::parameters) {
      if (!how_.are_summed) share_gradients();
    } else {
      const CollectiveKind kind =
          sharded_ == Sharded::nothing ? CollectiveKind::all_reduce : CollectiveKind::reduce_scatter;
      for (const TensorId t : parameter_gradients(graph_)) {
        if (std::ranges::find(how_.unlike, t) != how_.unlike.end()) continue;
        sums.push_back({t, axis_.name, kind, how_.overlaps});
      }
    }
    if (sharded_ == Sharded::states || sharded_ == Sharded::gradients) hand_out_parameters();
    return with_gradient_sums(std::move(graph_), sums, how_.bucket, how_.buckets_are_copies);
  }

 private:
  TensorId new_tensor(Tensor like, std::string name, TensorKind kind) {
    like.name = std::move(name);
    like.kind = kind;
    like.storage = id_at<StorageId>(graph_.storages++);
    like.gradient_of.reset();
    graph_.tensors.push_back(std::move(like));
    return id_at<TensorId>(graph_.tensors.size() - 1);
  }

  void keep_share(TensorId t) {
    Tensor& tensor = graph_.tensors[t.index];
    tensor.bytes = shared_bytes(tensor, axis_.ranks);
    tensor.shape.clear();
  }

  void share_updates() {
    for (Op& op : graph_.ops) {
      if (!is_update(op) || collective_of(op)) continue;
      for (const TensorId t : op.mutates) {
        if (graph_[t].kind == TensorKind::optimizer_state) keep_share(t);
      }
      const double part = 1.0 / axis_.ranks;
      if (op.duration) op.duration = part * *op.duration;
      if (op.flops) op.flops = Flops{part * op.flops->count};
      if (op.bytes_moved) op.bytes_moved = share_of(*op.bytes_moved, axis_.ranks);
      op.workspace = share_of(op.workspace, axis_.ranks);
    }
  }

  /// Behind every op that makes gradients: their shares, summed.
  void share_gradients() {
    NewOrder made(graph_);
    std::set<TensorId> shared;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      Op& op = graph_.ops[o];
      std::vector<Op> sums;
      for (TensorId& t : op.outputs) {
        if (is_update(op) || collective_of(op) || graph_[t].kind != TensorKind::parameter_gradient) continue;
        const TensorId share = t;
        Tensor whole = graph_[share];
        if (shared.contains(share)) whole.bytes = whole_bytes_.at(share);
        whole_bytes_.try_emplace(share, whole.bytes);
        if (shared.insert(share).second) keep_share(share);
        const std::string name = whole.name;
        t = new_tensor(std::move(whole), op.name + ": " + name, TensorKind::gradient);
        Op sum = collective_op("reduce_scatter over " + axis_.name + " of " + graph_[t].name,
                               {CollectiveKind::reduce_scatter, axis_.name, how_.overlaps}, op.phase);
        sum.stage = op.stage;
        sum.inputs = {t};
        sum.outputs = {share};
        sums.push_back(std::move(sum));
      }
      if (!sums.empty()) op.accumulate_workspace.reset();
      made.take(o);
      for (Op& sum : sums) made.add(std::move(sum));
    }
    made.finish();
  }

  /// Ops in a row of one stage and phase.
  struct Unit {
    std::size_t first = 0, last = 0;
    std::vector<TensorId> parameters;  ///< that they read
  };

  std::vector<Unit> units() const {
    std::vector<Unit> units;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (is_update(op)) break;
      const bool goes_on = !units.empty() && graph_.ops[o - 1].stage == op.stage &&
                           is_backward(graph_.ops[o - 1].phase) == is_backward(op.phase);
      if (!goes_on) units.push_back({o, o, {}});
      units.back().last = o + 1;
      for (const TensorId t : op.inputs) {
        if (graph_[t].kind != TensorKind::parameter || !updated_.contains(t)) continue;
        if (std::ranges::find(units.back().parameters, t) == units.back().parameters.end()) {
          units.back().parameters.push_back(t);
        }
      }
    }
    return units;
  }

  /// A copy of what the rank keeps of a whole parameter, made behind the stage's forward.
  TensorId kept_share(TensorId whole, std::vector<Op>& behind, const Op& like) {
    const std::uint32_t ranks = how_.kept_over->ranks;
    const TensorId share = new_tensor(graph_[whole], "share of " + graph_[whole].name, TensorKind::activation);
    Tensor& kept = graph_.tensors[share.index];
    kept.bytes = shared_bytes(kept, ranks);
    kept.shape.clear();
    Op op;
    op.name = kept.name;
    op.kind = name_of(OpKind::share);
    op.phase = like.phase;
    op.stage = like.stage;
    op.inputs = {whole};
    op.outputs = {share};
    op.attributes.emplace_back("axis", how_.kept_over->name);
    op.flops = Flops{0};
    op.bytes_moved = 2 * kept.bytes;
    if (like.duration) op.duration = Seconds{0};
    behind.push_back(std::move(op));
    return share;
  }

  void share_parameters() {
    std::vector<Unit> all = units();
    std::vector<std::vector<Op>> before(all.size());
    std::set<TensorId> shared;
    std::map<std::pair<std::uint32_t, TensorId>, TensorId>
        stays;  // by stage: what its forward has gathered, or a share
    std::vector<std::vector<Op>> behind(all.size());
    std::map<TensorId, std::size_t> made_in;                  // of shares that stay: the unit
    std::set<std::pair<std::uint32_t, TensorId>> read_again;  // by stage: what its backward reads
    for (const Unit& unit : all) {
      const Op& first = graph_.ops[unit.first];
      for (const TensorId t : unit.parameters) {
        if (is_backward(first.phase)) read_again.insert({first.stage, t});
      }
    }
    for (std::size_t u = 0; u < all.size(); ++u) {
      const Unit& unit = all[u];
      const Op& first = graph_.ops[unit.first];
      const std::string of = (is_backward(first.phase) ? "the backward of stage " : "stage ") +
                             std::to_string(first.stage) + " (" + std::to_string(u) + ")";
      Op gather = collective_op("all_gather over " + axis_.name + " of parameters for " + of,
                                {CollectiveKind::all_gather, axis_.name, how_.overlaps}, first.phase);
      gather.stage = first.stage;
      Op near;  // of what stayed over fewer ranks
      if (how_.kept_over) {
        const std::string& over = how_.kept_over->name;
        near = collective_op("all_gather over " + over + " of parameters for " + of,
                             {CollectiveKind::all_gather, over, how_.overlaps}, first.phase);
        near.stage = first.stage;
      }
      std::size_t shares_end = 0;  // behind the unit that keeps the last of them
      std::map<TensorId, TensorId> gathered;
      for (const TensorId t : unit.parameters) {
        const Tensor whole = graph_[t];
        const auto there = stays.find({first.stage, t});
        if (there != stays.end() && !how_.kept_over) {
          gathered[t] = there->second;
          continue;
        }
        if (there != stays.end()) shares_end = std::max(shares_end, made_in.at(there->second) + 1);
        Op& from = there != stays.end() ? near : gather;
        from.inputs.push_back(there != stays.end() ? there->second : t);
        gathered[t] = new_tensor(whole, whole.name + " for " + of, TensorKind::activation);
        from.outputs.push_back(gathered[t]);
        shared.insert(t);
        if (is_backward(first.phase)) continue;
        if (how_.kept_over && read_again.contains({first.stage, t})) {
          const TensorId share = kept_share(gathered[t], behind[u], first);
          stays[{first.stage, t}] = share;
          made_in[share] = u;
        } else if (!how_.reshards) {
          stays[{first.stage, t}] = gathered[t];
        }
      }
      for (std::size_t o = unit.first; o < unit.last; ++o) {
        for (TensorId& t : graph_.ops[o].inputs) {
          const auto found = gathered.find(t);
          if (found != gathered.end()) t = found->second;
        }
      }
      const std::size_t ahead = how_.overlaps ? u - std::min<std::size_t>(u, how_.prefetch) : u;
      if (!gather.inputs.empty()) before[ahead].push_back(std::move(gather));
      if (!near.inputs.empty()) before[std::max(ahead, shares_end)].push_back(std::move(near));
    }
    for (const TensorId t : shared) keep_share(t);
    NewOrder made(graph_);
    for (std::size_t u = 0; u < all.size(); ++u) {
      for (Op& gather : before[u]) made.add(std::move(gather));
      for (std::size_t o = all[u].first; o < all[u].last; ++o) made.take(o);
      for (Op& share : behind[u]) made.add(std::move(share));
    }
    for (std::size_t o = all.empty() ? 0 : all.back().last; o < graph_.ops.size(); ++o) made.take(o);
    made.finish();
  }

  void hand_out_parameters() {
    for (const TensorId t : updated_) {
      if (graph_[t].kind != TensorKind::parameter) continue;
      Op op = collective_op("all_gather over " + axis_.name + " of " + graph_[t].name,
                            {CollectiveKind::all_gather, axis_.name, how_.overlaps}, Phase::update);
      op.inputs = op.mutates = {t};
      op.recomputable = false;
      graph_.ops.push_back(std::move(op));
    }
  }

  Graph graph_;
  const Axis& axis_;
  const Together& how_;
  Sharded sharded_;
  std::set<TensorId> updated_;             // parameters and states
  std::map<TensorId, Bytes> whole_bytes_;  // of gradients of which a share stays
};

}  // namespace

Graph with_gradient_sums(Graph graph, const std::vector<GradientSum>& sums, Bytes bucket, bool buckets_are_copies) {
  const std::map<StorageId, std::size_t> made_at = makers_of_gradients(graph);
  const std::set<StorageId> shared = shared_by_stages(graph);
  const auto maker = [&](const GradientSum& sum) { return made_at.at(graph[sum.gradient].storage); };
  const auto goes_with_next = [&](const GradientSum& sum, const GradientSum& next) {
    const bool is_alone = shared.contains(graph[sum.gradient].storage) || shared.contains(graph[next.gradient].storage);
    return !is_alone && next.axis == sum.axis && next.kind == sum.kind &&
           graph.ops[maker(next)].stage == graph.ops[maker(sum)].stage;
  };
  std::vector<GradientSum> order = sums;
  std::ranges::stable_sort(order, {}, maker);
  Bucket open;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const GradientSum& sum = order[k];
    open.gradients.push_back(sum.gradient);
    open.bytes += graph[sum.gradient].bytes;
    open.stage = graph.ops[maker(sum)].stage;
    if (k + 1 < order.size() && open.bytes < bucket && goes_with_next(sum, order[k + 1])) continue;
    graph.ops.push_back(sum_op(graph, sum, open));
    if (buckets_are_copies) add_buffer(graph, graph.ops.back(), open.bytes);
    open = {};
  }
  order_ends(graph);
  return graph;
}

Bytes shared_bytes(const Tensor& tensor, std::uint32_t ranks) {
  std::int64_t numbers = 1;
  for (const std::int64_t extent : tensor.shape) numbers *= extent;
  if (numbers <= 1 || tensor.bytes.count % numbers != 0) return share_of(tensor.bytes, ranks);
  return tensor.bytes.count / numbers * share_of(Bytes{numbers}, ranks);
}

std::variant<Graph, std::string> trained_together(Graph graph, const Axis& axis, const Together& how) {
  return Sharing(std::move(graph), axis, how).run();
}

}  // namespace plimsoll
