// Norms, rotations, attention of grouped queries and gated MLPs, and the decoder of them.

#include "traces/models/llama_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "sim/io/input_error.h"
#include "traces/models/llama_blocks.h"

namespace plimsoll {

double LlamaBlocks::pairs() const {
  const auto all = static_cast<double>(tokens_);
  const double seen = of_.window == 0 ? all : std::min(all, static_cast<double>(of_.window));
  return static_cast<double>(samples_) * (all * seen - seen * seen / 2);
}

LlamaBlocks::Norm LlamaBlocks::norm(TensorId x, const std::string& name, std::int64_t width, char axis) {
  const Shape shape{samples_, tokens_, width};
  Norm made{.x = x,
            .scale = parameter(name + ".scale", {width}),
            .wide = x,
            .roots = tensor(name + ".roots", TensorKind::activation, {samples_, tokens_}, 4, "fp32"),
            .normed = value(name + ".normed", shape),
            .out = value(name + ".out", shape),
            .name = name,
            .width = width,
            .axis = axis};
  const double all = numbers() * static_cast<double>(width), element = static_cast<double>(element_);
  // The square, its mean, the quotient; the product with the scale; both conversions.
  const double moved = all * (8 + 4 + 8 + 2 * element + (is_narrow() ? 12 : 0));
  Ids outputs{made.normed, made.out, made.roots};
  const std::string read = (*this)[x].shape == shape ? fmt::format("b s {}!", axis) : "b s -";
  std::string loop = fmt::format("{}, {} -> b s {}, b s {}, b s", read, axis, axis, axis);
  if (is_narrow()) {
    made.wide = tensor(name + ".wide", TensorKind::activation, shape, 4, "fp32");
    outputs.push_back(made.wide);
    loop += fmt::format(", b s {}", axis);
  }
  forward(name, {.kind = "rms_norm", .loop = loop, .moved = moved}, {x, made.scale}, std::move(outputs));
  return made;
}

TensorId LlamaBlocks::norm_backward(const Norm& of, TensorId d, std::optional<TensorId> past) {
  const bool is_part = (*this)[of.x].shape != (*this)[of.normed].shape;  // of x, whose gradient is joined later
  const TensorId dx = gradient(is_part ? of.normed : of.x);
  const std::string row = fmt::format("b s {}", of.axis);
  const std::string wide_row = is_narrow() || !is_part ? row : "b s -";
  Ids inputs{d, of.wide, of.roots, of.scale}, outputs{dx};
  std::string loop = fmt::format("{}!, {}, b s, {}", row, wide_row, of.axis);
  if (!is_frozen()) {
    inputs.push_back(of.normed);
    outputs.push_back(gradient(of.scale));
    loop += ", " + row;
  }
  if (past) {
    inputs.push_back(*past);
    loop += ", " + row;
  }
  loop += " -> " + row + (is_frozen() ? "" : fmt::format(", {}", of.axis));
  const double all = numbers() * static_cast<double>(of.width), element = static_cast<double>(element_);
  // Both factors of the scale's product and the sum over tokens, or the one factor; both factors of the quotient and
  // their sum; the mean handed out; power, double and product of the square; the sum of both ways, and of the way past
  // the block; both conversions.
  const double in_fp32 = 20 + 4 + 4 + 28 + 12, of_scale = is_frozen() ? 2 : 6;
  const double moved = all * (of_scale * element + in_fp32 + (past ? 3 * element : 0) + (is_narrow() ? 12 : 0));
  backward(of.name, "", {.kind = "rms_norm", .loop = loop, .moved = moved}, std::move(inputs), std::move(outputs));
  return dx;
}

TensorId LlamaBlocks::rotated(TensorId x, const std::string& name, std::string_view loop, double numbers) {
  const TensorId turned = value(name + ".out", (*this)[x].shape);
  forward(name, {.kind = "rotary", .loop = loop, .moved = 10 * bytes_of(numbers)}, {x}, {turned});
  return turned;
}

TensorId LlamaBlocks::rotated_back(TensorId of, TensorId d, const std::string& name, std::string_view loop,
                                   double numbers) {
  const TensorId dx = gradient(of);
  backward(name, "", {.kind = "rotary", .loop = loop, .moved = 14 * bytes_of(numbers)}, {d}, {dx});
  return dx;
}

TensorId LlamaBlocks::added(TensorId one, TensorId other, const std::string& of, const std::string& part,
                            const std::string& axes) {
  const TensorId sum = tensor((*this)[one].name + part, TensorKind::gradient, (*this)[one].shape, element_);
  backward(of, part, {"add", axes + ", " + axes + " -> " + axes}, {one, other}, {sum});
  return sum;
}

TensorId LlamaBlocks::from_projection(const std::string& name, const std::string& made, const std::string& weight,
                                      const Projected& of, double flops, std::optional<TensorId> others) {
  const TensorId dn = gradient(of.input);
  const std::string axes(of.input_axes), to_input = made + ", " + weight + " -> " + axes,
                                         to_weight = axes + ", " + made + " -> " + weight;
  backward(name, " (input)", {"linear", to_input, flops}, {of.d, of.weight}, {dn});
  if (!is_frozen()) backward(name, " (weight)", {"linear", to_weight, flops}, {of.input, of.d}, {gradient(of.weight)});
  return others ? added(*others, dn, name, " (sum)") : dn;
}

LlamaBlocks::Block LlamaBlocks::attention(TensorId normed, const std::string& name) {
  const std::int64_t shared_by = of_.heads / of_.kv_heads, kv = of_.kv_heads;
  const Shape by_query{samples_, tokens_, kv, shared_by, head_size_}, by_key{samples_, tokens_, kv, head_size_};
  const auto width = static_cast<double>(width_), key_width = static_cast<double>(kv * head_size_);
  const TensorId q_weight = parameter(name + ".q.weight", {width_, kv, shared_by, head_size_});
  const TensorId k_weight = parameter(name + ".k.weight", {width_, kv, head_size_}),
                 v_weight = parameter(name + ".v.weight", {width_, kv, head_size_});
  const TensorId q = value(name + ".queries", by_query), k = value(name + ".keys", by_key),
                 v = value(name + ".values", by_key);
  const double by_queries = product(width, width), by_keys = product(width, key_width);
  forward(name + ".q", {"linear", "b s w!, w a g e -> b s a g e", by_queries}, {normed, q_weight}, {q});
  forward(name + ".k", {"linear", "b s w!, w a e -> b s a e", by_keys}, {normed, k_weight}, {k});
  forward(name + ".v", {"linear", "b s w!, w a e -> b s a e", by_keys}, {normed, v_weight}, {v});
  constexpr std::string_view query_loop = "b s a g e! -> b s a g e", key_loop = "b s a e! -> b s a e";
  const Adapted own_q = adapted(q, normed, name + ".q", "w", "a g e"),
                own_k = adapted(k, normed, name + ".k", "w", "a e"),
                own_v = adapted(v, normed, name + ".v", "w", "a e");
  const TensorId turned_q = rotated(own_q.out, name + ".q.rotary", query_loop, width),
                 turned_k = rotated(own_k.out, name + ".k.rotary", key_loop, key_width);
  const TensorId mixed = value(name + ".mixed", by_query);
  const TensorId sums = tensor(name + ".sums", TensorKind::activation, {samples_, kv, shared_by, tokens_}, 4, "fp32");
  // Two products of the pairs that see each other.
  const double half = 2 * pairs() * width;
  forward(name + ".flash",
          {"_scaled_dot_product_flash_attention", "b s~ a g e!, b t! a e, b t a e -> b s a g e, b a g s", 2 * half},
          {turned_q, turned_k, own_v.out}, {mixed, sums});
  const TensorId out_weight = parameter(name + ".out.weight", {kv, shared_by, head_size_, width_});
  const TensorId y = value(name + ".y", token_shape());
  forward(name + ".out", {"linear", "b s a g e, a g e w -> b s w", by_queries}, {mixed, out_weight}, {y});
  const Adapted own_y = adapted(y, mixed, name + ".out", "a g e", "w");
  return {own_y.out, [=, this](TensorId given) {
            const auto [d, dmixed_beside] = own_y.backward(given);
            const TensorId dmade = gradient(mixed), dturned_q = gradient(turned_q), dturned_k = gradient(turned_k),
                           dv = gradient(own_v.out);
            backward(name + ".out", " (input)", {"linear", "b s w, a g e w -> b s a g e", by_queries}, {d, out_weight},
                     {dmade});
            if (!is_frozen()) {
              backward(name + ".out", " (weight)", {"linear", "b s a g e, b s w -> a g e w", by_queries}, {mixed, d},
                       {gradient(out_weight)});
            }
            const TensorId dmixed =
                dmixed_beside ? added(dmade, *dmixed_beside, name + ".out", " (sum)", "b s a g e") : dmade;
            backward(name + ".flash", "",
                     {"_scaled_dot_product_flash_attention_backward",
                      "b s~ a g e!, b s a g e, b t! a e, b t a e, b s a g e, b a g s -> b s a g e, b t a e, b t a e",
                      5 * half},
                     {dmixed, turned_q, turned_k, own_v.out, mixed, sums}, {dturned_q, dturned_k, dv});
            const TensorId dq = rotated_back(own_q.out, dturned_q, name + ".q.rotary", query_loop, width),
                           dk = rotated_back(own_k.out, dturned_k, name + ".k.rotary", key_loop, key_width);
            std::optional<TensorId> dn;
            const auto through = [&](const char* part, const std::string& made, const std::string& weight,
                                     const Adapted& own, TensorId dmade_here, TensorId parameter, double flops) {
              const auto [dbase, beside] = own.backward(dmade_here);
              if (beside) dn = dn ? added(*dn, *beside, name + part, " (adapter)") : *beside;
              dn = from_projection(name + part, made, weight, {dbase, parameter, normed}, flops, dn);
            };
            through(".q", "b s a g e", "w a g e", own_q, dq, q_weight, by_queries);
            through(".k", "b s a e", "w a e", own_k, dk, k_weight, by_keys);
            through(".v", "b s a e", "w a e", own_v, dv, v_weight, by_keys);
            return *dn;
          }};
}

LlamaBlocks::Block LlamaBlocks::gated_mlp(TensorId normed, const std::string& name, std::int64_t inner) {
  const Shape wide{samples_, tokens_, inner};
  const double flops = product(static_cast<double>(width_), static_cast<double>(inner));
  const TensorId gate_weight = parameter(name + ".gate.weight", {width_, inner}),
                 up_weight = parameter(name + ".up.weight", {width_, inner}),
                 down_weight = parameter(name + ".down.weight", {inner, width_});
  const TensorId gate = value(name + ".gate.out", wide), up = value(name + ".up.out", wide),
                 bent = value(name + ".silu.out", wide), gated = value(name + ".mul.out", wide);
  forward(name + ".gate", {"linear", "b s w!, w f -> b s f", flops}, {normed, gate_weight}, {gate});
  forward(name + ".up", {"linear", "b s w!, w f -> b s f", flops}, {normed, up_weight}, {up});
  forward(name + ".silu", {"silu", "b s f -> b s f"}, {gate}, {bent});
  forward(name + ".mul", {"mul", "b s f, b s f -> b s f"}, {bent, up}, {gated});
  const TensorId y = value(name + ".y", token_shape());
  forward(name + ".down", {"linear", "b s f, f w -> b s w", flops}, {gated, down_weight}, {y});
  return {y, [=, this](TensorId d) {
            const TensorId dgated = gradient(gated), dbent = gradient(bent), dup = gradient(up), dgate = gradient(gate);
            backward(name + ".down", " (input)", {"linear", "b s w, f w -> b s f", flops}, {d, down_weight}, {dgated});
            if (!is_frozen()) {
              backward(name + ".down", " (weight)", {"linear", "b s f, b s w -> f w", flops}, {gated, d},
                       {gradient(down_weight)});
            }
            backward(name + ".mul", " (silu)", {"mul", "b s f, b s f -> b s f"}, {dgated, up}, {dbent});
            backward(name + ".mul", " (up)", {"mul", "b s f, b s f -> b s f"}, {dgated, bent}, {dup});
            TensorId dn = from_projection(name + ".up", "b s f", "w f", {dup, up_weight, normed}, flops, {});
            backward(name + ".silu", "", {"silu", "b s f, b s f -> b s f"}, {dbent, gate}, {dgate});
            dn = from_projection(name + ".gate", "b s f", "w f", {dgate, gate_weight, normed}, flops, dn);
            return dn;
          }};
}

namespace {

class LlamaBuilder : private LlamaBlocks {
 public:
  explicit LlamaBuilder(const LlamaGraph& of) : LlamaBlocks(of) {
    note("formula", "operators of Llama's decoder as eager PyTorch runs Hugging Face's, with fused causal attention");
  }

  Graph run() {
    TensorId x = embedding();
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) {
      const bool is_dense = of_.experts == 0 || layer < of_.dense_layers;
      x = block(x, fmt::format("layer{}.attention", layer), [&](TensorId normed, const std::string& name) {
        return of_.kv_rank > 0 ? latent_attention(normed, name) : attention(normed, name);
      });
      x = block(x, fmt::format("layer{}.mlp", layer), [&](TensorId normed, const std::string& name) {
        return is_dense ? gated_mlp(normed, name, of_.inner) : experts(normed, name);
      });
    }
    loss_of_rows(head(x), "b s", fp32(), of_.logits == 1);
    return finished();
  }

 private:
  /// Of a stage: behind a norm, added to its input.
  template <class Make>
  TensorId block(TensorId x, const std::string& name, const Make& make) {
    const Norm normed = norm(x, name + ".norm", width_);
    const Block made = make(normed.out, name);
    const TensorId out = value(name + ".add.out", token_shape());
    forward(name + ".add", {"add", "b s w, b s w -> b s w"}, {x, made.y}, {out});
    end_stage([=, this](TensorId d) { return norm_backward(normed, made.backward(d), d); });
    return out;
  }

  TensorId embedding() {
    const TensorId tokens = tensor("tokens", TensorKind::input, {samples_, tokens_}, 8, "int64");
    const TensorId table = parameter("embedding.table", {of_.vocabulary, width_});
    const TensorId found = value("embedding.out", token_shape());
    forward("embedding", {"embedding", "b s, v w -> b s w"}, {tokens, table}, {found});
    end_stage([=, this](TensorId d) {
      if (!is_frozen()) token_table_backward("embedding", tokens, d, table, false);
      return d;
    });
    return found;
  }

  TensorId head(TensorId x) {
    const double flops = product(static_cast<double>(width_), of_.vocabulary);
    const Norm normed = norm(x, "head.norm", width_);
    const TensorId weight = parameter("head.weight", {width_, of_.vocabulary});
    const TensorId logits = value("logits", {samples_, tokens_, of_.vocabulary});
    forward("head", {"linear", "b s w, w v -> b s v", flops}, {normed.out, weight}, {logits});
    end_stage([=, this](TensorId d) {
      const TensorId dn = gradient(normed.out);
      backward("head", " (input)", {"linear", "b s v, w v -> b s w", flops}, {d, weight}, {dn});
      if (!is_frozen()) {
        backward("head", " (weight)", {"linear", "b s w, b s v -> w v", flops}, {normed.out, d}, {gradient(weight)});
      }
      return norm_backward(normed, dn, std::nullopt);
    });
    return logits;
  }
};

}  // namespace

Graph llama_graph(const LlamaGraph& sizes) {
  if (sizes.kv_rank == 0 && sizes.width % sizes.heads != 0) {
    throw InputError(fmt::format("llama: heads: must divide width {}, found {}", sizes.width, sizes.heads));
  }
  if (sizes.kv_rank == 0 && sizes.heads % sizes.kv_heads != 0) {
    throw InputError(fmt::format("llama: kv_heads: must divide heads {}, found {}", sizes.heads, sizes.kv_heads));
  }
  if (sizes.experts > 0 && sizes.top_k > sizes.experts) {
    throw InputError(fmt::format("llama: top_k: at most experts {}, found {}", sizes.experts, sizes.top_k));
  }
  if (sizes.lora > 0 && (sizes.experts > 0 || sizes.kv_rank > 0 || sizes.logits == 1)) {
    throw InputError("llama: lora: not with experts, kv_rank or logits=end");
  }
  return LlamaBuilder(sizes).run();
}

}  // namespace plimsoll
