#include "sim/ops/split_rules.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"

namespace plimsoll {
namespace {

// A pattern is a loop in which a word may stand for several dimensions of an operand:
//   ..   all dimensions but those that the operand names: samples first, then rows of a matrix, pixels of a picture.
//        Where views have put several of them together (samples x rows), only samples can be cut, and have rows.
//   ~    all dimensions, of which only samples can be cut: what puts values in another order is taken to leave them
//        outermost
//   .    none: a single number
struct SplitRule {
  OpKind kind;
  std::string_view pattern;
  std::string_view features = {};  ///< dimensions to which the attribute `features` gives other names, word by word, so
                                   ///< that a layer calls its results as what reads them does (`w f`, then `f w`)
  std::string_view reduces = {};   ///< as LoopReduction
  std::string_view if_attribute = {};               ///< only for ops that have it
  std::optional<bool> if_backward = {};             ///< only in that phase
  std::optional<bool> if_second_is_parameter = {};  ///< only where the second input is one, or is none
};

namespace split_rules {

using enum OpKind;

// Of this project's names: everything (..., features), pictures with channels last.
constexpr SplitRule of_networks[] = {
    {.kind = linear, .pattern = ".. k, n k -> .. n", .features = "k n", .if_attribute = "transposed"},
    {linear, ".. k, k n, n -> .. n", "k n"},
    {linear, ".. k, k n -> .. n", "k n"},
    {.kind = linear_input_gradient, .pattern = ".. n, n k -> .. k", .features = "k n", .if_attribute = "transposed"},
    {linear_input_gradient, ".. n, k n -> .. k", "k n"},
    {.kind = linear_weight_gradient, .pattern = ".. k, .. n -> n k", .features = "k n", .if_attribute = "transposed"},
    {linear_weight_gradient, ".. k, .. n -> k n, n =k", "k n"},  // dbias: column sums of dy, which has no k
    {linear_weight_gradient, ".. k, .. n -> k n", "k n"},
    // No cut of pictures: a window reaches over the border (a halo), which no collective here exchanges.
    {.kind = convolution, .pattern = "b - - c, - - c o -> b - - o", .if_attribute = "stride"},
    {convolution_input_gradient, "b - - o, - - c o -> b - - c"},
    {convolution_weight_gradient, "b - - c, b - - o -> - - c o"},
    // Statistics are those of the whole batch, which the kernels find anew in the backward.
    {batch_norm, "b! - - c, c, c -> b - - c"},
    {batch_norm_input_gradient, "b! - - c, c, b - - c -> b - - c"},
    {batch_norm_weight_gradient, "b! - - c, b - - c -> c, c"},
    {layer_norm, ".. w!, w, w -> .. w", "w"},
    {layer_norm_input_gradient, ".. w!, w, .. w -> .. w", "w"},
    {layer_norm_weight_gradient, ".. w!, .. w -> w, w", "w"},
    {relu, ".. w -> .. w", "w"},
    {relu_gradient, ".. w, .. w -> .. w", "w"},
    {gelu, ".. w -> .. w", "w"},
    {gelu_gradient, ".. w, .. w -> .. w", "w"},
    {add, ".. w, .. w -> .. w", "w"},
    {max_pool, "b - - c -> b - - c"},
    {max_pool_gradient, "b - - c, b - - c -> b - - c"},
    {average_pool, "b - - c -> b c"},
    {average_pool_gradient, "b c -> b - - c"},
    // Every position asks all before it: their sequence stays whole.
    {attention_scores, "b s! a* -> b a s -"},
    {softmax, "b a s t! -> b a s t"},
    {softmax_gradient, "b a s t!, b a s t -> b a s t"},
    {attention_values, "b a s! -, b s a* -> b s a*"},
    {attention_values_gradient, "b s! a*, b s a* -> b a s -"},
    {attention_qkv_gradient, "b a s! -, b a s -, b s a*, b s a* -> b s a*"},
    // Fused, with sums of each query's softmax: later queries see more keys, and all keys are needed.
    {fused_attention, "b s~ a*, b t! a* -> b s a*, b a s"},
    {fused_attention_backward, "b s~ a*, b s a*, b t! a*, b s a*, b a s -> b s a*, b t a*"},
    // Heads of queries in groups, each with a head of keys: sums are (batch, groups, heads of a group, queries).
    {fused_attention, "b s~ a*, b t! a* -> b s a*, b a - s"},
    {fused_attention_backward, "b s~ a*, b s a*, b t! a*, b s a*, b a - s -> b s a*, b t a*"},
    // A table cut by words would add the positions once a rank.
    {embedding, "b s, - w, s w -> b s w"},
    {embedding_weight_gradient, "b s, b s w -> - w, s w"},
    {.kind = embedding, .pattern = "b s, - w -> b s w", .if_attribute = "positions"},
    {.kind = embedding_weight_gradient, .pattern = "b s, b s w -> - w", .if_attribute = "positions"},
    // Gates lie one after the other, each of all of the width.
    {lstm_gates, "b -, - -, - -> b -"},
    {lstm_cell, "b -, b - -> b -"},
    {lstm_cell_gradient, "b -, b -, b - -> b -"},
    {lstm_state_gradient, "b -, - -, b -, b -, b - -> b -"},
    {lstm_weight_gradient, "b -, b - -> - -, -"},
    {root_norm, ".. w!, w -> .. w", "w"},
    {root_norm_input_gradient, ".. w!, w, .. w -> .. w", "w"},
    {root_norm_weight_gradient, ".. w!, .. w -> w", "w"},
    // Networks state their loop by the heads that they have.
    {rotation, "b s! - -> b s -"},
    {rotation_gradient, "b s! - -> b s -"},
    {gated_silu, ".. w, .. w -> .. w", "w"},
    {gated_silu_gradient, ".. w, .. w, .. w -> .. w, .. w", "w"},
    {softmax, ".. t! -> .. t"},
    {softmax_gradient, ".. t!, .. t -> .. t"},
    // A token's expert, and its place there, depend on all chances: every rank has all rows.
    {to_experts, "- - -, - - - -> - - -"},
    {to_experts_gradient, "- - -, - - - -> - - -"},
    {expert_product, "- - k, - k n -> - - n", "k n"},
    {expert_product_input_gradient, "- - n, - k n -> - - k", "k n"},
    {expert_product_weight_gradient, "- - k, - - n -> - k n", "k n"},
    {from_experts, "- - -, - - - -> - - -"},
    {from_experts_gradient, "- - -, - - -, - - - -> - - -, - - -"},
    {cross_entropy, ".. c! -> .. c"},
    {cross_entropy_gradient, ".. c! -> .. c"},
};

// Of PyTorch's names: weights (results, inner), pictures with channels first.
constexpr SplitRule of_pytorch[] = {
    {convolution, "b c - -, o c - - -> b o - -"},
    {convolution, "b c - -, o c - -, o -> b o - -"},
    {convolution_backward, "b o - -, b c - -, o c - - -> b c - -, o c - -, o =c"},
    {convolution_backward, "b o - -, b c - -, o c - - -> b c - -, o c - -"},
    {convolution_backward, "b o - -, b c - -, o c - - -> o c - -, o =c"},
    {convolution_backward, "b o - -, b c - -, o c - - -> o c - -"},
    // Ranks that share out the samples sum their statistics, as a synchronized batch norm does: a sum and a sum of
    // squares for each channel; in the backward, two sums of gradients.
    {.kind = native_batch_norm, .pattern = "b c - -, c, c -> b c - -, c =b, c =b", .reduces = "b 2 4"},
    {.kind = native_batch_norm_backward, .pattern = "b c - -, b c - -, c, c, c -> b c - -, c, c", .reduces = "b 2 3"},
    {native_layer_norm, ".. w!, w, w -> .. w, .. -, .. -"},
    {native_layer_norm_backward, ".. w!, .. w, .. -, .. -, w, w -> .. w, w, w"},
    {relu_in_place, "b c - - -> b c - -"},
    {relu_in_place, ".. w -> .. w"},
    {relu_gradient, "b c - -, b c - - -> b c - -"},
    {relu_gradient, ".. w, .. w -> .. w"},
    {gelu_gradient, ".. w, .. w -> .. w"},
    {max_pool_with_indices, "b c - - -> b c - -, b c - -"},
    {max_pool_with_indices_backward, "b c - -, b c - -, b c - - -> b c - -"},
    {mean, "b c - - -> b c - -"},
    {mean, "b - w -> b w"},
    {div, "b c -> b c - -"},  // the gradient of a mean
    {div, "~ -> ~"},
    {linear, "n, b k - -, n k -> b n"},
    {linear, "n, .. k, n k -> .. n"},
    {linear, "n, b - k, n k -> b n"},  // of one row of each sample
    {.kind = mm, .pattern = "b k - -, n k -> b n", .if_backward = false},
    {.kind = mm, .pattern = ".. k, n k -> .. n", .if_backward = false},
    {.kind = mm, .pattern = ".. n, n k -> .. k", .if_backward = true, .if_second_is_parameter = true},
    {.kind = mm, .pattern = "b n, b k - - -> n k", .if_backward = true, .if_second_is_parameter = false},
    {.kind = mm, .pattern = ".. n, .. k -> n k", .if_backward = true, .if_second_is_parameter = false},
    {.kind = mm, .pattern = "b n, b - k -> n k", .if_backward = true, .if_second_is_parameter = false},
    {bmm, "~, ~ -> ~"},
    // Values that autograd has saved for two ops are let go of by the first, which holds on to what it does not read.
    {bmm, "~, ~, ~ -> ~"},
    {.kind = mm, .pattern = ".. n, n k, .. k -> .. k", .if_backward = true, .if_second_is_parameter = true},
    {add, "b s w, - s w -> b s w"},
    {add, "b s w, s w -> b s w"},
    {add, ".. w, w -> .. w"},
    {add_in_place, "b c - -, b c - - -> b c - -"},
    {add_in_place, ".. w, .. w -> .. w"},
    {add_in_place, "->"},  // counts the batches
    {empty, "->"},
    // Masks of positions, and of dropout: numbers by chance, divided by how many stay.
    {arange, "-> -"},
    {ones, "-> - -"},
    {triu, "- - -> - -"},
    {empty_like, "-> ~"},
    {bernoulli_in_place, "~ -> ~"},
    {div_in_place, "~ -> ~"},
    {mul, ".. w -> .. w"},
    {mul, "w, .. w -> .. w"},
    {mul, ".. w, w -> .. w"},
    {mul, ".. w, .. w -> .. w"},
    {sum, ".. n -> n"},
    {sum, ".. n -> - n"},
    {sum, "b s w -> - s w"},
    {sum, ".. w -> - - w"},
    {embedding, "- w, .. -> .. w"},
    {embedding, "- w -> - w"},  // of positions, which are no input
    {embedding, "- w -> - - w"},
    {embedding_weight_gradient, ".. w, .. -> - w"},
    {embedding_weight_gradient, ".. w -> - w"},
    {softmax, ".. t! -> .. t"},
    {softmax_gradient, ".. t!, .. t -> .. t"},
    {log_softmax, ".. v! -> .. v"},
    {log_softmax_backward, ".. v!, .. v -> .. v"},
    {nll_loss, ".. v! -> ., ."},
    {ones_like, "-> ."},
    {nll_loss_backward, "., .. v!, . -> .. v"},
    // Where views hide which dimension is which: samples alone can be cut.
    {convolution, "~, - - - -, - -> ~"},
    {convolution, "~, - - - - -> ~"},
    {convolution_backward, "~, ~, - - - - -> ~, - - - -, -"},
    {convolution_backward, "~, ~, - - - - -> ~, - - - -"},
    {convolution_backward, "~, ~, - - - - -> - - - -, -"},
    {convolution_backward, "~, ~, - - - - -> - - - -"},
    {linear, "-, ~, - - -> ~"},
    {.kind = mm, .pattern = "~, - - -> ~", .if_backward = false},
    {.kind = mm, .pattern = "~, - - -> ~", .if_backward = true, .if_second_is_parameter = true},
    {.kind = mm, .pattern = "~, - -, ~ -> ~", .if_backward = true, .if_second_is_parameter = true},
    {.kind = mm, .pattern = "~, ~ -> - -", .if_backward = true, .if_second_is_parameter = false},
    {add, "~, - -> ~"},
    {add, "~, ~ -> ~"},
    {mul, "-, ~ -> ~"},
    {mul, "~, - -> ~"},
    {mul, "~, ~ -> ~"},
    {gelu, "~ -> ~"},
    {gelu_gradient, "~, ~ -> ~"},
    {sum, "~ -> -"},
    {sum, "~ -> - -"},
    // Values in another order, put together or taken apart.
    {clone, "~ -> ~"},
    {to_copy, "~ -> ~"},
    {masked_fill, "~ -> ~"},
    {masked_fill, "~, - - -> ~"},      // a mask of positions, for all samples and heads
    {cat, "- - -, b - - - -> b - -"},  // a row that is a parameter, before those of pictures
    {cat, "~, ~ -> ~"},
    {cat, "~, ~, ~ -> ~"},
    {stack, "~, ~, ~ -> ~"},
    {slice, "~ -> ~"},
    {select_backward, "~ -> ~"},
};

}  // namespace split_rules

constexpr bool has_rule(OpKind kind) {
  const auto is_of_kind = [&](const SplitRule& rule) { return rule.kind == kind; };
  return std::ranges::any_of(split_rules::of_networks, is_of_kind) ||
         std::ranges::any_of(split_rules::of_pytorch, is_of_kind);
}
static_assert(std::ranges::all_of(op_table,
                                  [](const OpRow& row) {
                                    return has_rule(row.kind) == (row.splits == Splits::by_rule);
                                  }),
              "a kind of op is said to split by a rule and has none here, or has one and is said not to split");

/// Those for an op of that name: of a name that both give, the project's own come first.
std::vector<const SplitRule*> rules_named(std::string_view name) {
  std::vector<const SplitRule*> found;
  const std::optional<OpKind> kind = op_kind(name);
  if (!kind) return found;
  const auto add = [&](std::span<const SplitRule> rules) {
    for (const SplitRule& rule : rules) {
      if (rule.kind == *kind) found.push_back(&rule);
    }
  };
  const OpNames& names = row_of(*kind).names;
  if (name == names.ours) add(split_rules::of_networks);
  if (name != names.ours || name == names.pytorch) add(split_rules::of_pytorch);
  return found;
}

/// A pattern filled in for one op.
class Filling {
 public:
  Filling(const Graph& graph, const Op& op, const SplitRule& rule) : graph_(graph), op_(op), rule_(rule) {
    if (const auto names = attribute_of(op, "features")) features_ = words_of(*names);
    leading_ = leading_of(rule.pattern);
  }

  /// Nothing where the op has not as many operands, or not the dimensions that they name.
  std::optional<std::string> run() const {
    if (!leading_.have_all || !has_samples_first()) return std::nullopt;
    constexpr std::string_view arrow = "->";
    const std::size_t middle = rule_.pattern.find(arrow);
    const auto inputs = side(rule_.pattern.substr(0, middle), op_.inputs);
    const auto outputs = side(rule_.pattern.substr(middle + arrow.size()), op_.outputs);
    if (!inputs || !outputs) return std::nullopt;
    return *inputs + " -> " + *outputs;
  }

  /// Whether what `~` stands for begins with samples in all operands or in none, and where an op only puts values in
  /// another order, they stay there: shapes do not tell where else they might be.
  bool has_samples_first() const {
    if (has_names(rule_.pattern)) return true;
    const std::vector<std::vector<std::string_view>> operands = operands_of(rule_.pattern);
    std::optional<bool> begin_so;
    std::vector<TensorId> tensors = op_.inputs;
    tensors.insert(tensors.end(), op_.outputs.begin(), op_.outputs.end());
    for (std::size_t k = 0; k < std::min(tensors.size(), operands.size()); ++k) {
      const std::vector<std::int64_t>& shape = graph_[tensors[k]].shape;
      if (shape.empty() || std::ranges::find(operands[k], "~") == operands[k].end()) continue;
      const bool begins = samples_in(shape.front()) != "-";
      if (begin_so && *begin_so != begins) return false;
      begin_so = begins;
    }
    return tensors.size() != 2 || !is_transposed(graph_[tensors[0]].shape, graph_[tensors[1]].shape);
  }

 private:
  std::optional<std::string> side(std::string_view text, const std::vector<TensorId>& tensors) const {
    std::string filled;
    std::size_t operand = 0;
    while (!words_of(text).empty()) {
      const std::size_t end = std::min(text.find(','), text.size());
      const auto one =
          operand < tensors.size() ? filled_in(text.substr(0, end), graph_[tensors[operand]].shape) : std::nullopt;
      if (!one) return std::nullopt;
      filled += (operand++ == 0 ? "" : ", ") + *one;
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (operand != tensors.size()) return std::nullopt;
    return filled;
  }

  /// The words of each input, then of each output.
  static std::vector<std::vector<std::string_view>> operands_of(std::string_view pattern) {
    constexpr std::string_view arrow = "->";
    const std::size_t middle = pattern.find(arrow);
    std::vector<std::vector<std::string_view>> operands;
    for (std::string_view text : {pattern.substr(0, middle), pattern.substr(middle + arrow.size())}) {
      while (!words_of(text).empty()) {
        const std::size_t end = std::min(text.find(','), text.size());
        operands.push_back(words_of(text.substr(0, end)));
        text.remove_prefix(std::min(end + 1, text.size()));
      }
    }
    return operands;
  }

  static bool is_several(std::string_view word) { return word == ".." || word == "~"; }
  static bool is_dim(std::string_view word) { return !is_several(word) && word != "." && !word.starts_with('='); }

  /// How many dimensions `..` or `~` among the words stands for; nothing where the shape has not as many as the words
  /// name.
  static std::optional<std::size_t> others(const std::vector<std::string_view>& words, std::size_t dims) {
    const auto named = static_cast<std::size_t>(std::ranges::count_if(words, is_dim));
    const bool has_more = std::ranges::any_of(words, is_several);
    if (has_more ? dims <= named : dims != named) return std::nullopt;
    return dims - named;
  }

  std::optional<std::string> filled_in(std::string_view operand, const std::vector<std::int64_t>& shape) const {
    const std::vector<std::string_view> words = words_of(operand);
    const std::optional<std::size_t> more = others(words, shape.size());
    if (!more) return std::nullopt;
    std::string filled;
    for (const std::string_view word : words) {
      if (is_several(word)) {
        filled += leading(*more, shape.front(), leading_.are_alike && word == "..");
      } else if (word != ".") {
        filled += renamed(word) + ' ';
      }
    }
    if (!filled.empty()) filled.pop_back();
    return filled;
  }

  /// How the dimensions that `..` and `~` stand for begin: samples, of which the fewest say how many there are.
  struct Leading {
    std::size_t count = 0;
    std::int64_t samples = 0, rows = 0;
    bool are_alike = true;
    bool have_all = true;  ///< those of `..`: as many rows in each operand
  };

  Leading leading_of(std::string_view pattern) const {
    Leading all;
    std::vector<TensorId> tensors = op_.inputs;
    tensors.insert(tensors.end(), op_.outputs.begin(), op_.outputs.end());
    const std::vector<std::vector<std::string_view>> operands = operands_of(pattern);
    for (std::size_t k = 0; k < std::min(tensors.size(), operands.size()); ++k) {
      const std::vector<std::string_view>& words = operands[k];
      const std::vector<std::int64_t>& shape = graph_[tensors[k]].shape;
      const std::optional<std::size_t> more = others(words, shape.size());
      if (!more || *more == 0) continue;
      std::int64_t rows = 1;
      for (std::size_t d = 0; d < *more; ++d) rows *= shape[d];
      const bool is_first = all.count == 0, are_rows = std::ranges::find(words, "..") != words.end();
      if (!is_first && are_rows) all.have_all = all.have_all && all.rows == rows;
      all.rows = rows;
      if (!is_first) all.are_alike = all.are_alike && all.count == *more && all.samples == shape.front();
      all.count = *more;
      all.samples = all.samples == 0 ? shape.front() : std::min(all.samples, shape.front());
    }
    if (!all.are_alike || !has_names(pattern)) all.samples = samples_of_graph().value_or(all.samples);
    return all;
  }

  /// Whether the first two dimensions have changed places.
  static bool is_transposed(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) {
    if (from.size() < 2 || from.size() != to.size() || from[0] == to[0]) return false;
    return from[0] == to[1] && from[1] == to[0] && std::equal(from.begin() + 2, from.end(), to.begin() + 2);
  }

  /// Whether `..` and not `~` stands for dimensions.
  static bool has_names(std::string_view pattern) {
    return std::ranges::none_of(operands_of(pattern), [](const std::vector<std::string_view>& words) {
      return std::ranges::find(words, "~") != words.end();
    });
  }

  /// As many as the network's input has.
  std::optional<std::int64_t> samples_of_graph() const {
    for (const Tensor& tensor : graph_.tensors) {
      if (tensor.kind == TensorKind::input && !tensor.shape.empty()) return tensor.shape.front();
    }
    return std::nullopt;
  }

  /// Names of so many dimensions before an operand's own, the first of that size.
  std::string leading(std::size_t count, std::int64_t first, bool are_alike) const {
    constexpr std::array<std::string_view, 3> names[] = {{"b"}, {"b", "s"}, {"b", "y", "x"}};
    std::string filled;
    for (std::size_t k = 0; k < count; ++k) {
      if (are_alike && count <= 3) {
        filled += names[count - 1][k];
      } else {
        filled += k > 0 ? "-" : samples_in(first);
      }
      filled += ' ';
    }
    return filled;
  }

  /// Samples, so many numbers of each, or neither.
  std::string samples_in(std::int64_t size) const {
    if (size % leading_.samples != 0) return "-";
    const std::int64_t each = size / leading_.samples;
    return each == 1 ? "b" : "b*" + std::to_string(each);
  }

  std::string renamed(std::string_view word) const {
    const bool is_whole = word.starts_with('='), must_be_whole = word.ends_with('!');
    if (is_whole) word.remove_prefix(1);
    if (must_be_whole) word.remove_suffix(1);
    const std::vector<std::string_view> names = words_of(rule_.features);
    const auto place = static_cast<std::size_t>(std::ranges::find(names, word) - names.begin());
    if (place < names.size() && features_.size() == names.size()) word = features_[place];
    return (is_whole ? "=" : "") + std::string(word) + (must_be_whole ? "!" : "");
  }

  const Graph& graph_;
  const Op& op_;
  const SplitRule& rule_;
  std::vector<std::string_view> features_;
  Leading leading_;
};

bool is_meant(const SplitRule& rule, const Graph& graph, const Op& op) {
  if (!rule.if_attribute.empty() && !attribute_of(op, rule.if_attribute)) return false;
  if (rule.if_backward && *rule.if_backward != is_backward(op.phase)) return false;
  if (!rule.if_second_is_parameter || op.inputs.size() < 2) return true;
  return *rule.if_second_is_parameter == (graph[op.inputs[1]].kind == TensorKind::parameter);
}

/// The first operand without a shape whose bytes say that it has one.
const Tensor* shapeless(const Graph& graph, const Op& op) {
  for (const auto* list : {&op.inputs, &op.outputs}) {
    for (const TensorId t : *list) {
      constexpr Bytes of_a_number{8};
      if (graph[t].shape.empty() && graph[t].bytes > of_a_number) return &graph[t];
    }
  }
  return nullptr;
}

}  // namespace

std::variant<std::vector<RuledLoop>, NoRule> loops_by_rule(const Graph& graph, OpId id) {
  const Op& op = graph[id];
  const std::string name = "'" + op.name + "' (" + op.kind + ")";
  std::vector<RuledLoop> loops;
  bool hides_samples = false;
  const std::vector<const SplitRule*> rules = rules_named(op.kind);
  for (const SplitRule* rule : rules) {
    if (!is_meant(*rule, graph, op)) continue;
    const Filling filling(graph, op, *rule);
    hides_samples = hides_samples || !filling.has_samples_first();
    std::optional<std::string> loop = filling.run();
    if (loop) loops.push_back({*std::move(loop), std::string(rule->reduces)});
  }
  if (!loops.empty()) return loops;
  if (rules.empty()) {
    return NoRule{name + " has no rule by which it could be cut: the trace gives it no attribute 'loop'"};
  }
  if (const Tensor* tensor = shapeless(graph, op)) {
    return NoRule{name + " cannot be cut: the trace gives '" + tensor->name + "' no shape"};
  }
  if (hides_samples) {
    return NoRule{name +
                  " cannot be cut: not all of its values begin with samples, and views hide where these are; the trace "
                  "gives it no attribute 'loop'"};
  }
  return NoRule{name + " has other operands than the rule of its kind, and the trace gives it no attribute 'loop'"};
}

}  // namespace plimsoll
