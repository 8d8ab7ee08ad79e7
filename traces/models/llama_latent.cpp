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
    q_down = weight(name + ".q_down.weight", {width_, of_.q_rank});
    q_few = value(name + ".q_down.out", {samples_, tokens_, of_.q_rank});
    multiply(name + ".q_down", {normed, "b s w", "!", q_down, "w r"}, {q_few, "b s r"}, product(width, of_.q_rank));
    few = norm(q_few, name + ".q_norm", of_.q_rank, 'r');
    q_source = few->out;
  }
  const std::string q_axes = is_direct ? "b s w" : "b s r", q_weight_axes = is_direct ? "w a -" : "r a -";
  const double q_inner = is_direct ? width : of_.q_rank;
  const TensorId q_weight = weight(name + ".q.weight", {is_direct ? width_ : of_.q_rank, heads, whole});
  const double q_flops = product(q_inner, q_numbers);
  multiply(name + ".q", {q_source, q_axes, "!", q_weight, is_direct ? "w a e" : "r a e"}, {q, "b s a e"}, q_flops);

  // Keys and values: of few numbers a token, beside the numbers of the keys that positions turn, the same for all
  // heads.
  const TensorId kv_down = weight(name + ".kv_down.weight", {width_, rank + turned});
  const TensorId kv_few = value(name + ".kv_down.out", {samples_, tokens_, rank + turned});
  const double down_flops = product(width, static_cast<double>(rank + turned));
  multiply(name + ".kv_down", {normed, "b s w", "!", kv_down, "w -"}, {kv_few, "b s -"}, down_flops);
  const Norm latent = norm(kv_few, name + ".kv_norm", rank, 'c');
  const TensorId kv_up = weight(name + ".kv.weight", {rank, heads, plain + values});
  const TensorId kv = value(name + ".keys and values", {samples_, tokens_, heads, plain + values});
  const double up_flops = product(static_cast<double>(rank), head_count * static_cast<double>(plain + values));
  multiply(name + ".kv", {latent.out, "b s c", "!", kv_up, "c a e"}, {kv, "b s a e"}, up_flops);

  // Of both the turned part, joined with the other one.
  const Type& type = scaled_type(narrow());
  const TensorId turned_q = made_value(name + ".q.rotary.out", {samples_, tokens_, heads, turned}, type);
  const TensorId turned_k = made_value(name + ".k.rotary.out", {samples_, tokens_, turned}, type);
  const double q_turned = head_count * static_cast<double>(turned), k_turned = static_cast<double>(turned);
  const Rotation rotary = rotation(q);
  forward(name + ".q.rotary",
          {.kind = "rotary", .loop = "b s a - -> b s a -", .moved = rotary.there * numbers() * q_turned}, {q},
          {turned_q});
  forward(name + ".k.rotary",
          {.kind = "rotary", .loop = "b s - -> b s -", .moved = rotary.there * numbers() * k_turned}, {kv_few},
          {turned_k});
  // Parts of two types join to the wider one.
  const auto wide_bytes = [=, this](double each) { return numbers() * each * static_cast<double>(type.bytes); };
  const TensorId joined_q = made_value(name + ".q.cat.out", by_query, type),
                 joined_k = made_value(name + ".k.cat.out", by_query, type);
  forward(name + ".q.cat",
          {.kind = "cat",
           .loop = "b s a -, b s a - -> b s a -",
           .moved = bytes_of(q_numbers - q_turned) + wide_bytes(q_turned + q_numbers)},
          {q, turned_q}, {joined_q});
  forward(name + ".k.cat",
          {.kind = "cat",
           .loop = "b s a -, b s - -> b s a -",
           .moved = bytes_of(head_count * static_cast<double>(plain)) + wide_bytes(q_numbers + k_turned)},
          {kv, turned_k}, {joined_k});
  const Made read_q = converted(joined_q, narrow(), name + ".q.cat.to", "b s a -"),
             read_k = converted(joined_k, narrow(), name + ".k.cat.to", "b s a -");
  const TensorId queries = read_q.out, keys = read_k.out;

  const TensorId mixed = value(name + ".mixed", {samples_, tokens_, heads, values});
  const TensorId sums = tensor(name + ".sums", TensorKind::activation, {samples_, heads, tokens_}, 4, "fp32");
  const double by_key = 2 * pairs() * q_numbers, by_value = 2 * pairs() * head_count * static_cast<double>(values);
  forward(name + ".flash",
          {"_scaled_dot_product_flash_attention", "b s~ a e!, b t! a e, b t a - -> b s a -, b a s", by_key + by_value},
          {queries, keys, kv}, {mixed, sums});
  // The joined queries lie head by head, and so does what attention makes; the product takes a copy token by token.
  const TensorId ordered = value(name + ".clone.out", (*this)[mixed].shape);
  forward(name + ".clone", {"clone", "b s a e -> b s a e"}, {mixed}, {ordered});
  const TensorId out_weight = weight(name + ".out.weight", {heads, values, width_});
  const double out_flops = product(head_count * static_cast<double>(values), width);
  const TensorId y = value(name + ".y", token_shape());
  multiply(name + ".out", {ordered, "b s a e", "", out_weight, "a e w"}, {y, "b s w"}, out_flops);

  return {
      y, [=, this](TensorId d) {
        const auto slice = [&](const std::string& of, const Shape& shape) {
          return tensor("gradient of " + name + of, TensorKind::gradient, shape, element_);
        };
        const TensorId dmixed = gradient(mixed), dread_q = gradient(queries), dread_k = gradient(keys);
        const TensorId dvalues = slice(".values", (*this)[mixed].shape);
        multiply_back(name + ".out", {d, "b s w", "", out_weight, "a e w"}, {dmixed, "b s a e"}, out_flops);
        weight_backward(name + ".out", {d, out_weight, ordered}, {"b s a e", "b s w", "b s a e, b s w -> a e w"},
                        out_flops);
        // Scores again, and the gradients of weights, of values, of queries and of keys.
        backward(name + ".flash", "",
                 {"_scaled_dot_product_flash_attention_backward",
                  "b s~ a -, b s a e!, b t! a e, b t a -, b s a -, b a s -> b s a e, b t a e, b t a -",
                  3 * by_key + 2 * by_value},
                 {dmixed, queries, keys, kv, mixed, sums}, {dread_q, dread_k, dvalues});
        const TensorId dqueries = read_q.backward(dread_q), dkeys = read_k.backward(dread_k);

        const TensorId dturned_q = slice(".q.rotary", (*this)[turned_q].shape), dq = gradient(q);
        backward(name + ".q.rotary", "",
                 {.kind = "rotary", .loop = "b s a - -> b s a -", .moved = rotary.back * numbers() * q_turned},
                 {dqueries}, {dturned_q});
        backward(name + ".q.cat", "",
                 {.kind = "cat",
                  .loop = "b s a -, b s a - -> b s a -",
                  .moved = wide_bytes(q_numbers - q_turned) + bytes_of(q_turned + q_numbers)},
                 {dqueries, dturned_q}, {dq});
        TensorId dn =
            from_projection(name + ".q", "b s a -", q_weight_axes, {dq, q_weight, q_source, q_axes}, q_flops, {});
        if (few) {
          const TensorId dfew = norm_backward(*few, dn, {});
          dn =
              from_projection(name + ".q_down", "b s r", "w r", {dfew, q_down, normed}, product(width, of_.q_rank), {});
        }

        const TensorId shared = tensor("gradient of " + name + ".k.rotary, of all heads", TensorKind::gradient,
                                       (*this)[turned_k].shape, type.bytes, type.name),
                       dturned_k = slice(".k.rotary", (*this)[turned_k].shape), dkv = gradient(kv);
        backward(name + ".k.cat", " (sum)",
                 {.kind = "sum", .loop = "b s a - -> b s -", .moved = wide_bytes(q_turned + k_turned)}, {dkeys},
                 {shared});
        backward(name + ".k.rotary", "",
                 {.kind = "rotary", .loop = "b s - -> b s -", .moved = rotary.back * numbers() * k_turned}, {shared},
                 {dturned_k});
        backward(name + ".k.cat", "",
                 {.kind = "cat",
                  .loop = "b s a -, b s a - -> b s a -",
                  .moved = wide_bytes(head_count * static_cast<double>(plain)) +
                           bytes_of(head_count * static_cast<double>(plain + 2 * values))},
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
