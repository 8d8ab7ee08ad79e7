#pragma once
// The kinds of ops that the program knows, in one table: a kind's names, what its backward reads, which packed forms
// that can do with, and what errors become in it. Traces have names, and may have others: an op of none of these kinds
// has times and sizes, and nothing follows from its kind.
//
// Rooms that know more of kinds have tables of their own by the same enumeration, which the compiler compares with it:
// how a kind splits (sim/ops/split_rules.cpp), shapes and costs of its results (validate/networks/op_rules.cpp), its
// kernels (validate/cpu/kernels/kernel.cpp, validate/cuda/cuda_kernel.cpp).

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/core/graph.h"
#include "sim/core/layer_use.h"

namespace plimsoll {

enum class OpKind : std::uint8_t {
  // of the networks in validate/networks, which have kernels
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
  fused_attention,
  fused_attention_backward,
  embedding,
  embedding_weight_gradient,
  lstm_gates,
  lstm_cell,
  lstm_cell_gradient,
  lstm_state_gradient,
  lstm_weight_gradient,
  root_norm,  ///< RMS norm
  root_norm_input_gradient,
  root_norm_weight_gradient,
  rotation,  ///< of queries and keys by their positions
  rotation_gradient,
  gated_silu,  ///< SwiGLU's
  gated_silu_gradient,
  to_experts,  ///< rows of tokens
  to_experts_gradient,
  expert_product,  ///< of each expert with its own weight
  expert_product_input_gradient,
  expert_product_weight_gradient,
  from_experts,
  from_experts_gradient,
  cross_entropy,
  cross_entropy_gradient,
  optimizer,  ///< the last one with kernels
  // of PyTorch's dispatcher, where networks have no such op
  mm,
  bmm,
  baddbmm,
  conv2d,
  convolution_backward,
  native_batch_norm,
  native_batch_norm_backward,
  cudnn_batch_norm,
  cudnn_batch_norm_backward,
  native_layer_norm,
  native_layer_norm_backward,
  relu_in_place,
  leaky_relu_backward,
  activation_backward,
  max_pool_with_indices,
  max_pool_with_indices_backward,
  embedding_bag,
  log_softmax,
  log_softmax_backward,
  nll_loss,
  nll_loss_backward,
  add_in_place,
  mul,
  div,
  div_in_place,
  sum,
  mean,
  clone,
  to_copy,
  cat,
  stack,
  slice,
  select_backward,
  masked_fill,
  triu,
  empty,
  empty_like,
  arange,
  ones,
  ones_like,
  bernoulli_in_place,
  // of graphs that state no more
  matmul,
  conv,
  stage,  ///< of a chain
  share,  ///< what a rank keeps of a value, without an exchange
  count   ///< how many there are: stays last
};
inline constexpr auto op_kind_count = static_cast<std::size_t>(OpKind::count);
inline constexpr auto network_kind_count = static_cast<std::size_t>(OpKind::optimizer) + 1;

/// Of what a forward reads and makes, what its backward reads, joined by `|`. `marks`: outputs that are made for the
/// backward alone, such as statistics and places of maxima.
enum class OpSaves : std::uint8_t { nothing = 0, input = 1, result = 2, marks = 4 };

constexpr OpSaves operator|(OpSaves a, OpSaves b) {
  return static_cast<OpSaves>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}

/// What a backward can take instead of a saved value: signs, signs or places (of its input it needs the shape), steps
/// of a derivative, some of the rows of a matrix, means of blocks of pixels.
enum class Packed : std::uint8_t { none, signs, places, steps, rows, pixels };

/// Which results of a backward depend on the numbers of a saved value: all; gradients of weights alone, without the
/// last of several, the bias's; all but that one.
enum class Reach : std::uint8_t { all, weights, all_but_bias };

/// What an approximation of a saved value becomes in the gradient that a backward hands on (sim/codec): noise of the
/// same size, or as the formula of its layer says. A norm finds statistics anew, or keeps the forward's.
enum class PassedOn : std::uint8_t {
  as_noise,
  by_new_statistics,
  by_kept_statistics,
  by_gelu,
  by_signs,
  by_places,
  by_probabilities,
  by_log_probabilities
};

/// Whether the kind has a rule by which ranks can share it out (sim/ops/split_rules.cpp).
enum class Splits : std::uint8_t { by_rule, not_at_all };

/// Whether a forward is worth no recomputation before all others: products, convolutions, attention.
enum class OpWork : std::uint8_t { light, heavy };

struct OpNames {
  std::string_view ours;     ///< as the networks and models of this project write it; empty: they do not
  std::string_view pytorch;  ///< as PyTorch's dispatcher has it: words; empty: it does not
  std::string_view stems;    ///< other names that begin so belong to this kind's layer: words
};

/// The kinds of forwards that a backward may belong to, where traces do not say; `count` stands for none.
using Forwards = std::array<OpKind, 3>;

struct OpRow {
  OpKind kind;
  OpNames names;
  SavedBy layer;
  Splits splits;
  OpSaves saves = OpSaves::nothing;
  OpWork work = OpWork::light;
  Forwards of = {OpKind::count, OpKind::count, OpKind::count};
  Packed packed = Packed::none;
  Reach reach = Reach::all;
  PassedOn passed_on = PassedOn::as_noise;
};

/// What one layer knows of each kind, in the order of the enumeration. A row has a `kind`.
template <class Row, std::size_t kinds = op_kind_count>
using OpTable = std::array<Row, kinds>;

/// Of the kinds that have kernels.
template <class Row>
using NetworkTable = OpTable<Row, network_kind_count>;

/// Whether no kind is left out and none lies out of order; asked while the table is compiled.
template <class Row, std::size_t kinds>
constexpr bool has_every_kind(const std::array<Row, kinds>& table) {
  for (std::size_t i = 0; i < kinds; ++i) {
    if (table[i].kind != static_cast<OpKind>(i)) return false;
  }
  return true;
}

template <class Row, std::size_t kinds>
constexpr const Row& row_of(const std::array<Row, kinds>& table, OpKind kind) {
  return table[static_cast<std::size_t>(kind)];
}

namespace op_rows {

// What a row must say, by what its kind is: a row that leaves something out does not compile.

constexpr OpRow forward(OpKind kind, OpNames names, SavedBy layer, OpSaves saves, OpWork work, Splits splits) {
  return {.kind = kind, .names = names, .layer = layer, .splits = splits, .saves = saves, .work = work};
}

constexpr OpRow backward(OpKind kind, OpNames names, SavedBy layer, Forwards of, Packed packed, Reach reach,
                         PassedOn passed_on, Splits splits, OpWork work = OpWork::light) {
  return {.kind = kind,
          .names = names,
          .layer = layer,
          .splits = splits,
          .work = work,
          .of = of,
          .packed = packed,
          .reach = reach,
          .passed_on = passed_on};
}

/// Of what forwards and backwards both run, and what is run for neither.
constexpr OpRow either(OpKind kind, OpNames names, SavedBy layer, OpSaves saves, Forwards of, Packed packed,
                       OpWork work, Splits splits) {
  return {.kind = kind,
          .names = names,
          .layer = layer,
          .splits = splits,
          .saves = saves,
          .work = work,
          .of = of,
          .packed = packed};
}

template <class... Kind>
constexpr Forwards of(Kind... kinds) {
  Forwards all{OpKind::count, OpKind::count, OpKind::count};
  std::size_t k = 0;
  ((all[k++] = kinds), ...);
  return all;
}

}  // namespace op_rows

// clang-format off
inline constexpr OpTable<OpRow> op_table = [] {
  using enum OpKind;
  using enum Splits;
  using enum OpWork;
  using enum Packed;
  using enum PassedOn;
  using op_rows::forward, op_rows::backward, op_rows::either, op_rows::of;
  using S = OpSaves;
  using R = Reach;
  using L = SavedBy;
  return OpTable<OpRow>{
      //       kind                        names: ours, PyTorch's, stems
      //         layer, what the backward reads, work | forwards, packed form, reach, error; how it splits
      forward(linear, {"linear", "addmm", "linear addmm"}, L::linear, S::input, heavy, by_rule),
      backward(linear_input_gradient, {"linear_input_gradient", "", ""},
               L::linear, of(linear), none, R::all, as_noise, by_rule),
      backward(linear_weight_gradient, {"linear_weight_gradient", "", ""},
               L::linear, of(linear), rows, R::weights, as_noise, by_rule),
      forward(convolution, {"convolution", "convolution", "convolution"}, L::conv, S::input, heavy, by_rule),
      backward(convolution_input_gradient, {"convolution_input_gradient", "", ""},
               L::conv, of(convolution), none, R::all, as_noise, by_rule),
      backward(convolution_weight_gradient, {"convolution_weight_gradient", "", ""},
               L::conv, of(convolution), pixels, R::weights, as_noise, by_rule),
      forward(batch_norm, {"batch_norm", "", "batch_norm"}, L::bn, S::input, light, by_rule),
      backward(batch_norm_input_gradient, {"batch_norm_input_gradient", "", ""},
               L::bn, of(batch_norm), none, R::all, by_new_statistics, by_rule),
      backward(batch_norm_weight_gradient, {"batch_norm_weight_gradient", "", ""},
               L::bn, of(batch_norm), none, R::all_but_bias, by_new_statistics, by_rule),
      forward(layer_norm, {"layer_norm", "", "layer_norm"}, L::ln, S::input, light, by_rule),
      backward(layer_norm_input_gradient, {"layer_norm_input_gradient", "", ""},
               L::ln, of(layer_norm), none, R::all, by_new_statistics, by_rule),
      backward(layer_norm_weight_gradient, {"layer_norm_weight_gradient", "", ""},
               L::ln, of(layer_norm), none, R::all_but_bias, by_new_statistics, by_rule),
      forward(relu, {"relu", "relu", "relu"}, L::relu, S::result, light, by_rule),
      backward(relu_gradient, {"relu_gradient", "threshold_backward", "threshold"},
               L::relu, of(relu_in_place, relu), signs, R::all, by_signs, by_rule),
      forward(gelu, {"gelu", "gelu", "gelu"}, L::gelu, S::input, light, by_rule),
      backward(gelu_gradient, {"gelu_gradient", "gelu_backward", ""},
               L::gelu, of(gelu), steps, R::all, by_gelu, by_rule),
      forward(softmax, {"softmax", "_softmax", "softmax _softmax"}, L::softmax, S::result, light, by_rule),
      backward(softmax_gradient, {"softmax_gradient", "_softmax_backward_data", ""},
               L::softmax, of(softmax), none, R::all, as_noise, by_rule),
      forward(max_pool, {"max_pool", "", "max_pool"}, L::pool, S::input, light, by_rule),
      backward(max_pool_gradient, {"max_pool_gradient", "", ""},
               L::pool, of(max_pool), none, R::all, by_places, by_rule),
      forward(average_pool, {"average_pool", "", "average_pool avg_pool"}, L::pool, S::nothing, light, by_rule),
      backward(average_pool_gradient, {"average_pool_gradient", "", ""},
               L::pool, of(average_pool), none, R::all, as_noise, by_rule),
      either(add, {"add", "add", ""}, L::other, S::nothing, of(), none, light, by_rule),
      forward(attention_scores, {"attention_scores", "", "attention"}, L::matmul, S::input, heavy, by_rule),
      forward(attention_values, {"attention_values", "", ""}, L::matmul, S::input, heavy, by_rule),
      backward(attention_values_gradient, {"attention_values_gradient", "", ""},
               L::matmul, of(attention_values), none, R::all, as_noise, by_rule, heavy),
      backward(attention_qkv_gradient, {"attention_qkv_gradient", "", ""},
               L::matmul, of(attention_scores), none, R::all, as_noise, by_rule, heavy),
      forward(fused_attention, {"fused_attention",
                                "_flash_attention_forward _efficient_attention_forward _cudnn_attention_forward",
                                "_scaled_dot_product scaled_dot_product _fused_sdp"},
              L::other, S::input | S::result | S::marks, heavy, by_rule),
      backward(fused_attention_backward, {"fused_attention_backward",
                                          "_scaled_dot_product_flash_attention_backward "
                                          "_scaled_dot_product_efficient_attention_backward "
                                          "_scaled_dot_product_cudnn_attention_backward "
                                          "_flash_attention_backward _efficient_attention_backward "
                                          "_cudnn_attention_backward", ""},
               L::other, of(fused_attention), none, R::all, as_noise, by_rule, heavy),
      forward(embedding, {"embedding", "embedding", "embedding"}, L::embedding, S::input, light, by_rule),
      backward(embedding_weight_gradient, {"embedding_weight_gradient", "embedding_dense_backward", ""},
               L::embedding, of(embedding), none, R::all, as_noise, by_rule),
      forward(lstm_gates, {"lstm_gates", "", "lstm"}, L::lstm, S::input | S::result, light, by_rule),
      forward(lstm_cell, {"lstm_cell", "", ""}, L::lstm, S::nothing, light, by_rule),
      backward(lstm_cell_gradient, {"lstm_cell_gradient", "", ""},
               L::lstm, of(lstm_gates), none, R::all, as_noise, by_rule),
      backward(lstm_state_gradient, {"lstm_state_gradient", "", ""},
               L::lstm, of(lstm_gates), none, R::all, as_noise, by_rule),
      backward(lstm_weight_gradient, {"lstm_weight_gradient", "", ""},
               L::lstm, of(lstm_gates), none, R::all, as_noise, by_rule),
      forward(root_norm, {"root_norm", "", ""}, L::ln, S::input, light, by_rule),
      backward(root_norm_input_gradient, {"root_norm_input_gradient", "", ""},
               L::ln, of(root_norm), none, R::all, as_noise, by_rule),
      backward(root_norm_weight_gradient, {"root_norm_weight_gradient", "", ""},
               L::ln, of(root_norm), none, R::all, as_noise, by_rule),
      forward(rotation, {"rotation", "", ""}, L::other, S::nothing, light, by_rule),
      backward(rotation_gradient, {"rotation_gradient", "", ""},
               L::other, of(rotation), none, R::all, as_noise, by_rule),
      forward(gated_silu, {"gated_silu", "", ""}, L::other, S::input, light, by_rule),
      backward(gated_silu_gradient, {"gated_silu_gradient", "", ""},
               L::other, of(gated_silu), none, R::all, as_noise, by_rule),
      forward(to_experts, {"to_experts", "", ""}, L::other, S::input, light, by_rule),
      backward(to_experts_gradient, {"to_experts_gradient", "", ""},
               L::other, of(to_experts), none, R::all, as_noise, by_rule),
      forward(expert_product, {"expert_product", "", ""}, L::matmul, S::input, heavy, by_rule),
      backward(expert_product_input_gradient, {"expert_product_input_gradient", "", ""},
               L::matmul, of(expert_product), none, R::all, as_noise, by_rule),
      backward(expert_product_weight_gradient, {"expert_product_weight_gradient", "", ""},
               L::matmul, of(expert_product), none, R::all, as_noise, by_rule),
      forward(from_experts, {"from_experts", "", ""}, L::other, S::input, light, by_rule),
      backward(from_experts_gradient, {"from_experts_gradient", "", ""},
               L::other, of(from_experts), none, R::all, as_noise, by_rule),
      forward(cross_entropy, {"cross_entropy", "", "cross_entropy"}, L::loss, S::result, light, by_rule),
      backward(cross_entropy_gradient, {"cross_entropy_gradient", "", ""},
               L::loss, of(cross_entropy), none, R::all, by_probabilities, by_rule),
      either(optimizer, {"optimizer", "", ""}, L::other, S::nothing, of(), none, light, not_at_all),
      // A product without a bias, and both gradients of one with or without.
      either(mm, {"", "mm", "mm"}, L::linear, S::input, of(linear, mm), rows, heavy, by_rule),
      either(bmm, {"", "bmm", "bmm"}, L::matmul, S::input, of(bmm), none, heavy, by_rule),
      forward(baddbmm, {"", "baddbmm", "baddbmm"}, L::matmul, S::input, heavy, not_at_all),
      forward(conv2d, {"", "conv2d", "conv2d"}, L::conv, S::input, heavy, not_at_all),
      backward(convolution_backward, {"", "convolution_backward", ""},
               L::conv, of(convolution), pixels, R::weights, as_noise, by_rule),
      forward(native_batch_norm, {"", "native_batch_norm", "native_batch_norm"},
              L::bn, S::input | S::marks, light, by_rule),
      backward(native_batch_norm_backward, {"", "native_batch_norm_backward", ""},
               L::bn, of(native_batch_norm), none, R::all_but_bias, by_kept_statistics, by_rule),
      forward(cudnn_batch_norm, {"", "cudnn_batch_norm miopen_batch_norm", ""},
              L::bn, S::input | S::marks, light, not_at_all),
      backward(cudnn_batch_norm_backward, {"", "cudnn_batch_norm_backward miopen_batch_norm_backward", ""},
               L::bn, of(cudnn_batch_norm), none, R::all, by_kept_statistics, not_at_all),
      forward(native_layer_norm, {"", "native_layer_norm", "native_layer_norm"},
              L::ln, S::input | S::marks, light, by_rule),
      backward(native_layer_norm_backward, {"", "native_layer_norm_backward", ""},
               L::ln, of(native_layer_norm), none, R::all_but_bias, by_kept_statistics, by_rule),
      forward(relu_in_place, {"", "relu_", ""}, L::relu, S::result, light, by_rule),
      backward(leaky_relu_backward, {"", "leaky_relu_backward", ""},
               L::other, of(), none, R::all, by_signs, not_at_all),
      backward(activation_backward, {"", "silu_backward tanh_backward sigmoid_backward hardswish_backward elu_backward "
                                         "softplus_backward mish_backward log_sigmoid_backward", ""},
               L::other, of(), steps, R::all, as_noise, not_at_all),
      forward(max_pool_with_indices, {"", "max_pool2d_with_indices", ""}, L::pool, S::input | S::marks, light, by_rule),
      backward(max_pool_with_indices_backward, {"", "max_pool2d_with_indices_backward", ""},
               L::pool, of(max_pool_with_indices), places, R::all, as_noise, by_rule),
      forward(embedding_bag, {"", "_embedding_bag", "_embedding_bag"}, L::embedding, S::input, light, not_at_all),
      forward(log_softmax, {"", "_log_softmax", "_log_softmax"}, L::loss, S::result, light, by_rule),
      backward(log_softmax_backward, {"", "_log_softmax_backward_data", ""},
               L::loss, of(log_softmax), none, R::all, by_log_probabilities, by_rule),
      forward(nll_loss, {"", "nll_loss_forward", "nll_loss"}, L::loss, S::input | S::marks, light, by_rule),
      backward(nll_loss_backward, {"", "nll_loss_backward", ""},
               L::loss, of(nll_loss), none, R::all, as_noise, by_rule),
      either(add_in_place, {"", "add_", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(mul, {"", "mul", ""}, L::other, S::input, of(mul), none, light, by_rule),
      either(div, {"", "div", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(div_in_place, {"", "div_", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(sum, {"", "sum", ""}, L::other, S::nothing, of(linear, convolution, add), none, light, by_rule),
      either(mean, {"", "mean", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(clone, {"", "clone", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(to_copy, {"", "_to_copy", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(cat, {"", "cat", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(stack, {"", "stack", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(slice, {"", "slice", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(select_backward, {"", "select_backward", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(masked_fill, {"", "masked_fill", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(triu, {"", "triu", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(empty, {"", "empty", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(empty_like, {"", "empty_like", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(arange, {"", "arange", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(ones, {"", "ones", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(ones_like, {"", "ones_like", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(bernoulli_in_place, {"", "bernoulli_", ""}, L::other, S::nothing, of(), none, light, by_rule),
      either(matmul, {"matmul", "matmul", ""}, L::other, S::input, of(), none, heavy, not_at_all),
      either(conv, {"conv", "", ""}, L::other, S::input, of(), none, heavy, not_at_all),
      either(stage, {"stage", "", "stage"}, L::stage, S::nothing, of(), none, light, not_at_all),
      either(share, {"share", "", ""}, L::other, S::nothing, of(), none, light, not_at_all),
  };
}();
// clang-format on
static_assert(has_every_kind(op_table), "a kind of op has no row, or its row is not in its place");
static_assert(std::ranges::none_of(op_table.begin(), op_table.begin() + network_kind_count,
                                   [](const OpRow& row) { return row.names.ours.empty(); }),
              "a kind that networks have has no name that they could write");

constexpr const OpRow& row_of(OpKind kind) {
  return row_of(op_table, kind);
}

namespace op_names {

/// A name of a kind, or a stem of names.
struct Entry {
  std::string_view name;
  OpKind kind = OpKind::count;
};

constexpr bool is_before(std::string_view a, std::string_view b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

/// Calls `each(word)` for the words of a text that single blanks separate.
constexpr void for_words(std::string_view text, const auto& each) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    each(text.substr(at, end - at));
    at = end + 1;
  }
}

constexpr void for_names(const OpRow& row, const auto& each) {
  if (!row.names.ours.empty()) each(row.names.ours);
  for_words(row.names.pytorch, [&](std::string_view word) {
    if (word != row.names.ours) each(word);
  });
}

template <bool stems>
constexpr auto entries() {
  constexpr std::size_t count = [] {
    std::size_t words = 0;
    const auto one_more = [&](std::string_view) { ++words; };
    for (const OpRow& row : op_table) stems ? for_words(row.names.stems, one_more) : for_names(row, one_more);
    return words;
  }();
  std::array<Entry, count> all{};
  std::size_t k = 0;
  for (const OpRow& row : op_table) {
    const auto add = [&](std::string_view word) { all[k++] = {word, row.kind}; };
    stems ? for_words(row.names.stems, add) : for_names(row, add);
  }
  std::ranges::sort(all, is_before, &Entry::name);
  return all;
}

inline constexpr auto names = entries<false>();  // shorter ones first
inline constexpr auto stems = entries<true>();
static_assert(std::ranges::adjacent_find(names, {}, &Entry::name) == names.end(), "two kinds have the same name");
static_assert(std::ranges::adjacent_find(stems, {}, &Entry::name) == stems.end(), "two kinds have the same stem");

/// Where names of so many letters begin in `names`; the last one: where they end.
inline constexpr auto first_of_size = [] {
  std::array<std::uint16_t, names.back().name.size() + 2> first{};
  for (const Entry& each : names) ++first[each.name.size() + 1];
  for (std::size_t size = 1; size < first.size(); ++size) first[size] += first[size - 1];
  return first;
}();

}  // namespace op_names

/// As this project's traces have it: an op's `kind`.
constexpr std::string_view name_of(OpKind kind) {
  return row_of(kind).names.ours;
}

/// By any of its names; nothing for a word that the table does not have.
constexpr std::optional<OpKind> op_kind(std::string_view name) {
  if (name.size() + 1 >= op_names::first_of_size.size()) return std::nullopt;
  for (std::size_t k = op_names::first_of_size[name.size()]; k < op_names::first_of_size[name.size() + 1]; ++k) {
    if (op_names::names[k].name == name) return op_names::names[k].kind;
  }
  return std::nullopt;
}

inline std::optional<OpKind> op_kind(const Op& op) {
  return op_kind(op.kind);
}

/// The same; for a word that the table does not have, the kind with the longest stem that it begins with.
constexpr std::optional<OpKind> nearest_kind(std::string_view name) {
  if (const std::optional<OpKind> kind = op_kind(name)) return kind;
  std::optional<OpKind> nearest;
  for (const op_names::Entry& each : op_names::stems) {
    if (name.starts_with(each.name)) nearest = each.kind;
  }
  return nearest;
}

/// By the name that this project's networks give it; nothing where it has no kernels.
constexpr std::optional<OpKind> network_kind(std::string_view name) {
  const std::optional<OpKind> kind = op_kind(name);
  if (!kind || static_cast<std::size_t>(*kind) >= network_kind_count || name_of(*kind) != name) return std::nullopt;
  return kind;
}

constexpr bool is_one_of(std::optional<OpKind> kind, const auto&... kinds) {
  return ((kind == kinds) || ...);
}

}  // namespace plimsoll
