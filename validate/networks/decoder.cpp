// Decoders as Llama's.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

/// Room for all tokens is the most that an expert can need.
Experts experts_of(const DecoderSizes& sizes) {
  const std::int64_t tokens = std::int64_t{sizes.batch} * sizes.sequence;
  const double mean = static_cast<double>(tokens * sizes.top_k) / sizes.experts;
  const double room = std::min(std::ceil(sizes.capacity * mean), static_cast<double>(tokens));
  return {sizes.experts, sizes.top_k, static_cast<std::int64_t>(room), sizes.balance};
}

}  // namespace

TensorId NetworkBuilder::experts(const std::string& name, TensorId x, std::int64_t inner, const Experts& of) {
  const std::int64_t width = shape(x).back();
  const Attributes top{{"top", std::to_string(of.top)}, {"room", std::to_string(of.room)}};
  const TensorId chances = forward(OpKind::softmax, name + ".chances", {product(name + ".router", x, of.count, "w -")});
  const TensorId rows = forward(OpKind::to_experts, name + ".rows", {x, chances}, top);
  const auto products = [&](const std::string& which, TensorId read, std::int64_t from, std::int64_t to,
                            const std::string& features) {
    const TensorId weight = parameter(name + which + ".experts", {of.count, from, to});
    return forward(OpKind::expert_product, name + which, {read, weight}, {{"features", features}});
  };
  const TensorId gate = products(".gate", rows, width, inner, "w f"), up = products(".up", rows, width, inner, "w f");
  const TensorId made = products(".down", gated_silu(name + ".silu", gate, up), inner, width, "f w");
  Attributes mixing = top;
  if (of.balance > 0) mixing.emplace_back(balance_attribute, fmt::format("{}", of.balance));
  return forward(OpKind::from_experts, name + ".mixed", {made, chances}, mixing);
}

TensorId NetworkBuilder::word_embedding(const std::string& name, TensorId tokens, TensorId table) {
  return forward(OpKind::embedding, name, {tokens, table}, {{"positions", "none"}});
}

TensorId NetworkBuilder::tied_product(const std::string& name, TensorId x, TensorId table) {
  return forward(OpKind::linear, name, {x, table}, {{"features", "w v"}, {transposed_attribute, "yes"}});
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
    // As attention has it, a head of keys with all that belongs to it. Kernels count positions from the first row.
    const std::string each = "a*" + std::to_string(shape(of_heads).back() / heads.keys);
    return forward(OpKind::rotation, name + which, {of_heads},
                   {{"loop", "b s! " + each + " -> b s " + each},
                    {"head_size", std::to_string(heads.size)},
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
  const TensorId table = net.parameter("embedding.table", {sizes.vocabulary, width});
  x = net.word_embedding("embedding", x, table);
  for (std::uint32_t l = 0; l < sizes.layers; ++l) {
    const std::string attention = "layer" + std::to_string(l) + ".attention",
                      mlp = "layer" + std::to_string(l) + ".mlp";
    net.begin_stage(attention, x);
    const TensorId attended = net.grouped_attention(attention, net.root_norm(attention + ".norm", x), heads);
    x = net.add(attention + ".add", attended, x);
    net.begin_stage(mlp, x);
    const TensorId normed = net.root_norm(mlp + ".norm", x);
    const TensorId made = sizes.experts > 0 ? net.experts(mlp, normed, inner, experts_of(sizes))
                                            : gated_mlp(net, mlp, normed, inner, width);
    x = net.add(mlp + ".add", made, x);
  }
  net.begin_stage("head", x);
  const TensorId normed = net.root_norm("head.norm", x);
  x = sizes.tied == 1 ? net.tied_product("head.linear", normed, table)
                      : net.product("head.linear", normed, sizes.vocabulary, "w v");
  net.cross_entropy(x);
  return std::move(net).finish(options);
}

}  // namespace plimsoll
