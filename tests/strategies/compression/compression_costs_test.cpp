// What compression costs beside packing: products on packed forms, waits for the host, runs that choose bits.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "platforms/platform_file.h"
#include "sim/codec/predicted_error.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/bad_input.h"
#include "tests/generate/problems.h"
#include "tests/strategies/judged_plan.h"
#include "traces/imports/framework_graphs.h"

namespace plimsoll {
namespace {

Problem costed_on_h200(const std::string& reference) {
  return problem_of(framework_graph(reference), load_platform("h200"), {});
}

constexpr double fp32_of_h200 = 67e12, bandwidth_of_h200 = 4.8e12, launch_on_h200 = 3e-6;

/// Steps that read a packed form by a codec of this kind, but for those that unpack it.
std::vector<StepId> steps_on_packed(const Schedule& schedule, CodecKind kind) {
  std::vector<StepId> found;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const bool reads = std::ranges::any_of(schedule.buffers_in(step.reads), [&](BufferId b) {
      return schedule[b].is_packed() && schedule.codecs[schedule[b].codec.index].kind == kind;
    });
    if (step.op != no_op && reads) found.push_back(id_at<StepId>(s));
  }
  return found;
}

std::size_t unpackings(const Schedule& schedule) {
  return static_cast<std::size_t>(std::ranges::count(schedule.steps, StepKind::unpack, &Step::kind));
}

TEST_CASE("sampled rows are all that the product for a weight's gradient takes", "[compression][costs]") {
  const Problem problem = costed_on_h200("deit_b:batch=64");
  const Plan made = judged(problem, "wta_crs(ratio=0.25)");
  const std::vector<StepId> found = steps_on_packed(made.schedule, CodecKind::rows);
  REQUIRE(found.size() == 12 * 4);
  const double rows = 64 * 197, kept = rows / 4;
  for (const StepId s : found) {  // two kernels: rows of the gradient are gathered, then multiplied
    const std::vector<std::int64_t>& weight = problem.graph[problem.graph[made.schedule[s].op].outputs[0]].shape;
    const double columns = static_cast<double>(weight[0]), inner = static_cast<double>(weight[1]);
    const double computing = 2 * kept * inner * columns / fp32_of_h200;
    const double moving = (4 * (kept * inner + 3 * kept * columns + inner * columns) + 8 * kept) / bandwidth_of_h200;
    CHECK(made.schedule[s].work.seconds.value == Approx(std::max(computing, moving) + 2 * launch_on_h200));
    CHECK(made.schedule[s].workspace == Bytes{static_cast<std::int64_t>(4 * kept * columns)});
  }
  CHECK(made.makespan < planned(problem, "wta_crs(ratio=0.5)").makespan);
}

TEST_CASE("a product of blocks needs nothing unpacked, and makes the same gradient", "[compression][costs]") {
  const Problem problem = costed_on_h200("resmlp_s12:batch=64");
  const Plan blocks = judged(problem, "prune_bsr(product=0.5)"), unpacked = judged(problem, "prune_bsr");
  CHECK(unpackings(blocks.schedule) == 0);
  CHECK(unpackings(unpacked.schedule) == 12 * 3 + 1);
  CHECK(blocks.peak <= unpacked.peak);
  CHECK(blocks.schedule.approximate == unpacked.schedule.approximate);
  CHECK(predicted_errors(blocks.schedule, problem.graph).whole ==
        Approx(predicted_errors(unpacked.schedule, problem.graph).whole));
  const std::vector<StepId> found = steps_on_packed(blocks.schedule, CodecKind::block_sparse);
  REQUIRE(found.size() == 12 * 3 + 1);
  double seconds = 0;  // a quarter of the flops at half of the rate, all of them bound by that
  for (const StepId s : found) seconds += blocks.schedule[s].work.seconds.value;
  const double patches = 196, width = 384, samples = 64;
  const double flops = 12 * 2 * samples * (width * patches * patches + 2 * 4 * width * width * patches);
  CHECK(seconds == Approx(flops / 4 / (fp32_of_h200 / 2)).epsilon(0.05));
  CHECK(judged(problem, "prune_bsr(product=1)").makespan < blocks.makespan);
}

TEST_CASE("means of blocks on both sides are all that a convolution of pixels needs", "[compression][costs]") {
  const Problem problem = costed_on_h200("resnet50:batch=16");
  const Plan means = judged(problem, "pool(product=means)"), unpacked = judged(problem, "pool");
  const std::vector<StepId> found = steps_on_packed(means.schedule, CodecKind::pool);
  CHECK(found.size() > 16);
  for (const StepId s : found) {
    const Op& op = problem.graph[means.schedule[s].op];
    const auto weight = std::ranges::find_if(
        op.outputs, [&](TensorId t) { return problem.graph[t].kind == TensorKind::parameter_gradient; });
    CHECK(problem.graph[*weight].shape[2] == 1);
    CHECK(problem.graph[op.inputs[0]].shape[2] == problem.graph[op.inputs[1]].shape[2]);
  }
  CHECK(unpackings(means.schedule) + found.size() == unpackings(unpacked.schedule));
  CHECK(means.schedule.approximate == unpacked.schedule.approximate);
  CHECK(predicted_errors(means.schedule, problem.graph).whole ==
        Approx(predicted_errors(unpacked.schedule, problem.graph).whole));
  CHECK(means.makespan < unpacked.makespan);
  CHECK(unpackings(judged(problem, "pool(product=means,store=layer)").schedule) <= unpackings(means.schedule) + 8);
}

TEST_CASE("check counts anew what a product on a packed form takes", "[compression][costs]") {
  const auto* const spec = GENERATE("wta_crs", "prune_bsr(product=0.5)", "pool(product=means)");
  const std::string model = std::string(spec).starts_with("pool") ? "resnet50:batch=2" : "deit_ti:batch=2";
  INFO(spec);
  const Problem problem = costed_on_h200(model);
  const Schedule right = judged(problem, spec).schedule;
  const CodecKind kind = std::string(spec).starts_with("pool") ? CodecKind::pool
                         : spec == std::string("wta_crs")      ? CodecKind::rows
                                                               : CodecKind::block_sparse;
  const StepId s = steps_on_packed(right, kind).at(3);
  const auto breaks = [&](auto change, Rule rule) {
    Schedule wrong = right;
    change(wrong);
    const std::vector<Violation> found = check(wrong, problem.graph, problem.platform, 5);
    return std::ranges::any_of(found, [&](const Violation& each) { return each.rule == rule; });
  };
  const Seconds plain = duration_on(problem, right[s].op, DeviceId{0}, Saving::keep);
  CHECK(breaks([&](Schedule& w) { w.steps[s.index].work.seconds = plain; }, Rule::wrong_cost));
  CHECK(breaks([&](Schedule& w) { w.steps[s.index].work.seconds = 0.9 * right[s].work.seconds; }, Rule::wrong_cost));
  CHECK(breaks([&](Schedule& w) { w.steps[s.index].workspace += Bytes{4}; }, Rule::wrong_cost));
  const auto of_kind = [&](Codec& codec) {  // and read as it is
    return codec.kind == kind && (kind == CodecKind::rows || codec.product > 0);
  };
  if (kind != CodecKind::rows) {  // without the codec's leave only what is unpacked may be read
    CHECK(breaks([&](Schedule& w) { std::ranges::find_if(w.codecs, of_kind)->product = 0; }, Rule::lossy));
  }
  CHECK(breaks([&](Schedule& w) { std::ranges::find_if(w.codecs, of_kind)->product = 1.5; }, Rule::malformed));
  CHECK(breaks([&](Schedule& w) { std::ranges::find_if(w.codecs, of_kind)->overhead = Seconds{1}; }, Rule::wrong_cost));
}

TEST_CASE("runs that find sensitivities are charged in the mean, and the worst iteration is said",
          "[compression][costs]") {
  const Problem problem = costed_on_h200("deit_s:batch=8");
  const double plain = planned(problem, "store_all").makespan.value;
  const Plan never = judged(problem, "gact(every=0)"), often = judged(problem, "gact(every=100)");
  const auto packs = static_cast<double>(std::ranges::count(never.schedule.steps, StepKind::pack, &Step::kind));
  CHECK(often.makespan.value - never.makespan.value == Approx(packs * 3 / 100 * plain).epsilon(1e-3));
  CHECK(judged(problem, "gact").makespan.value - never.makespan.value ==
        Approx(packs * 3 / 1000 * plain).epsilon(1e-3));
  CHECK(never.note.empty());
  CHECK(often.note.find("runs every 100 iterations") != std::string::npos);
  const double alam = judged(problem, "alam").makespan.value;
  const Plan twice = judged(problem, "alam(iterations=2000)");
  CHECK(twice.makespan.value - alam == Approx(packs * 2 * 3 / 2000 * plain).epsilon(1e-3));
}

// Once a layer: what the layer's gradient comes with is read, and 2 us go by on the way to the host, 2 us back.
TEST_CASE("ActNN's choice of bits waits for the host once a layer and reads its gradient", "[compression][costs]") {
  const Problem problem = costed_on_h200("resnet18:batch=4");
  const Plan mixed = judged(problem, "actnn"), fixed = judged(problem, "actnn(level=2)");
  double expected = 0;
  for (const Op& op : problem.graph.ops) {
    const bool is_product = op.kind == "mm" && problem.graph[op.outputs[0]].kind == TensorKind::parameter_gradient;
    const bool has_choice = op.kind == "convolution_backward" || op.kind == "native_batch_norm_backward" || is_product;
    const bool is_first =
        std::ranges::any_of(op.inputs, [&](TensorId t) { return problem.graph[t].kind == TensorKind::input; });
    if (!has_choice || is_first) continue;  // the image stays as it is
    const double bytes = static_cast<double>(problem.graph[op.inputs[0]].bytes.count);
    expected += 2 * 2e-6 + bytes / bandwidth_of_h200 + launch_on_h200;
  }
  const auto overheads = [](const Schedule& schedule) {
    double sum = 0;
    for (const Step& step : schedule.steps) {
      if (step.kind != StepKind::pack) continue;
      sum += schedule.codecs[schedule[schedule.buffers_in(step.allocates)[0]].codec.index].overhead.value;
    }
    return sum;
  };
  CHECK(overheads(mixed.schedule) == Approx(expected));
  CHECK(overheads(fixed.schedule) == 0);
}

TEST_CASE("means need averages, and options of products are numbers", "[compression][costs]") {
  const Problem problem = costed_on_h200("resnet18:batch=2");
  const auto complaint = [&](const std::string& spec) {
    return complaint_of([&] { plan(problem, parse_spec(spec, "test"), std::nullopt); });
  };
  CHECK(complaint("pool(product=means,type=max)") ==
        "pool: product=means takes means on both sides, and type=max keeps others: take type=average");
  CHECK(complaint("prune_bsr(product=2)").find("unpack or a number from 0.01 to 1") != std::string::npos);
  CHECK(complaint("gact(every=-1)").find("a whole number from 0") != std::string::npos);
}

}  // namespace
}  // namespace plimsoll
