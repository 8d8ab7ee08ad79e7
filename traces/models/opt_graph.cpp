#include <fmt/format.h>

#include <string>

#include "traces/models/encoder_blocks.h"
#include "traces/models/encoder_graphs.h"

namespace plimsoll {
namespace {

EncoderSizes sizes_of(const OptGraph& of) {
  return {.samples = of.batch,
          .positions = of.sequence,
          .width = of.width,
          .heads = of.heads,
          .inner = of.inner == 0 ? std::int64_t{4} * of.width : of.inner,
          .is_eager = of.attention == 1,
          .has_dropout = of.dropout == 1,
          .is_decoder = true,
          .lora = of.lora};
}

class OptBuilder : private EncoderBlocks {
 public:
  explicit OptBuilder(const OptGraph& of)
      : EncoderBlocks("opt", precisions.at(of.dtype), of.rate, sizes_of(of)), of_(of) {
    note("formula",
         fmt::format("operators of OPT as eager PyTorch runs Hugging Face's, {} dropout, with {} causal attention",
                     of.dropout == 1 ? "with" : "without", attentions.at(of.attention)));
  }

  Graph run() {
    table_ = weight("embedding.table", {of_.vocabulary, of_.width});
    if (of_.attention == 1) {
      mask_ = tensor("attention mask", TensorKind::input, {of_.batch, of_.sequence, of_.sequence}, narrow().bytes);
    }
    TensorId x = embedding();
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) {
      x = behind_norm(x, fmt::format("layer{}.attention", layer),
                      [this](TensorId normed, const std::string& name) { return attention(normed, name); });
      x = behind_norm(x, fmt::format("layer{}.mlp", layer),
                      [this](TensorId normed, const std::string& name) { return relu_mlp(normed, name); });
    }
    const TensorId logits = head(x);
    if (of_.loss == 0) return finished(given_gradient(logits, of_.logits == 1));
    loss_of_rows(logits, "b s", fp32(), of_.logits == 1);
    return finished();
  }

 private:
  TensorId embedding() {
    constexpr std::int64_t rows_before = 2;  // which no position has
    const Shape shape{of_.batch, of_.sequence, of_.width};
    const TensorId tokens = tensor("tokens", TensorKind::input, {of_.batch, of_.sequence}, 8, "int64");
    const TensorId positions = weight("embedding.positions", {of_.positions + rows_before, of_.width});
    const TensorId found = made_value("embedding.words", shape, wide()),
                   placed = made_value("embedding.places", {of_.sequence, of_.width}, wide()),
                   sum = made_value("embedding.out", shape, wide());
    const double row = static_cast<double>((*this)[found].bytes.count),
                 place = static_cast<double>((*this)[placed].bytes.count);
    forward("embedding", {.kind = "embedding", .loop = "b s, v w -> b s w", .moved = 2 * row}, {tokens, table_},
            {found});
    forward("embedding.position", {.kind = "embedding", .loop = "- w -> s w", .moved = 2 * place}, {positions},
            {placed});
    forward("embedding.add", {"add", "b s w, s w -> b s w"}, {found, placed}, {sum});
    end_stage([=, this](TensorId d) {
      const TensorId dplaced = gradient(placed);
      backward("embedding.add", " (position)", {"sum", "b s w -> s w"}, {d}, {dplaced});
      backward("embedding.position", " (weight)", {"embedding", "s w -> - w"}, {dplaced}, {gradient(positions)});
      token_table_backward("embedding", tokens, d, table_, true);
      return d;
    });
    return sum;
  }

  /// x + block(norm(x)), a stage.
  template <class Block>
  TensorId behind_norm(TensorId x, const std::string& name, const Block& of) {
    const Made normed = layer_norm(x, name + ".norm", of_.width);
    const Made block = of(normed.out, name);
    const Made dropped = dropout(block.out, name + ".dropout.out", "b s w", sizes_.has_dropout);
    const Made added = past_block(dropped.out, x, name + ".add");
    end_stage([=, this](TensorId d) {
      const TensorId through = normed.backward(block.backward(dropped.backward(added.backward(d))));
      return both_ways(through, d, name + ".norm");
    });
    return added.out;
  }

  Made relu_mlp(TensorId x, const std::string& name) {
    const Products up = dense(name + ".up", x, sizes_.width, sizes_.inner);
    const TensorId bent = like(name + ".relu.out", up.outs[0], narrow());
    forward(name + ".relu", {"relu", "b s f -> b s f"}, {up.outs[0]}, {bent});
    const Products down = dense(name + ".down", bent, sizes_.inner, sizes_.width);
    return {down.outs[0], [=, this](TensorId d) {
              const TensorId dbent = down.backward(d), dup = gradient(up.outs[0]);
              backward(name + ".relu", "", {"threshold_backward", "b s f, b s f -> b s f"}, {dbent, bent}, {dup});
              return up.backward(dup);
            }};
  }

  TensorId head(TensorId x) {
    const Made normed = layer_norm(x, "head.norm", of_.width);
    const Products logits = word_logits(normed.out, table_, of_.vocabulary, std::nullopt);
    end_stage([=](TensorId d) { return normed.backward(logits.backward(d)); });
    return logits.outs[0];
  }

  const OptGraph& of_;
  TensorId table_;
};

}  // namespace

Graph opt_graph(const OptGraph& sizes) {
  refuse_sizes("opt", {.width = sizes.width,
                       .heads = sizes.heads,
                       .sequence = sizes.sequence,
                       .positions = sizes.positions,
                       .attention = sizes.attention,
                       .dtype = sizes.dtype});
  return OptBuilder(sizes).run();
}

}  // namespace plimsoll
