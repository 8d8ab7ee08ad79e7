#include <catch2/catch.hpp>

#include "sim/model/graph_updates.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

// The exporter sees which tensor is which parameter's `.grad`.
TEST_CASE("by order alone the gradients of shipped op traces go to the parameters that PyTorch says", "[traces]") {
  const auto [name, parameters] =
      GENERATE(std::pair("gpt4_ops_w256_t128_b4_cpu", 52u), std::pair("resnet18_ops_b8_cpu", 62u));
  Graph graph = std::get<Graph>(load_trace(name).model);
  std::vector<std::optional<TensorId>> truth;
  std::size_t known = 0;
  for (Tensor& tensor : graph.tensors) {
    truth.push_back(tensor.gradient_of);
    known += tensor.gradient_of ? 1 : 0;
    tensor.gradient_of.reset();
  }
  CHECK(known == parameters);
  const auto found = trained_parameters(graph);
  REQUIRE(std::holds_alternative<std::vector<TrainedParameter>>(found));
  const auto& trained = std::get<std::vector<TrainedParameter>>(found);
  CHECK(trained.size() == parameters);
  for (const TrainedParameter& each : trained) {
    REQUIRE(each.gradients.size() == 1);
    CHECK(truth[each.gradients[0].index] == each.parameter);
  }
}

}  // namespace
}  // namespace plimsoll
