#include "sim/model/evaluation_forward.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/core/op_attribute.h"
#include "sim/core/scaling.h"
#include "sim/core/slices.h"
#include "sim/model/op_times.h"

namespace plimsoll {
namespace {

bool is_evaluated(const Op& op) {
  return op.phase == Phase::forward && !op.is_view;
}

/// What the network's inputs reach: that grows with samples, and what is made of parameters alone, such as unpacked
/// weights, does not.
class Samples {
 public:
  Samples(const Graph& graph, double size) : graph_(graph), size_(size), holds_(graph.storages, false) {
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.kind == TensorKind::input) holds_[tensor.storage.index] = true;
    }
    for (const Op& op : graph.ops) {
      if (!is_evaluated(op) || !reach(op)) continue;
      for (const TensorId t : op.outputs) holds_[graph[t].storage.index] = true;
    }
  }

  double growth(TensorId t) const { return holds_[graph_[t].storage.index] ? size_ : 1; }
  double growth(const Op& op) const { return reach(op) ? size_ : 1; }

 private:
  bool reach(const Op& op) const {
    return std::ranges::any_of(op.inputs, [&](TensorId t) { return holds_[graph_[t].storage.index]; });
  }

  const Graph& graph_;
  double size_;
  std::vector<bool> holds_;  // by storage
};

/// Requests and frees of storages, each once.
class Requests {
 public:
  explicit Requests(const Graph& graph) : graph_(graph), number_(graph.storages, 0) {}

  void allocate(TensorId t, double size) {
    std::int64_t& number = number_[graph_[t].storage.index];
    if (number == 0) number = add(graph_[t].bytes, size);
  }
  void free(StorageId storage) { free(number_[storage.index]); }
  void use(Bytes workspace, double size) { free(add(workspace, size)); }

  AllocationOrder take() { return std::move(order_); }

 private:
  /// 0: nothing is asked for.
  std::int64_t add(Bytes bytes, double size) {
    const auto scaled = static_cast<std::int64_t>(std::ceil(size * static_cast<double>(bytes.count)));
    if (scaled <= 0) return 0;
    order_.push_back(scaled);
    return ++count_;
  }
  void free(std::int64_t number) {
    if (number > 0) order_.push_back(-number);
  }

  const Graph& graph_;
  std::int64_t count_ = 0;
  std::vector<std::int64_t> number_;  // by storage; 0: it was not asked for
  AllocationOrder order_;
};

}  // namespace

std::optional<std::string> no_evaluation(const Graph& graph) {
  const auto has = [&](const auto& is_such) { return std::ranges::any_of(graph.ops, is_such); };
  if (!has(is_evaluated) || !has([](const Op& op) { return is_backward(op.phase); })) {
    return "the trace does not say which ops are of the forward and which of the backward: what an evaluation runs is "
           "not known";
  }
  if (has([](const Op& op) { return is_evaluated(op) && is_pinned_to_host(op); })) {
    return "ops of the forward are pinned to the host, and an evaluation runs on a device";
  }
  if (sequence_slices(graph) > 1) return "micro-batches are slices of a sequence, and an evaluation runs whole ones";
  return std::nullopt;
}

AllocationOrder evaluation_requests(const Graph& graph, const Evaluation& evaluation) {
  std::vector<std::vector<StorageId>> dying(graph.ops.size());  // by op: what dies with it
  std::vector<bool> is_known(graph.storages, false), is_read(graph.storages, false);
  for (std::size_t o = graph.ops.size(); o-- > 0;) {
    const Op& op = graph.ops[o];
    if (!is_evaluated(op)) continue;
    for (const auto* list : {&op.inputs, &op.outputs}) {
      for (const TensorId t : *list) {
        const StorageId storage = graph[t].storage;
        if (list == &op.inputs) is_read[storage.index] = true;
        if (is_given(graph[t].kind) || is_known[storage.index]) continue;
        is_known[storage.index] = true;
        dying[o].push_back(storage);
      }
    }
  }
  const Samples samples(graph, evaluation.size);
  Requests requests(graph);
  std::vector<TensorId> batch;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].kind == TensorKind::input && is_read[graph.tensors[t].storage.index])
      batch.push_back(id_at<TensorId>(t));
  }
  for (const TensorId t : batch) requests.allocate(t, samples.growth(t));
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (!is_evaluated(op)) continue;
    for (const TensorId t : op.outputs) {
      const bool is_saved_only = std::ranges::find(op.saved, t) != op.saved.end() && !is_read[graph[t].storage.index];
      if (!is_given(graph[t].kind) && !is_saved_only) requests.allocate(t, samples.growth(t));
    }
    requests.use(op.nograd_workspace.value_or(op.workspace), samples.growth(op));
    for (const StorageId storage : dying[o]) requests.free(storage);
  }
  for (const TensorId t : batch) requests.free(graph[t].storage);
  return requests.take();
}

Bytes evaluation_bytes(const Graph& graph, const Evaluation& evaluation) {
  std::vector<std::int64_t> sizes;
  std::int64_t now = 0, most = 0;
  for (const std::int64_t n : evaluation_requests(graph, evaluation)) {
    if (n > 0) sizes.push_back(n);
    now += n > 0 ? n : -sizes[static_cast<std::size_t>(-n) - 1];
    most = std::max(most, now);
  }
  return Bytes{most};
}

Seconds evaluation_share(const Problem& problem, DeviceId id) {
  const Evaluation& evaluation = *problem.evaluation;
  const Device& device = problem.platform[id];
  const bool is_measured = times_hold(problem.graph.source, device);
  const Samples samples(problem.graph, evaluation.size);
  Seconds computing, beside;
  for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
    const Op& op = problem.graph.ops[o];
    if (!is_evaluated(op)) continue;
    const Seconds once = duration_on(problem, id_at<OpId>(o), id, Saving::nothing);
    const bool has_launches = !is_measured && !collective_of(op);
    const Seconds launches = has_launches ? std::min(once, op.launches * device.launch_overhead) : Seconds{};
    const Seconds takes = launches + samples.growth(op) * (once - launches);
    (runs_beside(op) ? beside : computing) += std::max(takes, issue_on(problem, id_at<OpId>(o), id));
  }
  return static_cast<double>(evaluation.batches) / evaluation.every * std::max(computing, beside);
}

}  // namespace plimsoll
