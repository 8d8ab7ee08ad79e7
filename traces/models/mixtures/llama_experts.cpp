// Mixtures of experts.

#include <optional>
#include <string>

#include "traces/models/llama_blocks.h"

namespace plimsoll {

ExpertLoad LlamaBlocks::load() const {
  return {.tokens = samples_ * tokens_,
          .top_k = of_.top_k,
          .experts = of_.experts,
          .skew = of_.skew,
          .seed = of_.seed,
          .layer = layer_};
}

LlamaBlocks::Block LlamaBlocks::experts(TensorId normed, const std::string& name) {
  const std::int64_t experts = of_.experts, places = of_.top_k,
                     inner = of_.expert_inner > 0 ? of_.expert_inner : of_.inner;
  const Shape rows{samples_, tokens_, places, width_}, wide{samples_, tokens_, places, inner},
      both{samples_, tokens_, places, 2, inner}, by_place{samples_, tokens_, places};
  const auto width = static_cast<double>(width_), count = numbers() * static_cast<double>(places),
             element = static_cast<double>(element_);
  const auto fp32 = [&](const std::string& what, const Shape& shape) {
    return tensor(name + what, TensorKind::activation, shape, 4, "fp32");
  };
  const auto indices = [&](const std::string& what) {
    return tensor(name + what, TensorKind::activation, by_place, 8, "int64");
  };

  const Routed routed_to = routed(normed, name);
  const TensorId chosen = routed_to.chosen, shares = routed_to.shares;

  // Rows in the order of their experts: which token's they are, and where they come from.
  const TensorId sorted = indices(".sorted"), sources = indices(".sources"), back = indices(".back"),
                 sorted_shares = fp32(".sorted shares", by_place),
                 absent = tensor(name + ".absent", TensorKind::activation, by_place, 1, "bool"),
                 taken = value(name + ".rows", rows);
  // Bytes that are moved a number of a row, by PyTorch's ops: tokens gathered, filled where an expert is on no device;
  // back the fill, zeros, and rows added to them. Results times their shares, filled, gathered, summed, converted; back
  // the conversion, the sum handed out, zeros, rows put among them, the fill, both factors, and a sum.
  const double share = 1 / static_cast<double>(places), narrow = is_narrow() ? 1 : 0;
  const double dispatched = element * (3 + share), dispatched_back = element * (3 + 3 * share);
  const double combined = element + 24 + 4 * share + narrow * 6 * share,
               combined_back = 48 + element + 4 * share + narrow * (6 * share + 4 + element);
  const double row_numbers = count * width;
  forward(name + ".dispatch",
          {.kind = "index",
           .loop = "b s w!, b s k, b s k -> b s k w, b s k, b s k, b s k, b s k, b s k",
           .moved = dispatched * row_numbers},
          {normed, chosen, shares}, {taken, sorted, sources, back, sorted_shares, absent});

  const TensorId up = parameter(name + ".experts.up.weight", {experts, width_, 2, inner}),
                 down = parameter(name + ".experts.down.weight", {experts, inner, width_});
  const TensorId ups = value(name + ".up.out", both), bent = value(name + ".silu.out", wide),
                 gated = value(name + ".mul.out", wide), downs = value(name + ".down.out", rows);
  const double inner_width = static_cast<double>(inner), up_flops = 4 * count * width * inner_width,
               down_flops = 2 * count * width * inner_width, half = count * inner_width * element;
  const auto state_rows = [&] {
    if (of_.skew > 0) state("expert_rows", expert_rows_text(load()));
  };
  multiply(name + ".up", {taken, "b s k w", "!", up, "x w - f"}, {ups, "b s k - f"}, up_flops);
  state_rows();
  forward(name + ".silu", {.kind = "silu", .loop = "b s k - f -> b s k f", .moved = 2 * half}, {ups}, {bent});
  forward(name + ".mul", {.kind = "mul", .loop = "b s k f, b s k - f -> b s k f", .moved = 3 * half}, {bent, ups},
          {gated});
  multiply(name + ".down", {gated, "b s k f", "", down, "x f w"}, {downs, "b s k w"}, down_flops);
  state_rows();

  // Times their shares in fp32, back in the order of tokens, summed.
  const TensorId y = value(name + ".experts.y", token_shape());
  forward(name + ".combine",
          {.kind = "index", .loop = "b s k w, b s k, b s k, b s k -> b s w", .moved = combined * row_numbers},
          {downs, sorted_shares, absent, back}, {y});

  std::optional<Block> beside;
  TensorId result = y;
  if (of_.shared > 0) {
    beside = gated_mlp(normed, name + ".shared", inner * of_.shared);
    result = value(name + ".y", token_shape());
    forward(name + ".shared.add", {"add", "b s w, b s w -> b s w"}, {y, beside->y}, {result});
  }
  return {result, [=, this](TensorId d) {
            std::optional<TensorId> dbeside;
            if (beside) dbeside = beside->backward(d);
            const TensorId ddowns = gradient(downs), dsorted = gradient(sorted_shares), dgated = gradient(gated),
                           dbent = gradient(bent), dups = gradient(ups), dtaken = gradient(taken);
            backward(name + ".combine", "",
                     {.kind = "index",
                      .loop = "b s w!, b s k w, b s k, b s k, b s k -> b s k w, b s k",
                      .moved = combined_back * row_numbers},
                     {d, downs, sorted_shares, absent, back}, {ddowns, dsorted});
            multiply_back(name + ".down", {ddowns, "b s k w", "", down, "x f w"}, {dgated, "b s k f"}, down_flops);
            weight_backward(name + ".down", {ddowns, down, gated},
                            {"b s k f", "b s k w", "b s k f, b s k w -> x f w", true}, down_flops);
            backward(name + ".mul", " (silu)",
                     {.kind = "mul", .loop = "b s k f, b s k - f -> b s k f", .moved = 3 * half}, {dgated, ups},
                     {dbent});
            const TensorId dsecond = tensor("gradient of " + name + ".up.second", TensorKind::gradient, wide, element_),
                           dfirst = tensor("gradient of " + name + ".up.first", TensorKind::gradient, wide, element_);
            backward(name + ".mul", " (up)", {"mul", "b s k f, b s k f -> b s k f"}, {dgated, bent}, {dsecond});
            backward(name + ".silu", "", {.kind = "silu", .loop = "b s k f, b s k - f -> b s k f", .moved = 3 * half},
                     {dbent, ups}, {dfirst});
            backward(name + ".up", " (cat)", {"cat", "b s k f, b s k f -> b s k - f"}, {dfirst, dsecond}, {dups});
            multiply_back(name + ".up", {dups, "b s k - f", "", up, "x w - f"}, {dtaken, "b s k w"}, up_flops);
            weight_backward(name + ".up", {dups, up, taken},
                            {"b s k w", "b s k - f", "b s k w, b s k - f -> x w - f", true}, up_flops);
            const TensorId dn = tensor("gradient of " + name + ".normed by rows", TensorKind::gradient, token_shape(),
                                       element_),
                           dshares = gradient(shares);
            backward(name + ".dispatch", "",
                     {.kind = "index",
                      .loop = "b s k w, b s k, b s k, b s k, b s k -> b s w, b s k",
                      .moved = dispatched_back * row_numbers},
                     {dtaken, dsorted, sorted, sources, absent}, {dn, dshares});
            const TensorId all = routed_to.backward(dshares, dn);
            return dbeside ? added(*dbeside, all, name + ".shared", " (both)") : all;
          }};
}

}  // namespace plimsoll
