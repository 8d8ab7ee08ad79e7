#include "strategies/offloading/frameworks/decoder_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 7> matrix_products{"mm",     "addmm",      "bmm",        "baddbmm",
                                                          "linear", "_scaled_mm", "dot_general"};

/// Numbers of ops, the forwards of the graph in their order.
class DecoderWalk {
 public:
  explicit DecoderWalk(const Graph& graph) : graph_(graph), parameter_side_(parameter_side_ops(graph)) {
    for (std::uint32_t o = 0; o < graph.ops.size(); ++o) {
      if (graph.ops[o].phase == Phase::forward && !graph.ops[o].is_view) forward_.push_back(o);
    }
  }

  std::variant<DecoderOps, std::string> run() {
    made_.role.assign(graph_.ops.size(), DecoderRole::outside);
    made_.layer.resize(graph_.ops.size());
    for (std::size_t f = 0; f < forward_.size(); ++f) {
      if (parameter_side_[forward_[f]]) made_.role[forward_[f]] = DecoderRole::parameter_side;
    }
    std::optional<std::size_t> end;  // of the layer before
    for (std::size_t f = 0; f < forward_.size(); ++f) {
      if (!is_attention(op(f))) continue;
      const std::optional<std::size_t> next = layer(f, end);
      if (!next) {
        return fmt::format("the layer of '{}' is not norm, attention, sum, norm, feed-forward, sum", op(f).name);
      }
      end = next;
    }
    if (made_.layers == 0) return fmt::format("no forward op of '{}' is attention", graph_.name);
    return std::move(made_);
  }

 private:
  const Op& op(std::size_t f) const { return graph_.ops[forward_[f]]; }

  bool reads(std::size_t reader, std::size_t maker) const {
    return std::ranges::any_of(op(reader).inputs, [&](TensorId read) {
      return std::ranges::any_of(op(maker).outputs,
                                 [&](TensorId made) { return graph_[made].storage == graph_[read].storage; });
    });
  }

  template <class Is>
  std::optional<std::size_t> next(std::size_t f, const Is& is) const {
    for (; f < forward_.size(); ++f) {
      if (!parameter_side_[forward_[f]] && is(f)) return f;
    }
    return std::nullopt;
  }

  /// Of the values that the sum reads the one that was there first: what comes in.
  std::optional<std::size_t> first_maker(std::size_t sum) const {
    for (std::size_t f = 0; f < sum; ++f) {
      if (reads(sum, f)) return f;
    }
    return std::nullopt;
  }

  /// Marks the layer of an attention; the place of its last op, or nothing where it is not such a layer.
  std::optional<std::size_t> layer(std::size_t attention, std::optional<std::size_t> before) {
    const auto is_product = [&](std::size_t f) { return is_matrix_product(op(f)); };
    const auto is_sum = [&](std::size_t f) { return op(f).kind == "add" || op(f).kind == "add_"; };
    const std::optional<std::size_t> out = next(attention + 1, is_product);
    if (!out) return std::nullopt;
    // Not what an adapter adds.
    const std::optional<std::size_t> sum =
        next(*out + 1, [&](std::size_t f) { return is_sum(f) && first_maker(f).value_or(attention) < attention; });
    if (!sum) return std::nullopt;
    const std::optional<std::size_t> input = before ? before : first_maker(*sum);
    const std::optional<std::size_t> end = next(*sum + 1, [&](std::size_t f) { return is_sum(f) && reads(f, *sum); });
    if (!end || (input && !reads(*sum, *input))) return std::nullopt;
    std::vector<std::size_t> products;
    for (std::size_t f = *sum; f < *end; ++f) {
      if (!parameter_side_[forward_[f]] && is_product(f)) products.push_back(f);
    }
    if (products.size() < 2) return std::nullopt;
    DecoderRole role = DecoderRole::norm;
    const std::size_t first = input ? *input + 1 : 0;
    for (std::size_t f = first; f <= *end; ++f) {
      const std::uint32_t o = forward_[f];
      made_.layer[o] = made_.layers;
      if (parameter_side_[o]) continue;
      if (f < attention && is_product(f)) {
        made_.role[o] = DecoderRole::query_key_value;
        role = DecoderRole::rotary;
      } else if (f == attention) {
        made_.role[o] = DecoderRole::attention;
        role = DecoderRole::rotary;
      } else if (f == *out) {
        made_.role[o] = DecoderRole::attention_out;
        role = DecoderRole::residual;
      } else if (f == *sum) {
        made_.role[o] = DecoderRole::residual;
        role = DecoderRole::norm;
      } else if (f == products.back()) {
        made_.role[o] = DecoderRole::feed_forward_out;
        role = DecoderRole::residual;
      } else if (f > *sum && is_product(f)) {
        made_.role[o] = DecoderRole::feed_forward_in;
        role = DecoderRole::activation;
      } else {
        made_.role[o] = f == *end ? DecoderRole::layer_output : role;
      }
    }
    ++made_.layers;
    return end;
  }

  const Graph& graph_;
  std::vector<bool> parameter_side_;
  std::vector<std::uint32_t> forward_;
  DecoderOps made_;
};

}  // namespace

bool is_matrix_product(const Op& op) {
  return std::ranges::find(matrix_products, op.kind) != matrix_products.end();
}

bool is_attention(const Op& op) {
  return op.kind.find("scaled_dot_product") != std::string::npos || op.kind.find("flex_attention") != std::string::npos;
}

bool is_collective_kind(const Op& op) {
  return op.kind.starts_with("all_gather") || op.kind.starts_with("reduce_scatter") ||
         op.kind.starts_with("all_reduce") || op.kind.starts_with("all_to_all");
}

std::vector<bool> parameter_side_ops(const Graph& graph) {
  std::vector<bool> tensor(graph.tensors.size(), false), ops(graph.ops.size(), false);
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) tensor[t] = graph.tensors[t].kind == TensorKind::parameter;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    ops[o] = op.phase == Phase::forward && !op.inputs.empty() &&
             std::ranges::all_of(op.inputs, [&](TensorId t) { return tensor[t.index]; });
    if (!ops[o]) continue;
    for (const TensorId t : op.outputs) tensor[t.index] = true;
  }
  return ops;
}

std::variant<DecoderOps, std::string> decoder_ops(const Graph& graph) {
  return DecoderWalk(graph).run();
}

}  // namespace plimsoll
