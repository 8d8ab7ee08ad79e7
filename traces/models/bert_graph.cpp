#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "sim/io/input_error.h"
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
          .has_dropout = of.dropout == 1,
          .lora = of.lora};
}

class BertBuilder : private EncoderBlocks {
 public:
  explicit BertBuilder(const BertGraph& of)
      : EncoderBlocks("bert", precisions.at(of.dtype), of.rate, sizes_of(of)), of_(of) {
    constexpr std::array names{"BERT", "RoBERTa", "DistilBERT"};
    note("formula",
         fmt::format("operators of {} as eager PyTorch runs Hugging Face's, {} dropout, with {} attention",
                     names.at(of.variant), of.dropout == 1 ? "with" : "without", attentions.at(of.attention)));
  }

  Graph run() {
    table_ = weight("embedding.table", {of_.vocabulary, of_.width});
    if (of_.attention == 1)
      mask_ = tensor("attention mask", TensorKind::input, {of_.batch, of_.sequence}, narrow().bytes);
    TensorId x = embedding();
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) {
      const std::string name = fmt::format("layer{}", layer);
      x = normed_behind(attention(x, name + ".attention"), x, name + ".attention", !is_distilled());
      x = normed_behind(mlp(x, name + ".mlp"), x, name + ".mlp", true);
    }
    const bool has_words = of_.head == 0;
    const TensorId logits = has_words ? words(x) : classes(x);
    if (of_.loss == 0) return finished(given_gradient(logits, of_.logits == 1));
    loss_of_rows(logits, has_words ? "b s" : "b", is_mixed() ? fp32() : narrow(), of_.logits == 1);
    return finished();
  }

 private:
  bool is_roberta() const { return BertGraph::variants.at(of_.variant) == "roberta"; }
  bool is_distilled() const { return BertGraph::variants.at(of_.variant) == "distilbert"; }

  void look_up(const std::string& part, const char* loop, Ids inputs, TensorId out) {
    const double moved = 2 * static_cast<double>((*this)[out].bytes.count);
    forward("embedding" + part, {.kind = "embedding", .loop = loop, .moved = moved}, std::move(inputs), {out});
  }
  TensorId made_row(const char* name) { return made_value(name, {of_.batch, of_.sequence, of_.width}, wide()); }
  TensorId indices(const std::string& name, TensorKind kind) {
    return tensor(name, kind, {of_.batch, of_.sequence}, 8, "int64");
  }

  TensorId embedding() {
    const TensorId tokens = indices("tokens", TensorKind::input);
    // RoBERTa counts the words before each, and gathers segments by these places.
    std::optional<TensorId> places, types;
    if (is_roberta()) {
      places = indices("embedding.ids", TensorKind::activation);
      types = indices("embedding.type.ids", TensorKind::activation);
      forward("embedding.count", {"cumsum", "b s -> b s"}, {tokens}, {*places});
      forward("embedding.gather", {"gather", "b s -> b s"}, {*places}, {*types});
    } else if (!is_distilled()) {
      types = indices("token types", TensorKind::input);
    }
    const TensorId found = made_row("embedding.words.out");
    look_up("", "b s, v w -> b s w", {tokens, table_}, found);
    const Made typed = types ? with_types(found, *types) : Made{found, [](TensorId d) { return d; }};
    const Made placed = places ? with_places(typed.out, *places) : with_positions(typed.out);
    const Made normed = layer_norm(placed.out, "embedding.norm", of_.width);
    const Made dropped = dropout(normed.out, "embedding.dropout", "b s w", sizes_.has_dropout);
    end_stage([=, this](TensorId last) {
      const TensorId d = typed.backward(placed.backward(normed.backward(dropped.backward(last))));
      token_table_backward("embedding", tokens, d, table_, of_.head == 0);
      return d;
    });
    return dropped.out;
  }

  Made with_types(TensorId x, TensorId types) {
    const TensorId table = weight("embedding.types", {is_roberta() ? 1 : 2, of_.width}),
                   typed = made_row("embedding.types.out"), both = made_row("embedding.add.out");
    look_up(".type", "b s, u w -> b s w", {types, table}, typed);
    forward("embedding.add", {"add", "b s w, b s w -> b s w"}, {x, typed}, {both});
    return {
        both, [=, this](TensorId d) {
          backward("embedding.type", " (weight)", {"embedding", "b s, b s w -> u w"}, {types, d}, {gradient(table)});
          return d;
        }};
  }

  /// The same of all samples.
  Made with_positions(TensorId x) {
    const TensorId table = weight("embedding.positions", {of_.positions, of_.width}),
                   placed = made_value("embedding.places.out", {of_.sequence, of_.width}, wide()),
                   sum = made_row("embedding.sum");
    look_up(".position", "- w -> s w", {table}, placed);
    forward("embedding.place", {"add", "b s w, s w -> b s w"}, {x, placed}, {sum});
    return {sum, [=, this](TensorId d) {
              const TensorId dplaced = gradient(placed);
              backward("embedding.place", " (position)", {"sum", "b s w -> s w"}, {d}, {dplaced});
              backward("embedding.position", " (weight)", {"embedding", "s w -> - w"}, {dplaced}, {gradient(table)});
              return d;
            }};
  }

  /// Of each sample's own.
  Made with_places(TensorId x, TensorId places) {
    const TensorId table = weight("embedding.positions", {of_.positions, of_.width}),
                   placed = made_row("embedding.places.out"), sum = made_row("embedding.sum");
    look_up(".position", "b s, p w -> b s w", {places, table}, placed);
    forward("embedding.place", {"add", "b s w, b s w -> b s w"}, {x, placed}, {sum});
    return {sum, [=, this](TensorId d) {
              backward("embedding.position", " (weight)", {"embedding", "b s, b s w -> p w"}, {places, d},
                       {gradient(table)});
              return d;
            }};
  }

  /// norm(block + x), a stage.
  TensorId normed_behind(const Made& block, TensorId x, const std::string& name, bool drops) {
    const Made dropped = dropout(block.out, name + ".add.dropout", "b s w", drops && sizes_.has_dropout);
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
    const std::string act = is_distilled() ? "relu" : "tanh", name = "head." + act;
    const Products pooled = of_first_position("head.pooler", x, of_.width, is_roberta());
    const TensorId bent = like(name + ".out", pooled.outs[0], narrow());
    forward(name, {act, "b w -> b w"}, pooled.outs, {bent});
    const Products logits = of_row("head", bent, of_.width, of_.classes);
    end_stage([=, this](TensorId d) {
      const TensorId dbent = logits.backward(d), dpooled = gradient(pooled.outs[0]);
      const std::string kind = is_distilled() ? "threshold_backward" : "tanh_backward";
      backward(name, "", {kind, "b w, b w -> b w"}, {dbent, bent}, {dpooled});
      return pooled.backward(dpooled);
    });
    return logits.outs[0];
  }

  const BertGraph& of_;
  TensorId table_;
};

}  // namespace

Graph bert_graph(const BertGraph& sizes) {
  constexpr std::uint32_t rows_before = 2;  // which no position of RoBERTa has
  const bool skips = BertGraph::variants.at(sizes.variant) == "roberta";
  if (skips && sizes.positions <= rows_before) {
    throw InputError(fmt::format("bert: positions: expected more than {}, found {}", rows_before, sizes.positions));
  }
  refuse_sizes("bert", {.width = sizes.width,
                        .heads = sizes.heads,
                        .sequence = sizes.sequence,
                        .positions = skips ? sizes.positions - rows_before : sizes.positions,
                        .attention = sizes.attention,
                        .dtype = sizes.dtype});
  return BertBuilder(sizes).run();
}

}  // namespace plimsoll
