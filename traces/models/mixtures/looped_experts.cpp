// Rows of experts by two indices, token and place, as transformers' loop over experts has them ("eager" in
// integrations/moe.py), which autocast reaches and which may drop rows. Those of all experts are gathered at once.
// What is kept is by traces/kept_by_mixtures.py.

#include <algorithm>
#include <string>
#include <utility>

#include "traces/models/llama_blocks.h"

namespace plimsoll {

LlamaBlocks::Rows LlamaBlocks::looped_rows(TensorId normed, const Routed& to, const std::string& name) {
  const bool is_limited = of_.capacity > 0;
  std::int64_t count = samples_ * tokens_ * of_.top_k;
  if (is_limited) {
    count = 0;
    for (const std::int64_t rows : computed_rows(load())) count += rows;
  }
  const std::string axes = is_limited ? "n" : "b s k", row = axes + " w",
                    // Which rows an expert has no room for depends on all tokens.
      tokens = is_limited ? "b! s! w" : "b s w", places = is_limited ? "b s k!" : "b s k";
  const Shape shape = is_limited ? Shape{count} : Shape{samples_, tokens_, of_.top_k};
  Shape row_shape = shape;
  row_shape.push_back(width_);
  const TensorId chosen = to.chosen, shares = to.shares,
                 token = tensor(name + ".tokens", TensorKind::activation, shape, 8, "int64"),
                 place = tensor(name + ".places", TensorKind::activation, shape, 8, "int64"),
                 row_shares = made_value(name + ".row shares", shape, type_of(shares)),
                 taken = made_value(name + ".rows", row_shape, type_of(normed)),
                 sources = made_value(name + ".sources", row_shape, type_of(normed));
  // Bytes that are moved a number of a row: tokens gathered; back zeros, and rows added to them. Results times their
  // shares, converted; back both factors, what they are converted to, and a sum. Added to zeros; back gathered.
  const std::int64_t of_shares = type_of(shares).bytes, scaled = std::max(of_shares, element_),
                     of_tokens = type_of(normed).bytes;
  const auto conversion = [](std::int64_t from, std::int64_t into) { return from == into ? 0 : from + into; };
  const std::int64_t scaling = element_ + scaled + conversion(scaled, of_tokens),
                     scaling_back = conversion(of_tokens, scaled) + 2 * scaled + conversion(scaled, element_) +
                                    element_ + 3 * scaled;
  const auto all = static_cast<double>(count * width_), zeros = numbers() * static_cast<double>(width_ * of_tokens);
  const auto moved = [=](std::int64_t each) { return static_cast<double>(each) * all; };
  const std::string of_row = ", " + axes;
  forward(name + ".dispatch",
          {.kind = "index",
           .loop = tokens + "!, " + places + ", " + places + " -> " + row + of_row + of_row + of_row,
           .moved = moved(2 * of_tokens)},
          {normed, chosen, shares}, {taken, token, place, row_shares});
  return {
      .axes = axes,
      .shape = shape,
      .count = static_cast<double>(count),
      .taken = taken,
      .combined =
          [=, this](TensorId downs) {
            const TensorId y = made_value(name + ".experts.y", token_shape(), type_of(normed));
            forward(name + ".scale", {.kind = "mul", .loop = row + of_row + " -> " + row, .moved = moved(scaling)},
                    {downs, row_shares}, {sources});
            forward(name + ".combine",
                    {.kind = "index", .loop = row + of_row + " -> " + tokens, .moved = zeros + moved(3 * of_tokens)},
                    {sources, token}, {y});
            return y;
          },
      // The sum's backward keeps its sources, for their shape alone.
      .combined_back = [=, this](TensorId d, TensorId downs) -> std::pair<TensorId, TensorId> {
        const TensorId dsources = gradient(sources), ddowns = gradient(downs), drow_shares = gradient(row_shares);
        backward(name + ".combine", "",
                 {.kind = "index", .loop = tokens + "!, " + row + of_row + " -> " + row, .moved = moved(2 * of_tokens)},
                 {d, sources, token}, {dsources});
        backward(
            name + ".scale", "",
            {.kind = "mul", .loop = row + ", " + row + of_row + " -> " + row + of_row, .moved = moved(scaling_back)},
            {dsources, downs, row_shares}, {ddowns, drow_shares});
        return {ddowns, drow_shares};
      },
      .back = [=, this](TensorId dtaken, TensorId drow_shares) -> std::pair<TensorId, TensorId> {
        const Type type = type_of(normed);
        const TensorId dn = tensor("gradient of " + name + ".normed by rows", TensorKind::gradient, token_shape(),
                                   type.bytes, type.name),
                       dshares = gradient(shares);
        backward(name + ".dispatch", "",
                 {.kind = "index",
                  .loop = row + of_row + of_row + of_row + " -> " + tokens + ", " + places,
                  .moved = zeros + moved(3 * of_tokens)},
                 {dtaken, drow_shares, token, place}, {dn, dshares});
        return {dn, dshares};
      }};
}

}  // namespace plimsoll
