// The transform that runs the first stages of an inference in patches: regions, operations and memory against the
// paper's formulas and pixel by pixel.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/strategies/judged_plan.h"
#include "traces/imports/eager_graph.h"
#include "traces/imports/framework_graphs.h"

namespace plimsoll {
namespace {

struct Layer {
  std::int64_t channels, kernel, stride;
};

/// Convolutions in a row, the first `in_patches` of them in the first stage; and a linear layer.
Graph row_of_convolutions(std::int64_t side, const std::vector<Layer>& layers, std::size_t in_patches) {
  EagerGraph made("row");
  made.next_stage("patched");
  TensorId x = made.input({1, 3, side, side});
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (l == in_patches) made.next_stage("behind");
    x = made.convolution(x, layers[l].channels, {layers[l].kernel, layers[l].stride, layers[l].kernel / 2});
  }
  if (in_patches == layers.size()) made.next_stage("behind");
  return std::move(made).trained(made.linear(made.mean(x), 10));
}

Problem inference(const Graph& graph) {
  return problem_of(graph, load_platform("h200"));
}

Problem in_patches(const Problem& problem, const std::string& spec) {
  return transformed(problem, parse_spec(spec, "test"));
}

std::string patch_refusal(const Problem& problem, const std::string& spec) {
  try {
    in_patches(problem, spec);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// Two convolutions of 3 x 3, strides 2 and 1, on 64 x 64: the result has 32 x 32, a patch of four 16 x 16. It needs
// 18 x 18 of the first one's result and (16 - 1) 2 + 7 = 37 squared of the input: r = 3 + 2 (3 - 1) = 7.
TEST_CASE("patch by hand: two convolutions in four patches", "[patch]") {
  const Graph graph = row_of_convolutions(64, {{8, 3, 2}, {16, 3, 1}}, 2);
  const Problem made = in_patches(inference(graph), "patch");
  std::size_t patches = 0;
  for (const Op& op : made.graph.ops) {
    CHECK(op.phase == Phase::forward);
    if (!op.name.ends_with(" of patch 0")) continue;
    const std::vector<std::int64_t>& y = made.graph[op.outputs[0]].shape;
    CHECK(y == (patches == 0 ? std::vector<std::int64_t>{1, 8, 18, 18} : std::vector<std::int64_t>{1, 16, 16, 16}));
    CHECK(op.flops->count == (patches == 0 ? 2.0 * 8 * 27 * 18 * 18 : 2.0 * 16 * 72 * 16 * 16));
    ++patches;
  }
  CHECK(patches == 2);
  // The first op reads 37 x 37 of the input, its weight, and writes 18 x 18.
  CHECK(made.graph.ops[0].bytes_moved == Bytes{4 * (3 * 37 * 37 + 8 * 27 + 8 * 18 * 18)});
  const double overhead = (4.0 * 8 * 27 * 18 * 18 + 4.0 * 16 * 72 * 256) / (8.0 * 27 * 1024 + 16.0 * 72 * 1024);
  char text[8];
  std::snprintf(text, sizeof text, "%.3f", overhead);
  CHECK(made.notes.at(0).find(std::string("with ") + text + " times") != std::string::npos);
}

// While the last patch's first op runs: the parameters, the input, the results of three patches and 18 x 18. Then the
// input goes.
TEST_CASE("patch by hand: memory is the result and one patch's values", "[patch]") {
  const Graph graph = row_of_convolutions(64, {{8, 3, 2}, {16, 3, 1}}, 2);
  const Plan made = judged(inference(graph), "patch|store_all");
  const std::int64_t parameters = 8 * 27 + 16 * 72 + 10 * 16 + 10;
  CHECK(made.peak == Bytes{4 * (parameters + 3 * 64 * 64 + 3 * 16 * 16 * 16 + 8 * 18 * 18)});
}

/// How many numbers of a row the layers compute for the outputs [first, last) of the last one, pixel by pixel, with
/// padding; by layer, the input first.
std::vector<std::int64_t> needed_pixels(std::int64_t side, const std::vector<Layer>& layers, std::int64_t first,
                                        std::int64_t last) {
  std::vector<std::int64_t> sides{side};
  for (const Layer& layer : layers) {
    sides.push_back((sides.back() + 2 * (layer.kernel / 2) - layer.kernel) / layer.stride + 1);
  }
  std::vector<bool> needed(static_cast<std::size_t>(sides.back()), false);
  std::fill(needed.begin() + first, needed.begin() + last, true);
  std::vector<std::int64_t> counts{last - first};
  for (std::size_t l = layers.size(); l-- > 0;) {
    std::vector<bool> before(static_cast<std::size_t>(sides[l]), false);
    for (std::int64_t y = 0; y < std::ssize(needed); ++y) {
      if (!needed[static_cast<std::size_t>(y)]) continue;
      for (std::int64_t k = 0; k < layers[l].kernel; ++k) {
        const std::int64_t x = y * layers[l].stride + k - layers[l].kernel / 2;
        if (x >= 0 && x < sides[l]) before[static_cast<std::size_t>(x)] = true;
      }
    }
    needed = before;
    counts.insert(counts.begin(), std::ranges::count(needed, true));
  }
  return counts;
}

TEST_CASE("an inner patch computes the pixels that it needs, and no patch needs more", "[patch]") {
  const std::vector<std::vector<Layer>> rows{
      {{4, 3, 1}, {4, 3, 1}}, {{4, 7, 2}, {4, 3, 2}, {4, 3, 1}}, {{4, 3, 2}, {4, 1, 1}, {4, 5, 1}, {4, 3, 2}}};
  for (const std::vector<Layer>& layers : rows) {
    const std::int64_t side = 96, patches = 4;
    const Graph graph = row_of_convolutions(side, layers, layers.size());
    const Problem made = in_patches(inference(graph), "patch(patches=4)");
    const std::int64_t result = std::ssize(layers) > 0 ? graph[graph.ops[layers.size() - 1].outputs[0]].shape[2] : 0;
    REQUIRE(result % patches == 0);
    for (std::int64_t p = 0; p < patches; ++p) {
      const auto needed = needed_pixels(side, layers, p * result / patches, (p + 1) * result / patches);
      for (std::size_t l = 0; l < layers.size(); ++l) {
        const std::int64_t ours = made.graph[made.graph.ops[l].outputs[0]].shape[2];
        const bool is_inner = p > 0 && p + 1 < patches;
        CHECK(ours >= needed[l + 1]);
        // A stride above the side leaves pixels out of the rows that it spans.
        if (is_inner) CHECK(ours == needed[l + 1]);
      }
    }
  }
}

/// The first five blocks of MobileNetV2 (expansion, channels, stride), depthwise convolutions taken as whole ones:
/// their pictures are the same, and parameters are not counted here.
Graph mobile_net_v2_begin() {
  struct Block {
    std::int64_t expansion, channels, stride;
  };
  EagerGraph made("mobile_net_v2");
  made.next_stage("patched");
  TensorId x = made.convolution(made.input({1, 3, 224, 224}), 32, {3, 2, 1});
  for (const Block block : {Block{1, 16, 1}, {6, 24, 2}, {6, 24, 1}, {6, 32, 2}, {6, 32, 1}}) {
    const std::int64_t in = made.shape(x)[1];
    TensorId y = block.expansion > 1 ? made.convolution(x, block.expansion * in, {1, 1, 0}) : x;
    y = made.convolution(made.convolution(y, block.expansion * in, {3, block.stride, 1}), block.channels, {1, 1, 0});
    x = in == block.channels && block.stride == 1 ? made.add(x, y) : y;
  }
  made.next_stage("behind");
  return std::move(made).trained(made.linear(made.mean(x), 10));
}

// Layer by layer the largest are a depthwise convolution's 96 channels of 112 x 112 and of 56 x 56, a byte each. (The
// paper's 1372 kB, figure 1, are the layer's before, 16 and 96 of 112 x 112: its depthwise convolutions run in place.)
// In 4 x 4 patches these are 43 x 43 and 21 x 21, beside 14 results of 32 x 7 x 7: 236 kB. The paper has 172 kB.
TEST_CASE("patches of MobileNetV2's first blocks take a sixth of its memory", "[patch]") {
  const Problem whole = inference(mobile_net_v2_begin());
  const auto peak_beside = [&](const std::string& spec, bool has_input) {
    const Problem made = in_patches(whole, spec);
    Bytes others = bytes_of_kind(made.graph, TensorKind::parameter);
    if (has_input) others += bytes_of_kind(made.graph, TensorKind::input);
    return (judged(whole, spec).peak - others).count / 4;
  };
  static_assert(1372 * 1024 == (16 + 96) * 112 * 112);
  CHECK(peak_beside("patch(patches=1)", false) == 96 * 112 * 112 + 96 * 56 * 56);
  CHECK(peak_beside("patch(patches=4)", true) == 96 * 43 * 43 + 96 * 21 * 21 + 14 * 32 * 7 * 7);
}

TEST_CASE("patch runs residual networks, their halos and their pools", "[patch]") {
  const Problem whole = inference(framework_graph("resnet18:batch=1"));
  const Problem one = in_patches(whole, "patch(patches=1, stages=3)");
  double forward = 0, patched = 0;
  for (const Op& op : whole.graph.ops) forward += op.phase == Phase::forward ? op.flops->count : 0;
  for (const Op& op : one.graph.ops) patched += op.flops->count;
  CHECK(patched == Approx(forward));
  const Bytes peak = judged(whole, "patch(patches=1, stages=3)").peak;
  double more = 1;
  Bytes less = peak;
  for (const std::string side : {"2", "4", "7"}) {
    const std::string spec = "patch(stages=3, patches=" + side + ")";
    INFO(spec);
    const Problem made = in_patches(whole, spec);
    double flops = 0;
    for (const Op& op : made.graph.ops) flops += op.flops->count;
    CHECK(flops / forward > more);
    CHECK(judged(whole, spec).peak < less);
    more = flops / forward;
    less = judged(whole, spec).peak;
  }
  for (const std::string each : {"greedy_recompute", "offload_greedy", "dtr"}) judged(whole, "patch(stages=3)|" + each);
}

TEST_CASE("patch says what it cannot cut", "[patch]") {
  CHECK(patch_refusal(problem_of(even_chain(2), gpus({})), "patch") ==
        "patch: 'even' is a chain, whose stages do not say how their pictures overlap");
  const Problem whole = inference(framework_graph("resnet18:batch=1,size=32"));
  CHECK(patch_refusal(whole, "patch(stages=99)") ==
        "patch: 'resnet18:batch=1,size=32' has 11 stages, and one must be behind the 99 in patches");
  CHECK(patch_refusal(whole, "patch(patches=9)").find("has 8 rows, too few for 9 patches") != std::string::npos);
  CHECK(patch_refusal(inference(framework_graph("deit_ti:batch=1")), "patch(stages=2)").find("patch: '") == 0);
  for (const std::string spec : {"patch(patches=0)", "patch(stages=0)", "patch(patches=65)"}) {
    CHECK_THROWS_AS(parse_spec(spec, "test"), InputError);
  }
}

}  // namespace
}  // namespace plimsoll
