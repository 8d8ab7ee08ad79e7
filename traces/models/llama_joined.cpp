// Products that make several values at once, of which views are read: queries, keys and values, or gate and up.

#include <array>
#include <string>

#include "traces/models/llama_blocks.h"

namespace plimsoll {
namespace {

// Numbers that a rotation moves a number whose result is joined of a part that is turned and one that is not
// (PyTorch 2.6, transformers 5.15's modeling_phi3.apply_rotary_pos_emb, counted by kept_by_llama.py's `moved`).
constexpr double there = 12, back = 18;
// Bytes of a bf16 number with tables in fp32, likewise.
constexpr double there_widened = 38, back_widened = 56;

}  // namespace

// Queries and keys are turned, values are read where the product left them: attention keeps all of what it made.
LlamaBlocks::Block LlamaBlocks::joined_attention(TensorId normed, const std::string& name) {
  const std::int64_t kv = of_.kv_heads, shared_by = of_.heads / kv, parts = shared_by + 2;
  const double k_numbers = static_cast<double>(kv * head_size_), q_numbers = static_cast<double>(shared_by) * k_numbers;
  const double flops = product(static_cast<double>(width_), q_numbers + 2 * k_numbers);
  const TensorId weight = layer_weight(name + ".qkv.weight", {width_, kv, parts, head_size_}),
                 made = value(name + ".qkv.out", {samples_, tokens_, kv, parts, head_size_});
  multiply(name + ".qkv", {normed, "b s w", "!", weight, "w a - e"}, {made, "b s a - e"}, flops);
  const Type& type = scaled_type(narrow());
  const TensorId q = made_value(name + ".q.rotary.out", {samples_, tokens_, kv, shared_by, head_size_}, type),
                 k = made_value(name + ".k.rotary.out", {samples_, tokens_, kv, head_size_}, type);
  const double each_there = is_mixed() ? numbers() * there_widened : there * bytes_of(1),
               each_back = is_mixed() ? numbers() * back_widened : back * bytes_of(1);
  forward(name + ".q.rotary", {.kind = "rotary", .loop = "b s a - e! -> b s a - e", .moved = each_there * q_numbers},
          {made}, {q});
  forward(name + ".k.rotary", {.kind = "rotary", .loop = "b s a - e! -> b s a e", .moved = each_there * k_numbers},
          {made}, {k});
  const Made read_q = converted(q, narrow(), name + ".q.rotary.to", "b s a - e"),
             read_k = converted(k, narrow(), name + ".k.rotary.to", "b s a e");
  const Attended of_heads = attended(read_q.out, read_k.out, made, name);
  return {of_heads.y, [=, this](TensorId d) {
            const auto [dread_q, dread_k, dv] = of_heads.backward(d);
            const TensorId dturned_q = read_q.backward(dread_q), dturned_k = read_k.backward(dread_k);
            const auto narrow_of = [&](TensorId of) {
              return tensor("gradient of " + (*this)[of].name, TensorKind::gradient, (*this)[of].shape, element_);
            };
            const TensorId dk = narrow_of(k), dq = narrow_of(q);
            backward(name + ".k.rotary", "",
                     {.kind = "rotary", .loop = "b s a e! -> b s a e", .moved = each_back * k_numbers}, {dturned_k},
                     {dk});
            backward(name + ".q.rotary", "",
                     {.kind = "rotary", .loop = "b s a - e! -> b s a - e", .moved = each_back * q_numbers}, {dturned_q},
                     {dq});
            const TensorId dmade = of_views(made, {dv, dk, dq}, name);
            return from_projection(name + ".qkv", "b s a - e", "w a - e", {dmade, weight, normed}, flops, {});
          }};
}

TensorId LlamaBlocks::of_views(TensorId whole, const std::array<TensorId, 3>& views, const std::string& name) {
  constexpr std::array parts{" (values)", " (keys)", " (queries)"};
  constexpr const char* whole_axes = "b s a - e";
  TensorId sum = whole;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const TensorId placed = gradient(whole);
    const bool is_query = (*this)[views[i]].shape.size() == (*this)[whole].shape.size();
    backward(name + ".qkv", parts[i],
             {"slice_backward", std::string(is_query ? whole_axes : "b s a e") + " -> " + whole_axes}, {views[i]},
             {placed});
    sum = i == 0 ? placed : added(sum, placed, name + ".qkv", std::string(parts[i]) + " (sum)", whole_axes);
  }
  return sum;
}

LlamaBlocks::Block LlamaBlocks::joined_mlp(TensorId normed, const std::string& name, std::int64_t inner) {
  const double numbers = static_cast<double>(inner), flops = product(static_cast<double>(width_), numbers);
  const TensorId weight = layer_weight(name + ".gate_up.weight", {width_, 2, inner}),
                 down_weight = layer_weight(name + ".down.weight", {inner, width_});
  const Shape wide{samples_, tokens_, inner};
  const TensorId both = value(name + ".gate_up.out", {samples_, tokens_, 2, inner}),
                 bent = value(name + ".act.out", wide), gated = value(name + ".mul.out", wide),
                 y = value(name + ".y", token_shape());
  const std::string_view act = LlamaGraph::acts.at(of_.act);
  multiply(name + ".gate_up", {normed, "b s w", "!", weight, "w - f"}, {both, "b s - f"}, 2 * flops);
  forward(name + ".act", {.kind = act, .loop = "b s - f -> b s f", .moved = 2 * bytes_of(numbers)}, {both}, {bent});
  forward(name + ".mul", {.kind = "mul", .loop = "b s f, b s - f -> b s f", .moved = 3 * bytes_of(numbers)},
          {bent, both}, {gated});
  multiply(name + ".down", {gated, "b s f", "", down_weight, "f w"}, {y, "b s w"}, flops);
  return {y, [=, this](TensorId d) {
            const TensorId dgated = gradient(gated), dbent = gradient(bent), dboth = gradient(both);
            const auto of_half = [&](const char* part) {
              return tensor("gradient of " + name + part, TensorKind::gradient, wide, element_);
            };
            const TensorId dup = of_half(".up"), dgate = of_half(".gate");
            multiply_back(name + ".down", {d, "b s w", "", down_weight, "f w"}, {dgated, "b s f"}, flops);
            weight_backward(name + ".down", {d, down_weight, gated}, {"b s f", "b s w", "b s f, b s w -> f w"}, flops);
            backward(name + ".mul", " (act)",
                     {.kind = "mul", .loop = "b s f, b s - f -> b s f", .moved = 3 * bytes_of(numbers)}, {dgated, both},
                     {dbent});
            backward(name + ".mul", " (up)", {"mul", "b s f, b s f -> b s f"}, {dgated, bent}, {dup});
            backward(name + ".act", "",
                     {.kind = act, .loop = "b s f, b s - f -> b s f", .moved = 3 * bytes_of(numbers)}, {dbent, both},
                     {dgate});
            backward(name + ".gate_up", " (cat)", {"cat", "b s f, b s f -> b s - f"}, {dgate, dup}, {dboth});
            return from_projection(name + ".gate_up", "b s - f", "w - f", {dboth, weight, normed}, 2 * flops, {});
          }};
}

}  // namespace plimsoll
