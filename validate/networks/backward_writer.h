#pragma once
// Reverse differentiation: from a network's forward ops, last to first, to the ops that make its gradients.

#include <map>
#include <string>
#include <vector>

#include "validate/networks/op_rules.h"

namespace plimsoll {

/// What the gradient rules of ops (op_rules.cpp) are written with.
class BackwardWriter {
 public:
  /// The graph's ops are forwards, the last of them the loss.
  explicit BackwardWriter(Graph& graph) : graph_(graph) {}

  /// Adds the backward of every forward.
  void write();

  /// By parameter.
  const std::map<TensorId, TensorId>& parameter_gradients() const { return parameter_gradients_; }

  // --- for gradient rules

  /// The gradient of an activation, as far as contributed.
  TensorId gradient_of(TensorId t) const { return gradients_.at(t); }
  /// The op of a kind that reads `t`.
  const Op& reader(TensorId t, OpKind) const;
  /// An op that makes a contribution to the gradient of `of`; none where `of` is the network's input.
  void input_gradient(OpKind, const Op& forward, std::vector<TensorId> inputs, TensorId of);
  /// The same of several activations at once.
  void input_gradients(OpKind, const Op& forward, std::vector<TensorId> inputs, const std::vector<TensorId>& of);
  /// An op that makes the gradients of parameters, or adds to them where they are shared.
  void weight_gradient(OpKind, const Op& forward, std::vector<TensorId> inputs,
                       const std::vector<TensorId>& parameters);
  /// `gradient` is one of `of` as it is: nothing is computed where there was none before.
  void pass_on(TensorId gradient, TensorId of);

 private:
  TensorId new_gradient(TensorId of);
  void settle(TensorId of, TensorId contribution);
  TensorId parameter_gradient(TensorId parameter);

  Graph& graph_;
  std::uint32_t stage_ = 0;                           ///< of the forward whose backward is written
  std::map<TensorId, TensorId> gradients_;            ///< of activations, as far as contributed
  std::map<TensorId, std::uint32_t> contributions_;   ///< to the gradient of an activation
  std::map<TensorId, TensorId> parameter_gradients_;  ///< by parameter
};

}  // namespace plimsoll
