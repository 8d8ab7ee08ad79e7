#include <fmt/format.h>

#include <string>

#include "traces/models/encoder_blocks.h"
#include "traces/models/encoder_graphs.h"

namespace plimsoll {
namespace {

EncoderSizes sizes_of(const BertGraph& of) {
  return {.samples = of.batch,
          .positions = of.sequence,
          .width = of.width,
          .heads = of.heads,
          .inner = of.inner == 0 ? std::int64_t{4} * of.width : of.inner,
          .is_eager = of.attention == 1,
          .has_dropout = of.dropout == 1};
}

class BertBuilder : private EncoderBlocks {
 public:
  explicit BertBuilder(const BertGraph& of)
      : EncoderBlocks("bert", precisions.at(of.dtype), of.rate, sizes_of(of)), of_(of) {
    note("formula", fmt::format("operators of BERT as eager PyTorch runs Hugging Face's, {} dropout, with {} attention",
                                of.dropout == 1 ? "with" : "without", attentions.at(of.attention)));
  }

  Graph run() {
    table_ = weight("embedding.table", {of_.vocabulary, of_.width});
    if (of_.attention == 1)
      mask_ = tensor("attention mask", TensorKind::input, {of_.batch, of_.sequence}, narrow().bytes);
    TensorId x = embedding();
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) {
      const std::string name = fmt::format("layer{}", layer);
      x = normed_behind(attention(x, name + ".attention"), x, name + ".attention");
      x = normed_behind(mlp(x, name + ".mlp"), x, name + ".mlp");
    }
    const bool has_words = of_.head == 0;
    const TensorId logits = has_words ? words(x) : classes(x);
    if (of_.loss == 0) return finished(given_gradient(logits, of_.logits == 1));
    loss_of_rows(logits, has_words ? "b s" : "b", is_mixed() ? fp32() : narrow(), of_.logits == 1);
    return finished();
  }

 private:
  TensorId embedding() {
    const Shape shape{of_.batch, of_.sequence, of_.width};
    const TensorId tokens = tensor("tokens", TensorKind::input, {of_.batch, of_.sequence}, 8, "int64");
    const TensorId types = tensor("token types", TensorKind::input, {of_.batch, of_.sequence}, 8, "int64");
    const TensorId type_table = weight("embedding.types", {2, of_.width}),
                   positions = weight("embedding.positions", {of_.positions, of_.width});
    const TensorId found = made_value("embedding.words.out", shape, wide()),
                   typed = made_value("embedding.types.out", shape, wide()),
                   both = made_value("embedding.add.out", shape, wide()),
                   placed = made_value("embedding.places.out", {of_.sequence, of_.width}, wide()),
                   sum = made_value("embedding.sum", shape, wide());
    const double row = static_cast<double>((*this)[found].bytes.count),
                 place = static_cast<double>((*this)[placed].bytes.count);
    const auto look_up = [&](const std::string& part, const char* loop, double moved, Ids inputs, TensorId out) {
      forward("embedding" + part, {.kind = "embedding", .loop = loop, .moved = 2 * moved}, std::move(inputs), {out});
    };
    look_up("", "b s, v w -> b s w", row, {tokens, table_}, found);
    look_up(".type", "b s, u w -> b s w", row, {types, type_table}, typed);
    forward("embedding.add", {"add", "b s w, b s w -> b s w"}, {found, typed}, {both});
    look_up(".position", "- w -> s w", place, {positions}, placed);
    forward("embedding.place", {"add", "b s w, s w -> b s w"}, {both, placed}, {sum});
    const Made normed = layer_norm(sum, "embedding.norm", of_.width);
    const Made dropped = dropout(normed.out, "embedding.dropout", "b s w", sizes_.has_dropout);
    end_stage([=, this](TensorId last) {
      const TensorId d = normed.backward(dropped.backward(last));
      const TensorId dplaced = gradient(placed);
      backward("embedding.place", " (position)", {"sum", "b s w -> s w"}, {d}, {dplaced});
      backward("embedding.position", " (weight)", {"embedding", "s w -> - w"}, {dplaced}, {gradient(positions)});
      backward("embedding.type", " (weight)", {"embedding", "b s, b s w -> u w"}, {types, d}, {gradient(type_table)});
      token_table_backward("embedding", tokens, d, table_, of_.head == 0);
      return d;
    });
    return dropped.out;
  }

  /// norm(block + x), a stage.
  TensorId normed_behind(const Made& block, TensorId x, const std::string& name) {
    const Made dropped = dropout(block.out, name + ".add.dropout", "b s w", sizes_.has_dropout);
    const Made added = past_block(dropped.out, x, name + ".add");
    const Made normed = layer_norm(added.out, name + ".norm", of_.width);
    end_stage([=, this](TensorId d) {
      const TensorId dsum = normed.backward(d);
      return both_ways(block.backward(dropped.backward(added.backward(dsum))), dsum, name);
    });
    return normed.out;
  }

  TensorId words(TensorId x) {
    const Products turned = dense("head.dense", x, of_.width, of_.width);
    const Made bent = gelu(turned.outs[0], "head.gelu");
    const Made widened = converted(bent.out, wide(), "head.norm.to", "b s w");
    const Made normed = layer_norm(widened.out, "head.norm", of_.width);
    const Products logits = word_logits(normed.out, table_, of_.vocabulary, weight("head.bias", {of_.vocabulary}));
    end_stage([=](TensorId d) {
      return turned.backward(bent.backward(widened.backward(normed.backward(logits.backward(d)))));
    });
    return logits.outs[0];
  }

  TensorId classes(TensorId x) {
    const Products pooled = of_first_position("head.pooler", x, of_.width);
    const TensorId bent = like("head.tanh.out", pooled.outs[0], narrow());
    forward("head.tanh", {"tanh", "b w -> b w"}, pooled.outs, {bent});
    const Products logits = of_row("head", bent, of_.width, of_.classes);
    end_stage([=, this](TensorId d) {
      const TensorId dbent = logits.backward(d), dpooled = gradient(pooled.outs[0]);
      backward("head.tanh", "", {"tanh_backward", "b w, b w -> b w"}, {dbent, bent}, {dpooled});
      return pooled.backward(dpooled);
    });
    return logits.outs[0];
  }

  const BertGraph& of_;
  TensorId table_;
};

}  // namespace

Graph bert_graph(const BertGraph& sizes) {
  refuse_sizes("bert", {.width = sizes.width,
                        .heads = sizes.heads,
                        .sequence = sizes.sequence,
                        .positions = sizes.positions,
                        .attention = sizes.attention,
                        .dtype = sizes.dtype});
  return BertBuilder(sizes).run();
}

}  // namespace plimsoll
