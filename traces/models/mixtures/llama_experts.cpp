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
          .layer = layer_,
          .capacity = of_.capacity,
          .is_padded = of_.padded == 1};
}

LlamaBlocks::Rows LlamaBlocks::dropless_rows(TensorId normed, const Routed& to, const std::string& name) {
  const std::int64_t places = of_.top_k;
  const Shape by_place{samples_, tokens_, places};
  const auto indices = [&](const std::string& what) {
    return tensor(name + what, TensorKind::activation, by_place, 8, "int64");
  };
  // Rows in the order of their experts: which token's they are, and where they come from.
  const TensorId chosen = to.chosen, shares = to.shares, sorted = indices(".sorted"), sources = indices(".sources"),
                 back = indices(".back"), sorted_shares = made_value(name + ".sorted shares", by_place, fp32()),
                 absent = tensor(name + ".absent", TensorKind::activation, by_place, 1, "bool"),
                 taken = value(name + ".rows", {samples_, tokens_, places, width_});
  // Bytes that are moved a number of a row, by PyTorch's ops: tokens gathered, filled where an expert is on no device;
  // back the fill, zeros, and rows added to them. Results times their shares, filled, gathered, summed, converted; back
  // the conversion, the sum handed out, zeros, rows put among them, the fill, both factors, and a sum.
  const double share = 1 / static_cast<double>(places), narrow = is_narrow() ? 1 : 0,
               element = static_cast<double>(element_), count = numbers() * static_cast<double>(places),
               row_numbers = count * static_cast<double>(width_);
  const double dispatched = element * (3 + share), dispatched_back = element * (3 + 3 * share);
  const double combined = element + 24 + 4 * share + narrow * 6 * share,
               combined_back = 48 + element + 4 * share + narrow * (6 * share + 4 + element);
  forward(name + ".dispatch",
          {.kind = "index",
           .loop = "b s w!, b s k, b s k -> b s k w, b s k, b s k, b s k, b s k, b s k",
           .moved = dispatched * row_numbers},
          {normed, chosen, shares}, {taken, sorted, sources, back, sorted_shares, absent});
  return {.axes = "b s k",
          .shape = by_place,
          .count = count,
          .taken = taken,
          // Times their shares in fp32, back in the order of tokens, summed.
          .combined =
              [=, this](TensorId downs) {
                const TensorId y = value(name + ".experts.y", token_shape());
                forward(
                    name + ".combine",
                    {.kind = "index", .loop = "b s k w, b s k, b s k, b s k -> b s w", .moved = combined * row_numbers},
                    {downs, sorted_shares, absent, back}, {y});
                return y;
              },
          .combined_back = [=, this](TensorId d, TensorId downs) -> std::pair<TensorId, TensorId> {
            const TensorId ddowns = gradient(downs), dsorted = gradient(sorted_shares);
            backward(name + ".combine", "",
                     {.kind = "index",
                      .loop = "b s w!, b s k w, b s k, b s k, b s k -> b s k w, b s k",
                      .moved = combined_back * row_numbers},
                     {d, downs, sorted_shares, absent, back}, {ddowns, dsorted});
            return {ddowns, dsorted};
          },
          .back = [=, this](TensorId dtaken, TensorId dsorted) -> std::pair<TensorId, TensorId> {
            const TensorId dn = tensor("gradient of " + name + ".normed by rows", TensorKind::gradient, token_shape(),
                                       element_),
                           dshares = gradient(shares);
            backward(name + ".dispatch", "",
                     {.kind = "index",
                      .loop = "b s k w, b s k, b s k, b s k, b s k -> b s w, b s k",
                      .moved = dispatched_back * row_numbers},
                     {dtaken, dsorted, sorted, sources, absent}, {dn, dshares});
            return {dn, dshares};
          }};
}

TensorId LlamaBlocks::shared_backward(const Block& shared, const std::optional<Gated>& scaled, TensorId d,
                                      const std::string& name) {
  if (!scaled) return shared.backward(d);
  const auto [dy, dn] = scaled->backward(d);
  return added(dn, shared.backward(dy), name + ".shared.scale", " (sum)");
}

LlamaBlocks::Block LlamaBlocks::experts(TensorId normed, const std::string& name) {
  const std::int64_t experts = of_.experts, inner = of_.expert_inner > 0 ? of_.expert_inner : of_.inner;
  const Routed routed_to = routed(normed, name);
  const bool is_looped = of_.capacity > 0 || is_mixed();
  const Rows rows = is_looped ? looped_rows(normed, routed_to, name) : dropless_rows(normed, routed_to, name);
  const std::string &r = rows.axes, narrow_rows = r + " f", both_rows = r + " - f", row = r + " w";
  const auto of_rows = [&](const Shape& axes) {
    Shape shape = rows.shape;
    shape.insert(shape.end(), axes.begin(), axes.end());
    return shape;
  };
  const Shape wide_shape = of_rows({inner});
  const auto width = static_cast<double>(width_), inner_width = static_cast<double>(inner);

  const TensorId up = weight(name + ".experts.up.weight", {experts, width_, 2, inner}),
                 down = weight(name + ".experts.down.weight", {experts, inner, width_});
  const TensorId ups = value(name + ".up.out", of_rows({2, inner})), bent = value(name + ".silu.out", wide_shape),
                 gated = value(name + ".mul.out", wide_shape), downs = value(name + ".down.out", of_rows({width_}));
  const double up_flops = 4 * rows.count * width * inner_width, down_flops = 2 * rows.count * width * inner_width,
               half = rows.count * inner_width * static_cast<double>(element_);
  const auto state_rows = [&] {
    if (of_.skew > 0 && of_.padded == 0) state("expert_rows", computed_rows_text(load()));
  };
  multiply(name + ".up", {rows.taken, row, "!", up, "x w - f"}, {ups, both_rows}, up_flops);
  state_rows();
  forward(name + ".silu", {.kind = "silu", .loop = both_rows + " -> " + narrow_rows, .moved = 2 * half}, {ups}, {bent});
  forward(name + ".mul",
          {.kind = "mul", .loop = narrow_rows + ", " + both_rows + " -> " + narrow_rows, .moved = 3 * half},
          {bent, ups}, {gated});
  multiply(name + ".down", {gated, narrow_rows, "", down, "x f w"}, {downs, row}, down_flops);
  state_rows();
  const TensorId y = rows.combined(downs);

  std::optional<Block> beside;
  std::optional<Gated> scaled;
  TensorId result = y;
  if (of_.shared > 0) {
    beside = gated_mlp(normed, name + ".shared", inner * of_.shared);
    if (of_.shared_gate == 1) scaled = gated_by_token(beside->y, normed, name + ".shared.scale");
    result = like(name + ".y", y, type_of(y));
    forward(name + ".shared.add", {"add", "b s w, b s w -> b s w"}, {y, scaled ? scaled->out : beside->y}, {result});
  }
  return {
      result, [=, this](TensorId d) {
        std::optional<TensorId> dbeside;
        if (beside) dbeside = shared_backward(*beside, scaled, narrowed_back(d, beside->y, name + ".shared.add"), name);
        const auto [ddowns, dshares_of_rows] = rows.combined_back(d, downs);
        const TensorId dgated = gradient(gated), dbent = gradient(bent), dups = gradient(ups);
        multiply_back(name + ".down", {ddowns, row, "", down, "x f w"}, {dgated, narrow_rows}, down_flops);
        weight_backward(name + ".down", {ddowns, down, gated},
                        {narrow_rows, row, narrow_rows + ", " + row + " -> x f w", true}, down_flops);
        const std::string of_mul = narrow_rows + ", " + both_rows + " -> " + narrow_rows,
                          of_halves = narrow_rows + ", " + narrow_rows;
        backward(name + ".mul", " (silu)", {.kind = "mul", .loop = of_mul, .moved = 3 * half}, {dgated, ups}, {dbent});
        const TensorId dsecond =
                           tensor("gradient of " + name + ".up.second", TensorKind::gradient, wide_shape, element_),
                       dfirst = tensor("gradient of " + name + ".up.first", TensorKind::gradient, wide_shape, element_);
        backward(name + ".mul", " (up)", {"mul", of_halves + " -> " + narrow_rows}, {dgated, bent}, {dsecond});
        backward(name + ".silu", "", {.kind = "silu", .loop = of_mul, .moved = 3 * half}, {dbent, ups}, {dfirst});
        backward(name + ".up", " (cat)", {"cat", of_halves + " -> " + both_rows}, {dfirst, dsecond}, {dups});
        const Made input = copy_of(name + ".up" + input_of, rows.taken);
        const TensorId dinput = gradient(input.out);
        multiply_back(name + ".up", {dups, both_rows, "", up, "x w - f"}, {dinput, row}, up_flops);
        weight_backward(name + ".up", {dups, up, rows.taken},
                        {row, both_rows, row + ", " + both_rows + " -> x w - f", true}, up_flops);
        const auto [dn, dshares] = rows.back(input.backward(dinput), dshares_of_rows);
        const TensorId all = routed_to.backward(dshares, dn);
        return dbeside ? added(*dbeside, all, name + ".shared", " (both)") : all;
      }};
}

}  // namespace plimsoll
