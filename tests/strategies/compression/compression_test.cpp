// Compression on graphs of real models: memory as simulated elsewhere, and what is refused.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numbers>

#include "platforms/platform_file.h"
#include "sim/codec/predicted_error.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/strategies/values_waiting.h"
#include "traces/imports/framework_graphs.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

Problem problem_on_h200(const std::string& reference, Optimizer optimizer) {
  return problem_of(framework_graph(reference), load_platform("h200"), {.optimizer = optimizer});
}

Plan plan_of(const Problem& problem, const std::string& spec) {
  return std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt));
}

double mib(Bytes bytes) {
  return static_cast<double>(bytes.count) / (1 << 20);
}

// Simulations of others with lifetimes of storages: momentum, no workspace, every layer packs for itself. They also
// pack the images (37 MiB at k = 2), which the caller keeps anyway, and hold the packed form of a value until the op is
// over that reads what is unpacked. `beside` is both where the sixth row is fullest: in the backward of layer2.0, whose
// input is 196 MiB, at k = 2; in that of the first batch norm, whose input is 784 MiB, at larger k.
TEST_CASE("pooled activations of residual networks save what was simulated elsewhere", "[compression]") {
  struct Row {
    const char* options;
    std::array<double, 4> saved;  // per cent of the peak, k = 2, 4, 8, 16
    double margin = 1.0;
    std::array<double, 4> beside = {};  // MiB
  };
  const auto judge = [](const std::string& model, const std::vector<Row>& rows, double base) {
    const Problem problem = problem_on_h200(model, Optimizer::momentum);
    const Bytes plain = plan_of(problem, "store_all").peak;
    if (base > 0) CHECK(mib(plain) == Approx(base).margin(0.05));
    for (const Row& row : rows) {
      for (std::size_t i = 0; i < 4; ++i) {
        const std::string spec = "pool(k=" + std::to_string(2 << i) + ",store=layer," + row.options + ")";
        INFO(model << ", " << spec);
        const double peak = mib(plan_of(problem, spec).peak) + row.beside[i];
        CHECK(100 * (1 - peak / mib(plain)) == Approx(row.saved[i]).margin(row.margin));
      }
    }
  };
  judge("resnet18:batch=256",
        {{"tensors=conv.input,relu=keep", {-6.3, 0.9, 2.7, 3.2}},
         {"tensors=conv.input,relu=byte", {9.7, 16.9, 18.7, 19.1}},
         {"tensors=conv.input,relu=bit", {18.4, 25.6, 27.3, 27.8}},
         {"tensors=conv.input,relu=recompute", {19.7, 26.8, 28.6, 29.0}},
         {"tensors=conv3x3.input,relu=bit", {14.5, 20.0, 21.4, 21.8}},
         {"tensors=bn.input,relu=keep", {32.6, 40.6, 42.6, 43.1}},
         {"tensors=conv.input+bn.input,relu=bit",
          {47.9, 51.6, 52.3, 52.5},
          0.1,
          {(147 + 196) / 4.0, (147 + 784) / 16.0, (147 + 784) / 64.0, (147 + 784) / 256.0}}},
        5554.7);
  judge("resnet50:batch=256",
        {{"tensors=conv.input,relu=bit", {27.5, 36.5, 38.8, 39.4}},
         {"tensors=bn.input,relu=keep", {37.9, 47.4, 49.9, 50.5}},
         {"tensors=conv.input+bn.input,relu=bit", {64.5, 76.3, 78.3, 78.8}}},
        0);
}

// Of resnet18's 17 ReLUs the first one's output is there still when its gradient is made, since the pooling reads it.
// The first ReLU of the 8 blocks follows a batch norm, the last one of the 3 blocks that change the shape a sum of two.
TEST_CASE("signs that batch norms give are not kept, and nothing else changes", "[compression]") {
  const Problem problem = problem_on_h200("resnet18:batch=2", Optimizer::none);
  const Schedule kept = plan_of(problem, "pool(k=2)").schedule,
                 anew = plan_of(problem, "pool(relu=recompute)").schedule;
  CHECK(check(anew, problem.graph, problem.platform, 1).empty());
  std::map<std::string, int> again;
  for (const Step& step : anew.steps) {
    if (step.kind == StepKind::recompute) ++again[problem.graph[step.op].kind];
  }
  CHECK(again == std::map<std::string, int>{{"native_batch_norm", 8 + 2 * 3}, {"add_", 3}, {"relu_", 8 + 3}});
  CHECK(anew.approximate == kept.approximate);
  const std::int64_t stem = 2 * 64 * 112 * 112, first = stem / 4;
  std::int64_t values = stem;  // whose signs do not wait: two ReLUs of each layer, one more of the last three
  for (std::int64_t layer = 0; layer < 4; ++layer) values += (layer == 0 ? 2 : 3) * (first >> layer);
  const Bytes before = waiting_after_forward(problem, kept).packed, after = waiting_after_forward(problem, anew).packed;
  CHECK(before - after == Bytes{values / 8});
}

TEST_CASE("signs are made anew after a recomputation, before offloading, and within budgets", "[compression]") {
  const auto* const spec = GENERATE("pool(relu=recompute)", "pool(relu=recompute,store=layer)|offload_greedy",
                                    "greedy_recompute|pool(relu=recompute)", "lossless(relu=recompute)|save_on_cpu",
                                    "prune_bsr(relu=recompute)");
  const auto* const model = GENERATE("resnet18:batch=1,size=64", "resnet50:batch=1,size=64");
  INFO(model << ", " << spec);
  const Problem problem = problem_on_h200(model, Optimizer::none);
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const Plan free = std::get<Plan>(plan(problem, passes, std::nullopt));
  for (const std::int64_t share : {100, 90, 75}) {
    const PlanOutcome made = plan(problem, passes, Bytes{free.peak.count * share / 100});
    if (std::holds_alternative<Infeasible>(made)) continue;
    const Plan& fits = std::get<Plan>(made);
    const std::vector<Violation> found = check(fits.schedule, problem.graph, problem.platform, 1);
    INFO((found.empty() ? std::string() : found[0].what));
    CHECK(found.empty());
    const Metrics metrics = measure(problem, fits.schedule, simulate_event(fits.schedule, problem.platform));
    CHECK(metrics.peak == fits.peak);
    CHECK(metrics.peak.count <= free.peak.count * share / 100);
    CHECK(metrics.makespan.value == Approx(fits.makespan.value).epsilon(1e-9));
  }
}

TEST_CASE("signs from batch norms need what these read as it is, and a graph", "[compression]") {
  const auto complaint = [](const Problem& problem, const std::string& spec) {
    try {
      plan(problem, parse_spec(spec, "test"), std::nullopt);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Problem problem = problem_on_h200("resnet18:batch=2", Optimizer::none);
  CHECK(complaint(problem, "pool(relu=recompute,tensors=conv.input+bn.input)") ==
        "pool: relu=recompute takes signs from the inputs of batch norms, which must be kept unpacked, and serves only "
        "ReLUs that are not named: leave bn out of tensors=conv.input+bn.input");
  CHECK(complaint(problem, "quantize(relu=recompute)") ==
        "quantize: relu=recompute takes signs from the inputs of batch norms, which must be kept unpacked, and serves "
        "only ReLUs that are not named: leave all out of tensors=all");
  CHECK(complaint(problem, "pool(relu=recmpute)").find("bit, byte, keep or recompute") != std::string::npos);
}

// Published: up to 32 % on ResMLP. Linear layers read 6 of the 14 numbers that a layer keeps for each patch and
// channel.
TEST_CASE("pruned blocks save on ResMLP what was published", "[compression]") {
  const Problem problem = problem_on_h200("resmlp_s24:batch=64", Optimizer::momentum);
  const Bytes plain = plan_of(problem, "store_all").peak;
  const auto saved = [&](const std::string& keep) {
    return 100 * (1 - mib(plan_of(problem, "prune_bsr(keep=" + keep + ")").peak) / mib(plain));
  };
  CHECK(saved("0.25") == Approx(29.1).margin(0.1));
  CHECK(saved("0.1") == Approx(35.3).margin(0.1));
  CHECK(saved("0.001") < 100 * 6.0 / 14);
}

// An error of a convolution's input stays with that layer; most of these inputs are what a ReLU has made.
TEST_CASE("errors of convolutions' inputs reach their own weights alone", "[compression][error]") {
  const Problem problem = problem_on_h200("resnet18:batch=8", Optimizer::none);
  const Schedule schedule = plan_of(problem, "pool(k=4)").schedule;
  const PredictedErrors errors = predicted_errors(schedule, problem.graph);
  REQUIRE(errors.of.size() == 19);  // every convolution but the first, whose input is the image
  const double normal = std::sqrt(1 - 1 / 16.0), rectified = normal * std::sqrt(1 - 1 / std::numbers::pi);
  double wrong = 0, all = 0;
  for (std::size_t t = 0; t < problem.graph.tensors.size(); ++t) {
    const Tensor& tensor = problem.graph.tensors[t];
    if (tensor.kind != TensorKind::parameter_gradient) continue;
    const double entries = static_cast<double>(tensor.bytes.count) / 4;
    all += entries;
    const auto found = errors.of.find(id_at<TensorId>(t));
    if (found == errors.of.end()) continue;
    const bool is_rectified = found->second == Approx(rectified);
    CHECK((is_rectified || found->second == Approx(normal)));
    wrong += found->second * found->second * entries;
  }
  CHECK(errors.whole == Approx(std::sqrt(wrong / all)));
  CHECK(predicted_errors(plan_of(problem, "lossless").schedule, problem.graph).of.empty());
}

// Elsewhere, with PyTorch, pooled inputs of batch norms cost 0.15 to 0.2 of the gradient, those of convolutions 0.5 to
// 0.75; with its statistics kept a batch norm hands on next to nothing.
TEST_CASE("errors of batch norms' inputs cost less than those of convolutions", "[compression][error]") {
  const Problem problem = problem_on_h200("resnet18:batch=8", Optimizer::none);
  const auto whole = [&](const std::string& spec) {
    return predicted_errors(plan_of(problem, spec).schedule, problem.graph).whole;
  };
  CHECK(whole("pool(tensors=bn.input,relu=keep)") < 0.2);
  CHECK(whole("pool(tensors=conv.input)") == Approx(0.7).margin(0.05));
  CHECK(whole("quantize(bits=8)") < whole("quantize(bits=4)") / 10);
  CHECK(whole("quantize(bits=4,tensors=conv.input+linear.input)") < whole("quantize(bits=4)"));
}

TEST_CASE("a packed form is freed by the step that unpacks it last", "[compression]") {
  const Problem problem = problem_on_h200("resnet18:batch=8", Optimizer::none);
  const Schedule schedule = plan_of(problem, "quantize").schedule;
  std::map<BufferId, std::size_t> last_unpacked;  // the step, by packed buffer
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    if (step.kind == StepKind::unpack) last_unpacked[schedule.buffers_in(step.reads).front()] = s;
  }
  REQUIRE(last_unpacked.size() > 20);
  for (const auto& [packed, s] : last_unpacked) {
    const auto frees = schedule.buffers_in(schedule.steps[s].frees);
    CHECK(std::ranges::find(frees, packed) != frees.end());
  }
}

TEST_CASE("under strong compression the peak is the first layers' backward", "[compression]") {
  const Problem problem = problem_on_h200("resnet18:batch=256", Optimizer::momentum);
  const Plan made = plan_of(problem, "quantize(bits=1,group=1048576)");
  const Timeline timeline = simulate_event(made.schedule, problem.platform);
  CHECK(mib(made.peak) / 1024 == Approx(2.6).margin(0.1));
  const LowerBounds bounds = lower_bounds(problem, 1, Stays::all, made.schedule.codecs);
  CHECK(made.peak >= bounds.memory);
  CHECK(problem.graph[*bounds.memory_by].stage == 0);
}

TEST_CASE("ActNN keeps a twelfth of what residual networks keep", "[compression]") {
  struct Row {
    const char* model;
    double plain, packed, ratio;
  };
  // Elsewhere the images are packed, too: 36.75 MiB of 64 become 2.125 / 32 of that.
  const auto row =
      GENERATE(Row{"resnet50", 5243.9, 438.8, 11.95}, Row{"resnet152", 0, 0, 12.06}, Row{"resnet18", 0, 0, 12.83});
  INFO(row.model);
  const Problem problem = problem_on_h200(std::string(row.model) + ":batch=64", Optimizer::none);
  const double image = 36.75, packed_image = image * 2.125 / 32;
  const double plain = mib(waiting_after_forward(problem, plan_of(problem, "store_all").schedule).plain) + image;
  const ValuesWaiting packed = waiting_after_forward(problem, plan_of(problem, "actnn").schedule);
  const double all = mib(packed.packed) + packed_image;
  if (row.plain > 0) CHECK(plain == Approx(row.plain).margin(1.5));
  if (row.packed > 0) CHECK(all == Approx(row.packed).epsilon(0.01));
  CHECK(plain / all == Approx(row.ratio).epsilon(0.01));
}

TEST_CASE("compression refuses what it cannot do, and says why", "[compression]") {
  const Problem problem = problem_on_h200("resnet18:batch=2", Optimizer::none);
  const auto complaint = [&](const std::string& spec) {
    try {
      plan(problem, parse_spec(spec, "test"), std::nullopt);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(complaint("pool(tensors=relu.output)"),
             Catch::Contains("a ReLU's gradient needs the sign of every value"));
  CHECK_THAT(complaint("pool(tensors=gelu)"),
             Catch::Contains("matches no saved value") && Catch::Contains("conv.input"));
  CHECK_THAT(complaint("pool(k=200)"), Catch::Contains("larger than every map") && Catch::Contains("56"));
  CHECK(complaint("pool(k=56)").empty());
  CHECK_THAT(complaint("pool(tensors=linear.input)"), Catch::Contains("larger than every map"));
  CHECK_THAT(complaint("pool(tensors=conv.inptu)"), Catch::EndsWith("found 'conv.inptu'; did you mean 'conv.input'?"));
  CHECK_THAT(complaint("pool(tensors=bn+cnov.input)"),
             Catch::EndsWith("found 'bn+cnov.input'; did you mean 'bn+conv.input'?"));
  CHECK_THAT(complaint("pool(relu=bits)"), Catch::EndsWith("found 'bits'; did you mean 'bit'?"));
  CHECK_THAT(complaint("pool(tensors=layer)"), Catch::EndsWith("found 'layer'"));
}

// As autograd records cross-entropy: a gradient is filled with zeros, and the backward writes into it.
TEST_CASE("what an op makes in the place of an input is an approximation where it reads one", "[compression]") {
  const std::string text = R"({"format": "plimsoll.trace.v1", "kind": "graph", "name": "in_place",
    "source": {"kind": "computed", "dtype": "fp32"},
    "tensors": [
      {"name": "x", "kind": "input", "bytes": 4096, "storage": 0, "shape": [4, 256], "dtype": "fp32"},
      {"name": "h", "kind": "activation", "bytes": 4096, "storage": 1, "shape": [4, 256], "dtype": "fp32"},
      {"name": "y", "kind": "activation", "bytes": 4096, "storage": 2, "shape": [4, 256], "dtype": "fp32"},
      {"name": "zeros", "kind": "gradient", "bytes": 4096, "storage": 3, "shape": [4, 256], "dtype": "fp32"},
      {"name": "dh", "kind": "gradient", "bytes": 4096, "storage": 3, "shape": [4, 256], "dtype": "fp32"},
      {"name": "dx", "kind": "gradient", "bytes": 4096, "storage": 4, "shape": [4, 256], "dtype": "fp32"}],
    "ops": [
      {"name": "make", "kind": "mul", "phase": "forward", "stage": 0, "time_s": 1.0, "inputs": [0], "outputs": [1]},
      {"name": "tanh", "kind": "tanh", "phase": "forward", "stage": 0, "time_s": 1.0, "inputs": [1], "outputs": [2]},
      {"name": "fill", "kind": "fill", "phase": "backward", "stage": 0, "time_s": 1.0, "inputs": [], "outputs": [3]},
      {"name": "tanh back", "kind": "mul", "phase": "backward", "stage": 0, "time_s": 1.0, "inputs": [1, 2, 3],
       "outputs": [4], "mutates": [3]},
      {"name": "make back", "kind": "mul", "phase": "backward", "stage": 0, "time_s": 1.0, "inputs": [4],
       "outputs": [5]}]})";
  const Problem problem =
      problem_of(std::get<Graph>(parse_trace(text, "in_place.json").model), load_platform("ideal"), {});
  const Plan packed = plan_of(problem, "quantize");
  CHECK(check(packed.schedule, problem.graph, problem.platform, 1).empty());
  const auto& buffers = packed.schedule.buffers;
  const auto is_lossy = [&](const char* name) {
    return std::ranges::any_of(buffers,
                               [&](const Buffer& b) { return b.lossy && problem.graph[b.tensor].name == name; });
  };
  CHECK((is_lossy("zeros") && is_lossy("dx")));
  CHECK(!is_lossy("x"));
}

}  // namespace
}  // namespace plimsoll
