// The transform that takes channels out of convolutions: shapes, bytes and operations against networks that are built
// with fewer channels, and the measured steps of time.

#include <catch2/catch.hpp>
#include <cmath>

#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/transforms/channel_times.h"
#include "tests/generate/problems.h"
#include "tests/strategies/judged_plan.h"
#include "traces/imports/framework_graphs.h"

namespace plimsoll {
namespace {

Problem pruned(const Problem& problem, const std::string& spec) {
  return transformed(problem, parse_spec(spec, "test"));
}

std::string prune_refusal(const Problem& problem, const std::string& spec) {
  try {
    pruned(problem, spec);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Problem classifier(const std::string& model, Optimizer optimizer = Optimizer::none) {
  return problem_of(framework_graph(model), load_platform("h200"), {.optimizer = optimizer});
}

/// Of a ResNet-18 whose stages have `width`, 2, 4 and 8 times as many channels, layer by layer.
struct ResNet18 {
  std::int64_t numbers = 0;
  double flops = 0;  // of forward convolutions and the linear layer, one picture of 224 x 224

  explicit ResNet18(const std::array<std::int64_t, 4>& width) {
    layer(3, width[0], 7, 112);
    std::int64_t from = width[0];
    for (std::size_t l = 0; l < 4; ++l) {
      const std::int64_t side = 56 >> l;
      for (int block = 0; block < 2; ++block) {
        layer(from, width[l], 3, side);
        layer(width[l], width[l], 3, side);
        if (l > 0 && block == 0) layer(from, width[l], 1, side);
        from = width[l];
      }
    }
    numbers += 1000 * (width[3] + 1);
    flops += 2.0 * 1000 * static_cast<double>(width[3]);
  }

 private:
  void layer(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t side) {
    numbers += in * out * kernel * kernel + 2 * out;  // with a batch norm
    flops += 2.0 * static_cast<double>(in * out * kernel * kernel * side * side);
  }
};

double forward_flops(const Graph& graph) {
  double sum = 0;
  for (const Op& op : graph.ops) sum += op.phase == Phase::forward ? op.flops->count : 0;
  return sum;
}

TEST_CASE("a pruned ResNet-18 has the parameters and operations of a narrower one", "[prune]") {
  const Problem whole = classifier("resnet18:batch=2", Optimizer::adam);
  CHECK(bytes_of_kind(whole.graph, TensorKind::parameter).count == 4 * ResNet18({64, 128, 256, 512}).numbers);
  for (const auto& [ratio, width] : {std::pair{"0.5", std::array<std::int64_t, 4>{32, 64, 128, 256}},
                                     std::pair{"0.3", std::array<std::int64_t, 4>{45, 90, 179, 358}},
                                     std::pair{"0.99", std::array<std::int64_t, 4>{1, 1, 3, 5}}}) {
    INFO(ratio);
    const Problem made = pruned(whole, std::string("channel_prune(times=proportional, ratio=") + ratio + ")");
    const ResNet18 narrow(width);
    CHECK(bytes_of_kind(made.graph, TensorKind::parameter).count == 4 * narrow.numbers);
    CHECK(bytes_of_kind(made.graph, TensorKind::parameter_gradient).count == 4 * narrow.numbers);
    CHECK(bytes_of_kind(made.graph, TensorKind::optimizer_state).count == 8 * narrow.numbers);
    CHECK(forward_flops(made.graph) == Approx(2 * narrow.flops));
    for (const Tensor& tensor : made.graph.tensors) {
      std::int64_t numbers = 1;
      for (const std::int64_t size : tensor.shape) numbers *= size;
      const bool has_shape = !tensor.shape.empty();
      if (has_shape) CHECK(tensor.bytes.count == (tensor.dtype == "int64" ? 8 : 4) * numbers);
    }
  }
}

TEST_CASE("channel_prune of nothing changes nothing", "[prune]") {
  for (const std::string model : {"resnet18:batch=1", "resnet50:batch=1"}) {
    const Problem whole = classifier(model, Optimizer::momentum);
    CHECK(pruned(whole, "channel_prune(ratio=0)").graph == whole.graph);
  }
}

// 64 to 49 channels take what 64 take; 48 take three quarters: blocks of 16.
TEST_CASE("the measured time of a convolution goes in steps of 16 channels", "[prune]") {
  for (const auto& time : {time_with_outputs, time_with_inputs}) {
    for (std::int64_t c = 1; c < 300; ++c) CHECK(time(c) <= time(c + 1));
    CHECK(time(49) / time(64) > 0.97);
    CHECK(time(48) / time(64) == Approx(0.75).margin(0.02));
    CHECK(time(33) / time(48) > 0.97);
    CHECK(time(32) / time(64) == Approx(0.5).margin(0.03));
    CHECK(time(200) / time(112) == Approx(208.0 / 112));
  }
}

TEST_CASE("pruned convolutions take the measured share, other ops that of their channels", "[prune]") {
  const Problem whole = classifier("resnet18:batch=1");
  for (const auto& [ratio, share] : {std::pair{"0.2", time_with_outputs(51) / time_with_outputs(64)},
                                     std::pair{"0.25", time_with_outputs(48) / time_with_outputs(64)}}) {
    const Problem made = pruned(whole, std::string("channel_prune(ratio=") + ratio + ")");
    CHECK(made.graph.ops[0].flops->count == Approx(share * whole.graph.ops[0].flops->count));
  }
  // 20 % fewer channels in the first layer save nothing, 25 % save a quarter.
  CHECK(pruned(whole, "channel_prune(ratio=0.2)").graph.ops[0].flops->count > 0.97 * whole.graph.ops[0].flops->count);
}

TEST_CASE("strategies plan on pruned networks as promised, and in less memory", "[prune]") {
  const Problem whole = classifier("resnet18:batch=2,size=64", Optimizer::adam);
  for (const std::string each : {"store_all", "greedy_recompute", "pool", "quantize", "offload_greedy", "dtr"}) {
    INFO(each);
    const std::string spec = "channel_prune|" + each;
    CHECK(judged(whole, spec).peak < planned(whole, each).peak);
    CHECK(judged(whole, spec, smallest(whole, spec)).peak < smallest(whole, each));
  }
  for (const std::string spec : {"channel_prune|adam8bit", "seer(layers=3)|channel_prune", "channel_prune|adafactor"}) {
    INFO(spec);
    judged(whole, spec);
  }
}

TEST_CASE("channel_prune says what has no channels that it knows", "[prune]") {
  CHECK(prune_refusal(problem_of(even_chain(2), gpus({})), "channel_prune") ==
        "channel_prune: 'even' is a chain, and only graphs have channels to prune");
  CHECK(prune_refusal(classifier("deit_ti:batch=1"), "channel_prune")
            .find("does not pass channels on in a way that is known") != std::string::npos);
  CHECK(prune_refusal(problem_of(row_of_ops(3), gpus({})), "channel_prune") ==
        "channel_prune: '" + row_of_ops(3).name + "' has no convolutions");
  CHECK(prune_refusal(classifier("resnet18:batch=1", Optimizer::adam), "adam8bit|channel_prune")
            .find("does not have one number for each number of a parameter: prune channels first") !=
        std::string::npos);
  for (const std::string spec : {"channel_prune(ratio=1)", "channel_prune(ratio=-0.1)", "channel_prune(times=no)"}) {
    CHECK_THROWS_AS(parse_spec(spec, "test"), InputError);
  }
}

}  // namespace
}  // namespace plimsoll
