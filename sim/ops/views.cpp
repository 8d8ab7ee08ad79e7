#include "sim/ops/views.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace plimsoll {
namespace {

class Renaming {
 public:
  explicit Renaming(Graph graph)
      : graph_(std::move(graph)),
        first_(graph_.storages),
        gradient_(graph_.storages),
        latest_(graph_.storages),
        by_update_(graph_.tensors.size(), false),
        listed_in_(graph_.tensors.size(), 0) {
    for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) name_.push_back({t});
    for (const Op& op : graph_.ops) {
      for (const TensorId t : op.outputs) by_update_[t.index] = op.phase == Phase::update;
    }
    for (std::size_t t = graph_.tensors.size(); t-- > 0;) {
      if (graph_.tensors[t].kind == TensorKind::parameter_gradient)
        gradient_[graph_.tensors[t].storage.index] = id_at<TensorId>(t);
    }
    for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) join({t});
  }

  WithoutViews resolved() && {
    for (Op& op : graph_.ops) resolve(op);
    for (Op& op : graph_.ops) rename(op);
    for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) {
      std::optional<TensorId>& parameter = graph_.tensors[t].gradient_of;
      if (parameter) parameter = root(*parameter);
      if (name_[t] != TensorId{t}) forget(graph_.tensors[t]);
    }
    return {std::move(graph_), view_time_};
  }

 private:
  StorageId storage(TensorId t) const { return graph_[t].storage; }

  /// One name for what is given, and one for all that has the storage of a parameter gradient.
  void join(TensorId t) {
    const bool given = is_given(graph_[t].kind);
    if (given && by_update_[t.index]) return;
    std::optional<TensorId>& first = first_[storage(t).index];
    if (given && !first) first = t;
    const std::optional<TensorId>& owner = given ? first : gradient_[storage(t).index];
    if (owner) name_[t.index] = *owner;
  }

  TensorId root(TensorId t) const {
    while (name_[t.index] != t) t = name_[t.index];
    return t;
  }

  /// What a reader of `t` reads: a view shows what its storage holds now.
  TensorId read(TensorId t) const {
    const TensorId of = root(t);
    const std::optional<TensorId>& latest = latest_[storage(of).index];
    return of != t && latest && per_micro_batch(graph_[of].kind) ? root(*latest) : of;
  }

  bool overwrites(const Op& op, StorageId s) const {
    return std::ranges::any_of(op.mutates, [&](TensorId t) { return storage(t) == s; });
  }

  void resolve(Op& op) {
    bool only_views = !op.outputs.empty() && op.mutates.empty();
    std::vector<TensorId> made;
    for (const TensorId t : op.outputs) {
      const StorageId s = storage(t);
      const auto shown = std::ranges::find_if(op.inputs, [&](TensorId in) { return in != t && storage(in) == s; });
      const bool shares = shown != op.inputs.end(), overwritten = overwrites(op, s);
      if (shares && (!overwritten || stays(op, s))) {
        if (!gradient_[s.index]) name_[t.index] = read(*shown);
        continue;
      }
      only_views = false;
      made.push_back(t);
    }
    if (only_views) {
      if (op.duration) view_time_ += *op.duration;
      op = view_named(std::move(op));
      return;
    }
    for (auto* list : {&op.inputs, &op.mutates}) {
      for (TensorId& t : *list) t = read(t);
    }
    for (const TensorId t : made) latest_[storage(t).index] = t;
    op.outputs = std::move(made);
  }

  /// Whether what the op leaves in the storage, if it overwrites it, goes by the name of what was there.
  bool stays(const Op& op, StorageId s) const {
    return first_[s.index] || (gradient_[s.index] && op.phase == Phase::update);
  }

  static Op view_named(Op op) {
    Op view;
    view.name = std::move(op.name);
    view.kind = std::move(op.kind);
    view.stage = op.stage;
    view.duration = Seconds{0};
    view.flops = Flops{0};
    view.bytes_moved = Bytes{0};
    view.is_view = true;
    return view;
  }

  /// Every tensor by the name it has when all are known, once a list.
  void rename(Op& op) {
    for (auto* list : {&op.inputs, &op.outputs, &op.saved, &op.mutates}) {
      ++lists_;
      for (TensorId& t : *list) t = root(t);
      std::erase_if(*list, [&](TensorId t) { return std::exchange(listed_in_[t.index], lists_) == lists_; });
    }
    const auto is_made = [&](TensorId t) { return std::ranges::find(op.outputs, t) != op.outputs.end(); };
    const auto adds_to = [&](TensorId t) { return graph_[t].kind == TensorKind::parameter_gradient && is_made(t); };
    std::erase_if(op.inputs, adds_to);  // as every maker of a parameter gradient does
    std::erase_if(op.mutates, adds_to);
    const auto is_kept = [&](TensorId t) {
      const TensorKind kind = graph_[t].kind;
      return op.phase == Phase::update ? kind == TensorKind::parameter_gradient : !per_micro_batch(kind);
    };
    op.recomputable &= op.phase == Phase::update || std::ranges::none_of(op.mutates, is_kept);
    std::erase_if(op.mutates, is_kept);
    std::erase_if(op.saved, [&](TensorId t) { return !is_made(t) || adds_to(t); });
  }

  void forget(Tensor& tensor) {
    tensor.kind = TensorKind::activation;
    tensor.bytes = Bytes{0};
    tensor.gradient_of.reset();
    tensor.storage = {graph_.storages++};
  }

  Graph graph_;
  std::vector<std::optional<TensorId>> first_, gradient_;  // by storage: the given tensor, the parameter gradient
  std::vector<std::optional<TensorId>> latest_;            // by storage: the value that an op made last
  std::vector<bool> by_update_;                            // by tensor: what an update makes of a parameter or state
  std::vector<std::size_t> listed_in_;                     // by tensor: the last list that it was found in
  std::size_t lists_ = 0;
  std::vector<TensorId> name_;  // by tensor: what it is another name of, or itself
  Seconds view_time_;
};

}  // namespace

WithoutViews without_views(Graph graph) {
  return Renaming(std::move(graph)).resolved();
}

}  // namespace plimsoll
