// The kernels against calculus: a step along a parameter's gradient changes the loss by the gradient's square.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <span>

#include "validate/cpu/cpu_network.h"
#include "validate/networks/initial_values.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

/// Every op once, in the graph's order, every tensor with memory of its own.
class PlainRun {
 public:
  explicit PlainRun(const std::string& reference) : made_(with_kernels(named_network(reference).network)) {
    const Graph& graph = made_.network.graph;
    for (const Tensor& tensor : graph.tensors) {
      values_.push_back(tensor.kind == TensorKind::input ? input_value(tensor, 0, vocabulary())
                                                         : initial_value(tensor));
    }
  }

  const Graph& graph() const { return made_.network.graph; }
  float* numbers(TensorId t) { return static_cast<float*>(static_cast<void*>(values_[t.index].data())); }
  std::size_t count(TensorId t) const { return values_[t.index].size() / sizeof(float); }

  void run() {
    for (std::size_t o = 0; o < graph().ops.size(); ++o) {
      const Op& op = graph().ops[o];
      scratch_.resize(std::max(scratch_.size(), static_cast<std::size_t>(op.workspace.count) + 64));
      KernelArguments arguments;
      for (const TensorId t : op.inputs) arguments.inputs.push_back(values_[t.index].data());
      std::vector<std::vector<float>> parts;  // contributions to gradients, which are added
      for (const TensorId t : op.outputs) {
        const bool adds = graph()[t].kind == TensorKind::parameter_gradient;
        parts.emplace_back(adds ? count(t) : 0);
        arguments.outputs.push_back(adds ? static_cast<void*>(parts.back().data()) : values_[t.index].data());
      }
      arguments.scratch = scratch_.data();
      REQUIRE(made_.kernels[o].run);
      made_.kernels[o].run(arguments);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        for (std::size_t j = 0; j < parts[i].size(); ++j) numbers(op.outputs[i])[j] += parts[i][j];
      }
    }
  }

  /// Mean of -log(probability of the row's label).
  double loss() {
    const auto op = std::ranges::find(graph().ops, "cross_entropy", &Op::kind);
    const TensorId probabilities = op->outputs[0];
    const auto classes = static_cast<std::size_t>(graph()[probabilities].shape.back());
    const std::size_t rows = count(probabilities) / classes;
    double sum = 0;
    for (std::size_t r = 0; r < rows; ++r) sum -= std::log(double{numbers(probabilities)[r * classes + r % classes]});
    return sum / static_cast<double>(rows);
  }

 private:
  std::int64_t vocabulary() const {
    const auto op = std::ranges::find(graph().ops, "embedding", &Op::kind);
    return op == graph().ops.end() ? 1 : graph()[op->inputs[1]].shape[0];
  }

  CpuNetwork made_;
  std::vector<std::vector<std::byte>> values_;
  std::vector<std::byte> scratch_;
};

double loss_with_step(const std::string& reference, TensorId parameter, const std::vector<float>& direction,
                      double step) {
  PlainRun run(reference);
  for (std::size_t i = 0; i < direction.size(); ++i) {
    run.numbers(parameter)[i] += static_cast<float>(step * double{direction[i]});
  }
  run.run();
  return run.loss();
}

TEST_CASE("gradients of every network agree with differences of the loss", "[validate]") {
  const std::string reference =
      GENERATE("mlp:layers=3,width=12,batch=6,classes=4", "resnet:blocks=3,channels=4,picture=16,batch=3,classes=5",
               "gpt:layers=2,width=16,heads=2,sequence=6,batch=2,vocabulary=20",
               "gpt:layers=2,width=16,heads=2,sequence=6,batch=2,vocabulary=20,attention=fused",
               "decoder:layers=2,width=16,heads=4,kv_heads=2,inner=24,sequence=6,batch=2,vocabulary=20,base=100",
               "decoder:layers=1,width=16,heads=4,sequence=6,batch=2,vocabulary=20,experts=4,inner=24,capacity=1",
               "lstm:steps=4,width=8,batch=4,classes=3");
  PlainRun run(reference);
  run.run();
  std::size_t tested = 0;
  for (std::size_t t = 0; t < run.graph().tensors.size(); ++t) {
    const auto parameter = id_at<TensorId>(t);
    const std::string name = "gradient of " + run.graph()[parameter].name;
    const auto gradient = std::ranges::find(run.graph().tensors, name, &Tensor::name);
    if (run.graph()[parameter].kind != TensorKind::parameter || gradient == run.graph().tensors.end()) continue;
    const auto id = id_at<TensorId>(static_cast<std::size_t>(gradient - run.graph().tensors.begin()));
    const std::vector<float> direction(run.numbers(id), run.numbers(id) + run.count(id));
    double square = 0;
    for (const float g : direction) square += double{g} * double{g};
    INFO(reference << ", " << run.graph()[parameter].name << ", length " << std::sqrt(square));
    if (std::sqrt(square) < 1e-4) continue;  // below what differences of floats can show
    const double step = 2e-3 / std::sqrt(square);
    const double slope = (loss_with_step(reference, parameter, direction, step) -
                          loss_with_step(reference, parameter, direction, -step)) /
                         (2 * step);
    CHECK(slope == Approx(square).epsilon(0.03));
    ++tested;
  }
  CHECK(tested >= 2);
}

/// Of transformers' Llama with the same numbers, scales of 1 + sin(i) / 4 (measured/decoder_gradients.py): a gradient's
/// length, and its product with sin(1.7 i + 1).
struct RecordedGradient {
  const char* parameter;
  double length, with_waves;
};

// torch 2.6.0+debian, transformers 5.15.0.dev0, in double
constexpr double recorded_loss = 3.1338247;
constexpr RecordedGradient recorded_gradients[] = {
    {"embedding.table", 3.6815557, 1.8874002},
    {"head.norm.scale", 0.2929569, -0.045570081},
    {"head.linear.weight", 1.0955185, -0.45602545},
    {"layer0.attention.norm.scale", 0.96621334, -0.11688472},
    {"layer0.attention.query.weight", 0.99442324, -0.39056891},
    {"layer0.attention.keys.weight", 4.0692787, 0.77888037},
    {"layer0.attention.projection.weight", 2.1104629, -1.2285079},
    {"layer0.mlp.norm.scale", 0.36150034, -0.049705931},
    {"layer0.mlp.gate.weight", 1.2398712, 0.96172966},
    {"layer0.mlp.up.weight", 1.1866121, -1.051692},
    {"layer0.mlp.down.weight", 1.1963172, 0.89393195},
    {"layer1.attention.norm.scale", 0.15966385, -0.03597778},
    {"layer1.attention.query.weight", 0.2602927, 0.14274669},
    {"layer1.attention.keys.weight", 0.85892763, -0.44600226},
    {"layer1.attention.projection.weight", 0.74613853, -0.55546971},
    {"layer1.mlp.norm.scale", 0.20031543, 0.18174658},
    {"layer1.mlp.gate.weight", 0.67945927, 0.11176164},
    {"layer1.mlp.up.weight", 0.49813357, -0.063569487},
    {"layer1.mlp.down.weight", 0.49147328, -0.14862534},
};

// of its Mixtral, no token of which is left without room
constexpr double recorded_loss_of_experts = 3.4616964;
constexpr RecordedGradient recorded_gradients_of_experts[] = {
    {"embedding.table", 3.8328212, -2.9094779},
    {"head.norm.scale", 0.33347605, -0.066990818},
    {"head.linear.weight", 1.1655386, 0.090504887},
    {"layer0.attention.norm.scale", 0.86528355, 0.23444108},
    {"layer0.attention.query.weight", 0.90526788, -0.4137149},
    {"layer0.attention.keys.weight", 3.2431959, 1.8863221},
    {"layer0.attention.projection.weight", 2.150395, -1.892516},
    {"layer0.mlp.norm.scale", 0.25982017, 0.13850861},
    {"layer0.mlp.router.weight", 0.60849564, -0.78257249},
    {"layer0.mlp.gate.experts", 1.0782392, 0.67618214},
    {"layer0.mlp.up.experts", 0.87911085, 0.25026737},
    {"layer0.mlp.down.experts", 1.1702671, -0.95674498},
    {"layer1.attention.norm.scale", 0.28315384, -0.28091123},
    {"layer1.attention.query.weight", 0.43499787, -0.1361094},
    {"layer1.attention.keys.weight", 1.3498364, -2.865486},
    {"layer1.attention.projection.weight", 0.981071, -1.0155385},
    {"layer1.mlp.norm.scale", 0.24792913, -0.31624539},
    {"layer1.mlp.router.weight", 0.36498977, 0.38920656},
    {"layer1.mlp.gate.experts", 0.49334624, -0.19713464},
    {"layer1.mlp.up.experts", 0.52711722, -0.19659874},
    {"layer1.mlp.down.experts", 0.64315079, -0.31593445},
};

// of Mixtral of one layer with half of its loss for unequal numbers of tokens, without that loss
constexpr double recorded_loss_of_balanced = 3.7409951;
constexpr RecordedGradient recorded_gradients_of_balanced[] = {
    {"embedding.table", 2.3989592, -1.8507716},
    {"head.norm.scale", 0.43089573, 0.29358443},
    {"head.linear.weight", 1.2595627, -0.48635653},
    {"layer0.attention.norm.scale", 0.5339083, -0.31783515},
    {"layer0.attention.query.weight", 0.84628443, -0.051551807},
    {"layer0.attention.keys.weight", 2.2891476, 0.51234675},
    {"layer0.attention.projection.weight", 1.0820894, -0.0017993656},
    {"layer0.mlp.norm.scale", 0.17060802, 0.085717899},
    {"layer0.mlp.router.weight", 0.51748025, -0.85913596},
    {"layer0.mlp.gate.experts", 0.69339232, 0.52682688},
    {"layer0.mlp.up.experts", 0.64276555, -0.3283578},
    {"layer0.mlp.down.experts", 0.93105119, -0.21201954},
};

// of Llama whose head has the embedding's table
constexpr double recorded_loss_of_tied = 3.3990248;
constexpr RecordedGradient recorded_gradients_of_tied[] = {
    {"embedding.table", 3.6912906, 1.4151698},
    {"head.norm.scale", 0.32267121, 0.27860888},
    {"layer0.attention.norm.scale", 0.77758738, 0.38575199},
    {"layer0.attention.query.weight", 1.021404, -1.0098624},
    {"layer0.attention.keys.weight", 3.5226583, -2.7416361},
    {"layer0.attention.projection.weight", 1.9082945, 1.0848327},
    {"layer0.mlp.norm.scale", 0.41121462, -0.44713464},
    {"layer0.mlp.gate.weight", 1.3548024, 0.20865343},
    {"layer0.mlp.up.weight", 1.2778475, 1.1102678},
    {"layer0.mlp.down.weight", 1.277085, -2.0206896},
    {"layer1.attention.norm.scale", 0.22422818, 0.036095041},
    {"layer1.attention.query.weight", 0.43797219, -0.38568963},
    {"layer1.attention.keys.weight", 1.1031881, -0.59760745},
    {"layer1.attention.projection.weight", 0.87182441, -1.3517343},
    {"layer1.mlp.norm.scale", 0.1596406, -0.10831716},
    {"layer1.mlp.gate.weight", 0.56592989, -0.59961539},
    {"layer1.mlp.up.weight", 0.75993523, -0.95714801},
    {"layer1.mlp.down.weight", 0.46309641, -0.2940121},
};

void hold_to_recorded(const std::string& reference, double loss, std::span<const RecordedGradient> gradients) {
  PlainRun run(reference);
  for (std::size_t t = 0; t < run.graph().tensors.size(); ++t) {
    const auto scale = id_at<TensorId>(t);
    if (!run.graph()[scale].name.ends_with(".scale") || run.graph()[scale].kind != TensorKind::parameter) continue;
    for (std::size_t i = 0; i < run.count(scale); ++i) {
      run.numbers(scale)[i] = static_cast<float>(1 + std::sin(static_cast<double>(i)) / 4);
    }
  }
  run.run();
  CHECK(run.loss() == Approx(loss).epsilon(1e-6));
  std::size_t made = 0;
  for (const Tensor& tensor : run.graph().tensors) made += tensor.kind == TensorKind::parameter_gradient ? 1 : 0;
  CHECK(made == gradients.size());
  for (const RecordedGradient& recorded : gradients) {
    INFO(recorded.parameter);
    const auto found =
        std::ranges::find(run.graph().tensors, "gradient of " + std::string(recorded.parameter), &Tensor::name);
    REQUIRE(found != run.graph().tensors.end());
    const auto id = id_at<TensorId>(static_cast<std::size_t>(found - run.graph().tensors.begin()));
    double square = 0, with_waves = 0;
    for (std::size_t i = 0; i < run.count(id); ++i) {
      const double number = run.numbers(id)[i];
      square += number * number;
      with_waves += number * std::sin(1.7 * static_cast<double>(i) + 1);
    }
    CHECK(std::sqrt(square) == Approx(recorded.length).epsilon(1e-5));
    CHECK(std::abs(with_waves - recorded.with_waves) <= 1e-5 * recorded.length);
  }
}

const std::string small_decoder =
    "decoder:layers=2,width=16,heads=4,kv_heads=2,inner=24,sequence=6,batch=2,vocabulary=20,base=100";

TEST_CASE("a decoder has the gradients of transformers' Llama", "[validate]") {
  hold_to_recorded(small_decoder, recorded_loss, recorded_gradients);
}

TEST_CASE("a decoder whose head is tied has the gradients of transformers' Llama", "[validate]") {
  hold_to_recorded(small_decoder + ",tied=yes", recorded_loss_of_tied, recorded_gradients_of_tied);
}

TEST_CASE("a decoder of experts has the gradients of transformers' Mixtral", "[validate]") {
  hold_to_recorded(small_decoder + ",experts=4,top_k=2,capacity=2", recorded_loss_of_experts,
                   recorded_gradients_of_experts);
}

TEST_CASE("a loss for unequal numbers of tokens at experts has the gradients of transformers' Mixtral", "[validate]") {
  hold_to_recorded(
      "decoder:layers=1,width=16,heads=4,kv_heads=2,inner=24,sequence=6,batch=2,vocabulary=20,base=100,"
      "experts=4,top_k=2,capacity=2,balance=0.5",
      recorded_loss_of_balanced, recorded_gradients_of_balanced);
}

}  // namespace
}  // namespace plimsoll
