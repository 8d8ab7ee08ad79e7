// Attention of latent keys and values.

#include <optional>
#include <string>

#include "traces/models/llama_blocks.h"

namespace plimsoll {

LlamaBlocks::Block LlamaBlocks::latent_attention(TensorId normed, const std::string& name) {
  const std::int64_t heads = of_.heads, rank = of_.kv_rank, turned = of_.rope_size, plain = head_size_,
                     values = of_.value_size, whole = plain + turned;
  const auto width = static_cast<double>(width_), head_count = static_cast<double>(heads);
  const Shape by_query{samples_, tokens_, heads, whole};

  // Queries: of the normed value, or of few numbers of it.
  const TensorId q = value(name + ".queries", by_query);
  const double q_numbers = head_count * static_cast<double>(whole);
  std::optional<Norm> few;
  TensorId q_down, q_source = normed, q_few;
  const bool is_direct = of_.q_rank == 0;
  if (!is_direct) {
    q_down = parameter(name + ".q_down.weight", {width_, of_.q_rank});
    q_few = value(name + ".q_down.out", {samples_, tokens_, of_.q_rank});
    forward(name + ".q_down", {"linear", "b s w!, w r -> b s r", product(width, of_.q_rank)}, {normed, q_down},
            {q_few});
    few = norm(q_few, name + ".q_norm", of_.q_rank, 'r');
    q_source = few->out;
  }
  const std::string q_axes = is_direct ? "b s w" : "b s r", q_weight_axes = is_direct ? "w a -" : "r a -";
  const double q_inner = is_direct ? width : of_.q_rank;
  const TensorId q_weight = parameter(name + ".q.weight", {is_direct ? width_ : of_.q_rank, heads, whole});
  const double q_flops = product(q_inner, q_numbers);
  forward(name + ".q", {"linear", q_axes + "!, " + (is_direct ? "w a e" : "r a e") + " -> b s a e", q_flops},
          {q_source, q_weight}, {q});

  // Keys and values: of few numbers a token, beside the numbers of the keys that positions turn, the same for all
  // heads.
  const TensorId kv_down = parameter(name + ".kv_down.weight", {width_, rank + turned});
  const TensorId kv_few = value(name + ".kv_down.out", {samples_, tokens_, rank + turned});
  const double down_flops = product(width, static_cast<double>(rank + turned));
  forward(name + ".kv_down", {"linear", "b s w!, w - -> b s -", down_flops}, {normed, kv_down}, {kv_few});
  const Norm latent = norm(kv_few, name + ".kv_norm", rank, 'c');
  const TensorId kv_up = parameter(name + ".kv.weight", {rank, heads, plain + values});
  const TensorId kv = value(name + ".keys and values", {samples_, tokens_, heads, plain + values});
  const double up_flops = product(static_cast<double>(rank), head_count * static_cast<double>(plain + values));
  forward(name + ".kv", {"linear", "b s c!, c a e -> b s a e", up_flops}, {latent.out, kv_up}, {kv});

  // Of both the turned part, joined with the other one.
  const TensorId turned_q = value(name + ".q.rotary.out", {samples_, tokens_, heads, turned});
  const TensorId turned_k = value(name + ".k.rotary.out", {samples_, tokens_, turned});
  const double q_turned = head_count * static_cast<double>(turned), k_turned = static_cast<double>(turned);
  forward(name + ".q.rotary", {.kind = "rotary", .loop = "b s a - -> b s a -", .moved = 10 * bytes_of(q_turned)}, {q},
          {turned_q});
  forward(name + ".k.rotary", {.kind = "rotary", .loop = "b s - -> b s -", .moved = 10 * bytes_of(k_turned)}, {kv_few},
          {turned_k});
  const TensorId queries = value(name + ".q.cat.out", by_query), keys = value(name + ".k.cat.out", by_query);
  forward(name + ".q.cat", {.kind = "cat", .loop = "b s a -, b s a - -> b s a -", .moved = 2 * bytes_of(q_numbers)},
          {q, turned_q}, {queries});
  forward(name + ".k.cat",
          {.kind = "cat",
           .loop = "b s a -, b s - -> b s a -",
           .moved = bytes_of(q_numbers + head_count * static_cast<double>(plain) + k_turned)},
          {kv, turned_k}, {keys});

  const TensorId mixed = value(name + ".mixed", {samples_, tokens_, heads, values});
  const TensorId sums = tensor(name + ".sums", TensorKind::activation, {samples_, heads, tokens_}, 4, "fp32");
  const double by_key = 2 * pairs() * q_numbers, by_value = 2 * pairs() * head_count * static_cast<double>(values);
  forward(name + ".flash",
          {"_scaled_dot_product_flash_attention", "b s~ a e!, b t! a e, b t a - -> b s a -, b a s", by_key + by_value},
          {queries, keys, kv}, {mixed, sums});
  // The joined queries lie head by head, and so does what attention makes; the product takes a copy token by token.
  const TensorId ordered = value(name + ".clone.out", (*this)[mixed].shape);
  forward(name + ".clone", {"clone", "b s a e -> b s a e"}, {mixed}, {ordered});
  const TensorId out_weight = parameter(name + ".out.weight", {heads, values, width_});
  const double out_flops = product(head_count * static_cast<double>(values), width);
  const TensorId y = value(name + ".y", token_shape());
  forward(name + ".out", {"linear", "b s a e, a e w -> b s w", out_flops}, {ordered, out_weight}, {y});

  return {
      y, [=, this](TensorId d) {
        const auto slice = [&](const std::string& of, const Shape& shape) {
          return tensor("gradient of " + name + of, TensorKind::gradient, shape, element_);
        };
        const TensorId dmixed = gradient(mixed), dqueries = gradient(queries), dkeys = gradient(keys);
        const TensorId dvalues = slice(".values", (*this)[mixed].shape);
        backward(name + ".out", " (input)", {"linear", "b s w, a e w -> b s a e", out_flops}, {d, out_weight},
                 {dmixed});
        backward(name + ".out", " (weight)", {"linear", "b s a e, b s w -> a e w", out_flops}, {ordered, d},
                 {gradient(out_weight)});
        // Scores again, and the gradients of weights, of values, of queries and of keys.
        backward(name + ".flash", "",
                 {"_scaled_dot_product_flash_attention_backward",
                  "b s~ a -, b s a e!, b t! a e, b t a -, b s a -, b a s -> b s a e, b t a e, b t a -",
                  3 * by_key + 2 * by_value},
                 {dmixed, queries, keys, kv, mixed, sums}, {dqueries, dkeys, dvalues});

        const TensorId dturned_q = slice(".q.rotary", (*this)[turned_q].shape), dq = gradient(q);
        backward(name + ".q.rotary", "",
                 {.kind = "rotary", .loop = "b s a - -> b s a -", .moved = 14 * bytes_of(q_turned)}, {dqueries},
                 {dturned_q});
        backward(name + ".q.cat", "",
                 {.kind = "cat", .loop = "b s a -, b s a - -> b s a -", .moved = 2 * bytes_of(q_numbers)},
                 {dqueries, dturned_q}, {dq});
        TensorId dn =
            from_projection(name + ".q", "b s a -", q_weight_axes, {dq, q_weight, q_source, q_axes}, q_flops, {});
        if (few) {
          const TensorId dfew = norm_backward(*few, dn, {});
          dn =
              from_projection(name + ".q_down", "b s r", "w r", {dfew, q_down, normed}, product(width, of_.q_rank), {});
        }

        const TensorId shared = slice(".k.rotary, of all heads", (*this)[turned_k].shape),
                       dturned_k = slice(".k.rotary", (*this)[turned_k].shape), dkv = gradient(kv);
        backward(name + ".k.cat", " (sum)",
                 {.kind = "sum", .loop = "b s a - -> b s -", .moved = bytes_of(q_turned + k_turned)}, {dkeys},
                 {shared});
        backward(name + ".k.rotary", "", {.kind = "rotary", .loop = "b s - -> b s -", .moved = 14 * bytes_of(k_turned)},
                 {shared}, {dturned_k});
        backward(name + ".k.cat", "",
                 {.kind = "cat",
                  .loop = "b s a -, b s a - -> b s a -",
                  .moved = 2 * bytes_of(head_count * static_cast<double>(plain + values))},
                 {dkeys, dvalues}, {dkv});
        const TensorId dup =
            from_projection(name + ".kv", "b s a e", "c a e", {dkv, kv_up, latent.out, "b s c"}, up_flops, {});
        const TensorId dlatent = norm_backward(latent, dup, {}), dfew = gradient(kv_few);
        backward(
            name + ".kv_down", " (cat)",
            {.kind = "cat", .loop = "b s -, b s - -> b s -", .moved = 2 * bytes_of(static_cast<double>(rank + turned))},
            {dlatent, dturned_k}, {dfew});
        return from_projection(name + ".kv_down", "b s -", "w -", {dfew, kv_down, normed}, down_flops, dn);
      }};
}

}  // namespace plimsoll
