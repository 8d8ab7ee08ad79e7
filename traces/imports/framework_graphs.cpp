#include "traces/imports/framework_graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "sim/io/input_error.h"
#include "sim/io/reference_options.h"
#include "traces/imports/eager_graph.h"

namespace plimsoll {
namespace {

struct ImageOptions {
  std::uint32_t batch = 64, size = 224, classes = 1000;
  static constexpr std::array<std::string_view, 3> dtypes{"fp32", "tf32", "amp"};
  std::uint32_t dtype = 0;  ///< in which products and convolutions compute: which of `dtypes`
  static constexpr std::array<std::string_view, 2> layouts{"contiguous", "channels_last"};
  std::uint32_t layout = 0;  ///< of pictures in memory: which of `layouts`

  bool is_mixed() const { return dtypes.at(dtype) == "amp"; }
  bool is_channels_last() const { return layouts.at(layout) == "channels_last"; }
};

/// Residual networks of torchvision (He et al., CVPR 2016; the stride is in the 3x3 convolution).
struct ResnetModel {
  std::string_view name;
  std::array<std::int64_t, 4> blocks;
  bool bottleneck;
};
constexpr std::array resnet_models{
    ResnetModel{"resnet18", {2, 2, 2, 2}, false}, ResnetModel{"resnet34", {3, 4, 6, 3}, false},
    ResnetModel{"resnet50", {3, 4, 6, 3}, true}, ResnetModel{"resnet101", {3, 4, 23, 3}, true},
    ResnetModel{"resnet152", {3, 8, 36, 3}, true}};

TensorId residual_block(EagerGraph& made, TensorId x, std::int64_t width, std::int64_t stride, bool bottleneck) {
  const std::int64_t channels = bottleneck ? 4 * width : width;
  TensorId y = x;
  const auto layer = [&](std::int64_t to, EagerGraph::Window window, bool last) {
    y = made.batch_norm(made.convolution(y, to, window));
    if (!last) y = made.relu_in_place(y);
  };
  if (bottleneck) {
    layer(width, {1, 1, 0}, false);
    layer(width, {3, stride, 1}, false);
    layer(channels, {1, 1, 0}, true);
  } else {
    layer(width, {3, stride, 1}, false);
    layer(channels, {3, 1, 1}, true);
  }
  const bool is_changed = stride > 1 || made.shape(x)[1] != channels;
  const TensorId beside = is_changed ? made.batch_norm(made.convolution(x, channels, {1, stride, 0})) : x;
  return made.relu_in_place(made.add_in_place(y, beside));
}

Graph resnet_graph(const ResnetModel& model, const ImageOptions& options, std::string name) {
  EagerGraph made(std::move(name), ImageOptions::dtypes.at(options.dtype), options.is_channels_last());
  made.next_stage("stem");
  TensorId x = made.input({options.batch, 3, options.size, options.size});
  x = made.relu_in_place(made.batch_norm(made.convolution(x, 64, {7, 2, 3})));
  x = made.max_pool(x, {3, 2, 1});
  std::int64_t width = 64;
  for (std::size_t l = 0; l < model.blocks.size(); ++l, width *= 2) {
    for (std::int64_t b = 0; b < model.blocks[l]; ++b) {
      made.next_stage(fmt::format("layer{}.{}", l + 1, b));
      x = residual_block(made, x, width, l > 0 && b == 0 ? 2 : 1, model.bottleneck);
    }
  }
  made.next_stage("head");
  return std::move(made).trained(made.linear(made.mean(x), options.classes));
}

/// Vision transformers of 16 x 16 patches and 12 layers (Touvron et al., DeiT, ICML 2021).
struct DeitModel {
  std::string_view name;
  std::int64_t width, heads;
};
constexpr std::array deit_models{DeitModel{"deit_ti", 192, 3}, DeitModel{"deit_s", 384, 6},
                                 DeitModel{"deit_b", 768, 12}};

TensorId attention(EagerGraph& made, TensorId x, const DeitModel& model) {
  const std::int64_t batch = made.shape(x)[0], rows = made.shape(x)[1], depth = model.width / model.heads;
  const TensorId all = made.linear(made.layer_norm(x), 3 * model.width);
  const std::vector<TensorId> parts = made.split(all, {batch * model.heads, rows, depth}, 3);
  const TensorId keys = parts[1];
  const TensorId scores = made.softmax(made.scaled(made.batched_product_with_transposed(parts[0], keys)));
  const TensorId mixed = made.copied(made.batched_product(scores, parts[2]), {batch, rows, model.width});
  return made.add(x, made.linear(mixed, model.width));
}

Graph deit_graph(const DeitModel& model, const ImageOptions& options, std::string name) {
  EagerGraph made(std::move(name), ImageOptions::dtypes.at(options.dtype));
  made.next_stage("patches");
  TensorId x = made.input({options.batch, 3, options.size, options.size});
  x = made.rows_of_pictures(made.convolution(x, model.width, {16, 16, 0}, true));
  x = made.add_parameter(x, "positions");
  for (int layer = 0; layer < 12; ++layer) {
    made.next_stage(fmt::format("block{}", layer));
    x = attention(made, x, model);
    const TensorId inner = made.gelu(made.linear(made.layer_norm(x), 4 * model.width));
    x = made.add(x, made.linear(inner, model.width));
  }
  made.next_stage("head");
  return std::move(made).trained(made.linear_of_first_row(made.layer_norm(x), options.classes));
}

/// Multilayer perceptrons on 16 x 16 patches, in rows of 384 (Touvron et al., ResMLP, arXiv 2105.03404, 2021).
struct ResmlpModel {
  std::string_view name;
  int layers;
};
constexpr std::array resmlp_models{ResmlpModel{"resmlp_s12", 12}, ResmlpModel{"resmlp_s24", 24},
                                   ResmlpModel{"resmlp_s36", 36}};

TensorId affine(EagerGraph& made, TensorId x) {
  return made.add_columns(made.times_columns(x, "alpha"), "beta");
}

/// The patches' values lie channel by channel in memory, as their convolution makes them, and so do the sums of all
/// blocks. So the layer across patches takes them as they are and the one across channels a copy; for gradients, which
/// lie patch by patch, it is the other way round.
TensorId resmlp_block(EagerGraph& made, TensorId x) {
  const EagerGraph::Shape rows = made.shape(x), columns{rows[0], rows[2], rows[1]};
  const TensorId across_patches = made.linear(made.seen_as(affine(made, x), columns), rows[1]);
  x = made.add(x, made.times_columns(made.seen_transposed(across_patches, rows), "gamma_1"));
  const TensorId inner = made.gelu(made.linear(made.put_in_order(affine(made, x)), 4 * rows[2]));
  return made.add(x, made.times_columns(made.linear(inner, rows[2]), "gamma_2"));
}

Graph resmlp_graph(const ResmlpModel& model, const ImageOptions& options, std::string name) {
  constexpr std::int64_t width = 384, patch = 16;
  const std::int64_t patches = (options.size / patch) * (options.size / patch);
  EagerGraph made(std::move(name), ImageOptions::dtypes.at(options.dtype));
  made.next_stage("patches");
  TensorId x = made.input({options.batch, 3, options.size, options.size});
  x = made.seen_as(made.convolution(x, width, {patch, patch, 0}, true), {options.batch, patches, width});
  for (int layer = 0; layer < model.layers; ++layer) {
    made.next_stage(fmt::format("block{}", layer));
    x = resmlp_block(made, x);
  }
  made.next_stage("head");
  return std::move(made).trained(made.linear(made.mean(affine(made, x)), options.classes));
}

std::vector<ReferenceOption> options_of(ImageOptions& options) {
  return {whole_option("batch", options.batch, 1, 1 << 20), whole_option("size", options.size, 32, 4096),
          whole_option("classes", options.classes, 1, 1 << 20),
          word_option("dtype", options.dtype, {ImageOptions::dtypes.begin(), ImageOptions::dtypes.end()}),
          word_option("layout", options.layout, {ImageOptions::layouts.begin(), ImageOptions::layouts.end()})};
}

std::vector<std::string_view> all_models() {
  std::vector<std::string_view> names;
  for (const ResnetModel& model : resnet_models) names.push_back(model.name);
  for (const DeitModel& model : deit_models) names.push_back(model.name);
  for (const ResmlpModel& model : resmlp_models) names.push_back(model.name);
  return names;
}

}  // namespace

bool is_framework_graph(std::string_view reference) {
  return std::ranges::count(all_models(), reference_name(reference)) > 0;
}

Graph framework_graph(std::string_view reference) {
  ImageOptions options;
  const std::vector<ReferenceOption> known = options_of(options);
  set_reference_options(reference, known);
  const std::string_view name = reference_name(reference);
  if (options.size % 32 != 0) {
    throw InputError(located(reference, {}, "size", fmt::format("must be a multiple of 32, found {}", options.size)));
  }
  for (const ResnetModel& model : resnet_models) {
    if (model.name == name) return resnet_graph(model, options, std::string(reference));
  }
  for (const auto& [is_set, key, value] :
       {std::tuple{options.is_mixed(), "dtype", "amp"}, {options.is_channels_last(), "layout", "channels_last"}}) {
    if (is_set) throw InputError(located(reference, {}, key, fmt::format("{} is for resnet18 to resnet152", value)));
  }
  for (const DeitModel& model : deit_models) {
    if (model.name == name) return deit_graph(model, options, std::string(reference));
  }
  for (const ResmlpModel& model : resmlp_models) {
    if (model.name == name) return resmlp_graph(model, options, std::string(reference));
  }
  throw InputError(located(reference, {}, "", "no such model"));
}

std::vector<ReferenceNumber> framework_numbers(std::string_view reference) {
  if (!is_framework_graph(reference)) return {};
  ImageOptions options;
  return numbers_in(reference, options_of(options));
}

std::vector<std::string> framework_names() {
  const std::vector<std::string_view> names = all_models();
  return {names.begin(), names.end()};
}

std::vector<std::string> framework_help() {
  std::vector<std::string> lines;
  for (const std::string_view name : all_models()) {
    ImageOptions options;
    lines.push_back(reference_help(name, options_of(options)));
  }
  return lines;
}

}  // namespace plimsoll
