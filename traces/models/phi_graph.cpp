#include <fmt/format.h>

#include <string>

#include "sim/io/input_error.h"
#include "traces/models/encoder_blocks.h"
#include "traces/models/encoder_graphs.h"

namespace plimsoll {
namespace {

EncoderSizes sizes_of(const PhiGraph& of) {
  return {.samples = of.batch,
          .positions = of.sequence,
          .width = of.width,
          .heads = of.heads,
          .inner = of.inner == 0 ? std::int64_t{4} * of.width : of.inner,
          .is_eager = false,
          .has_dropout = of.dropout == 1,
          .lora = of.lora};
}

std::int64_t turned_numbers(const PhiGraph& of) {
  const std::int64_t head_size = of.width / of.heads;
  return of.rotary == 0 ? head_size / 2 : of.rotary;
}

class PhiBuilder : private EncoderBlocks {
 public:
  explicit PhiBuilder(const PhiGraph& of)
      : EncoderBlocks("phi", precisions.at(of.dtype), of.rate, sizes_of(of)), of_(of) {
    note("formula",
         fmt::format("operators of Phi as eager PyTorch runs Hugging Face's, {} dropout, with fused causal attention",
                     of.dropout == 1 ? "with" : "without"));
  }

  Graph run() {
    TensorId x = embedding();
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) x = parallel_blocks(x, fmt::format("layer{}", layer));
    loss_of_rows(head(x), "b s", fp32(), of_.logits == 1);
    return finished();
  }

 private:
  TensorId embedding() {
    const TensorId tokens = tensor("tokens", TensorKind::input, {of_.batch, of_.sequence}, 8, "int64");
    const TensorId table = weight("embedding.table", {of_.vocabulary, of_.width});
    const TensorId found = made_value("embedding.out", {of_.batch, of_.sequence, of_.width}, wide());
    const double row = static_cast<double>((*this)[found].bytes.count);
    forward("embedding", {.kind = "embedding", .loop = "b s, v w -> b s w", .moved = 2 * row}, {tokens, table},
            {found});
    end_stage([=, this](TensorId d) {
      token_table_backward("embedding", tokens, d, table, false);
      return d;
    });
    return found;
  }

  /// x + attention(norm(x)) + mlp(norm(x)), a stage.
  TensorId parallel_blocks(TensorId x, const std::string& name) {
    const std::string of_attention = name + ".attention", of_mlp = name + ".mlp";
    const Made normed = layer_norm(x, name + ".norm", of_.width);
    const Made mixed = attention(normed.out, of_attention, {.is_causal = true, .turned = turned_numbers(of_)});
    const Made first = dropout(mixed.out, of_attention + ".dropout", "b s w", sizes_.has_dropout);
    const Made bent = bent_mlp(normed.out, of_mlp);
    const Made second = dropout(bent.out, of_mlp + ".dropout", "b s w", sizes_.has_dropout);
    const TensorId both = like(of_mlp + ".add.out", second.out, narrow());
    forward(of_mlp + ".add", {"add", "b s w, b s w -> b s w"}, {first.out, second.out}, {both});
    const Made added = past_block(both, x, name + ".add");
    end_stage([=, this](TensorId d) {
      const TensorId dboth = added.backward(d);
      const TensorId of_second = bent.backward(second.backward(dboth)),
                     of_first = mixed.backward(first.backward(dboth));
      return both_ways(normed.backward(both_ways(of_second, of_first, of_mlp)), d, name + ".norm");
    });
    return added.out;
  }

  Made bent_mlp(TensorId x, const std::string& name) {
    const Products up = dense(name + ".up", x, sizes_.width, sizes_.inner);
    const Made bent = gelu_of_kernels(up.outs[0], name + ".gelu");
    const Products down = dense(name + ".down", bent.out, sizes_.inner, sizes_.width);
    return {down.outs[0], [=](TensorId d) { return up.backward(bent.backward(down.backward(d))); }};
  }

  TensorId head(TensorId x) {
    const Made normed = layer_norm(x, "head.norm", of_.width);
    const TensorId own = weight("head.weight", {of_.vocabulary, of_.width});
    const Products logits = word_logits(normed.out, own, of_.vocabulary, weight("head.bias", {of_.vocabulary}));
    end_stage([=](TensorId d) { return normed.backward(logits.backward(d)); });
    return logits.outs[0];
  }

  const PhiGraph& of_;
};

}  // namespace

Graph phi_graph(const PhiGraph& sizes) {
  refuse_sizes("phi", {.width = sizes.width,
                       .heads = sizes.heads,
                       .sequence = sizes.sequence,
                       .positions = sizes.sequence,
                       .attention = 0,
                       .dtype = sizes.dtype});
  if (turned_numbers(sizes) > sizes.width / sizes.heads) {
    throw InputError(fmt::format("phi: rotary: at most the {} numbers of a head, found {}", sizes.width / sizes.heads,
                                 sizes.rotary));
  }
  return PhiBuilder(sizes).run();
}

}  // namespace plimsoll
