#include <fmt/format.h>

#include <string>

#include "sim/io/input_error.h"
#include "traces/models/encoder_blocks.h"
#include "traces/models/encoder_graphs.h"

namespace plimsoll {
namespace {

EncoderSizes sizes_of(const VitGraph& of) {
  const std::int64_t side = of.size / of.patch;
  return {.samples = of.batch,
          .positions = side * side + 1,
          .width = of.width,
          .heads = of.heads,
          .inner = of.inner == 0 ? std::int64_t{4} * of.width : of.inner,
          .lora = of.lora};
}

// Loops name channels c, patches r by q, and their pixels u by v.

class VitBuilder : private EncoderBlocks {
 public:
  explicit VitBuilder(const VitGraph& of)
      : EncoderBlocks("vit", precisions.at(of.dtype), of.rate, sizes_of(of)), of_(of), side_(of.size / of.patch) {
    note("formula",
         "operators of ViT as eager PyTorch runs Hugging Face's for images, without dropout, with fused attention");
  }

  Graph run() {
    TensorId x = embedding();
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) {
      const std::string name = fmt::format("layer{}", layer);
      x = past(x, name + ".attention", [&](TensorId normed, const std::string& as) { return attention(normed, as); });
      x = past(x, name + ".mlp", [&](TensorId normed, const std::string& as) { return mlp(normed, as); });
    }
    const Made normed = layer_norm(x, "head.norm", of_.width);
    const Products logits = of_first_position("head", normed.out, of_.classes);
    end_stage([=](TensorId d) { return normed.backward(logits.backward(d)); });
    loss_of_rows(logits.outs[0], "b", is_mixed() ? fp32() : narrow(), false);
    return finished();
  }

 private:
  TensorId embedding() {
    const std::int64_t samples = of_.batch, width = of_.width, channels = of_.channels, patch = of_.patch;
    const Shape all{samples, sizes_.positions, width};
    // An image's pixels in their order: channel, row of patches, row within, column of patches, column within.
    const TensorId pixels =
        tensor("pixels", TensorKind::input, {samples, channels, side_, patch, side_, patch}, wide().bytes, wide().name);
    const std::string of_pixels = "b c r u q v", of_weight = "w c u v", of_patches = "b w r q";
    const Made read = converted(pixels, narrow(), "embedding.input.to", of_pixels);
    const Made kernel = converted(weight("embedding.weight", {width, channels, patch, patch}), narrow(),
                                  "embedding.weight.to", of_weight);
    const Made bias = converted(weight("embedding.bias", {width}), narrow(), "embedding.bias.to", "w");
    const TensorId patches = made_value("embedding.patches", {samples, width, side_, side_}, narrow());
    const double flops = 2 * static_cast<double>(samples * side_ * side_) * static_cast<double>(width) *
                         static_cast<double>(channels * patch * patch);
    forward("embedding", {"convolution", of_pixels + ", " + of_weight + ", w -> " + of_patches, flops},
            {read.out, kernel.out, bias.out}, {patches});
    const Made widened = converted(patches, wide(), "embedding.cat.to", of_patches);
    const TensorId first = weight("embedding.class", {width}), places = weight("embedding.positions", {all[1], width});
    const TensorId joined = made_value("embedding.cat.out", all, wide()),
                   sum = made_value("embedding.sum", all, wide());
    forward("embedding.cat", {"cat", "w, b w - - -> b - w"}, {first, widened.out}, {joined});
    forward("embedding.add", {"add", "b s w, s w -> b s w"}, {joined, places}, {sum});
    end_stage([=, this](TensorId d) {
      backward("embedding.add", " (position)", {"sum", "b s w -> s w"}, {d}, {gradient(places)});
      const auto row = static_cast<double>(samples * width * wide().bytes);
      backward("embedding.cat", " (class)", {.kind = "sum", .loop = "b - w -> w", .moved = row}, {d},
               {gradient(first)});
      TensorId of_all = d;
      std::string axes = "b - w";
      if (!(wide() == narrow())) {
        of_all = gradient(patches);
        backward("embedding.cat.to", "", {"to", "b - w -> b w - -"}, {d}, {of_all});
        axes = of_patches;
      }
      const TensorId dkernel = gradient(kernel.out), dbias = gradient(bias.out);
      backward("embedding", "",
               {"convolution_backward", axes + ", " + of_pixels + ", " + of_weight + " -> " + of_weight + ", w", flops},
               {of_all, read.out, kernel.out}, {dkernel, dbias});
      kernel.backward(dkernel);
      bias.backward(dbias);
      return d;
    });
    return sum;
  }

  /// x + block(norm(x)), a stage.
  template <class Block>
  TensorId past(TensorId x, const std::string& name, const Block& block) {
    const Made normed = layer_norm(x, name + ".norm", of_.width);
    const Made made = block(normed.out, name);
    const Made added = past_block(made.out, x, name + ".add");
    end_stage([=, this](TensorId d) {
      return both_ways(normed.backward(made.backward(added.backward(d))), d, name + ".norm");
    });
    return added.out;
  }

  const VitGraph& of_;
  std::int64_t side_;
};

}  // namespace

Graph vit_graph(const VitGraph& sizes) {
  if (sizes.width % sizes.heads != 0) {
    throw InputError(fmt::format("vit: heads: must divide width {}, found {}", sizes.width, sizes.heads));
  }
  if (sizes.size % sizes.patch != 0) {
    throw InputError(fmt::format("vit: patch: must divide size {}, found {}", sizes.size, sizes.patch));
  }
  return VitBuilder(sizes).run();
}

}  // namespace plimsoll
