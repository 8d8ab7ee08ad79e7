// Decoders as Llama's.

#include <string>
#include <utility>

#include "validate/networks/builders.h"

namespace plimsoll {
namespace {

/// Two thirds of four times the width, as Llama's gated MLPs have it.
std::int64_t inner_of(const DecoderSizes& sizes) {
  constexpr std::int64_t multiple = 32;
  if (sizes.inner > 0) return sizes.inner;
  return (std::int64_t{8} * sizes.width + 3 * multiple - 1) / (3 * multiple) * multiple;
}

TensorId gated_mlp(NetworkBuilder& net, const std::string& name, TensorId x, std::int64_t inner, std::int64_t width) {
  const TensorId gate = net.product(name + ".gate", x, inner, "w f"), up = net.product(name + ".up", x, inner, "w f");
  return net.product(name + ".down", net.gated_silu(name + ".silu", gate, up), width, "f w");
}

}  // namespace

TensorId NetworkBuilder::word_embedding(const std::string& name, TensorId tokens, std::int64_t vocabulary,
                                        std::int64_t width) {
  return forward(OpKind::embedding, name, {tokens, parameter(name + ".table", {vocabulary, width})},
                 {{"positions", "none"}});
}

TensorId NetworkBuilder::product(const std::string& name, TensorId x, std::int64_t outputs,
                                 const std::string& features) {
  return forward(OpKind::linear, name, {x, parameter(name + ".weight", {shape(x).back(), outputs})},
                 {{"features", features}});
}

TensorId NetworkBuilder::root_norm(const std::string& name, TensorId x) {
  return forward(OpKind::root_norm, name, {x, parameter(name + ".scale", {shape(x).back()})});
}

TensorId NetworkBuilder::gated_silu(const std::string& name, TensorId gate, TensorId up) {
  return forward(OpKind::gated_silu, name, {gate, up}, {{"features", "f"}});
}

TensorId NetworkBuilder::grouped_attention(const std::string& name, TensorId x, const GroupedHeads& heads) {
  const Shape of = shape(x);
  const auto rotation = [&](const std::string& which, TensorId of_heads, std::int64_t parts) {
    return forward(OpKind::rotation, name + which, {of_heads},
                   {{"head_size", std::to_string(heads.size)},
                    {"parts", std::to_string(parts)},
                    {"base", std::to_string(heads.base)}});
  };
  const TensorId q = product(name + ".query", x, heads.queries * heads.size, "w a");
  const TensorId kv = product(name + ".keys", x, 2 * heads.keys * heads.size, "w a");
  const TensorId turned_q = rotation(".query.rotation", q, 1), turned_kv = rotation(".keys.rotation", kv, 2);
  const TensorId mixed = forward(OpKind::fused_attention, name + ".mix", {turned_q, turned_kv});
  const TensorId sums = add_tensor(network_.graph, name + ".sums", TensorKind::activation,
                                   {of[0], heads.keys, heads.queries / heads.keys, of[1]});
  network_.graph.ops.back().outputs.push_back(sums);
  return product(name + ".projection", mixed, of[2], "a w");
}

Network decoder(const DecoderSizes& sizes, const TrainingOptions& options) {
  NetworkBuilder net("decoder", options.rates);
  const std::int64_t width = sizes.width, inner = inner_of(sizes);
  const GroupedHeads heads{sizes.heads, sizes.kv_heads, width / sizes.heads, sizes.base};
  TensorId x = net.input({sizes.batch, sizes.sequence}, "int32");
  net.begin_stage("embedding", x);
  x = net.word_embedding("embedding", x, sizes.vocabulary, width);
  for (std::uint32_t l = 0; l < sizes.layers; ++l) {
    const std::string attention = "layer" + std::to_string(l) + ".attention",
                      mlp = "layer" + std::to_string(l) + ".mlp";
    net.begin_stage(attention, x);
    const TensorId attended = net.grouped_attention(attention, net.root_norm(attention + ".norm", x), heads);
    x = net.add(attention + ".add", attended, x);
    net.begin_stage(mlp, x);
    x = net.add(mlp + ".add", gated_mlp(net, mlp, net.root_norm(mlp + ".norm", x), inner, width), x);
  }
  net.begin_stage("head", x);
  x = net.product("head.linear", net.root_norm("head.norm", x), sizes.vocabulary, "w v");
  net.cross_entropy(x);
  return std::move(net).finish(options);
}

}  // namespace plimsoll
