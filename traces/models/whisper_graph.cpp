#include <fmt/format.h>

#include <string>

#include "sim/io/input_error.h"
#include "traces/models/encoder_blocks.h"
#include "traces/models/encoder_graphs.h"

namespace plimsoll {
namespace {

EncoderSizes sizes_of(const WhisperGraph& of) {
  return {.samples = of.batch,
          .positions = of.source,
          .width = of.width,
          .heads = of.heads,
          .inner = of.inner == 0 ? std::int64_t{4} * of.width : of.inner,
          .lora = of.lora};
}

// Loops name mel channels c and places of a kernel u; times of sound are s behind the second convolution.

class WhisperBuilder : private EncoderBlocks {
 public:
  explicit WhisperBuilder(const WhisperGraph& of)
      : EncoderBlocks("whisper", precisions.at(of.dtype), of.rate, sizes_of(of)), of_(of) {
    note("formula", "operators of Whisper as eager PyTorch runs Hugging Face's, without dropout, with fused attention");
  }

  Graph run() {
    table_ = weight("target.table", {of_.vocabulary, of_.width});
    TensorId x = sound();
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) {
      const std::string name = fmt::format("layer{}", layer);
      x = attended(x, name + ".attention", {});
      x = bent(x, name + ".mlp");
    }
    const TensorId memory = remembered(x);
    TensorId y = words();
    for (std::uint32_t layer = 0; layer < of_.decoder; ++layer) {
      const std::string name = fmt::format("decoder{}", layer);
      y = attended(y, name + ".attention", {.is_causal = true});
      y = attended(y, name + ".cross", {.memory = memory});
      y = bent(y, name + ".mlp");
    }
    loss_of_rows(head(y), "b s", is_mixed() ? fp32() : narrow(), of_.logits == 1);
    return finished();
  }

 private:
  static constexpr std::int64_t kernel_size = 3, stride = 2;

  /// A convolution of times; `backward` makes the gradient of x unless x is the model's input.
  Made convolution(TensorId x, const std::string& name, std::int64_t channels, std::int64_t times) {
    const std::int64_t samples = of_.batch, width = of_.width;
    const std::string of_weight = "w c u", from = "b c -", made = "b w -";
    const Made read = converted(x, narrow(), name + ".input.to", from);
    const Made kernel =
        converted(weight(name + ".weight", {width, channels, kernel_size}), narrow(), name + ".weight.to", of_weight);
    const Made bias = converted(weight(name + ".bias", {width}), narrow(), name + ".bias.to", "w");
    const TensorId out = made_value(name + ".out", {samples, width, times}, narrow());
    const double flops = 2 * static_cast<double>(samples * times) * static_cast<double>(width) *
                         static_cast<double>(channels * kernel_size);
    const std::string operands = from + ", " + of_weight;
    forward(name, {"convolution", operands + ", w -> " + made, flops}, {read.out, kernel.out, bias.out}, {out});
    return {out, [=, this](TensorId d) {
              const bool is_input = (*this)[x].kind == TensorKind::input;
              Ids outputs{gradient(kernel.out), gradient(bias.out)};
              std::string loop = made + ", " + operands + " -> " + of_weight + ", w";
              if (!is_input) {
                outputs.push_back(gradient(read.out));
                loop += ", " + from;
              }
              backward(name, "", {"convolution_backward", loop, (is_input ? 1 : 2) * flops}, {d, read.out, kernel.out},
                       outputs);
              kernel.backward(outputs[0]);
              bias.backward(outputs[1]);
              return is_input ? x : read.backward(outputs[2]);
            }};
  }

  /// GELU of a convolution; `given`: axes of the gradient of what it makes.
  Made bent_sound(TensorId x, const std::string& name, const std::string& given) {
    const TensorId out = like(name + ".out", x, type_of(x));
    forward(name, {"gelu", "b w s -> b w s"}, {x}, {out});
    return {out, [=, this](TensorId d) {
              const TensorId dx = gradient(x);
              backward(name, "", {"gelu_backward", given + ", b w s -> b w s"}, {d, x}, {dx});
              return dx;
            }};
  }

  /// Two convolutions, and positions that are not trained.
  TensorId sound() {
    const std::int64_t times = of_.source, width = of_.width;
    const TensorId features =
        tensor("features", TensorKind::input, {of_.batch, of_.mels, stride * times}, wide().bytes, wide().name);
    const Made first = convolution(features, "sound.first", of_.mels, stride * times);
    const Made first_bent = bent_sound(first.out, "sound.first.gelu", "b w s");
    const Made second = convolution(first_bent.out, "sound.second", width, times);
    const Made second_bent = bent_sound(second.out, "sound.second.gelu", is_mixed() ? "b w s" : "b s w");
    const TensorId positions = weight("sound.positions", {times, width});
    const TensorId sum = made_value("sound.sum", {of_.batch, times, width}, wide());
    forward("sound.add", {"add", "b w s, s w -> b s w"}, {second_bent.out, positions}, {sum});
    end_stage([=, this](TensorId d) {
      TensorId dsecond = d;
      if (!(wide() == narrow())) {
        dsecond = gradient(second_bent.out);
        backward("sound.add", "", {"to", "b s w -> b w s"}, {d}, {dsecond});
      }
      return first.backward(first_bent.backward(second.backward(second_bent.backward(dsecond))));
    });
    return sum;
  }

  TensorId words() {
    const Shape all{of_.batch, of_.sequence, of_.width};
    const TensorId tokens = tensor("target tokens", TensorKind::input, {of_.batch, of_.sequence}, 8, "int64");
    const TensorId positions = weight("target.positions", {of_.positions, of_.width});
    const TensorId found = made_value("target.words", all, wide()), placed = made_value("target.places", all, wide()),
                   sum = made_value("target.out", all, wide());
    const double row = static_cast<double>((*this)[found].bytes.count);
    forward("target", {.kind = "embedding", .loop = "b s, v w -> b s w", .moved = 2 * row}, {tokens, table_}, {found});
    forward("target.position", {.kind = "embedding", .loop = "- w -> b s w", .moved = 2 * row}, {positions}, {placed});
    forward("target.add", {"add", "b s w, b s w -> b s w"}, {found, placed}, {sum});
    end_stage([=, this](TensorId d) {
      backward("target.position", " (weight)", {"index_put", "b s w -> - w"}, {d}, {gradient(positions)});
      token_table_backward("target", tokens, d, table_, true);
      return d;
    });
    return sum;
  }

  /// What a decoder's layers read.
  TensorId remembered(TensorId x) {
    const Made normed = layer_norm(x, "memory", of_.width);
    end_stage([=, this](TensorId) { return normed.backward(*memory_gradient_); });
    return normed.out;
  }

  /// x + block(norm(x)), a stage.
  template <class Block>
  TensorId past(TensorId x, const std::string& name, const Block& block) {
    const Made normed = layer_norm(x, name + ".norm", of_.width);
    const Made made = block(normed.out);
    const Made added = past_block(made.out, x, name + ".add");
    end_stage([=, this](TensorId d) {
      return both_ways(normed.backward(made.backward(added.backward(d))), d, name + ".norm");
    });
    return added.out;
  }

  TensorId attended(TensorId x, const std::string& name, Attends how) {
    how.scales_queries = how.copies_heads = true;
    how.has_key_bias = false;
    return past(x, name, [&](TensorId normed) { return attention(normed, name, how); });
  }

  TensorId bent(TensorId x, const std::string& name) {
    return past(x, name, [&](TensorId normed) { return mlp(normed, name); });
  }

  TensorId head(TensorId y) {
    const Made normed = layer_norm(y, "head.norm", of_.width);
    const Products logits = word_logits(normed.out, table_, of_.vocabulary, std::nullopt);
    end_stage([=](TensorId d) { return normed.backward(logits.backward(d)); });
    return logits.outs[0];
  }

  const WhisperGraph& of_;
  TensorId table_;
};

}  // namespace

Graph whisper_graph(const WhisperGraph& sizes) {
  refuse_sizes("whisper", {.width = sizes.width,
                           .heads = sizes.heads,
                           .sequence = sizes.sequence,
                           .positions = sizes.positions,
                           .dtype = sizes.dtype});
  return WhisperBuilder(sizes).run();
}

}  // namespace plimsoll
