#pragma once
// The kinds of ops that networks are made of (validate/networks.md, "Kinds of ops"), and tables with a row for each of
// them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace plimsoll {

enum class OpKind : std::uint8_t {
  linear,
  linear_input_gradient,
  linear_weight_gradient,
  convolution,
  convolution_input_gradient,
  convolution_weight_gradient,
  batch_norm,
  batch_norm_input_gradient,
  batch_norm_weight_gradient,
  layer_norm,
  layer_norm_input_gradient,
  layer_norm_weight_gradient,
  relu,
  relu_gradient,
  gelu,
  gelu_gradient,
  softmax,
  softmax_gradient,
  max_pool,
  max_pool_gradient,
  average_pool,
  average_pool_gradient,
  add,
  attention_scores,
  attention_values,
  attention_values_gradient,
  attention_qkv_gradient,
  embedding,
  embedding_weight_gradient,
  lstm_gates,
  lstm_cell,
  lstm_cell_gradient,
  lstm_state_gradient,
  lstm_weight_gradient,
  cross_entropy,
  cross_entropy_gradient,
  optimizer,
  count  ///< how many there are: stays last
};
inline constexpr auto op_kind_count = static_cast<std::size_t>(OpKind::count);

/// As trace files have it: an op's `kind`.
std::string_view name_of(OpKind);
/// Nothing for a word that is no kind of ours.
std::optional<OpKind> op_kind(std::string_view name);

/// What one layer knows of each kind, in the order of the enum. A row has a `kind`.
template <class Row>
using OpTable = std::array<Row, op_kind_count>;

/// Whether no kind is left out and none lies out of order; asked while the table is compiled.
template <class Row>
constexpr bool has_every_kind(const OpTable<Row>& table) {
  for (std::size_t i = 0; i < op_kind_count; ++i) {
    if (table[i].kind != static_cast<OpKind>(i)) return false;
  }
  return true;
}

template <class Row>
constexpr const Row& row_of(const OpTable<Row>& table, OpKind kind) {
  return table[static_cast<std::size_t>(kind)];
}

}  // namespace plimsoll
