#include "traces/models/llama_graph.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "sim/io/input_error.h"
#include "traces/models/eager_modules.h"

namespace plimsoll {
namespace {

// Loops name samples b, positions s and t, width w, heads of keys a, queries a head of keys g, numbers of a head e,
// inner numbers f, words v.

class LlamaBuilder : private EagerModules {
 public:
  explicit LlamaBuilder(const LlamaGraph& of)
      : EagerModules("llama", LlamaGraph::dtypes.at(of.dtype), of.rate),
        of_(of),
        samples_(of.batch),
        tokens_(of.sequence),
        width_(of.width),
        head_size_(of.width / of.heads) {
    note("formula", "operators of Llama's decoder as eager PyTorch runs Hugging Face's, with fused causal attention");
  }

  Graph run() {
    TensorId x = embedding();
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) {
      x = attention(x, fmt::format("layer{}.attention", layer));
      x = mlp(x, fmt::format("layer{}.mlp", layer));
    }
    language_loss(head(x), of_.logits == 1);
    return finished();
  }

 private:
  double numbers() const { return static_cast<double>(samples_) * static_cast<double>(tokens_); }
  Shape token_shape() const { return {samples_, tokens_, width_}; }
  /// 2 flops for each number of the weight and each token.
  double product(double inputs, double outputs) const { return 2 * numbers() * inputs * outputs; }

  TensorId embedding() {
    const TensorId tokens = tensor("tokens", TensorKind::input, {samples_, tokens_}, 8, "int64");
    const TensorId table = parameter("embedding.table", {of_.vocabulary, width_});
    const TensorId found = value("embedding.out", token_shape());
    forward("embedding", {"embedding", "b s, v w -> b s w"}, {tokens, table}, {found});
    end_stage([=, this](TensorId d) {
      token_table_backward("embedding", tokens, d, table, false);
      return d;
    });
    return found;
  }

  struct Norm {
    TensorId x, scale, wide, roots, normed, out;
    std::string name;
  };
  /// x in fp32, over the root of its mean square, then times the scale in the type of x.
  Norm norm(TensorId x, const std::string& name) {
    Norm made{.x = x,
              .scale = parameter(name + ".scale", {width_}),
              .wide = x,
              .roots = tensor(name + ".roots", TensorKind::activation, {samples_, tokens_}, 4, "fp32"),
              .normed = value(name + ".normed", token_shape()),
              .out = value(name + ".out", token_shape()),
              .name = name};
    const double all = numbers() * static_cast<double>(width_), element = static_cast<double>(element_);
    // The square, its mean, the quotient; the product with the scale; both conversions.
    const double moved = all * (8 + 4 + 8 + 2 * element + (is_narrow() ? 12 : 0));
    Ids outputs{made.normed, made.out, made.roots};
    std::string_view loop = "b s w!, w -> b s w, b s w, b s";
    if (is_narrow()) {
      made.wide = tensor(name + ".wide", TensorKind::activation, token_shape(), 4, "fp32");
      outputs.push_back(made.wide);
      loop = "b s w!, w -> b s w, b s w, b s, b s w";
    }
    forward(name, {.kind = "rms_norm", .loop = loop, .moved = moved}, {x, made.scale}, std::move(outputs));
    return made;
  }
  /// With the gradient that goes past the block, if there is one.
  TensorId norm_backward(const Norm& of, TensorId d, std::optional<TensorId> past) {
    const TensorId dx = gradient(of.x);
    Ids inputs{d, of.normed, of.wide, of.roots, of.scale};
    if (past) inputs.push_back(*past);
    const double all = numbers() * static_cast<double>(width_), element = static_cast<double>(element_);
    // Both factors of the scale's product and the sum over tokens; both factors of the quotient and their sum; the mean
    // handed out; power, double and product of the square; the sum of both ways, and of the way past the block; both
    // conversions.
    const double in_fp32 = 20 + 4 + 4 + 28 + 12;
    const double moved = all * (6 * element + in_fp32 + (past ? 3 * element : 0) + (is_narrow() ? 12 : 0));
    backward(
        of.name, "",
        {.kind = "rms_norm",
         .loop = past ? "b s w!, b s w, b s w, b s, w, b s w -> b s w, w" : "b s w!, b s w, b s w, b s, w -> b s w, w",
         .moved = moved},
        std::move(inputs), {dx, gradient(of.scale)});
    return dx;
  }

  /// Queries or keys, turned by their positions: two products with tables, halves changed and joined, a sum.
  TensorId rotated(TensorId x, const std::string& name, std::string_view loop, double heads) {
    const TensorId turned = value(name + ".out", (*this)[x].shape);
    forward(name, {.kind = "rotary", .loop = loop, .moved = 10 * bytes_of(heads)}, {x}, {turned});
    return turned;
  }
  TensorId rotated_back(TensorId of, TensorId d, const std::string& name, std::string_view loop, double heads) {
    const TensorId dx = gradient(of);
    backward(name, "", {.kind = "rotary", .loop = loop, .moved = 14 * bytes_of(heads)}, {d}, {dx});
    return dx;
  }
  double bytes_of(double heads) const {
    return numbers() * heads * static_cast<double>(head_size_) * static_cast<double>(element_);
  }

  TensorId attention(TensorId x, const std::string& name) {
    const std::int64_t shared_by = of_.heads / of_.kv_heads, kv = of_.kv_heads;
    const Shape by_query{samples_, tokens_, kv, shared_by, head_size_}, by_key{samples_, tokens_, kv, head_size_};
    const auto width = static_cast<double>(width_), key_width = static_cast<double>(kv * head_size_);
    const Norm normed = norm(x, name + ".norm");
    const TensorId q_weight = parameter(name + ".q.weight", {width_, kv, shared_by, head_size_});
    const TensorId k_weight = parameter(name + ".k.weight", {width_, kv, head_size_}),
                   v_weight = parameter(name + ".v.weight", {width_, kv, head_size_});
    const TensorId q = value(name + ".queries", by_query), k = value(name + ".keys", by_key),
                   v = value(name + ".values", by_key);
    const double by_queries = product(width, width), by_keys = product(width, key_width);
    forward(name + ".q", {"linear", "b s w!, w a g e -> b s a g e", by_queries}, {normed.out, q_weight}, {q});
    forward(name + ".k", {"linear", "b s w!, w a e -> b s a e", by_keys}, {normed.out, k_weight}, {k});
    forward(name + ".v", {"linear", "b s w!, w a e -> b s a e", by_keys}, {normed.out, v_weight}, {v});
    constexpr std::string_view query_loop = "b s a g e! -> b s a g e", key_loop = "b s a e! -> b s a e";
    const TensorId turned_q = rotated(q, name + ".q.rotary", query_loop, of_.heads),
                   turned_k = rotated(k, name + ".k.rotary", key_loop, of_.kv_heads);
    const TensorId mixed = value(name + ".mixed", by_query);
    const TensorId sums = tensor(name + ".sums", TensorKind::activation, {samples_, kv, shared_by, tokens_}, 4, "fp32");
    // Two products of the causal half of the square.
    const double half = numbers() * static_cast<double>(tokens_) * width;
    forward(name + ".flash",
            {"_scaled_dot_product_flash_attention", "b s! a g e!, b t! a e, b t a e -> b s a g e, b a g s", 2 * half},
            {turned_q, turned_k, v}, {mixed, sums});
    const TensorId out_weight = parameter(name + ".out.weight", {kv, shared_by, head_size_, width_});
    const TensorId y = value(name + ".y", token_shape()), out = value(name + ".add.out", token_shape());
    forward(name + ".out", {"linear", "b s a g e, a g e w -> b s w", by_queries}, {mixed, out_weight}, {y});
    forward(name + ".add", {"add", "b s w, b s w -> b s w"}, {x, y}, {out});
    end_stage([=, this](TensorId d) {
      const TensorId dmixed = gradient(mixed), dturned_q = gradient(turned_q), dturned_k = gradient(turned_k),
                     dv = gradient(v);
      backward(name + ".out", " (input)", {"linear", "b s w, a g e w -> b s a g e", by_queries}, {d, out_weight},
               {dmixed});
      backward(name + ".out", " (weight)", {"linear", "b s a g e, b s w -> a g e w", by_queries}, {mixed, d},
               {gradient(out_weight)});
      backward(
          name + ".flash", "",
          {"_scaled_dot_product_flash_attention_backward",
           "b s! a g e!, b s a g e, b t! a e, b t a e, b s a g e, b a g s -> b s a g e, b t a e, b t a e", 5 * half},
          {dmixed, turned_q, turned_k, v, mixed, sums}, {dturned_q, dturned_k, dv});
      const TensorId dq = rotated_back(q, dturned_q, name + ".q.rotary", query_loop, of_.heads),
                     dk = rotated_back(k, dturned_k, name + ".k.rotary", key_loop, of_.kv_heads);
      TensorId dn = from_projection(name + ".q", "b s a g e", "w a g e", {dq, q_weight, normed.out}, by_queries, {});
      dn = from_projection(name + ".k", "b s a e", "w a e", {dk, k_weight, normed.out}, by_keys, dn);
      dn = from_projection(name + ".v", "b s a e", "w a e", {dv, v_weight, normed.out}, by_keys, dn);
      return norm_backward(normed, dn, d);
    });
    return out;
  }

  /// The gradients of a projection's weight and, added to that of other projections, of its input.
  struct Projected {
    TensorId d, weight, input;
  };
  TensorId from_projection(const std::string& name, const std::string& made, const std::string& weight,
                           const Projected& of, double flops, std::optional<TensorId> others) {
    const TensorId dn = gradient(of.input);
    const std::string to_input = made + ", " + weight + " -> b s w", to_weight = "b s w, " + made + " -> " + weight;
    backward(name, " (input)", {"linear", to_input, flops}, {of.d, of.weight}, {dn});
    backward(name, " (weight)", {"linear", to_weight, flops}, {of.input, of.d}, {gradient(of.weight)});
    if (!others) return dn;
    const TensorId sum = gradient(of.input);
    backward(name, " (sum)", {"add", "b s w, b s w -> b s w"}, {*others, dn}, {sum});
    return sum;
  }

  TensorId mlp(TensorId x, const std::string& name) {
    const std::int64_t inner = of_.inner;
    const Shape wide{samples_, tokens_, inner};
    const double flops = product(static_cast<double>(width_), static_cast<double>(inner));
    const Norm normed = norm(x, name + ".norm");
    const TensorId gate_weight = parameter(name + ".gate.weight", {width_, inner}),
                   up_weight = parameter(name + ".up.weight", {width_, inner}),
                   down_weight = parameter(name + ".down.weight", {inner, width_});
    const TensorId gate = value(name + ".gate.out", wide), up = value(name + ".up.out", wide),
                   bent = value(name + ".silu.out", wide), gated = value(name + ".mul.out", wide);
    forward(name + ".gate", {"linear", "b s w!, w f -> b s f", flops}, {normed.out, gate_weight}, {gate});
    forward(name + ".up", {"linear", "b s w!, w f -> b s f", flops}, {normed.out, up_weight}, {up});
    forward(name + ".silu", {"silu", "b s f -> b s f"}, {gate}, {bent});
    forward(name + ".mul", {"mul", "b s f, b s f -> b s f"}, {bent, up}, {gated});
    const TensorId y = value(name + ".y", token_shape()), out = value(name + ".add.out", token_shape());
    forward(name + ".down", {"linear", "b s f, f w -> b s w", flops}, {gated, down_weight}, {y});
    forward(name + ".add", {"add", "b s w, b s w -> b s w"}, {x, y}, {out});
    end_stage([=, this](TensorId d) {
      const TensorId dgated = gradient(gated), dbent = gradient(bent), dup = gradient(up), dgate = gradient(gate);
      backward(name + ".down", " (input)", {"linear", "b s w, f w -> b s f", flops}, {d, down_weight}, {dgated});
      backward(name + ".down", " (weight)", {"linear", "b s f, b s w -> f w", flops}, {gated, d},
               {gradient(down_weight)});
      backward(name + ".mul", " (silu)", {"mul", "b s f, b s f -> b s f"}, {dgated, up}, {dbent});
      backward(name + ".mul", " (up)", {"mul", "b s f, b s f -> b s f"}, {dgated, bent}, {dup});
      TensorId dn = from_projection(name + ".up", "b s f", "w f", {dup, up_weight, normed.out}, flops, {});
      backward(name + ".silu", "", {"silu", "b s f, b s f -> b s f"}, {dbent, gate}, {dgate});
      dn = from_projection(name + ".gate", "b s f", "w f", {dgate, gate_weight, normed.out}, flops, dn);
      return norm_backward(normed, dn, d);
    });
    return out;
  }

  TensorId head(TensorId x) {
    const double flops = product(static_cast<double>(width_), of_.vocabulary);
    const Norm normed = norm(x, "head.norm");
    const TensorId weight = parameter("head.weight", {width_, of_.vocabulary});
    const TensorId logits = value("logits", {samples_, tokens_, of_.vocabulary});
    forward("head", {"linear", "b s w, w v -> b s v", flops}, {normed.out, weight}, {logits});
    end_stage([=, this](TensorId d) {
      const TensorId dn = gradient(normed.out);
      backward("head", " (input)", {"linear", "b s v, w v -> b s w", flops}, {d, weight}, {dn});
      backward("head", " (weight)", {"linear", "b s w, b s v -> w v", flops}, {normed.out, d}, {gradient(weight)});
      return norm_backward(normed, dn, std::nullopt);
    });
    return logits;
  }

  const LlamaGraph& of_;
  std::int64_t samples_, tokens_, width_, head_size_;
};

}  // namespace

Graph llama_graph(const LlamaGraph& sizes) {
  if (sizes.width % sizes.heads != 0) {
    throw InputError(fmt::format("llama: heads: must divide width {}, found {}", sizes.width, sizes.heads));
  }
  if (sizes.heads % sizes.kv_heads != 0) {
    throw InputError(fmt::format("llama: kv_heads: must divide heads {}, found {}", sizes.heads, sizes.kv_heads));
  }
  return LlamaBuilder(sizes).run();
}

}  // namespace plimsoll
