// Attention from kernels, as Hugging Face's models have it where `attn_implementation` is "eager".

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "sim/io/input_error.h"
#include "traces/models/eager_modules.h"

namespace plimsoll {
namespace {

constexpr const char* square_loop = "b a s t -> b a s t";

}  // namespace

EagerModules::Mixed EagerModules::eager_attention(const std::array<TensorId, 3>& heads, const EagerAttention& of,
                                                  const std::string& name) {
  const Shape by_head = (*this)[heads[0]].shape;
  const std::int64_t samples = by_head[0], positions = by_head[1], count = by_head[2], size = by_head[3];
  const Shape square{samples, count, positions, positions}, apart{samples, count, positions, size};
  const double flops =
      2 * static_cast<double>(samples * count) * static_cast<double>(positions * positions) * static_cast<double>(size);
  const std::string here = of.copies_heads ? "b a s e" : "b s a e", there = of.copies_heads ? "b a t e" : "b t a e";
  std::array<TensorId, 3> read = heads;
  constexpr std::array names{".queries", ".keys", ".values"};
  for (std::size_t i = 0; of.copies_heads && i < heads.size(); ++i) {
    read[i] = made_value(name + names[i] + ".by head", apart, narrow());
    forward(name + names[i] + ".clone", {"clone", "b s a e -> b a s e"}, {heads[i]}, {read[i]});
  }
  const TensorId q = read[0], k = read[1], v = read[2];

  const TensorId scores = made_value(name + ".scores", square, narrow());
  forward(name + ".score", {"matmul", here + ", " + there + " -> b a s t", flops}, {q, k}, {scores});
  std::vector<std::function<TensorId(TensorId)>> masked;
  TensorId kept = scores;
  const auto step = [&](const std::string& what, const std::string& kind, bool has_mask) {
    const TensorId from = kept, out = made_value(name + what + ".out", square, narrow());
    Ids inputs{from};
    if (has_mask && of.of) inputs.push_back(*of.of);
    const std::string loop = inputs.size() == 1 ? std::string(square_loop) : "b a s t, " + of.mask_axes + " -> b a s t";
    forward(name + what, {kind, loop}, std::move(inputs), {out});
    kept = out;
    return from;
  };
  const auto step_back = [&](const std::string& what, const std::string& kind, TensorId from) {
    masked.emplace_back([=, this](TensorId d) {
      const TensorId dfrom = gradient(from);
      backward(name + what, "", {kind, square_loop}, {d}, {dfrom});
      return dfrom;
    });
  };
  if (of.is_divided) step_back(".scale", "div", step(".scale", "div", false));
  if (of.mask == ScoreMask::chosen) step_back(".mask", "where", step(".mask", "where", true));
  if (of.mask != ScoreMask::chosen) step(".mask", "add", true);
  if (of.mask == ScoreMask::bounded) {
    const TensorId from = step(".bound", "maximum", false);
    masked.emplace_back([=, this](TensorId d) {
      const TensorId dfrom = gradient(from);
      // Where both are equal each gets one half, where it is less none: comparisons, a half, a choice, a fill.
      const double number = static_cast<double>(narrow().bytes);
      const double moved = 9 * number + 4;  // comparisons make bytes
      const double numbers = static_cast<double>((*this)[from].bytes.count) / number;
      backward(name + ".bound", "",
               {.kind = "maximum_backward", .loop = "b a s t, b a s t -> b a s t", .moved = moved * numbers}, {d, from},
               {dfrom});
      return dfrom;
    });
  }
  const TensorId weights = made_value(name + ".weights", square, narrow());
  forward(name + ".softmax", {"softmax", "b a s t! -> b a s t"}, {kept}, {weights});
  const Made used = dropout(weights, name + ".dropout", "b a s t", of.has_dropout);
  const TensorId mixed = made_value(name + ".mixed by head", apart, narrow());
  forward(name + ".mix", {"matmul", "b a s t, " + there + " -> b a s e", flops}, {used.out, v}, {mixed});
  const TensorId out = made_value(name + ".mixed", by_head, narrow());
  forward(name + ".mixed.clone", {"clone", "b a s e -> b s a e"}, {mixed}, {out});

  return {
      out, [=, this, masked = std::move(masked)](TensorId d) -> std::array<TensorId, 3> {
        TensorId dmixed = d;
        if (of.copies_heads && samples > 1) {  // one sample's heads are read where they lie
          dmixed = gradient(mixed);
          backward(name + ".mixed.clone", "", {"clone", "b s a e -> b a s e"}, {d}, {dmixed});
        }
        const std::string mixed_axes = dmixed == d ? "b s a e" : "b a s e";
        TensorId dweights = gradient(used.out);
        const TensorId dv = gradient(heads[2]), dq = gradient(heads[0]), dk = gradient(heads[1]);
        backward(name + ".mix", " (weights)", {"matmul", mixed_axes + ", " + there + " -> b a s t", flops}, {dmixed, v},
                 {dweights});
        backward(name + ".mix", " (values)", {"matmul", "b a s t, " + mixed_axes + " -> b t a e", flops},
                 {used.out, dmixed}, {dv});
        dweights = used.backward(dweights);
        TensorId dscores = gradient(kept);
        backward(name + ".softmax", "", {"softmax", "b a s t!, b a s t -> b a s t"}, {dweights, weights}, {dscores});
        for (auto each = masked.rbegin(); each != masked.rend(); ++each) dscores = (*each)(dscores);
        backward(name + ".score", " (queries)", {"matmul", "b a s t, " + there + " -> b s a e", flops}, {dscores, k},
                 {dq});
        backward(name + ".score", " (keys)", {"matmul", "b a s t, " + here + " -> b t a e", flops}, {dscores, q}, {dk});
        return {dq, dk, dv};
      }};
}

void refuse_sizes(std::string_view model, const AskedSizes& asked) {
  if (asked.width % asked.heads != 0) {
    throw InputError(fmt::format("{}: heads: must divide width {}, found {}", model, asked.width, asked.heads));
  }
  if (asked.sequence > asked.positions) {
    throw InputError(
        fmt::format("{}: sequence: at most positions {}, found {}", model, asked.positions, asked.sequence));
  }
  if (EagerModules::attentions.at(asked.attention) == "eager" && EagerModules::precisions.at(asked.dtype) == "amp") {
    throw InputError(
        fmt::format("{}: attention=eager: expected one dtype, found amp, under which types of scores change", model));
  }
}

}  // namespace plimsoll
