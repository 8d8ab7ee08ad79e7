#include "sim/ops/layers.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace plimsoll {
namespace {

/// The first that a kind of op begins with counts.
constexpr std::array kind_prefixes{std::pair{std::string_view("convolution"), SavedBy::conv},
                                   std::pair{std::string_view("native_batch_norm"), SavedBy::bn},
                                   std::pair{std::string_view("batch_norm"), SavedBy::bn},
                                   std::pair{std::string_view("native_layer_norm"), SavedBy::ln},
                                   std::pair{std::string_view("layer_norm"), SavedBy::ln},
                                   std::pair{std::string_view("relu"), SavedBy::relu},
                                   std::pair{std::string_view("threshold"), SavedBy::relu},
                                   std::pair{std::string_view("gelu"), SavedBy::gelu},
                                   std::pair{std::string_view("_softmax"), SavedBy::softmax},
                                   std::pair{std::string_view("softmax"), SavedBy::softmax},
                                   std::pair{std::string_view("max_pool"), SavedBy::pool},
                                   std::pair{std::string_view("average_pool"), SavedBy::pool},
                                   std::pair{std::string_view("avg_pool"), SavedBy::pool},
                                   std::pair{std::string_view("embedding"), SavedBy::embedding},
                                   std::pair{std::string_view("lstm"), SavedBy::lstm},
                                   std::pair{std::string_view("_log_softmax"), SavedBy::loss},
                                   std::pair{std::string_view("nll_loss"), SavedBy::loss},
                                   std::pair{std::string_view("cross_entropy"), SavedBy::loss},
                                   std::pair{std::string_view("linear"), SavedBy::linear},
                                   std::pair{std::string_view("addmm"), SavedBy::linear},
                                   std::pair{std::string_view("mm"), SavedBy::linear},
                                   std::pair{std::string_view("bmm"), SavedBy::matmul},
                                   std::pair{std::string_view("baddbmm"), SavedBy::matmul},
                                   std::pair{std::string_view("attention"), SavedBy::matmul},
                                   std::pair{std::string_view("stage"), SavedBy::stage}};

}  // namespace

SavedBy layer_of(const Op& op) {
  const auto* found =
      std::ranges::find_if(kind_prefixes, [&](const auto& row) { return op.kind.starts_with(row.first); });
  return found == kind_prefixes.end() ? SavedBy::other : found->second;
}

std::int64_t kernel_of(const Graph& graph, const Op& op) {
  for (const auto* list : {&op.inputs, &op.outputs}) {
    for (const TensorId t : *list) {
      const Tensor& tensor = graph[t];
      const bool is_weight = tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::parameter_gradient;
      if (!is_weight || tensor.shape.size() != 4) continue;
      // This project's networks have height x width x in x out, PyTorch out x in x height x width.
      const std::size_t height = op.kind.ends_with("_gradient") ? 0 : 2;
      return std::max(tensor.shape[height], tensor.shape[height + 1]);
    }
  }
  return 0;
}

}  // namespace plimsoll
