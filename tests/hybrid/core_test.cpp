// Times of collectives, folded platforms, graphs as chains and what runs beside: by hand.

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "platforms/platform_file.h"
#include "sim/core/collective_op.h"
#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "sim/mesh/collective_times.h"
#include "sim/mesh/folded.h"
#include "sim/mesh/gradient_reduction.h"
#include "sim/model/stage_chain.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/bad_input.h"
#include "tests/generate/problems.h"
#include "traces/models/synthetic.h"

using namespace plimsoll;

namespace {

/// Two nodes of two devices: 20 GB/s and 1 us within, one link of 8 GB/s and 5 us from each node to the fabric.
Platform two_by_two() {
  return parse_platform(
      "format: plimsoll.platform.v1\nname: machine\nsource: made up\nnodes: 2\n"
      "devices:\n  - {name: gpu, count: 2, memory: 1 GB, peak: {bf16: 10 TFLOPS}, memory_bandwidth: 100 GBps}\n"
      "memories:\n  - {name: host, size: 100 GB, bandwidth: 50 GBps}\n"
      "switches:\n  - {name: inside}\n  - {name: fabric, scope: cluster}\n"
      "links:\n  - {name: fast, between: [gpu, inside], bandwidth: 20 GBps, latency: 1 us}\n"
      "  - {name: slow, between: [inside, fabric], bandwidth: 8 GBps, latency: 5 us}\n"
      "  - {name: bus, between: [gpu, host], bandwidth: 10 GBps, latency: 2 us}\n",
      "machine.yaml");
}

Problem transformer_problem(const char* spec, std::uint32_t micro_batches) {
  auto made = make_problem(synthetic_model("transformer:layers=2,width=64,heads=4,sequence=16,batch=4,vocabulary=32,"
                                           "view=graph"),
                           two_by_two(), {.micro_batches = micro_batches, .optimizer = Optimizer::adam});
  return transformed(std::get<Problem>(std::move(made)), parse_spec(spec, "test"));
}

}  // namespace

TEST_CASE("collectives take what the fastest way takes, all groups at once", "[hybrid]") {
  const Platform platform = two_by_two();
  const Mesh mesh{{{"outer", 2}, {"inner", 2}}};
  auto made = CollectiveTimes::on(platform, mesh);
  CollectiveTimes& times = std::get<CollectiveTimes>(made);
  const std::uint32_t outer[] = {0}, inner[] = {1}, both[] = {0, 1};
  const Bytes bytes{8'000'000};
  using enum CollectiveKind;
  // Within a node a hop has 2 us and 20 GB/s for itself, each way.
  CHECK(times.seconds(all_gather, bytes, inner).value == Approx(2e-6 + 4e6 / 20e9));
  CHECK(times.seconds(reduce_scatter, bytes, inner).value == Approx(2e-6 + 4e6 / 20e9));
  CHECK(times.seconds(all_reduce, bytes, inner).value == Approx(2 * (2e-6 + 4e6 / 20e9)));
  // Between nodes both groups go over one link of 8 GB/s and 12 us.
  CHECK(times.seconds(all_gather, bytes, outer).value == Approx(12e-6 + 4e6 / 4e9));
  CHECK(times.seconds(all_to_all, bytes, outer).value == Approx(12e-6 + 4e6 / 4e9));
  // Of all four: sums within nodes, of their halves between nodes, gathers within nodes. One ring would take
  // 2 * 3 * (12 us + 2 MB / 8 GB/s) = 1.57 ms, halving and doubling 2 * (12 us + 4 MB / 4 GB/s + 2 us + 2 MB / 20
  // GB/s).
  CHECK(times.seconds(all_reduce, bytes, both).value == Approx(2 * (2e-6 + 4e6 / 20e9) + 2 * (12e-6 + 2e6 / 4e9)));
  // What only gathers or scatters has no such levels, unless they are asked for.
  CHECK(times.seconds(all_gather, bytes, both).value == Approx(3 * (12e-6 + 2e6 / 8e9)));
  CHECK(times.seconds(reduce_scatter, bytes, both).value == Approx(3 * (12e-6 + 2e6 / 8e9)));
  // Of few bytes latencies count: by a tree two levels up and down, by halves one step each to the other node and back.
  const Bytes few{8};
  CHECK(times.seconds(all_reduce, few, both).value == Approx(2 * (12e-6 + 2e-6)).epsilon(1e-3));
  CHECK(times.seconds(broadcast, few, both).value == Approx(2 * 2 * 12e-6).epsilon(1e-3));
  const Mesh alone{{{"one", 1}}};
  auto single = CollectiveTimes::on(platform, alone);
  CHECK(std::get<CollectiveTimes>(single).seconds(all_reduce, bytes, outer) == Seconds{});
}

TEST_CASE("collectives go the way that is asked for, where it can do them", "[hybrid]") {
  using enum CollectiveKind;
  const Bytes bytes{8'000'000};
  const std::uint32_t both[] = {0, 1};
  const auto seconds = [&](CollectiveWay outer, CollectiveWay inner, CollectiveKind kind) {
    const Mesh mesh{{{"outer", 2, false, outer}, {"inner", 2, false, inner}}};
    auto made = CollectiveTimes::on(two_by_two(), mesh);
    return std::get<CollectiveTimes>(made).seconds(kind, bytes, both).value;
  };
  const auto all = [&](CollectiveWay way, CollectiveKind kind) { return seconds(way, way, kind); };
  // Hops as in the case above; along a ring of all four one of two hops goes over the link of 8 GB/s, alone.
  CHECK(all(CollectiveWay::ring, all_reduce) == Approx(2 * 3 * (12e-6 + 2e6 / 8e9)));
  CHECK(all(CollectiveWay::halving, all_reduce) == Approx(2 * (12e-6 + 4e6 / 4e9 + 2e-6 + 2e6 / 20e9)));
  CHECK(all(CollectiveWay::trees, all_reduce) == Approx(2 * (2 * 12e-6 + 8e6 / 8e9)));
  CHECK(all(CollectiveWay::levels, all_reduce) == Approx(2 * (2e-6 + 4e6 / 20e9) + 2 * (12e-6 + 2e6 / 4e9)));
  CHECK(all(CollectiveWay::ring, all_gather) == Approx(3 * (12e-6 + 2e6 / 8e9)));
  CHECK(all(CollectiveWay::levels, all_gather) == Approx(2e-6 + 4e6 / 20e9 + 12e-6 + 2e6 / 4e9));
  // The first rank hands out a share within its node and two to the other one, alone on its links; they go around. From
  // all to all: at a distance of 1 and 3 one rank of each node goes to the other one, of 2 both do.
  CHECK(all(CollectiveWay::ring, broadcast) ==
        Approx(2e-6 + 2e6 / 20e9 + 2 * (12e-6 + 2e6 / 8e9) + 3 * (12e-6 + 2e6 / 8e9)));
  CHECK(all(CollectiveWay::ring, all_to_all) == Approx(2 * (12e-6 + 2e6 / 8e9) + 12e-6 + 2e6 / 4e9));
  // No trees gather, nothing but rings goes from all to all; and axes that disagree take the fastest.
  for (const CollectiveKind kind : {all_gather, all_to_all}) {
    CHECK(all(CollectiveWay::trees, kind) == all(CollectiveWay::fastest, kind));
  }
  CHECK(seconds(CollectiveWay::ring, CollectiveWay::halving, all_reduce) == all(CollectiveWay::fastest, all_reduce));
  const auto refused = [](const char* spec, std::uint32_t micro_batches) {
    return complaint_of([&] { transformer_problem(spec, micro_batches); });
  };
  CHECK(refused("data_parallel(ranks=3,collectives=halving)", 6) ==
        "data_parallel: axis 'data': 3 ranks cannot be halved again and again; 2 or 4 can");
  CHECK(
      refused("megatron(tensor=2,collectives=levels)", 1) ==
      "megatron: axis 'tensor': collectives have no levels, as each group would need several ranks in each of several "
      "nodes");
  CHECK(transformer_problem("data_parallel(collectives=levels)", 4).micro_batches == 1);
}

TEST_CASE("a folded platform shares out what its ranks share", "[hybrid]") {
  const auto made = folded(two_by_two(), {{{"tensor", 2}}});
  const Platform& platform = std::get<Platform>(made);
  REQUIRE(platform.devices.size() == 2);
  CHECK(platform.devices[0].node == 0);
  CHECK(platform.devices[1].node == 1);
  for (std::uint32_t d = 0; d < 2; ++d) {
    const Device& device = platform.devices[d];
    CHECK(platform[device.memory].capacity == Bytes{1'000'000'000});
    REQUIRE(device.host);
    CHECK(platform[*device.host].capacity == Bytes{50'000'000'000});
    CHECK(platform[*device.host].bandwidth->value == Approx(25e9));
    const auto to_host = route_between(platform, device.memory, *device.host);
    REQUIRE(to_host);
    CHECK(to_host->bandwidth.value == Approx(10e9));  // each GPU has a bus of its own
  }
  const auto between = route_between(platform, platform.devices[0].memory, platform.devices[1].memory);
  REQUIRE(between);
  CHECK(between->bandwidth.value == Approx(4e9));  // two ranks go over a link of 8
  CHECK(between->latency.value == Approx(12e-6));
  CHECK(std::get<std::string>(folded(two_by_two(), {{{"tensor", 8}}})) ==
        "a mesh of 8 ranks, but 'machine' has 4 devices");
}

TEST_CASE("links between stages carry shares that the next stage gathers", "[hybrid]") {
  const Platform platform =
      std::get<Platform>(folded(two_by_two(), {{{.name = "tensor", .ranks = 2, .scatters = true}}}));
  // A share a rank over half a link of 8 GB/s, the whole gathered in a node: 2 us and half of 64 MB at 20 GB/s.
  const double gathering = (2e-6 + 32e6 / 20e9) / 64e6;
  const auto between = route_between(platform, platform.devices[0].memory, platform.devices[1].memory);
  REQUIRE(between);
  CHECK(between->bandwidth.value == Approx(1 / (1 / (2 * 4e9) + gathering)));
  CHECK(between->latency.value == Approx(12e-6));
  CHECK(route_between(platform, platform.devices[0].memory, *platform.devices[0].host)->bandwidth.value ==
        Approx(10e9));
}

// Three nodes of two GPUs, two ranks each, and two fabrics, of which a node takes the one whose link is named first:
// the middle one has other ways back to the first than the first has to it.
TEST_CASE("a folded platform shares links that only the way to the stage before takes", "[hybrid]") {
  Platform platform = gpus({.count = 6, .to_host = {1e9}});
  platform.links.clear();
  const auto first = static_cast<std::uint32_t>(platform.vertices.size()), fabric = first + 3;
  for (const char* name : {"inside 0", "inside 1", "inside 2", "fabric 0", "fabric 1"}) {
    platform.vertices.push_back({std::nullopt, name});
  }
  for (std::uint32_t d = 0; d < 6; ++d) platform.links.push_back({"fast", d, first + d / 2, {20e9}, {}});
  const auto slow = [&](std::uint32_t node, std::uint32_t by, double bandwidth) {
    platform.links.push_back({"slow", first + node, fabric + by, {bandwidth}, {}});
  };
  slow(0, 0, 8e9);
  slow(0, 1, 4e9);
  slow(1, 1, 8e9);
  slow(1, 0, 8e9);
  slow(2, 0, 8e9);
  slow(2, 1, 8e9);
  const auto made = std::get<Platform>(folded(platform, {{{"tensor", 2}}}));
  REQUIRE(made.devices.size() == 3);
  const auto between = [&](std::size_t from, std::size_t to) {
    return route_between(made, made.devices[from].memory, made.devices[to].memory)->bandwidth.value;
  };
  CHECK(between(0, 1) == Approx(4e9));  // two ranks over a link of 8
  CHECK(between(1, 0) == Approx(2e9));  // over one of 4
}

// Ranks that share no link and no parameters do what a pipeline of as many stages does for its micro-batches alone,
// which knows nothing of meshes: time to 1e-9, memory to the byte.
TEST_CASE("a folded pipeline takes the time and memory of one replica by itself", "[hybrid][eleventh-10]") {
  for (const std::uint32_t stages : {1U, 2U, 4U}) {
    for (const std::uint32_t replicas : {2U, 4U}) {
      for (const std::string behind : {"", "|rotor", "|offload_greedy"}) {
        CAPTURE(stages, replicas, behind);
        const auto planned_on = [&](std::uint32_t devices, std::uint32_t micro_batches, const std::string& spec) {
          const Platform platform = gpus(
              {.count = devices, .to_host = {2e9}, .to_peers = BytesPerSecond{1e9}, .peer_latency = Seconds{1e-6}});
          const std::vector<Pass> passes = parse_spec(spec, "test");
          auto made = make_problem(uniform_chain({.stages = 8, .inner = Bytes{500'000}}), platform,
                                   {.micro_batches = micro_batches});
          const Problem problem = transformed(std::get<Problem>(std::move(made)), passes);
          const PlanOutcome outcome = plan(problem, passes, std::nullopt);
          const Timeline timeline = simulate_event(std::get<Plan>(outcome).schedule, problem.platform);
          std::vector<std::int64_t> peaks;
          for (const Device& device : problem.platform.devices) {
            peaks.push_back(timeline.peaks[device.memory.index].bytes.count);
          }
          return std::pair(timeline.makespan.value, peaks);
        };
        const std::string pipeline = "1f1b(stages=" + std::to_string(stages) + ")" + behind;
        const auto alone = planned_on(stages, 6, pipeline);
        const auto folded_one = planned_on(stages * replicas, 6 * replicas,
                                           "data_parallel(ranks=" + std::to_string(replicas) + ")|" + pipeline);
        CHECK(folded_one.first == Approx(alone.first).epsilon(1e-9));
        CHECK(folded_one.second == alone.second);
      }
    }
  }
}

TEST_CASE("replicas share out the micro-batches", "[hybrid]") {
  CHECK(transformer_problem("data_parallel", 8).micro_batches == 2);
  CHECK(transformer_problem("megatron(tensor=2)|zero1", 8).micro_batches == 4);
  CHECK(transformer_problem("megatron", 8).micro_batches == 8);
}

TEST_CASE("sums of gradients run beside the backward, and gathers no further ahead than asked", "[hybrid]") {
  const auto streams = [](const char* spec) {
    const Problem problem = transformer_problem(spec, 4);
    const PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), std::nullopt);
    const Plan& made = std::get<Plan>(outcome);
    const Timeline timeline = simulate_event(made.schedule, problem.platform);
    double backward_ends = 0, first_sum = 1e9, on_links = 0, computed_until = 0;
    for (std::size_t s = 0; s < made.schedule.steps.size(); ++s) {
      const Step& step = made.schedule.steps[s];
      const bool beside = made.schedule[step.stream].way == way::network;
      on_links += beside ? 1 : 0;
      if (beside && step.kind != StepKind::update) {  // not ahead of what was issued before it
        CHECK(timeline.steps[s].start.value >= computed_until);
      } else if (!beside) {
        computed_until = timeline.steps[s].finish.value;
      }
      if (step.kind == StepKind::backward && !beside) {
        backward_ends = std::max(backward_ends, timeline.steps[s].finish.value);
      }
      if (beside && step.kind == StepKind::update) first_sum = std::min(first_sum, timeline.steps[s].start.value);
    }
    const Metrics metrics = measure(problem, made.schedule, timeline);
    CHECK(metrics.exposed_exchange <= metrics.exchange);
    CHECK(metrics.exposed_exchange.value + metrics.ideal.value == Approx(metrics.makespan.value));
    return std::tuple(on_links, backward_ends, first_sum, made.peak);
  };
  const auto [on_links, backward_ends, first_sum, peak] = streams("data_parallel(buckets=off)");
  CHECK(on_links == 2 * 12 + 5);
  CHECK(first_sum < backward_ends);
  const Bytes none = std::get<3>(streams("zero3(prefetch=0)")), one = std::get<3>(streams("zero3")),
              all = std::get<3>(streams("zero3(prefetch=9)"));
  CHECK(none < one);
  CHECK(one < all);
}

TEST_CASE("stages of a chain gather whole parameters for every run, and shares are rounded up", "[hybrid]") {
  Chain chain = even_chain(2);
  for (std::uint32_t p = 0; p < 2; ++p) {
    chain.parameters.push_back({"w" + std::to_string(p), Bytes{10}});
    chain.stages[p].parameters = {p};
  }
  chain.parameters.push_back({.name = "frozen", .bytes = Bytes{6}, .trained = false});
  chain.stages[0].parameters.push_back(2);
  const auto transformed_by = [&](const char* spec) {
    const Problem problem = problem_of(chain, gpus({.count = 4, .to_peers = BytesPerSecond{1e9}}),
                                       {.micro_batches = 4, .optimizer = Optimizer::adam});
    return *transformed(problem, parse_spec(spec, "test")).chain;
  };
  const Chain sharded = transformed_by("zero3(prefetch=0)");
  CHECK(sharded.parameters[0].bytes == Bytes{3});
  CHECK(sharded.parameters[2].bytes == Bytes{6});
  CHECK(sharded.stages[0].forward_workspace == Bytes{10});
  CHECK(sharded.stages[0].forward_nograd_workspace == Bytes{10});
  CHECK(!sharded.stages[0].parameter_gradient);  // as large as the parameter's share
  // Its own gradients and parameters, and the gradients of the stage behind, which are summed meanwhile.
  CHECK(sharded.stages[0].backward_workspace == Bytes{30});
  CHECK(sharded.stages[1].backward_workspace == Bytes{20});
  const Chain ahead = transformed_by("zero3");
  CHECK(ahead.stages[0].forward_workspace == Bytes{20});      // and what the next stage gathers
  CHECK(ahead.stages[1].backward_workspace == Bytes{30});     // and what the stage before does
  CHECK(ahead.stages[1].forward == chain.stages[1].forward);  // its gather is over long before
  const Chain summed = transformed_by("zero2");
  CHECK(summed.parameters[0].bytes == Bytes{10});
  CHECK(summed.stages[0].parameter_gradient == Bytes{3});
  CHECK(summed.stages[0].forward_nograd_workspace == Bytes{0});
}

TEST_CASE("shares are whole numbers where a tensor has such", "[hybrid]") {
  Tensor tensor;
  tensor.bytes = Bytes{12};
  CHECK(shared_bytes(tensor, 2) == Bytes{6});
  CHECK(shared_bytes(tensor, 5) == Bytes{3});
  tensor.shape = {3};
  CHECK(shared_bytes(tensor, 2) == Bytes{8});
  CHECK(shared_bytes(tensor, 3) == Bytes{4});
}

TEST_CASE("a bucket ends where it is full, and with its stage", "[hybrid]") {
  const auto sums = [](std::int64_t bucket, bool one_stage, bool is_shared = false) {
    Graph graph;
    std::vector<GradientSum> all;
    if (is_shared) {  // by a later stage, whose backward comes first
      Op& op = graph.ops.emplace_back();
      op.phase = Phase::backward;
      op.stage = 1;
      op.outputs = {TensorId{1}};
    }
    for (std::uint32_t k = 0; k < 4; ++k) {
      graph.tensors.push_back({.name = "g" + std::to_string(k),
                               .kind = TensorKind::parameter_gradient,
                               .bytes = Bytes{4},
                               .storage = id_at<StorageId>(graph.storages++)});
      Op& op = graph.ops.emplace_back();
      op.phase = Phase::backward;
      op.stage = one_stage ? 0 : k / 3;
      op.outputs = {TensorId{k}};
      all.push_back({TensorId{k}, "data", CollectiveKind::all_reduce});
    }
    std::vector<std::size_t> gradients;
    for (const Op& op : with_gradient_sums(graph, all, Bytes{bucket}).ops) {
      if (op.phase == Phase::update) gradients.push_back(op.inputs.size());
    }
    return gradients;
  };
  using Counts = std::vector<std::size_t>;
  CHECK(sums(8, true) == Counts{2, 2});
  CHECK(sums(9, true) == Counts{3, 1});
  CHECK(sums(100, true) == Counts{4});
  CHECK(sums(100, false) == Counts{3, 1});
  CHECK(sums(100, true, true) ==
        Counts{1, 1, 2});  // parts of a pipeline that share a parameter have nothing else in common
}

/// Of a plan without a limit, in one iteration.
Metrics measured(const std::string& spec, const std::string& trace) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  auto made = make_problem(synthetic_model(trace), two_by_two(),
                           {.micro_batches = 4, .optimizer = Optimizer::adam, .backward = backward_for(passes)});
  const Problem problem = transformed(std::get<Problem>(std::move(made)), passes);
  const PlanOutcome outcome = plan(problem, passes, std::nullopt);
  const Plan& found = std::get<Plan>(outcome);
  return measure(problem, found.schedule, simulate_event(found.schedule, problem.platform));
}

/// Sums of axes are those of all: at no time do ranks exchange along two of these axes.
void check_axes(const Metrics& metrics, const std::vector<std::string>& expected) {
  std::vector<std::string> axes;
  Seconds exchange, exposed;
  for (const AxisMetrics& each : metrics.axes) {
    axes.push_back(each.axis);
    exchange += each.exchange;
    exposed += each.exposed;
    CHECK(each.exchange > Seconds{0});
  }
  CHECK(axes == expected);
  CHECK(exchange.value == Approx(metrics.exchange.value).epsilon(1e-9));
  CHECK(exposed.value == Approx(metrics.exposed_exchange.value).epsilon(1e-9));
}

// What is planned by stages exchanges what is planned by ops does; where it waits longer, what is left of its time is
// the same.
TEST_CASE("stages say how much of each pass is exchange, and along which axis", "[hybrid]") {
  const std::string trace = "transformer:layers=2,width=64,heads=4,sequence=16,batch=4,vocabulary=32,view=graph";
  const auto [spec, axes] = GENERATE(
      std::pair<std::string, std::vector<std::string>>{"megatron(tensor=4,sequence=yes)", {"tensor"}},
      std::pair<std::string, std::vector<std::string>>{"zero2", {"data"}},
      std::pair<std::string, std::vector<std::string>>{"zero3", {"data"}},
      std::pair<std::string, std::vector<std::string>>{"zero3(prefetch=0)", {"data"}},
      std::pair<std::string, std::vector<std::string>>{"megatron(tensor=2)|zero3(prefetch=0)", {"data", "tensor"}});
  CAPTURE(spec);
  const Metrics by_ops = measured(spec, trace), by_stages = measured(spec + "|rotor", trace);
  for (const Metrics& metrics : {by_ops, by_stages}) {
    CHECK(metrics.exposed_exchange > Seconds{0});
    CHECK(metrics.exposed_exchange <= (1 + 1e-9) * metrics.exchange);
  }
  check_axes(by_stages, axes);
  REQUIRE(by_ops.axes.size() == axes.size());
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const double of_stages = by_stages.axes[a].exchange.value, of_ops = by_ops.axes[a].exchange.value;
    // Also where what products of weights gather again goes beside other exchanges of the axis (sequence=yes).
    CHECK(of_stages == Approx(of_ops).epsilon(1e-9));
  }
  CHECK((by_stages.makespan - by_stages.exposed_exchange).value ==
        Approx((by_ops.makespan - by_ops.exposed_exchange).value).epsilon(1e-9));
  // What runs again exchanges again: here all but the last stage's forward, of each micro-batch.
  const Metrics again = measured(spec + "|full_recompute", trace);
  CHECK(again.recomputes > 0);
  if (spec != "zero2") CHECK(again.exchange > by_stages.exchange);  // which gathers nothing for its forwards
}

TEST_CASE("parts of a split backward, and stages of a pipeline, say what they exchange", "[hybrid]") {
  const std::string trace = "transformer:layers=2,width=64,heads=4,sequence=16,batch=4,vocabulary=32,view=graph";
  const Seconds whole = measured("megatron(tensor=2)|1f1b(stages=1)", trace).exchange;
  for (const char* pipeline : {"1f1b(stages=2)", "zb_h1(stages=2)"}) {
    CAPTURE(pipeline);
    const Metrics metrics = measured(std::string("megatron(tensor=2)|") + pipeline, trace);
    CHECK(metrics.exchange.value == Approx(whole.value).epsilon(1e-9));
    CHECK(metrics.exposed_exchange.value == Approx(metrics.exchange.value).epsilon(1e-9));
    check_axes(metrics, {"tensor"});
  }
}

TEST_CASE("chains in replicas say what they exchange", "[hybrid]") {
  const std::string trace = "transformer:layers=2,width=64,heads=4,sequence=16,batch=4,vocabulary=32";
  for (const char* spec : {"zero3", "zero3|rotor", "zero2"}) {
    CAPTURE(spec);
    check_axes(measured(spec, trace), {"data"});
  }
}

TEST_CASE("a graph of stages as a chain keeps, takes and sums what the graph does", "[hybrid]") {
  const auto graph =
      std::get<Graph>(synthetic_model("transformer:layers=2,width=64,heads=4,sequence=16,batch=4,"
                                      "vocabulary=32,view=graph"));
  const Chain formula =
      std::get<Chain>(synthetic_model("transformer:layers=2,width=64,heads=4,sequence=16,batch=4,vocabulary=32"));
  auto made = make_problem(graph, load_platform("ideal"), {.optimizer = Optimizer::adam});
  const auto converted = as_chain(std::get<Problem>(made), Backward::whole);
  REQUIRE(std::holds_alternative<Problem>(converted));
  const Chain& chain = *std::get<Problem>(converted).chain;
  REQUIRE(chain.stages.size() == formula.stages.size());
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    const Stage &of_graph = chain.stages[i], &of_formula = formula.stages[i];
    CAPTURE(i);
    CHECK(of_graph.name == of_formula.name);
    CHECK(of_graph.output == of_formula.output);
    CHECK(of_graph.saved == of_formula.saved);
    CHECK(of_graph.forward.value == Approx(of_formula.forward.value));
    CHECK(of_graph.backward.value == Approx(of_formula.backward.value));
    CHECK(of_graph.input_gradient == of_formula.input_gradient);
  }
  CHECK(parameter_bytes(chain) == bytes_of_kind(graph, TensorKind::parameter));
  // With gradients that are shares the chain's are, too.
  const Problem shared = transformer_problem("zero2|1f1b(stages=1)", 4);
  CHECK(bytes_of_kind(shared.graph, TensorKind::parameter_gradient).count * 4 ==
        bytes_of_kind(shared.graph, TensorKind::parameter).count);
}

// A transformer cut where blocks are: what goes around a block passes the stages between, once.
TEST_CASE("stages of a graph pass on several tensors, and what goes around them", "[hybrid]") {
  auto graph =
      std::get<Graph>(synthetic_model("transformer:layers=2,width=64,heads=4,sequence=16,batch=4,"
                                      "vocabulary=32,view=graph"));
  const auto by_phase = [&](bool backward, std::size_t stages) {  // op by op, wherever that is
    std::vector<Op*> ops;
    for (Op& op : graph.ops) {
      if (op.phase != Phase::update && is_backward(op.phase) == backward) ops.push_back(&op);
    }
    for (std::size_t k = 0; k < ops.size(); ++k) {
      const std::size_t part = k * stages / ops.size();
      ops[k]->stage = static_cast<std::uint32_t>(backward ? stages - 1 - part : part);
    }
  };
  by_phase(false, 12);
  by_phase(true, 12);
  auto made = make_problem(graph, two_by_two(), {.micro_batches = 4, .optimizer = Optimizer::adam});
  const auto converted = as_chain(std::get<Problem>(made), Backward::whole);
  REQUIRE(std::holds_alternative<Problem>(converted));
  const Problem& problem = std::get<Problem>(converted);
  const Chain& chain = *problem.chain;
  REQUIRE(chain.boundaries.size() == chain.stages.size() + 1);
  CHECK(std::ranges::any_of(chain.boundaries, [](const auto& tensors) { return tensors.size() > 1; }));
  const auto passes = [&](std::size_t i) {
    return std::ranges::any_of(chain.boundaries[i], [&](std::uint32_t t) {
      return std::ranges::find(chain.boundaries[i + 1], t) != chain.boundaries[i + 1].end();
    });
  };
  CHECK(passes(2));
  Seconds of_chain, of_ops;
  for (const Stage& stage : chain.stages) of_chain += stage.forward + stage.backward;
  const Problem& whole = std::get<Problem>(made);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (graph.ops[o].phase != Phase::update) of_ops += duration_on(whole, id_at<OpId>(o), DeviceId{0}, Saving::keep);
  }
  CHECK(of_chain.value == Approx(of_ops.value));
  // By hand: every value that is read behind a boundary is on it, every gradient that is read before it.
  for (std::size_t b = 1; b < chain.stages.size(); ++b) {
    std::map<StorageId, std::size_t> made_in, made_back;
    for (const Op& op : graph.ops) {
      for (const TensorId t : op.outputs) {
        const bool is_forward = op.phase == Phase::forward;
        const bool is_value = graph[t].kind != TensorKind::parameter_gradient && op.phase != Phase::update;
        if (is_value) (is_forward ? made_in : made_back).try_emplace(graph[t].storage, op.stage);
      }
    }
    std::set<StorageId> values, gradients;
    for (const Op& op : graph.ops) {
      for (const TensorId t : op.inputs) {
        const StorageId s = graph[t].storage;
        if (op.phase == Phase::update) continue;
        if (made_in.contains(s) && made_in[s] < b && op.stage >= b) values.insert(s);
        if (made_back.contains(s) && made_back[s] >= b && op.stage < b) gradients.insert(s);
      }
    }
    const auto sum = [&](const std::set<StorageId>& of) {
      std::map<StorageId, Bytes> bytes;
      for (const Tensor& tensor : graph.tensors) bytes[tensor.storage] = tensor.bytes;
      Bytes all;
      for (const StorageId s : of) all += bytes[s];
      return all;
    };
    CHECK(chain.stages[b - 1].output == sum(values));
    CHECK(chain.stages[b].input_gradient == sum(gradients));
  }
  for (const char* spec : {"data_parallel(ranks=2)|1f1b(stages=2)", "data_parallel(ranks=2)|1f1b(stages=2)|rotor",
                           "1f1b(stages=3)", "1f1b(stages=3)|rotor"}) {
    auto on_ranks = make_problem(graph, two_by_two(), {.micro_batches = 4, .optimizer = Optimizer::adam});
    const std::vector<Pass> asked = parse_spec(spec, "test");
    const Problem ready = transformed(std::get<Problem>(std::move(on_ranks)), asked);
    const bool is_as_it_is = std::string_view(spec).starts_with("1f1b");
    const auto says_so = [](const std::string& note) {
      return note.ends_with("is planned as a chain of its 12 stages");
    };
    CHECK(std::ranges::any_of(ready.notes, says_so) == is_as_it_is);
    const Plan plan_made = std::get<Plan>(plan(ready, asked, std::nullopt));
    CHECK(check(plan_made.schedule, ready.graph, ready.platform).empty());
  }
}

TEST_CASE("the times of a stage's weight gradients do not come to more than its backward by rounding", "[hybrid]") {
  Graph graph;
  graph.name = "weights only";
  const auto tensor = [&](std::string name, TensorKind kind) {
    graph.tensors.push_back({.name = std::move(name), .kind = kind, .bytes = Bytes{8}, .storage = {graph.storages++}});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId x = tensor("x", TensorKind::input), y = tensor("y", TensorKind::activation);
  graph.ops.push_back({.name = "forward", .duration = Seconds{1}, .inputs = {x}, .outputs = {y}});
  for (const double time : {0.3, 0.2, 0.1}) {  // (0.3 + 0.2) + 0.1 < (0.1 + 0.2) + 0.3 in doubles
    const std::string number = std::to_string(graph.ops.size());
    const TensorId w = tensor("w" + number, TensorKind::parameter),
                   g = tensor("gradient of w" + number, TensorKind::parameter_gradient);
    graph.ops.front().inputs.push_back(w);
    graph.ops.push_back({.name = "backward" + number,
                         .phase = Phase::backward,
                         .duration = Seconds{time},
                         .inputs = {y},
                         .outputs = {g}});
  }
  auto made = make_problem(graph, load_platform("ideal"), {});
  const auto converted = as_chain(std::get<Problem>(made), Backward::split);
  REQUIRE(std::holds_alternative<Problem>(converted));
  const Problem& problem = std::get<Problem>(converted);
  CHECK(problem.chain->stages.front().backward_weight == problem.chain->stages.front().backward);
  for (const Op& op : problem.graph.ops) CHECK(op.duration.value_or(Seconds{0}) >= Seconds{0});
}
