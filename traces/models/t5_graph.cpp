// T5 as eager PyTorch runs Hugging Face's: norms without means, biases of relative positions, attention from kernels.

#include <fmt/format.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "traces/models/eager_modules.h"
#include "traces/models/encoder_graphs.h"

namespace plimsoll {
namespace {

// Loops name samples b, positions s and t, width w, heads a, numbers of a head e, inner numbers f, words v.

class T5Builder : private EagerModules {
 public:
  explicit T5Builder(const T5Graph& of)
      : EagerModules("t5", T5Graph::dtypes.at(of.dtype), of.rate, of.lora), of_(of), has_dropout_(of.dropout == 1) {
    note("formula", fmt::format("operators of T5 as eager PyTorch runs Hugging Face's, {} dropout",
                                has_dropout_ ? "with" : "without"));
  }

  Graph run() {
    table_ = weight("embedding.table", {of_.vocabulary, of_.width});
    const Shape heard{of_.batch, of_.source, of_.width}, said{of_.batch, of_.sequence, of_.width};
    TensorId x = embedding("source", heard);
    bias_ = {};
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) {
      const std::string name = fmt::format("layer{}", layer);
      x = attended(x, name + ".attention", std::nullopt);
      x = bent(x, name + ".mlp");
    }
    const TensorId memory = remembered(x);
    TensorId y = embedding("target", said);
    bias_ = {};
    for (std::uint32_t layer = 0; layer < of_.decoder; ++layer) {
      const std::string name = fmt::format("decoder{}", layer);
      y = attended(y, name + ".attention", std::nullopt);
      y = attended(y, name + ".cross", memory);
      y = bent(y, name + ".mlp");
    }
    loss_of_rows(head(y), "b s", is_mixed() ? fp32() : narrow(), of_.logits == 1);
    return finished();
  }

 private:
  bool is_tied() const { return of_.tied == 1; }
  double rows(TensorId x) const { return static_cast<double>((*this)[x].shape[0] * (*this)[x].shape[1]); }

  TensorId embedding(const std::string& name, const Shape& shape) {
    const TensorId tokens = tensor(name + " tokens", TensorKind::input, {shape[0], shape[1]}, 8, "int64");
    const TensorId found = made_value(name + ".out", shape, wide());
    const double row = static_cast<double>((*this)[found].bytes.count);
    forward(name, {.kind = "embedding", .loop = "b s, v w -> b s w", .moved = 2 * row}, {tokens, table_}, {found});
    const Made dropped = dropout(found, name + ".dropout", "b s w", has_dropout_);
    const bool adds = is_tied() || name == "source";  // the decoder's comes first, but for that of the head
    end_stage([=, this](TensorId given) {
      const TensorId d = dropped.backward(given);
      token_table_backward(name, tokens, d, table_, adds);
      return d;
    });
    return dropped.out;
  }

  /// Over the root of the mean square in fp32, then times the scale in the type of x, which is kept, too
  /// (T5LayerNorm). Bytes are those of PyTorch 2.6's ops.
  Made norm(TensorId x, const std::string& name) {
    const Shape shape = (*this)[x].shape, by_token{shape[0], shape[1]};
    const double numbers = rows(x) * static_cast<double>(of_.width);
    const TensorId scale = weight(name + ".scale", {of_.width});
    const TensorId roots = made_value(name + ".roots", by_token, fp32()), normed = like(name + ".normed", x, wide()),
                   out = like(name + ".out", x, wide());
    Ids made{normed, out, roots};
    std::string loop = "b s w!, w -> b s w, b s w, b s";
    const bool is_converted = type_of(x) != fp32();
    TensorId wide = x;
    if (is_converted) {
      wide = like(name + ".wide", x, fp32());
      made.push_back(wide);
      loop += ", b s w";
    }
    constexpr double there_narrow = 34, there_wide = 28, back_narrow = 90, back_wide = 92;
    const double there = is_converted ? there_narrow : there_wide, back = is_converted ? back_narrow : back_wide;
    forward(name, {.kind = "rms_norm", .loop = loop, .moved = there * numbers}, {x, scale}, made);
    return {out, [=, this](TensorId d) {
              const TensorId dx = gradient(x);
              // Only the scale's gradient needs normed values, and four passes in their type.
              Ids inputs{d, x, roots, scale};
              std::string read = "b s w!, b s w, b s, w";
              if (!is_frozen()) {
                inputs.push_back(normed);
                read += ", b s w";
              }
              if (wide != x) {
                inputs.push_back(wide);
                read += ", b s w";
              }
              const double of_scale = 4 * static_cast<double>(type_of(out).bytes);
              Ids outputs{dx};
              if (!is_frozen()) outputs.push_back(gradient(scale));
              backward(name, "",
                       {.kind = "rms_norm",
                        .loop = read + (is_frozen() ? " -> b s w" : " -> b s w, w"),
                        .moved = (is_frozen() ? back - of_scale : back) * numbers},
                       std::move(inputs), std::move(outputs));
              return dx;
            }};
  }

  /// Without a bias: to heads, from heads, or of all numbers.
  Products linear(const std::string& name, TensorId x, const Product& loops, const Shape& weight_shape) {
    Product of = loops;
    double numbers = 1;
    for (const std::int64_t extent : weight_shape) numbers *= static_cast<double>(extent);
    of.flops = 2 * rows(x) * numbers;
    of.outputs = {name + ".y"};
    return product(name, of, x, weight(name + ".weight", weight_shape), std::nullopt);
  }
  Products to_heads(const std::string& name, TensorId x) {
    const Shape by_head{(*this)[x].shape[0], (*this)[x].shape[1], of_.heads, of_.head_size};
    return linear(name, x, {.x = "b s w!", .weight = "a e w", .bias = "", .made = "b s a e", .shape = by_head},
                  {of_.heads, of_.head_size, of_.width});
  }
  Products dense(const std::string& name, TensorId x, std::int64_t inputs, std::int64_t outputs) {
    const Shape made{(*this)[x].shape[0], (*this)[x].shape[1], outputs};
    return linear(name, x, {.x = "b s w!", .weight = "f w", .bias = "", .made = "b s f", .shape = made},
                  {outputs, inputs});
  }

  /// What is added to the scores of a stack's self-attention: of relative positions, and of what is masked.
  struct Bias {
    TensorId table, values, masked;
    std::optional<TensorId> gradient;  ///< of `masked`: the sum of those that layers have given
  };
  /// Where a layer begins with it, what makes the gradient of its table behind the layer's own backward.
  using BiasBackward = std::function<void()>;
  std::pair<TensorId, BiasBackward> position_bias(const Shape& square, const std::string& name) {
    constexpr std::int64_t buckets = 32;
    if (bias_) return {bias_->masked, [] {}};
    const TensorId table = weight(name + ".positions", {buckets, of_.heads});
    const TensorId values = made_value(name + ".positions.out", {square[1], square[2], square[3]}, wide()),
                   masked = made_value(name + ".positions.masked", square, wide());
    const TensorId mask = mask_of(square, name);
    const double bytes = static_cast<double>((*this)[values].bytes.count);
    forward(name + ".positions", {.kind = "embedding", .loop = "- a -> a s t", .moved = 2 * bytes}, {table}, {values});
    forward(name + ".positions.mask", {"add", "a s t, b s t -> b a s t"}, {values, mask}, {masked});
    bias_ = std::make_shared<Bias>(Bias{table, values, masked, {}});
    return {masked, [=, this, of = bias_] {
              TensorId d = *of->gradient;
              const TensorId summed = gradient(values);
              backward(name + ".positions.mask", "", {"sum", "b a s t -> a s t"}, {d}, {summed});
              backward(name + ".positions", " (weight)", {"embedding", "a s t -> - a"}, {summed}, {gradient(table)});
            }};
  }

  /// In the type of what goes past blocks.
  TensorId mask_of(const Shape& square, const std::string& name) {
    return tensor(name + ".mask", TensorKind::input, {square[0], square[2], square[3]}, wide().bytes, wide().name);
  }

  /// What is added to scores in an attention: of a stack's own, whose gradients add up, or a mask alone.
  struct Added {
    TensorId masked;
    std::shared_ptr<Bias> of;
    BiasBackward backward;
  };
  Added added_to_scores(const Shape& square, const std::string& name, bool is_cross) {
    if (!is_cross) {
      auto [masked, back] = position_bias(square, name);
      return {masked, bias_, std::move(back)};
    }
    const TensorId mask = mask_of(square, name);
    return {mask, nullptr, [] {}};
  }

  /// Weights of scores in fp32, and in the type of x, dropped; `backward` makes the gradient of scores.
  Made weights_of(TensorId scores, const std::string& name) {
    constexpr const char* square = "b a s t";
    const Made wide = converted(scores, fp32(), name + ".scores.to", square);
    const TensorId shares = like(name + ".weights", scores, fp32());
    forward(name + ".softmax", {"softmax", "b a s t! -> b a s t"}, {wide.out}, {shares});
    const Made narrowed = converted(shares, narrow(), name + ".weights.to", square);
    const Made used = dropout(narrowed.out, name + ".dropout", square, has_dropout_);
    return {used.out, [=, this](TensorId d) {
              const TensorId dshares = narrowed.backward(used.backward(d)), dwide = gradient(wide.out);
              backward(name + ".softmax", "", {"softmax", "b a s t!, b a s t -> b a s t"}, {dshares, shares}, {dwide});
              return wide.backward(dwide);
            }};
  }

  /// So that each head's numbers lie together: several samples' are copied.
  Made by_head(TensorId x, const std::string& name) {
    if (of_.batch == 1) return {x, [](TensorId d) { return d; }};
    const Shape& from = (*this)[x].shape;
    const TensorId out = made_value(name + ".by head", {from[0], from[2], from[1], from[3]}, narrow());
    forward(name + ".clone", {"clone", "b s a e -> b a s e"}, {x}, {out});
    return {out, [](TensorId d) { return d; }};
  }

  Mixed mixed(const std::array<TensorId, 3>& heads, bool is_cross, const std::string& name) {
    const Shape from = (*this)[heads[0]].shape, to = (*this)[heads[1]].shape;
    const Shape square{from[0], from[2], from[1], to[1]};
    double flops = 2 * static_cast<double>(of_.head_size);
    for (const std::int64_t extent : square) flops *= static_cast<double>(extent);
    const Added bias = added_to_scores(square, name, is_cross);
    const std::array read{by_head(heads[0], name + ".queries").out, by_head(heads[1], name + ".keys").out,
                          by_head(heads[2], name + ".values").out};
    const std::string here = of_.batch == 1 ? "b s a e" : "b a s e", there = of_.batch == 1 ? "b t a e" : "b a t e",
                      bias_axes = is_cross ? "b s t" : "b a s t";
    const TensorId scores = made_value(name + ".scores", square, narrow());
    // The bias is added where the scores lie.
    double moved = 2 * static_cast<double>((*this)[scores].bytes.count);
    for (const TensorId each : {read[0], read[1], scores, bias.masked})
      moved += static_cast<double>((*this)[each].bytes.count);
    forward(name + ".score",
            {.kind = "matmul",
             .loop = here + ", " + there + ", " + bias_axes + " -> b a s t",
             .flops = flops,
             .moved = moved,
             .launches = 2},
            {read[0], read[1], bias.masked}, {scores});
    const Made weights = weights_of(scores, name);
    const TensorId apart = made_value(name + ".mixed by head", {from[0], from[2], from[1], from[3]}, narrow()),
                   out = made_value(name + ".mixed", from, narrow());
    forward(name + ".mix", {"matmul", "b a s t, " + there + " -> b a s e", flops}, {weights.out, read[2]}, {apart});
    forward(name + ".mixed.clone", {"clone", "b a s e -> b s a e"}, {apart}, {out});
    return {out, [=, this](TensorId given) -> std::array<TensorId, 3> {
              TensorId d = given;
              std::string axes = "b s a e";
              if (of_.batch > 1) {
                d = gradient(apart);
                axes = "b a s e";
                backward(name + ".mixed.clone", "", {"clone", "b s a e -> b a s e"}, {given}, {d});
              }
              const TensorId dweights = gradient(weights.out), dq = gradient(heads[0]), dk = gradient(heads[1]),
                             dv = gradient(heads[2]);
              backward(name + ".mix", " (weights)", {"matmul", axes + ", " + there + " -> b a s t", flops},
                       {d, read[2]}, {dweights});
              backward(name + ".mix", " (values)", {"matmul", "b a s t, " + axes + " -> b t a e", flops},
                       {weights.out, d}, {dv});
              const TensorId dscores = weights.backward(dweights);
              give(bias, dscores, name);
              backward(name + ".score", " (queries)", {"matmul", "b a s t, " + there + " -> b s a e", flops},
                       {dscores, read[1]}, {dq});
              backward(name + ".score", " (keys)", {"matmul", "b a s t, " + here + " -> b t a e", flops},
                       {dscores, read[0]}, {dk});
              bias.backward();
              return {dq, dk, dv};
            }};
  }

  /// The gradient of scores is the bias's, in its type; those of layers add up.
  void give(const Added& bias, TensorId dscores, const std::string& name) {
    if (!bias.of) return;
    TensorId d = dscores;
    if (type_of(d) != type_of(bias.masked)) {
      d = gradient(bias.masked);
      backward(name + ".score", " (bias to)", {"to", "b a s t -> b a s t"}, {dscores}, {d});
    }
    TensorId sum = d;
    if (bias.of->gradient) {
      sum = gradient(bias.masked);
      backward(name + ".score", " (bias)", {"add", "b a s t, b a s t -> b a s t"}, {*bias.of->gradient, d}, {sum});
    }
    bias.of->gradient = sum;
  }

  Made attention(TensorId x, const std::string& name, std::optional<TensorId> memory) {
    const TensorId from = memory.value_or(x);
    const std::array read{to_heads(name + ".query", x), to_heads(name + ".key", from), to_heads(name + ".value", from)};
    const Mixed made = mixed({read[0].outs[0], read[1].outs[0], read[2].outs[0]}, memory.has_value(), name);
    const Products out =
        linear(name + ".out", made.out,
               {.x = "b s a! e!", .weight = "w a e", .bias = "", .made = "b s w", .shape = (*this)[x].shape},
               {of_.width, of_.heads, of_.head_size});
    return {out.outs[0], [=, this](TensorId d) {
              const auto [dq, dk, dv] = made.backward(out.backward(d));
              const TensorId of_values = read[2].backward(dv);
              const TensorId of_two = both_ways(read[1].backward(dk), of_values, name + ".key");
              const TensorId of_queries = read[0].backward(dq);
              if (!memory) return both_ways(of_queries, of_two, name + ".query");
              memory_gradient_ = memory_gradient_ ? both_ways(*memory_gradient_, of_two, name + ".memory") : of_two;
              return of_queries;
            }};
  }

  Made mlp(TensorId x, const std::string& name) {
    const bool is_gated = of_.act == 1;
    const Products up = dense(name + ".up", x, of_.width, of_.inner);
    const Made act = is_gated ? gelu_of_kernels(up.outs[0], name + ".gelu") : relu(up.outs[0], name + ".relu");
    std::optional<Products> beside;
    TensorId wide = act.out;
    if (is_gated) {
      beside = dense(name + ".beside", x, of_.width, of_.inner);
      wide = like(name + ".mul.out", act.out, type_of(act.out));  // GELU's, which is as wide or wider
      forward(name + ".mul", {"mul", "b s f, b s f -> b s f"}, {act.out, beside->outs[0]}, {wide});
    }
    const Made dropped = dropout(wide, name + ".inner.dropout", "b s f", has_dropout_);
    // Where the last product's weight has a wider type, Hugging Face's converts to it before.
    const Made given = converted(dropped.out, this->wide(), name + ".down.to", "b s f");
    const Products down = dense(name + ".down", given.out, of_.inner, of_.width);
    return {down.outs[0], [=, this](TensorId d) {
              const TensorId dwide = dropped.backward(given.backward(down.backward(d)));
              if (!beside) return up.backward(act.backward(dwide));
              const TensorId dact = gradient(act.out), dbeside = gradient(beside->outs[0]);
              backward(name + ".mul", " (act)", {"mul", "b s f, b s f -> b s f"}, {dwide, beside->outs[0]}, {dact});
              times_act(name, dwide, act.out, dbeside);
              const TensorId first = beside->backward(dbeside);
              return both_ways(up.backward(act.backward(dact)), first, name + ".up");
            }};
  }

  /// The gradient of what GELU's result is multiplied with, in its type.
  void times_act(const std::string& name, TensorId d, TensorId act, TensorId dbeside) {
    const bool is_converted = type_of(d) != type_of(dbeside);
    const TensorId made = is_converted ? gradient(act) : dbeside;
    backward(name + ".mul", " (beside)", {"mul", "b s f, b s f -> b s f"}, {d, act}, {made});
    if (is_converted) backward(name + ".mul", " (second, to)", {"to", "b s f -> b s f"}, {made}, {dbeside});
  }

  Made relu(TensorId x, const std::string& name) {
    const TensorId out = like(name + ".out", x, narrow());
    forward(name, {"relu", "b s f -> b s f"}, {x}, {out});
    return {out, [=, this](TensorId d) {
              const TensorId dx = gradient(x);
              backward(name, "", {"threshold_backward", "b s f, b s f -> b s f"}, {d, out}, {dx});
              return dx;
            }};
  }

  /// x + block(norm(x)), a stage.
  template <class Block>
  TensorId past(TensorId x, const std::string& name, const Block& block) {
    const Made normed = norm(x, name + ".norm");
    const Made made = block(normed.out);
    const Made dropped = dropout(made.out, name + ".add.dropout", "b s w", has_dropout_);
    const Made added = past_block(dropped.out, x, name + ".add");
    end_stage([=, this](TensorId d) {
      return both_ways(normed.backward(made.backward(dropped.backward(added.backward(d)))), d, name + ".norm");
    });
    return added.out;
  }
  TensorId attended(TensorId x, const std::string& name, std::optional<TensorId> memory) {
    return past(x, name, [&](TensorId normed) { return attention(normed, name, memory); });
  }
  TensorId bent(TensorId x, const std::string& name) {
    return past(x, name, [&](TensorId normed) { return mlp(normed, name); });
  }

  /// What a decoder's layers read.
  TensorId remembered(TensorId x) {
    const Made normed = norm(x, "memory");
    const Made dropped = dropout(normed.out, "memory.dropout", "b s w", has_dropout_);
    end_stage([=, this](TensorId) { return normed.backward(dropped.backward(*memory_gradient_)); });
    return dropped.out;
  }

  /// Logits by the table of tokens, times the root of the width before, or by a weight of its own.
  TensorId head(TensorId y) {
    const Made normed = norm(y, "head.norm");
    const Made dropped = dropout(normed.out, "head.dropout", "b s w", has_dropout_);
    TensorId read = dropped.out;
    if (is_tied()) {
      read = like("head.scale.out", dropped.out, wide());
      forward("head.scale", {"mul", "b s w -> b s w"}, {dropped.out}, {read});
    }
    const TensorId by = is_tied() ? table_ : weight("head.weight", {of_.vocabulary, of_.width});
    const Products logits = product("head",
                                    {.x = "b s w!",
                                     .weight = "v w",
                                     .bias = "",
                                     .made = "b s v",
                                     .flops = 2 * rows(y) * static_cast<double>(of_.width) * of_.vocabulary,
                                     .outputs = {"logits"},
                                     .shape = {of_.batch, of_.sequence, of_.vocabulary}},
                                    read, by, std::nullopt);
    end_stage([=, this](TensorId given) {
      TensorId d = logits.backward(given);
      if (is_tied()) {
        const TensorId dscaled = d;
        d = gradient(dropped.out);
        backward("head.scale", "", {"mul", "b s w -> b s w"}, {dscaled}, {d});
      }
      return normed.backward(dropped.backward(d));
    });
    return logits.outs[0];
  }

  const T5Graph& of_;
  bool has_dropout_;
  TensorId table_;
  std::shared_ptr<Bias> bias_;  ///< of the stack that is made
  std::optional<TensorId> memory_gradient_;
};

}  // namespace

Graph t5_graph(const T5Graph& sizes) {
  return T5Builder(sizes).run();
}

}  // namespace plimsoll
