// The generators themselves.

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "sim/model/stage_kernels.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

/// A stage with every default resolved, as the reader of trace files does it.
Stage stage_with_defaults(std::string name, Bytes input) {
  Stage stage;
  stage.name = std::move(name);
  stage.input_gradient = input;
  return stage;
}

Stage loss_stage(Bytes input) {
  return stage_with_defaults("loss", input);
}

void add_parameters(Chain& chain, Stage& stage, Bytes bytes) {
  if (bytes == Bytes{}) return;
  stage.parameters.push_back(static_cast<std::uint32_t>(chain.parameters.size()));
  chain.parameters.push_back({stage.name + ".parameters", bytes});
}

/// Our own mapping of raw random bits: distributions of the standard library differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// In [least, most].
  std::int64_t whole(std::int64_t least, std::int64_t most) {
    const auto span = static_cast<std::uint64_t>(most - least) + 1;
    return least + static_cast<std::int64_t>(engine_() % span);  // the bias is below span / 2^64
  }
  bool one_in(std::int64_t n) { return whole(1, n) == 1; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace

std::string dtype_of(const TransformerChain& shape) {
  const std::string by_size = shape.dtype_bytes == 4 ? "fp32" : "bf16";
  if (shape.dtype == 0) return by_size;
  const std::string dtype(TransformerChain::dtypes[shape.dtype]);
  if (dtype != "fp32" && by_size == "fp32") {
    throw InputError(fmt::format("transformer: dtype_bytes: {} has 2, found 4", dtype));
  }
  return dtype;
}

Chain uniform_chain(const UniformChain& shape) {
  Chain chain;
  chain.name = "uniform";
  chain.source.notes = {{"formula", "equal stages and a loss that takes no time"}};
  chain.input = shape.activation;
  for (std::uint32_t i = 0; i < shape.stages; ++i) {
    Stage stage = stage_with_defaults("stage" + std::to_string(i), shape.activation);
    stage.forward = stage.forward_nograd = shape.forward;
    stage.backward = shape.backward;
    stage.output = shape.activation;
    stage.saved = shape.activation + shape.inner;
    add_parameters(chain, stage, shape.parameters);
    chain.stages.push_back(std::move(stage));
  }
  chain.stages.push_back(loss_stage(shape.activation));
  return chain;
}

Chain random_chain(const RandomChain& shape) {
  Random random(shape.seed);
  Chain chain;
  chain.name = "random";
  chain.source.notes = {{"formula", "stages drawn by std::mt19937_64"}, {"seed", std::to_string(shape.seed)}};
  const auto size = [&](std::int64_t most) { return Bytes{random.whole(1, most) * 1000}; };
  chain.input = size(4000);
  Bytes input = chain.input;
  for (std::uint32_t i = 0; i < shape.stages; ++i) {
    Stage stage = stage_with_defaults("stage" + std::to_string(i), input);
    const std::int64_t forward =
        random.whole(100, 5000);  // microseconds, doubles exactly divisible by 2^k are not needed
    stage.forward = stage.forward_nograd = {static_cast<double>(forward) / 1e6};
    stage.backward = {static_cast<double>(forward * 2 + random.whole(0, forward)) / 1e6};
    stage.output = size(4000);
    stage.saved = stage.output + (random.one_in(3) ? Bytes{} : size(8000));
    stage.forward_workspace = random.one_in(2) ? Bytes{} : size(1000);
    stage.forward_nograd_workspace = stage.forward_workspace + stage.saved - stage.output;
    stage.backward_workspace = stage.backward_accumulate_workspace = random.one_in(2) ? Bytes{} : size(2000);
    stage.keeps_input = !random.one_in(5);
    stage.keeps_output = !random.one_in(3);
    add_parameters(chain, stage, random.one_in(4) ? Bytes{} : size(3000));
    input = stage.output;
    chain.stages.push_back(std::move(stage));
  }
  chain.stages.push_back(loss_stage(input));
  return chain;
}

// Sizes per layer with s = sequence, b = batch, h = width, a = heads, in elements of the dtype (dropout left out):
//   attention saves: normed input sbh, Q K V 3sbh, softmax output asbs, attention output sbh; and its output sbh
//   MLP saves: normed input sbh, expanded 4sbh before and 4sbh after GELU; and its output sbh
// Work, two operations a multiply-add: attention 8 s b h^2 + 4 s^2 b h, MLP 16 s b h^2, head 2 s b h V; backward twice
// that. Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022, section 4.1
// (memory) and appendix A (operations). Memory traffic: parameters, input, saved and output once each in forward, twice
// in backward. The loss saves the log-probabilities sbV; for each it finds the maximum, subtracts it, takes the
// exponential, sums and subtracts (5 operations); backward takes the exponential, subtracts and scales (3). It reads
// one tensor of sbV and writes another, both ways.
Chain transformer_chain(const TransformerChain& shape) {
  if (shape.dropout != 0) throw InputError("transformer: dropout: only of view=graph");
  if (shape.ops != 0) throw InputError("transformer: ops: only of view=graph");
  if (shape.decoder != 0) throw InputError("transformer: decoder: only of view=graph");
  if (shape.width % shape.heads != 0) {
    throw InputError(fmt::format("transformer: heads: must divide width {}, found {}", shape.width, shape.heads));
  }
  const std::string dtype = dtype_of(shape);
  const double element = dtype == "fp32" ? 4 : 2;
  const double s = shape.sequence, b = shape.batch, h = shape.width, v = shape.vocabulary;
  const double sbh = s * b * h;
  const auto bytes = [&](double elements) {
    const double size = elements * element;
    if (!(size <= static_cast<double>(largest_bytes.count)))
      throw InputError("transformer: a tensor of more than 4 PiB");
    return Bytes{static_cast<std::int64_t>(size)};
  };

  Chain chain;
  chain.name = "transformer";
  chain.source.dtype = dtype;
  chain.source.notes = {
      {"formula", "elements and operations of Korthikanti et al. 2022, section 4.1 and appendix A, without dropout"},
      {"times", "operations / " + format_flops_rate(shape.rate)}};
  chain.input = Bytes{static_cast<std::int64_t>(s * b * 8)};  // token numbers, 64 bits each
  Bytes input = chain.input;
  const auto boundary = [&](Bytes size, std::vector<std::int64_t> dimensions, std::string numbers) {
    const auto place = static_cast<std::uint32_t>(chain.tensors.size());
    chain.tensors.push_back({"x" + std::to_string(place), size, std::move(dimensions), std::move(numbers)});
    chain.boundaries.push_back({place});
  };
  const std::int64_t samples = shape.batch, tokens = shape.sequence, width = shape.width, heads = shape.heads;
  const auto inner = [&](std::string name, std::vector<std::int64_t> dimensions, std::vector<LayerUse> uses) {
    double count = 1;
    for (const std::int64_t d : dimensions) count *= static_cast<double>(d);
    return InnerTensor{std::move(name), bytes(count), std::move(dimensions), dtype, std::move(uses)};
  };
  constexpr LayerUse of_linear{SavedBy::linear}, of_matmul{SavedBy::matmul}, of_gelu{SavedBy::gelu},
      of_norm{SavedBy::ln}, by_softmax{SavedBy::softmax, true}, by_loss{SavedBy::loss, true};
  boundary(chain.input, {samples, tokens}, "int64");

  const auto add = [&](std::string name, double output, std::int64_t last_dimension, std::vector<InnerTensor> saved,
                       double parameters, double operations) {
    Stage stage =
        stage_with_defaults(std::move(name), chain.stages.empty() ? Bytes{} : input);  // numbers have no gradient
    stage.output = bytes(output);
    stage.saved = stage.output;
    for (const InnerTensor& tensor : saved) stage.saved += tensor.bytes;
    stage.inner = std::move(saved);
    stage.boundary_uses = {{static_cast<std::uint32_t>(chain.stages.size()),
                            {chain.stages.empty() ? LayerUse{SavedBy::embedding} : of_norm}}};
    stage.keeps_output = false;  // every stage but the first begins with what it saves itself
    add_parameters(chain, stage, bytes(parameters));
    const Bytes traffic = bytes(parameters) + input + stage.saved;
    stage.forward_flops = Flops{operations};
    stage.backward_flops = Flops{2 * operations};
    stage.forward_bytes_moved = traffic;
    stage.backward_bytes_moved = 2 * traffic;
    stage.forward = stage.forward_nograd = *stage.forward_flops / shape.rate;
    stage.backward = *stage.backward_flops / shape.rate;
    stage.backward_weight = 0.5 * stage.backward;
    stage.has_backward_weight = true;
    input = stage.output;
    chain.stages.push_back(std::move(stage));
    boundary(input, {samples, tokens, last_dimension}, dtype);
  };
  const std::vector<std::int64_t> token{samples, tokens, width}, wide{samples, tokens, 4 * width};
  const InnerTensor normed = inner("normed input", token, {of_linear});

  add("embedding", sbh, width, {}, (v + s) * h, 0);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    add(fmt::format("layer{}.attention", layer), sbh, width,
        {normed, inner("queries", token, {of_matmul}), inner("keys", token, {of_matmul}),
         inner("values", token, {of_matmul}),
         inner("weights", {samples, heads, tokens, tokens}, {by_softmax, of_matmul}),
         inner("mixed values", token, {of_linear})},
        4 * h * h + 6 * h, 8 * sbh * h + 4 * s * sbh);
    add(fmt::format("layer{}.mlp", layer), sbh, width,
        {normed, inner("before GELU", wide, {of_gelu}), inner("after GELU", wide, {of_linear})}, 8 * h * h + 7 * h,
        16 * sbh * h);
  }
  add("head", s * b * v, shape.vocabulary, {normed}, h * v + 2 * h, 2 * sbh * v);
  Stage loss = loss_stage(input);
  loss.inner = {inner("log-probabilities", {samples, tokens, shape.vocabulary}, {by_loss})};
  loss.saved = loss.inner.front().bytes;
  loss.keeps_input = false;
  loss.forward_flops = Flops{5 * s * b * v};
  loss.backward_flops = Flops{3 * s * b * v};
  loss.forward_bytes_moved = loss.backward_bytes_moved = 2 * loss.saved;
  loss.forward = loss.forward_nograd = *loss.forward_flops / shape.rate;
  loss.backward = *loss.backward_flops / shape.rate;
  loss.has_backward_weight = true;  // it has no parameters
  chain.stages.push_back(std::move(loss));
  chain.boundaries.emplace_back();
  TransformerChain one = shape;
  one.layers = 1;
  add_kernels(chain, transformer_graph(one), [&](std::uint32_t stage) {
    const std::uint32_t layers_end = 1 + 2 * shape.layers;
    return stage == 0 ? 0 : stage < layers_end ? 1 + (stage - 1) % 2 : 3 + stage - layers_end;
  });
  return chain;
}

}  // namespace plimsoll
