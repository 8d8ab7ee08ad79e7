#include "traces/models/gpt2_graph.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "traces/models/eager_modules.h"

namespace plimsoll {
namespace {

// Loops name samples b, positions s and t, width w, heads a, numbers of a head e, inner numbers f, words v.

class Gpt2Builder : private EagerModules {
 public:
  explicit Gpt2Builder(const Gpt2Graph& of)
      : EagerModules("gpt2", precisions.at(of.dtype), of.rate, of.lora),
        of_(of),
        samples_(of.batch),
        tokens_(of.sequence),
        width_(of.width),
        head_size_(of.width / of.heads) {
    note("formula",
         fmt::format("operators of GPT-2 as eager PyTorch runs Hugging Face's, {} dropout, with {} causal attention",
                     has_dropout() ? "with" : "without", attentions.at(of.attention)));
  }

  Graph run() {
    table_ = weight("embedding.table", {of_.vocabulary, width_});
    TensorId x = embedding();
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) {
      x = attention(x, fmt::format("layer{}.attention", layer));
      x = mlp(x, fmt::format("layer{}.mlp", layer));
    }
    const TensorId logits = head(x);
    if (of_.loss == 0) return finished(given_gradient(logits, of_.logits == 1));
    loss_of_rows(logits, "b s", fp32(), of_.logits == 1);
    return finished();
  }

 private:
  bool has_dropout() const { return of_.dropout == 1; }
  double numbers() const { return static_cast<double>(samples_) * static_cast<double>(tokens_); }
  Shape token_shape() const { return {samples_, tokens_, width_}; }
  /// 2 flops for each number of the weight and each token.
  double flops(double inputs, double outputs) const { return 2 * numbers() * inputs * outputs; }

  TensorId embedding() {
    const TensorId tokens = tensor("tokens", TensorKind::input, {samples_, tokens_}, 8, "int64");
    const TensorId positions = weight("embedding.positions", {of_.positions, width_});
    const TensorId found = made_value("embedding.words", token_shape(), wide()),
                   placed = made_value("embedding.places", {tokens_, width_}, wide()),
                   sum = made_value("embedding.out", token_shape(), wide());
    const double row = static_cast<double>((*this)[found].bytes.count),
                 place = static_cast<double>((*this)[placed].bytes.count);
    forward("embedding", {.kind = "embedding", .loop = "b s, v w -> b s w", .moved = 2 * row}, {tokens, table_},
            {found});
    forward("embedding.position", {.kind = "embedding", .loop = "- w -> s w", .moved = 2 * place}, {positions},
            {placed});
    forward("embedding.add", {"add", "b s w, s w -> b s w"}, {found, placed}, {sum});
    const Made dropped = dropout(sum, "embedding.dropout", "b s w", has_dropout());
    end_stage([=, this](TensorId last) {
      const TensorId d = dropped.backward(last);
      const TensorId dplaced = gradient(placed);
      backward("embedding.add", " (position)", {"sum", "b s w -> s w"}, {d}, {dplaced});
      backward("embedding.position", " (weight)", {"embedding", "s w -> - w"}, {dplaced}, {gradient(positions)});
      token_table_backward("embedding", tokens, d, table_, true);
      return d;
    });
    return dropped.out;
  }

  TensorId attention(TensorId x, const std::string& name) {
    const Shape by_head{samples_, tokens_, of_.heads, head_size_};
    const auto w = static_cast<double>(width_);
    const Made normed = layer_norm(x, name + ".norm", width_);
    const Products qkv = product(name + ".qkv",
                                 {.x = "b s w",
                                  .weight = "w - a e",
                                  .bias = "- a e",
                                  .made = "b s a e",
                                  .flops = flops(w, 3 * w),
                                  .outputs = {name + ".queries", name + ".keys", name + ".values"},
                                  .shape = by_head,
                                  .joined = "b s - a e"},
                                 normed.out, weight(name + ".qkv.weight", {width_, 3, of_.heads, head_size_}),
                                 weight(name + ".qkv.bias", {3, of_.heads, head_size_}));
    const Mixed mixed = of_.attention == 0 ? fused(qkv.outs, name) : eager(qkv.outs, name);
    const Products out = product(name + ".out",
                                 {.x = "b s a! e!",
                                  .weight = "a e w",
                                  .bias = "w",
                                  .made = "b s w",
                                  .flops = flops(w, w),
                                  .outputs = {name + ".y"},
                                  .shape = token_shape()},
                                 mixed.out, weight(name + ".out.weight", {of_.heads, head_size_, width_}),
                                 weight(name + ".out.bias", {width_}));
    const Made dropped = dropout(out.outs[0], name + ".out.dropout", "b s w", has_dropout());
    const Made added = past_block(dropped.out, x, name + ".add");
    end_stage([=, this](TensorId d) {
      const auto [dq, dk, dv] = mixed.backward(out.backward(dropped.backward(added.backward(d))));
      const TensorId joined = tensor("gradient of " + name + ".qkv.out", TensorKind::gradient,
                                     {samples_, tokens_, 3, of_.heads, head_size_}, narrow().bytes, narrow().name);
      backward(name + ".qkv", " (cat)", {"cat", "b s a e, b s a e, b s a e -> b s - a e"}, {dq, dk, dv}, {joined});
      return both_ways(normed.backward(qkv.backward(joined)), d, name + ".norm");
    });
    return added.out;
  }

  Mixed eager(const std::vector<TensorId>& qkv, const std::string& name) {
    return eager_attention({qkv[0], qkv[1], qkv[2]},
                           {.mask = ScoreMask::chosen,
                            .has_dropout = has_dropout(),
                            .copies_heads = samples_ > 1,
                            .of = {},
                            .mask_axes = {}},
                           name);
  }

  Mixed fused(const std::vector<TensorId>& qkv, const std::string& name) {
    const TensorId q = qkv[0], k = qkv[1], v = qkv[2];
    const TensorId mixed = like(name + ".mixed", q, narrow());
    const TensorId sums = made_value(name + ".sums", {samples_, of_.heads, tokens_}, fp32());
    // Two products of the causal half of the square. There is no flash attention of fp32.
    const double half = numbers() * static_cast<double>(tokens_) * static_cast<double>(width_);
    const std::string kernel =
        is_narrow() ? "_scaled_dot_product_flash_attention" : "_scaled_dot_product_efficient_attention";
    forward(name + ".flash", {kernel, "b s~ a e!, b t! a e, b t a e -> b s a e, b a s", 2 * half}, {q, k, v},
            {mixed, sums});
    return {mixed, [=, this](TensorId dmixed) -> std::array<TensorId, 3> {
              const TensorId dq = gradient(q), dk = gradient(k), dv = gradient(v);
              backward(name + ".flash", "",
                       {kernel + "_backward",
                        "b s~ a e!, b s a e, b t! a e, b t a e, b s a e, b a s -> b s a e, b t a e, b t a e", 5 * half},
                       {dmixed, q, k, v, mixed, sums}, {dq, dk, dv});
              return {dq, dk, dv};
            }};
  }

  TensorId mlp(TensorId x, const std::string& name) {
    const std::int64_t inner = 4 * width_;
    const double each = flops(static_cast<double>(width_), static_cast<double>(inner));
    const Made normed = layer_norm(x, name + ".norm", width_);
    const Products up =
        product(name + ".up",
                {.x = "b s w",
                 .weight = "w f",
                 .bias = "f",
                 .made = "b s f",
                 .flops = each,
                 .outputs = {name + ".before GELU"},
                 .shape = {samples_, tokens_, inner}},
                normed.out, weight(name + ".up.weight", {width_, inner}), weight(name + ".up.bias", {inner}));
    const Made bent = gelu_of_kernels(up.outs[0], name + ".gelu");
    const Products down =
        product(name + ".down",
                {.x = "b s f!",
                 .weight = "f w",
                 .bias = "w",
                 .made = "b s w",
                 .flops = each,
                 .outputs = {name + ".y"},
                 .shape = token_shape()},
                bent.out, weight(name + ".down.weight", {inner, width_}), weight(name + ".down.bias", {width_}));
    const Made dropped = dropout(down.outs[0], name + ".dropout", "b s w", has_dropout());
    const Made added = past_block(dropped.out, x, name + ".add");
    end_stage([=, this](TensorId d) {
      const TensorId dbent = bent.backward(down.backward(dropped.backward(added.backward(d))));
      return both_ways(normed.backward(up.backward(dbent)), d, name + ".norm");
    });
    return added.out;
  }

  TensorId head(TensorId x) {
    const Made normed = layer_norm(x, "head.norm", width_);
    const Products logits = product("head",
                                    {.x = "b s w",
                                     .weight = "v w",
                                     .bias = {},
                                     .made = "b s v",
                                     .flops = flops(static_cast<double>(width_), of_.vocabulary),
                                     .outputs = {"logits"},
                                     .shape = {samples_, tokens_, of_.vocabulary}},
                                    normed.out, table_, std::nullopt);
    end_stage([=](TensorId d) { return normed.backward(logits.backward(d)); });
    return logits.outs[0];
  }

  const Gpt2Graph& of_;
  std::int64_t samples_, tokens_, width_, head_size_;
  TensorId table_;
};

}  // namespace

Graph gpt2_graph(const Gpt2Graph& sizes) {
  refuse_sizes("gpt2", {.width = sizes.width,
                        .heads = sizes.heads,
                        .sequence = sizes.sequence,
                        .positions = sizes.positions,
                        .attention = sizes.attention,
                        .dtype = sizes.dtype});
  return Gpt2Builder(sizes).run();
}

}  // namespace plimsoll
