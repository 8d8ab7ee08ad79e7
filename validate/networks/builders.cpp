#include "validate/networks/builders.h"

#include <string>

namespace plimsoll {
namespace {

TensorId residual_block(NetworkBuilder& net, const std::string& name, TensorId x, std::int64_t from, std::int64_t to,
                        std::int64_t stride) {
  TensorId y = net.convolution(name + ".conv1", x, to, 3, stride);
  y = net.relu(name + ".relu1", net.batch_norm(name + ".norm1", y));
  y = net.batch_norm(name + ".norm2", net.convolution(name + ".conv2", y, to, 3, 1));
  TensorId shortcut = x;
  if (from != to || stride != 1) {
    shortcut = net.batch_norm(name + ".norm3", net.convolution(name + ".conv3", x, to, 1, stride));
  }
  return net.relu(name + ".relu2", net.add(name + ".add", y, shortcut));
}

/// Of 4 `inner` channels.
TensorId bottleneck_block(NetworkBuilder& net, const std::string& name, TensorId x, std::int64_t from,
                          std::int64_t inner, std::int64_t stride) {
  const std::int64_t to = 4 * inner;
  TensorId y = net.batch_norm(name + ".norm1", net.convolution(name + ".conv1", x, inner, 1, 1));
  y = net.convolution(name + ".conv2", net.relu(name + ".relu1", y), inner, 3, stride);
  y = net.relu(name + ".relu2", net.batch_norm(name + ".norm2", y));
  y = net.batch_norm(name + ".norm3", net.convolution(name + ".conv3", y, to, 1, 1));
  TensorId shortcut = x;
  if (from != to || stride != 1) {
    shortcut = net.batch_norm(name + ".norm4", net.convolution(name + ".conv4", x, to, 1, stride));
  }
  return net.relu(name + ".relu3", net.add(name + ".add", y, shortcut));
}

}  // namespace

Network mlp(const MlpSizes& sizes, const TrainingOptions& options) {
  NetworkBuilder net("mlp", options.rates);
  TensorId x = net.input({sizes.batch, sizes.width}, "fp32");
  for (std::uint32_t i = 0; i < sizes.layers; ++i) {
    const std::string name = "layer" + std::to_string(i);
    const bool is_last = i + 1 == sizes.layers;
    net.begin_stage(name, x);
    // Two layers are a block: the first makes its inner numbers, the second reads them.
    const std::string from = i % 2 == 0 ? "w" : "f", to = i % 2 == 0 ? "f" : "w";
    x = net.linear(name, x, is_last ? sizes.classes : sizes.width, from + (is_last ? " v" : " " + to));
    if (!is_last) x = net.relu(name + ".relu", x, to);
  }
  net.cross_entropy(x);
  return std::move(net).finish(options.updates);
}

Network resnet(const ResnetSizes& sizes, const TrainingOptions& options) {
  NetworkBuilder net("resnet", options.rates);
  TensorId x = net.input({sizes.batch, sizes.picture, sizes.picture, sizes.colors}, "fp32");
  net.begin_stage("stem", x);
  x = net.relu("stem.relu", net.batch_norm("stem.norm", net.convolution("stem.conv", x, sizes.channels, 7, 2)));
  x = net.max_pool("stem.pool", x);
  const bool is_bottleneck = sizes.block == static_cast<std::uint32_t>(ResidualBlock::bottleneck);
  std::int64_t channels = sizes.channels, inner = channels;
  for (std::uint32_t b = 0; b < sizes.blocks; ++b) {
    const std::string name = "block" + std::to_string(b);
    const bool shrinks = b > 0 && b % 2 == 0;
    net.begin_stage(name, x);
    if (shrinks) inner *= 2;
    const auto block = is_bottleneck ? bottleneck_block : residual_block;
    x = block(net, name, x, channels, inner, shrinks ? 2 : 1);
    channels = is_bottleneck ? 4 * inner : inner;
  }
  net.begin_stage("head", x);
  x = net.linear("head.linear", net.average_pool("head.pool", x), sizes.classes);
  net.cross_entropy(x);
  return std::move(net).finish(options.updates);
}

Network gpt(const GptSizes& sizes, const TrainingOptions& options, SequenceSlice slice) {
  NetworkBuilder net("gpt", options.rates, slice);
  const std::int64_t width = sizes.width;
  TensorId x = net.input({sizes.batch, sizes.sequence / slice.count}, "int32");
  net.begin_stage("embedding", x);
  x = net.embedding("embedding", x, sizes.vocabulary, width);
  for (std::uint32_t l = 0; l < sizes.layers; ++l) {
    const std::string attention = "layer" + std::to_string(l) + ".attention",
                      mlp = "layer" + std::to_string(l) + ".mlp";
    net.begin_stage(attention, x);
    x = net.add(attention + ".add", net.attention(attention, net.layer_norm(attention + ".norm", x), sizes.heads), x);
    net.begin_stage(mlp, x);
    const TensorId wide = net.linear(mlp + ".expand", net.layer_norm(mlp + ".norm", x), 4 * width, "w f");
    x = net.add(mlp + ".add", net.linear(mlp + ".contract", net.gelu(mlp + ".gelu", wide, "f"), width, "f w"), x);
  }
  net.begin_stage("head", x);
  x = net.linear("head.linear", net.layer_norm("head.norm", x), sizes.vocabulary, "w v");
  net.cross_entropy(x);
  return std::move(net).finish(options.updates);
}

Network lstm(const LstmSizes& sizes, const TrainingOptions& options) {
  NetworkBuilder net("lstm", options.rates);
  const std::int64_t width = sizes.width;
  TensorId x = net.input({sizes.batch, 2 * width}, "fp32");
  const TensorId weight = net.parameter("cell.weight", {width, 4 * width});
  const TensorId bias = net.parameter("cell.bias", {4 * width});
  for (std::uint32_t s = 0; s < sizes.steps; ++s) {
    const std::string name = "step" + std::to_string(s);
    net.begin_stage(name, x);
    x = net.lstm_cell(name, x, weight, bias);
  }
  net.begin_stage("head", x);
  x = net.linear("head", x, sizes.classes);
  net.cross_entropy(x);
  return std::move(net).finish(options.updates);
}

}  // namespace plimsoll
