// The synthetic transformer operator by operator.

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/io/input_error.h"
#include "traces/models/formula_graph.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

// Each operator with its loop, so that it can be cut among devices.

using Shape = FormulaGraph::Shape;
using Ids = FormulaGraph::Ids;

class TransformerBuilder : private FormulaGraph {
 public:
  explicit TransformerBuilder(const TransformerChain& of)
      : FormulaGraph("transformer", dtype_of(of), of.rate),
        of_(of),
        has_dropout_(of.dropout == 1),
        is_megatron_(of.ops == 1),
        samples_(of.batch),
        tokens_(of.sequence),
        width_(of.width),
        heads_(of.heads),
        head_size_(of.width / of.heads) {
    if (is_megatron_) note("ops", "launched as by Megatron-LM of 2021, with copies, sums and a loss in fp32");
    note("formula",
         of.decoder == 0
             ? "operators of a pre-norm decoder; elements kept as in Korthikanti et al. 2022, section 4.1"
             : "operators of a pre-norm encoder, and of a decoder whose layers each attend to what it makes");
  }

  Graph run() {
    TensorId x = embedding("embedding", "tokens");
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) {
      x = attention(x, std::nullopt, fmt::format("layer{}.attention", layer));
      x = mlp(x, fmt::format("layer{}.mlp", layer));
    }
    if (of_.decoder > 0) x = decoded(x);
    loss(head(x));
    return finished();
  }

 private:
  double numbers() const { return static_cast<double>(samples_) * static_cast<double>(tokens_); }
  Shape token_shape() const { return {samples_, tokens_, width_}; }

  TensorId embedding(const std::string& name, const std::string& input) {
    const TensorId tokens = tensor(input, TensorKind::input, {samples_, tokens_}, 8, "int64");
    const TensorId table = parameter(name + ".table", {of_.vocabulary, width_});
    const TensorId positions = parameter(name + ".positions", {tokens_, width_});
    const TensorId found = value(name + ".words", token_shape()), sum = value(name + ".out", token_shape());
    forward(name, {"embedding", "b s, v w -> b s w"}, {tokens, table}, {found});
    forward(name + ".position", {"add", "b s w, s w -> b s w"}, {found, positions}, {sum});
    TensorId out = sum;
    std::optional<TensorId> mask;
    if (is_megatron_ && has_dropout_) {
      out = value(name + ".kept", token_shape());
      mask = tensor(name + ".mask", TensorKind::activation, token_shape(), 1, "uint8");
      forward(name + ".dropout", {"dropout", "b s w -> b s w, b s w"}, {sum}, {out, *mask});
    }
    end_stage([=, this](TensorId d) {
      if (mask) {
        const TensorId kept = gradient(sum);
        backward(name + ".dropout", "", {"dropout", "b s w, b s w -> b s w"}, {d, *mask}, {kept});
        d = kept;
      }
      backward(name + ".position", " (weight)", {"sum", "b s w -> s w"}, {d}, {gradient(positions)});
      backward(name, " (weight)", {"embedding", "b s, b s w -> v w"}, {tokens, d}, {gradient(table)});
      return d;
    });
    return out;
  }

  /// The decoder behind an encoder that made x, which a last norm hands to all of its layers.
  TensorId decoded(TensorId x) {
    const Norm memory = norm(x, "memory");
    end_stage([this, memory](TensorId) { return norm_backward(memory, *memory_gradient_, std::nullopt); });
    TensorId y = embedding("target", "target tokens");
    for (std::uint32_t layer = 0; layer < of_.decoder; ++layer) {
      y = attention(y, std::nullopt, fmt::format("decoder{}.attention", layer));
      y = attention(y, memory.out, fmt::format("decoder{}.cross", layer));
      y = mlp(y, fmt::format("decoder{}.mlp", layer));
    }
    return y;
  }

  struct Norm {
    TensorId x, scale, shift, out;
    std::string name;
  };
  Norm norm(TensorId x, const std::string& name) {
    const Norm made{x, parameter(name + ".scale", {width_}), parameter(name + ".shift", {width_}),
                    value(name + ".out", token_shape()), name};
    forward(name, {"layer_norm", "b s w!, w, w -> b s w"}, {x, made.scale, made.shift}, {made.out});
    return made;
  }
  /// With the gradient that goes past the block, if there is one.
  TensorId norm_backward(const Norm& of, TensorId d, std::optional<TensorId> past) {
    const TensorId dx = gradient(of.x);
    if (is_megatron_ && past) {
      const TensorId through = norm_backward(of, d, std::nullopt);
      backward(of.name, " (past)", {"add", "b s w, b s w -> b s w"}, {through, *past}, {dx});
      return dx;
    }
    Ids inputs{d, of.x, of.scale};
    if (past) inputs.push_back(*past);
    backward(of.name, "",
             {"layer_norm", past ? "b s w!, b s w, w, b s w -> b s w, w, w" : "b s w!, b s w, w -> b s w, w, w"},
             std::move(inputs), {dx, gradient(of.scale), gradient(of.shift)});
    return dx;
  }

  /// Bias, dropout and the value that goes past the block, added.
  struct Ending {
    TensorId bias, out;
    std::optional<TensorId> mask;
    std::string name;
  };
  Ending ending(TensorId y, TensorId x, const std::string& name) {
    Ending made{parameter(name + ".bias", {width_}), value(name + ".out", token_shape()), std::nullopt, name};
    if (has_dropout_) {
      made.mask = tensor(name + ".mask", TensorKind::activation, token_shape(), 1, "uint8");
      forward(name, {"bias_dropout_add", "b s w, w, b s w -> b s w, b s w"}, {y, made.bias, x}, {made.out, *made.mask});
    } else {
      forward(name, {"bias_add", "b s w, w, b s w -> b s w"}, {y, made.bias, x}, {made.out});
    }
    return made;
  }
  TensorId ending_backward(const Ending& of, TensorId y, TensorId d) {
    TensorId dy = d;
    if (of.mask) {
      dy = gradient(y);
      backward(of.name, "", {"dropout", "b s w, b s w -> b s w"}, {d, *of.mask}, {dy});
    }
    backward(of.name, " (weight)", {"sum", "b s w -> w"}, {dy}, {gradient(of.bias)});
    return dy;
  }

  /// Queries, keys and values, and what makes the gradient of the normed input from those of all three.
  struct Projection {
    TensorId queries, keys, values;
    std::function<TensorId(TensorId, TensorId, TensorId)> backward;
  };
  double projecting() const { return 2 * numbers() * static_cast<double>(width_) * static_cast<double>(width_); }

  /// One product for all three.
  Projection projected(TensorId x, const std::string& name) {
    const Shape by_head{samples_, tokens_, heads_, head_size_};
    const TensorId weight = parameter(name + ".qkv.weight", {width_, 3, heads_, head_size_});
    const TensorId bias = parameter(name + ".qkv.bias", {3, heads_, head_size_});
    const TensorId q = value(name + ".queries", by_head), k = value(name + ".keys", by_head),
                   v = value(name + ".values", by_head);
    forward(name + ".qkv", {"linear", "b s w!, w - a e, - a e -> b s a e, b s a e, b s a e", 3 * projecting()},
            {x, weight, bias}, {q, k, v});
    return {q, k, v, [=, this](TensorId dq, TensorId dk, TensorId dv) {
              const TensorId dx = gradient(x);
              if (is_megatron_) {
                const TensorId d = tensor("gradient of " + name + ".qkv", TensorKind::gradient,
                                          {samples_, tokens_, 3, heads_, head_size_}, element_);
                backward(name + ".qkv", " (cat)", {"cat", "b s a e, b s a e, b s a e -> b s - a e"}, {dq, dk, dv}, {d});
                backward(name + ".qkv", " (input)", {"linear", "b s - a e, w - a e -> b s w", 3 * projecting()},
                         {d, weight}, {dx});
                backward(name + ".qkv", " (weight)", {"linear", "b s w, b s - a e -> w - a e", 3 * projecting()},
                         {x, d}, {gradient(weight)});
                backward(name + ".qkv", " (bias)", {"sum", "b s - a e -> - a e"}, {d}, {gradient(bias)});
                return dx;
              }
              backward(name + ".qkv", " (input)",
                       {"linear", "b s a e, b s a e, b s a e, w - a e -> b s w", 3 * projecting()},
                       {dq, dk, dv, weight}, {dx});
              backward(name + ".qkv", " (weight)",
                       {"linear", "b s w, b s a e, b s a e, b s a e -> w - a e, - a e", 3 * projecting()},
                       {x, dq, dk, dv}, {gradient(weight), gradient(bias)});
              return dx;
            }};
  }

  /// Queries of x, keys and values of what the encoder made.
  Projection projected_across(TensorId x, TensorId memory, const std::string& name) {
    const Shape by_head{samples_, tokens_, heads_, head_size_};
    const TensorId weight = parameter(name + ".q.weight", {width_, heads_, head_size_}),
                   bias = parameter(name + ".q.bias", {heads_, head_size_});
    const TensorId both_weight = parameter(name + ".kv.weight", {width_, 2, heads_, head_size_}),
                   both_bias = parameter(name + ".kv.bias", {2, heads_, head_size_});
    const TensorId q = value(name + ".queries", by_head), k = value(name + ".keys", by_head),
                   v = value(name + ".values", by_head);
    forward(name + ".q", {"linear", "b s w!, w a e, a e -> b s a e", projecting()}, {x, weight, bias}, {q});
    forward(name + ".kv", {"linear", "b s w!, w - a e, - a e -> b s a e, b s a e", 2 * projecting()},
            {memory, both_weight, both_bias}, {k, v});
    return {
        q, k, v, [=, this](TensorId dq, TensorId dk, TensorId dv) {
          const TensorId dmemory = gradient(memory);
          backward(name + ".kv", " (input)", {"linear", "b s a e, b s a e, w - a e -> b s w", 2 * projecting()},
                   {dk, dv, both_weight}, {dmemory});
          backward(name + ".kv", " (weight)", {"linear", "b s w, b s a e, b s a e -> w - a e, - a e", 2 * projecting()},
                   {memory, dk, dv}, {gradient(both_weight), gradient(both_bias)});
          if (memory_gradient_) {
            const TensorId sum = gradient(memory);
            backward(name + ".kv", " (sum)", {"add", "b s w, b s w -> b s w", numbers() * static_cast<double>(width_)},
                     {*memory_gradient_, dmemory}, {sum});
            memory_gradient_ = sum;
          } else {
            memory_gradient_ = dmemory;
          }
          const TensorId dx = gradient(x);
          backward(name + ".q", " (input)", {"linear", "b s a e, w a e -> b s w", projecting()}, {dq, weight}, {dx});
          backward(name + ".q", " (weight)", {"linear", "b s w, b s a e -> w a e, a e", projecting()}, {x, dq},
                   {gradient(weight), gradient(bias)});
          return dx;
        }};
  }

  /// To x itself, or to what the encoder made.
  TensorId attention(TensorId x, std::optional<TensorId> memory, const std::string& name) {
    const Shape by_head{samples_, tokens_, heads_, head_size_}, square{samples_, heads_, tokens_, tokens_};
    const double scoring = 2 * numbers() * static_cast<double>(tokens_) * static_cast<double>(width_);
    const Norm normed = norm(x, name + ".norm");
    const Projection made = memory ? projected_across(normed.out, *memory, name) : projected(normed.out, name);
    const TensorId q = made.queries, k = made.keys, v = made.values;
    const TensorId scores = value(name + ".scores", square), weights = value(name + ".weights", square);
    forward(name + ".score", {"matmul", "b s a e, b t a e -> b a s t", scoring}, {q, k}, {scores});
    forward(name + ".softmax", {"softmax", "b a s t! -> b a s t"}, {scores}, {weights});
    TensorId used = weights;
    std::optional<TensorId> mask;
    if (has_dropout_) {
      used = value(name + ".kept weights", square);
      mask = tensor(name + ".weights.mask", TensorKind::activation, square, 1, "uint8");
      forward(name + ".dropout", {"dropout", "b a s t -> b a s t, b a s t"}, {weights}, {used, *mask});
    }
    const TensorId mixed = value(name + ".mixed", by_head);
    if (is_megatron_) {
      const TensorId head_by_head = value(name + ".mixed head by head", {samples_, heads_, tokens_, head_size_});
      forward(name + ".mix", {"matmul", "b a s t, b t a e -> b a s e", scoring}, {used, v}, {head_by_head});
      forward(name + ".mix.clone", {"clone", "b a s e -> b s a e"}, {head_by_head}, {mixed});
    } else {
      forward(name + ".mix", {"matmul", "b a s t, b t a e -> b s a e", scoring}, {used, v}, {mixed});
    }
    const TensorId out_weight = parameter(name + ".out.weight", {heads_, head_size_, width_});
    const TensorId y = value(name + ".y", token_shape());
    forward(name + ".out", {"linear", "b s a e, a e w -> b s w", projecting()}, {mixed, out_weight}, {y});
    const Ending end = ending(y, x, name + ".add");
    end_stage([=, this](TensorId d) {
      const TensorId dy = ending_backward(end, y, d);
      const TensorId dmixed = gradient(mixed);
      backward(name + ".out", " (input)", {"linear", "b s w, a e w -> b s a e", projecting()}, {dy, out_weight},
               {dmixed});
      backward(name + ".out", " (weight)", {"linear", "b s a e, b s w -> a e w", projecting()}, {mixed, dy},
               {gradient(out_weight)});
      TensorId dused = gradient(used);
      const TensorId dv = gradient(v), dscores = gradient(scores), dq = gradient(q), dk = gradient(k);
      backward(name + ".mix", " (weights)", {"matmul", "b s a e, b t a e -> b a s t", scoring}, {dmixed, v}, {dused});
      backward(name + ".mix", " (values)", {"matmul", "b a s t, b s a e -> b t a e", scoring}, {used, dmixed}, {dv});
      if (mask) {
        const TensorId dropped = gradient(weights);
        backward(name + ".dropout", "", {"dropout", "b a s t, b a s t -> b a s t"}, {dused, *mask}, {dropped});
        dused = dropped;
      }
      backward(name + ".softmax", "", {"softmax", "b a s t!, b a s t -> b a s t"}, {dused, weights}, {dscores});
      backward(name + ".score", " (queries)", {"matmul", "b a s t, b t a e -> b s a e", scoring}, {dscores, k}, {dq});
      backward(name + ".score", " (keys)", {"matmul", "b a s t, b s a e -> b t a e", scoring}, {dscores, q}, {dk});
      return norm_backward(normed, made.backward(dq, dk, dv), d);
    });
    return end.out;
  }

  TensorId mlp(TensorId x, const std::string& name) {
    const Shape wide{samples_, tokens_, 4 * width_};
    const double product = 8 * numbers() * static_cast<double>(width_) * static_cast<double>(width_);
    const Norm normed = norm(x, name + ".norm");
    const TensorId up_weight = parameter(name + ".up.weight", {width_, 4 * width_});
    const TensorId up_bias = parameter(name + ".up.bias", {4 * width_});
    const TensorId up = value(name + ".before GELU", wide), bent = value(name + ".after GELU", wide);
    forward(name + ".up", {"linear", "b s w!, w f, f -> b s f", product}, {normed.out, up_weight, up_bias}, {up});
    forward(name + ".gelu", {"gelu", "b s f -> b s f"}, {up}, {bent});
    const TensorId down_weight = parameter(name + ".down.weight", {4 * width_, width_});
    const TensorId y = value(name + ".y", token_shape());
    forward(name + ".down", {"linear", "b s f, f w -> b s w", product}, {bent, down_weight}, {y});
    const Ending end = ending(y, x, name + ".add");
    end_stage([=, this](TensorId d) {
      const TensorId dy = ending_backward(end, y, d);
      const TensorId dbent = gradient(bent), dup = gradient(up), dn = gradient(normed.out);
      backward(name + ".down", " (input)", {"linear", "b s w, f w -> b s f", product}, {dy, down_weight}, {dbent});
      backward(name + ".down", " (weight)", {"linear", "b s f, b s w -> f w", product}, {bent, dy},
               {gradient(down_weight)});
      backward(name + ".gelu", "", {"gelu", "b s f, b s f -> b s f"}, {dbent, up}, {dup});
      backward(name + ".up", " (input)", {"linear", "b s f, w f -> b s w", product}, {dup, up_weight}, {dn});
      if (is_megatron_) {
        backward(name + ".up", " (weight)", {"linear", "b s w, b s f -> w f", product}, {normed.out, dup},
                 {gradient(up_weight)});
        backward(name + ".up", " (bias)", {"sum", "b s f -> f"}, {dup}, {gradient(up_bias)});
      } else {
        backward(name + ".up", " (weight)", {"linear", "b s w, b s f -> w f, f", product}, {normed.out, dup},
                 {gradient(up_weight), gradient(up_bias)});
      }
      return norm_backward(normed, dn, d);
    });
    return end.out;
  }

  TensorId head(TensorId x) {
    const double product = 2 * numbers() * static_cast<double>(width_) * of_.vocabulary;
    const Norm normed = norm(x, "head.norm");
    const TensorId weight = parameter("head.weight", {width_, of_.vocabulary});
    const TensorId logits = value("logits", {samples_, tokens_, of_.vocabulary});
    forward("head", {"linear", "b s w, w v -> b s v", product}, {normed.out, weight}, {logits});
    end_stage([=, this](TensorId d) {
      const TensorId dn = gradient(normed.out);
      backward("head", " (input)", {"linear", "b s v, w v -> b s w", product}, {d, weight}, {dn});
      backward("head", " (weight)", {"linear", "b s w, b s v -> w v", product}, {normed.out, d}, {gradient(weight)});
      return norm_backward(normed, dn, std::nullopt);
    });
    return logits;
  }

  void loss(TensorId logits) {
    const double each = numbers() * of_.vocabulary;
    const TensorId labels = tensor("labels", TensorKind::input, {samples_, tokens_}, 8, "int64");
    const TensorId losses = tensor("losses", TensorKind::activation, {samples_, tokens_}, 4, "fp32");
    if (is_megatron_) return loss_in_fp32(logits, labels, losses);
    const TensorId logs = value("log-probabilities", (*this)[logits].shape);
    // Ranks that share out the vocabulary exchange the maximum, the sum and the label's logit of each token.
    forward("loss", {"cross_entropy", "b s v, b s -> b s, b s v", 5 * each, "v 3"}, {logits, labels}, {losses, logs});
    end_stage([=, this](TensorId) {
      const TensorId d = gradient(logits);
      backward("loss", "", {"cross_entropy", "b s v, b s -> b s v", 3 * each}, {logs, labels}, {d});
      return d;
    });
  }

  /// A copy of the logits in fp32 becomes their softmax in place: of its numbers one kernel each takes the maximum,
  /// subtracts it, takes the exponential, the sum, and divides. Backward it is scaled in place and rounded.
  void loss_in_fp32(TensorId logits, TensorId labels, TensorId losses) {
    const double each = numbers() * of_.vocabulary;
    const double copying = element_ == 2 ? (2 + 4) * each : 0;
    const TensorId shares = tensor("softmax of logits", TensorKind::activation, (*this)[logits].shape, 4, "fp32");
    forward("loss",
            {.kind = "cross_entropy",
             .loop = "b s v, b s -> b s, b s v",
             .flops = 5 * each,
             .reduces = "v 3",
             .moved = copying + (4 + 8 + 8 + 4 + 8) * each,
             .launches = element_ == 2 ? 6.0 : 5.0},
            {logits, labels}, {losses, shares});
    end_stage([=, this](TensorId) {
      const TensorId d = gradient(logits);
      backward("loss", "",
               {.kind = "cross_entropy",
                .loop = "b s v, b s -> b s v",
                .flops = 3 * each,
                .moved = 8 * each + copying,
                .launches = element_ == 2 ? 2.0 : 1.0},
               {shares, labels}, {d});
      return d;
    });
  }

  const TransformerChain& of_;
  bool has_dropout_, is_megatron_;
  std::int64_t samples_, tokens_, width_, heads_, head_size_;
  std::optional<TensorId>
      memory_gradient_;  // of what the encoder made: the sum of those that the decoder's layers give
};

}  // namespace

Graph transformer_graph(const TransformerChain& shape) {
  if (shape.width % shape.heads != 0) {
    throw InputError(fmt::format("transformer: heads: must divide width {}, found {}", shape.width, shape.heads));
  }
  return TransformerBuilder(shape).run();
}

}  // namespace plimsoll
