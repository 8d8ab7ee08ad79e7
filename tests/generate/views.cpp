#include "tests/generate/views.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/generate/random.h"

namespace plimsoll {
namespace {

class Namer {
 public:
  Namer(const Graph& plain, std::uint64_t seed) : plain_(plain), random_(seed), graph_(plain) {
    graph_.ops.clear();
    for (std::size_t t = 0; t < plain.tensors.size(); ++t) names_.push_back({id_at<TensorId>(t)});
  }

  Graph run() {
    for (std::size_t t = 0; t < plain_.tensors.size(); ++t) {
      const TensorKind kind = plain_.tensors[t].kind;
      if (kind != TensorKind::input && kind != TensorKind::parameter) continue;
      if (random_.chance(0.3)) names_[t].push_back(another(id_at<TensorId>(t), kind));
      if (random_.chance(0.3)) add_view(id_at<TensorId>(t), Phase::forward);
    }
    for (const Op& op : plain_.ops) add(op);
    return std::move(graph_);
  }

 private:
  TensorId another(TensorId t, TensorKind kind) {
    Tensor same = plain_[t];
    same.name += "'" + std::to_string(graph_.tensors.size());
    same.kind = kind;
    graph_.tensors.push_back(same);
    return id_at<TensorId>(graph_.tensors.size() - 1);
  }

  TensorId any_name(TensorId t) {
    const std::vector<TensorId>& known = names_[t.index];
    return known[random_.below(static_cast<std::uint32_t>(known.size()))];
  }

  void add_view(TensorId from, TensorId to, Phase phase) {
    Op view;
    view.name = "view " + std::to_string(graph_.ops.size());
    view.kind = "view";
    view.phase = phase;
    view.duration = Seconds{0};
    view.inputs = {from};
    view.outputs = {to};
    graph_.ops.push_back(view);
  }

  void add_view(TensorId t, Phase phase) {
    const TensorKind kind = plain_[t].kind == TensorKind::parameter_gradient && random_.chance(0.5)
                                ? TensorKind::parameter_gradient
                            : random_.chance(0.5) ? TensorKind::activation
                                                  : TensorKind::gradient;
    const TensorId made = another(t, kind);
    add_view(any_name(t), made, phase);
    names_[t.index].push_back(made);
  }

  void add(Op op) {
    const Phase phase = op.phase;
    std::vector<TensorId> inputs;
    for (const TensorId t : op.inputs) {
      if (random_.chance(0.2)) add_view(t, phase);
      inputs.push_back(any_name(t));
      if (random_.chance(0.1)) inputs.push_back(any_name(t));
    }
    op.inputs = std::move(inputs);
    const std::vector<TensorId> outputs = op.outputs;
    std::vector<std::pair<TensorId, TensorId>> shown;
    for (TensorId& t : op.outputs) {
      if (plain_[t].kind != TensorKind::parameter_gradient || !random_.chance(0.4)) continue;
      shown.emplace_back(another(t, TensorKind::gradient), t);
      t = shown.back().first;
    }
    graph_.ops.push_back(std::move(op));
    for (const auto& [from, to] : shown) add_view(from, to, phase);
    for (const TensorId t : outputs) {
      if (random_.chance(0.3)) add_view(t, phase);
    }
  }

  const Graph& plain_;
  Random random_;
  Graph graph_;
  std::vector<std::vector<TensorId>> names_;  // of each tensor of the plain graph, that exist by now
};

}  // namespace

Graph with_views(const Graph& plain, std::uint64_t seed) {
  return Namer(plain, seed).run();
}

}  // namespace plimsoll
