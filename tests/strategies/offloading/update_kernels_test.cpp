// Updates by fused, foreach and single kernels: what they take, and that the judge agrees with every plan.

#include <algorithm>
#include <catch2/catch.hpp>

#include "platforms/platform_file.h"
#include "sim/core/names.h"
#include "tests/generate/problems.h"
#include "tests/strategies/judged_plan.h"
#include "traces/imports/framework_graphs.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

Problem resnet50(Optimizer optimizer, UpdateKernels kernels) {
  return problem_of(framework_graph("resnet50:batch=2"), load_platform("h200"),
                    {.optimizer = optimizer, .update_kernels = kernels});
}

Seconds of_updates(const Problem& problem) {
  Seconds sum;
  for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
    if (problem.graph.ops[o].phase != Phase::update) continue;
    sum += duration_on(problem, id_at<OpId>(o), DeviceId{0}, Saving::keep);
  }
  return sum;
}

TEST_CASE("ResNet-50's 161 updates by single, fused and foreach kernels", "[updates]") {
  const Problem single = resnet50(Optimizer::momentum, UpdateKernels::single);
  const Device& device = single.platform.devices[0];
  const Bytes numbers = bytes_of_kind(single.graph, TensorKind::parameter);
  const double pass = (numbers / *device.memory_bandwidth).value, launch = device.launch_overhead.value;
  CHECK(of_updates(single).value == Approx(5 * pass + 161 * launch));
  // Of 25.6 million numbers in 510 chunks: four kernels of 48 tensors each, 161 in all.
  CHECK(of_updates(resnet50(Optimizer::momentum, UpdateKernels::fused)).value == Approx(5 * pass + 4 * launch));
  // PyTorch 2.11 launched 9 on an H100 too, three for each of v *= m, v += g and p += v.
  CHECK(of_updates(resnet50(Optimizer::momentum, UpdateKernels::foreach)).value == Approx(8 * pass + 9 * launch));
}

TEST_CASE("Megatron-LM's optimizer moves what its passes do", "[updates]") {
  // In fp32 by momentum: 20 bytes, the norm's 4, clipping's 8 and zeros' 4. Besides the fused update's four kernels,
  // three each for the norm, for clipping and for zeros, of 110, 64 and 110 tensors or 320 chunks at most.
  const Problem fp32 = resnet50(Optimizer::momentum, UpdateKernels::megatron);
  const Device& device = fp32.platform.devices[0];
  const double pass = (bytes_of_kind(fp32.graph, TensorKind::parameter) / *device.memory_bandwidth).value;
  CHECK(of_updates(fp32).value == Approx(9 * pass + (4 + 3 + 3 + 3) * device.launch_overhead.value));
  // In 16 bits with fp32 copies, by Adam: copied to fp32 (6; fp16), unscaled (8; fp16), norm (4), clipped (8), updated
  // (28), copied back (6), zeros (2 of fp16, 4 in fp32). Gradients of bf16 are in fp32 where ranks sum them so; here in
  // 16 bits, which saves 2 of 50. Few parameters: a kernel a pass.
  for (const auto& [dtype, bytes, passes] : {std::tuple{"fp16", 62, 7}, {"bf16", 48, 5}}) {
    const std::string trace =
        std::string("transformer:layers=1,width=64,heads=4,view=graph,vocabulary=64,sequence=8,dtype=") + dtype;
    const Problem narrow = problem_of(synthetic_model(trace), load_platform("h200"),
                                      {.optimizer = Optimizer::adam, .update_kernels = UpdateKernels::megatron});
    const auto numbers = static_cast<double>(bytes_of_kind(narrow.graph, TensorKind::parameter).count) / 2;
    CHECK(of_updates(narrow).value ==
          Approx(numbers * bytes / device.memory_bandwidth->value + passes * device.launch_overhead.value));
  }
}

TEST_CASE("foreach keeps the roots of Adam's second moments in memory, of all parameters", "[updates]") {
  const auto workspaces = [](UpdateKernels kernels) {
    const Problem problem = resnet50(Optimizer::adam, kernels);
    for (const Op& op : problem.graph.ops) {
      if (op.phase == Phase::update) return op.workspace;
    }
    return Bytes{-1};
  };
  CHECK(workspaces(UpdateKernels::fused) == Bytes{0});
  CHECK(workspaces(UpdateKernels::foreach) ==
        bytes_of_kind(resnet50(Optimizer::adam, UpdateKernels::foreach).graph, TensorKind::parameter));
}

TEST_CASE("a host makes each update by itself, however devices launch them", "[updates]") {
  const auto on_host = [](UpdateKernels kernels) {
    const Problem problem = resnet50(Optimizer::adam, kernels);
    const auto host =
        std::ranges::find_if(problem.platform.memories, [](const Memory& m) { return m.adam.has_value(); });
    REQUIRE(host != problem.platform.memories.end());
    return seconds_on_host(problem, id_at<OpId>(problem.graph.ops.size() - 1),
                           id_at<MemoryId>(static_cast<std::size_t>(host - problem.platform.memories.begin())));
  };
  CHECK(on_host(UpdateKernels::foreach) == on_host(UpdateKernels::single));
}

TEST_CASE("plans with updates by all kernels are legal, and take what was promised", "[updates]") {
  for (const UpdateKernels kernels :
       {UpdateKernels::fused, UpdateKernels::foreach, UpdateKernels::single, UpdateKernels::megatron}) {
    for (const char* spec : {"store_all", "zero_offload"}) {
      CAPTURE(written(kernels), spec);
      judged(resnet50(Optimizer::adam, kernels), spec);
    }
  }
}

TEST_CASE("a portfolio promises the peak of updates that a member of it has placed", "[updates]") {
  for (const UpdateKernels kernels : {UpdateKernels::foreach, UpdateKernels::megatron}) {
    CAPTURE(written(kernels));
    judged(problem_of(
               synthetic_model("transformer:layers=2,width=64,heads=4,view=graph,vocabulary=64,sequence=8,dtype=fp16"),
               load_platform("h200"), {.optimizer = Optimizer::adam, .update_kernels = kernels}),
           "portfolio");
  }
}

}  // namespace
}  // namespace plimsoll
