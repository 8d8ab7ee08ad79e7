#include "validate/cpu/inference.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "sim/core/expects.h"
#include "validate/networks/op_kind.h"
#include "validate/reference/normalization.h"

namespace plimsoll {
namespace {

class Forward {
 public:
  Forward(const CpuNetwork& cpu, const std::map<std::string, std::vector<std::byte>>& values) : cpu_(cpu) {
    for (const Tensor& tensor : graph().tensors) {
      const auto found = values.find(tensor.name);
      const bool is_known = found != values.end() && tensor.kind == TensorKind::parameter;
      values_.push_back(is_known ? found->second
                                 : std::vector<std::byte>(static_cast<std::size_t>(tensor.bytes.count)));
    }
  }

  std::int64_t rows() const { return graph()[input()].shape[0]; }

  /// `labels`: of the first rows, which alone count.
  Score run(const std::vector<std::byte>& rows, const std::vector<std::int32_t>& labels) {
    std::ranges::copy(rows, values_[input().index].begin());
    Score score;
    for (std::size_t o = 0; o < graph().ops.size(); ++o) {
      const Op& op = graph().ops[o];
      if (op.phase != Phase::forward) continue;
      run_op(op, cpu_.kernels[o]);
      if (op_kind(op.kind) != OpKind::cross_entropy) continue;
      const TensorId probabilities = op.outputs[0];
      score += score_of(numbers(probabilities), static_cast<std::int64_t>(labels.size()),
                        graph()[probabilities].shape.back(), labels.data());
    }
    return score;
  }

 private:
  const Graph& graph() const { return cpu_.network.graph; }
  TensorId input() const { return cpu_.network.boundaries[0]; }
  float* numbers(TensorId t) { return static_cast<float*>(static_cast<void*>(values_[t.index].data())); }

  void run_op(const Op& op, const Kernel& kernel) {
    if (op_kind(op.kind) == OpKind::batch_norm) return run_batch_norm(op);
    KernelArguments arguments;
    for (const TensorId t : op.inputs) arguments.inputs.push_back(values_[t.index].data());
    for (const TensorId t : op.outputs) arguments.outputs.push_back(values_[t.index].data());
    scratch_.resize(std::max(scratch_.size(), static_cast<std::size_t>(op.workspace.count)));
    arguments.scratch = scratch_.data();
    EXPECTS(kernel.run);
    kernel.run(arguments);
  }

  void run_batch_norm(const Op& op) {
    const std::string_view name = attribute(op, statistics_attribute);
    const auto found = std::ranges::find(graph().tensors, name, &Tensor::name);
    EXPECTS(found != graph().tensors.end());
    const auto at = static_cast<std::size_t>(found - graph().tensors.begin());
    const RowSizes sizes = row_sizes(graph()[op.inputs[0]]);
    const float* mean = numbers(id_at<TensorId>(at));
    plain::batch_norm(numbers(op.inputs[0]), numbers(op.inputs[1]), numbers(op.inputs[2]), sizes, mean,
                      mean + sizes.columns, numbers(op.outputs[0]));
  }

  const CpuNetwork& cpu_;
  std::vector<std::vector<std::byte>> values_;  // by tensor
  std::vector<std::byte> scratch_;
};

}  // namespace

Score infer(const CpuNetwork& cpu, const std::map<std::string, std::vector<std::byte>>& values,
            const LabelledRows& data) {
  Forward forward(cpu, values);
  Score score;
  for (std::int64_t first = 0; first < data.count(); first += forward.rows()) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(std::min(forward.rows(), data.count() - first)));
    std::iota(rows.begin(), rows.end(), first);
    const Batch batch = batch_of(data, rows, 1);
    score += forward.run(batch.inputs[0], batch.labels[0]);
  }
  return score;
}

}  // namespace plimsoll
