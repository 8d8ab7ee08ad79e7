#pragma once
// Graphs as eager PyTorch runs a model: an op for each kernel that it launches, what autograd keeps for each, in-place
// ops on the storage of their input, and the backward in reverse order of the forward. Names of ops are those of its
// dispatcher. Which tensors an op keeps: derivatives.yaml of PyTorch; read off torch 1.13 by traces/export_pytorch.py.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

class EagerGraph {
 public:
  /// `dtype`: fp32; tf32, in which products compute and which is fp32 in memory; or amp: parameters in fp32, and what
  /// torch.autocast computes in bf16. So far convolutions, linear layers and what goes on in their type: batch norms,
  /// pools, sums.
  explicit EagerGraph(std::string name, std::string_view dtype = "fp32", bool channels_last = false);

  using Shape = std::vector<std::int64_t>;

  const Shape& shape(TensorId t) const { return graph_[t].shape; }

  /// The network's input; it has no gradient.
  TensorId input(Shape);

  /// Ops from here on belong to the next stage.
  void next_stage(std::string name);

  struct Window {
    std::int64_t kernel = 1, stride = 1, padding = 0;
  };

  TensorId convolution(TensorId x, std::int64_t channels, Window, bool bias = false);
  TensorId batch_norm(TensorId x);
  TensorId relu_in_place(TensorId x);
  TensorId max_pool(TensorId x, Window);
  /// The sum takes the storage of `where`.
  TensorId add_in_place(TensorId where, TensorId other);
  TensorId add(TensorId a, TensorId b);
  /// A parameter is added to every sample.
  TensorId add_parameter(TensorId x, const std::string& name);
  /// A parameter for each of the last dimension, which every row is multiplied by, or which is added to it.
  TensorId times_columns(TensorId x, const std::string& name);
  TensorId add_columns(TensorId x, const std::string& name);
  /// All pixels of a channel, or all rows of a sample.
  TensorId mean(TensorId x);
  /// x is (..., k): (..., columns).
  TensorId linear(TensorId x, std::int64_t columns, bool bias = true);
  TensorId layer_norm(TensorId x);
  TensorId gelu(TensorId x);
  TensorId softmax(TensorId x);
  /// Times a number that is no tensor.
  TensorId scaled(TensorId x);
  /// A product of matrices for each of a batch: (b, n, k) x (b, k, m).
  TensorId batched_product(TensorId a, TensorId b) { return batched(a, b, false); }
  /// The second one transposed: (b, n, k) x (b, m, k).
  TensorId batched_product_with_transposed(TensorId a, TensorId b) { return batched(a, b, true); }
  /// The same values in another order and shape, in a storage of their own.
  TensorId copied(TensorId x, Shape);
  /// In a storage of their own, in the order in which the gradient comes.
  TensorId put_in_order(TensorId x);
  /// The same value seen in another shape: by a view, which nothing is launched for.
  TensorId seen_as(TensorId x, Shape);
  /// The same, where a copy puts the gradient in that order.
  TensorId seen_transposed(TensorId x, Shape);
  /// Parts of the values, each as `copied`; one op puts their gradients together.
  std::vector<TensorId> split(TensorId x, const Shape& part, std::size_t parts);
  /// Pictures as rows of their channels, one a pixel, behind a row that is a parameter: (b, c, h, w) becomes
  /// (b, h w + 1, c).
  TensorId rows_of_pictures(TensorId x);
  /// The first row of each sample, of which only a linear layer follows: (b, n, c) becomes (b, columns).
  TensorId linear_of_first_row(TensorId x, std::int64_t columns);

  /// The loss of a classification, and the whole backward.
  Graph trained(TensorId logits) &&;

 private:
  using Attributes = std::vector<std::pair<std::string, std::string>>;
  struct Made {
    std::string kind;
    Phase phase = Phase::forward;
    std::vector<TensorId> inputs, outputs, saved, mutates;
    double flops = 0;
    std::int64_t more_bytes = 0;  ///< moved, beside inputs and outputs
    Attributes attributes = {};
  };

  TensorId tensor(const std::string& name, TensorKind, Shape, std::optional<StorageId> = {}, std::int64_t each = 4);
  TensorId parameter(const std::string& name, Shape);
  TensorId value(Shape);
  /// In the type of numbers that another one has.
  TensorId value_like(TensorId, Shape, std::optional<StorageId> = {});
  TensorId gradient_like(TensorId);
  TensorId gradient_of_parameter(TensorId);
  /// Of a parameter, or of the copy that is computed with; the copy's own backward goes on from there.
  TensorId gradient_of_weight(TensorId);
  /// In the type that `autocast` computes in: itself, or a copy.
  TensorId narrowed(TensorId);
  TensorId converted(TensorId, std::int64_t each);
  void op(Made);
  bool needs_gradient(TensorId t) const { return needs_gradient_[t.index]; }
  TensorId gradient(TensorId t) const { return gradients_.at(t.index); }
  /// One more contribution, added to those before it.
  void contribute(TensorId to, TensorId gradient);
  /// Runs when the backward comes to it, once the gradient of `of` is there.
  void backward(TensorId of, std::function<void()>);
  /// An op without parameters whose gradient reads its input or its result.
  TensorId unary(TensorId x, const std::string& kind, const std::string& backward_kind, bool keeps_result);
  TensorId batched(TensorId a, TensorId b, bool transposed);
  /// rows x k times k x columns; `x` as it is read.
  TensorId product(TensorId x, Shape result, std::int64_t rows, bool bias, bool of_first_row);

  Graph graph_;
  std::vector<bool> needs_gradient_;                                   // by tensor
  std::map<std::uint32_t, TensorId> gradients_;                        // by tensor
  std::vector<std::pair<TensorId, std::function<void()>>> backwards_;  // in the order of the forward
  std::string stage_name_;
  std::uint32_t stage_ = 0;
  bool is_mixed_ = false, is_channels_last_ = false;
};

}  // namespace plimsoll
