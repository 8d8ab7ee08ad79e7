// data_parallel and zero1 to 3 against the closed forms of their papers, on graphs and chains.

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "sim/core/collective_op.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/mesh/collective_times.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/hybrid/judged_plan.h"
#include "tests/hybrid/transformer_ranks.h"

using namespace plimsoll;

// ZeRO, figure 1: with parameters of 2 bytes, gradients of 2 and Adam's 12, a rank of d keeps 16 P bytes, 4 P + 12 P/d,
// 2 P + 14 P/d, 16 P/d.
TEST_CASE("ranks keep what ZeRO's paper says to the byte", "[hybrid]") {
  const std::string trace = graph_of({});
  const Problem whole = problem_on(trace, "h100_sxm_8", 8, "store_all");
  const std::int64_t p = sum_of(whole.graph, TensorKind::parameter).count / 2;
  const auto kept = [&](const char* spec) {
    const Problem problem = problem_on(trace, "h100_sxm_8", 8, spec);
    judged_plan(problem, spec);
    return std::array{sum_of(problem.graph, TensorKind::parameter).count,
                      sum_of(problem.graph, TensorKind::parameter_gradient).count,
                      sum_of(problem.graph, TensorKind::optimizer_state).count};
  };
  const std::int64_t d = 4;
  CHECK(kept("data_parallel(ranks=4,bucket_view=yes)") == std::array{2 * p, 2 * p, 12 * p});
  CHECK(kept("data_parallel(ranks=4,buckets=off)") == std::array{2 * p, 2 * p, 12 * p});
  // PyTorch's default copies gradients into buckets, which are counted with the states.
  CHECK(kept("data_parallel(ranks=4)") == std::array{2 * p, 2 * p, 12 * p + 2 * p});
  CHECK(kept("zero1(ranks=4)") == std::array{2 * p, 2 * p, 12 * p / d});
  CHECK(kept("zero2(ranks=4)") == std::array{2 * p, 2 * p / d, 12 * p / d});
  CHECK(kept("zero3(ranks=4)") == std::array{2 * p / d, 2 * p / d, 12 * p / d});
}

TEST_CASE("buckets are counted by who plans behind them", "[hybrid][eleventh-3]") {
  for (const std::string behind : {"", "|rotor", "|chen_sqrt", "|chen_greedy", "|revolve", "|pofo", "|offload_greedy",
                                   "|rotor|offload_greedy", "|zero_offload", "|1f1b(stages=2)|rotor"}) {
    const std::string spec = "data_parallel(ranks=2)" + behind;
    CAPTURE(spec);
    const Problem problem =
        problem_on("transformer:layers=3,width=64,heads=4,sequence=32,batch=1,vocabulary=200", "h100_sxm_8", 4, spec);
    judged_plan(problem, spec);
    const std::optional<Bytes> least = std::get<Infeasible>(plan(problem, parse_spec(spec, "test"), Bytes{1})).smallest;
    REQUIRE(least);
    CHECK(judged_plan(problem, spec, least).peak <= *least);
  }
}

// Megatron-LM: 18 bytes a parameter in bf16 with Adam, 2 of them the parameter's and 4 its main gradient's.
TEST_CASE("Megatron's main gradients are in fp32 where parameters are in bf16", "[hybrid]") {
  const auto kept = [](const std::string& dtype, const std::string& spec) {
    const std::string trace = graph_of({}) + ",dtype=" + dtype;
    const Problem problem = problem_on(trace, "h100_sxm_8", 8, spec);
    judged_plan(problem, spec);
    const std::int64_t p = sum_of(problem.graph, TensorKind::parameter).count / 2;
    const Bytes gradients = sum_of(problem.graph, TensorKind::parameter_gradient),
                states = sum_of(problem.graph, TensorKind::optimizer_state);
    return std::pair(gradients.count / p, states.count / p);
  };
  using Kept = std::pair<std::int64_t, std::int64_t>;
  CHECK(kept("bf16", "megatron(tensor=2)") == Kept{4, 12});
  CHECK(kept("bf16", "megatron(tensor=2,main_gradients=as_parameters)") == Kept{2, 12});
  CHECK(kept("fp16", "megatron(tensor=2)") == Kept{2, 12});
  CHECK(kept("fp16", "megatron(tensor=2,main_gradients=fp32)") == Kept{4, 12});
  CHECK(kept("bf16", "megatron(tensor=2)|data_parallel(ranks=2)") == Kept{4, 12});  // its buckets hold them
  CHECK(kept("bf16", "megatron(tensor=2)|data_parallel(ranks=2,bucket_view=no)") == Kept{4, 12 + 4});
}

// Data parallelism sums 2 P bytes of gradients. ZeRO 1 and 2 scatter and gather as much; ZeRO 3 gathers parameters
// twice.
TEST_CASE("ranks exchange what ZeRO's paper says", "[hybrid]") {
  const std::string trace = graph_of({});
  const std::int64_t all = sum_of(problem_on(trace, "h100_sxm_8", 8, "store_all").graph, TensorKind::parameter).count;
  const auto of = [&](const char* spec) {
    const Graph graph = problem_on(trace, "h100_sxm_8", 8, spec).graph;
    std::map<std::string, std::int64_t> sum = exchanged(graph, Phase::forward);
    for (const Phase phase : {Phase::backward, Phase::update}) {
      for (const auto& [kind, bytes] : exchanged(graph, phase)) sum[kind] += bytes;
    }
    return sum;
  };
  using Exchanged = std::map<std::string, std::int64_t>;
  CHECK(of("data_parallel") == Exchanged{{"all_reduce", all}});
  CHECK(of("zero1") == Exchanged{{"reduce_scatter", all}, {"all_gather", all}});
  CHECK(of("zero2") == Exchanged{{"reduce_scatter", all}, {"all_gather", all}});
  const auto zero3 = of("zero3");
  CHECK(zero3.at("reduce_scatter") == all);
  // All of them for the forward; for the backward what that reads: weights and the scales of norms, no biases, shifts
  // nor tables of embeddings. In numbers of two bytes:
  const TransformerSizes shape;
  const std::int64_t in_backward = shape.layers * (12 * shape.h * shape.h + 2 * shape.h) + shape.h + shape.h * shape.v;
  CHECK(zero3.at("all_gather") == all + 2 * in_backward);
  CHECK(of("zero3(reshard_after_forward=no)").at("all_gather") == all);
}

// What the backward reads of the parameters, in numbers of two bytes: weights and the scales of norms. The last layers
// are gathered for their backward as well where nothing stays, so that less than all of it is more at the peak.
TEST_CASE("parameters that stay from the forward to the backward take their bytes", "[hybrid]") {
  const TransformerSizes shape;
  const std::int64_t in_backward = shape.layers * (12 * shape.h * shape.h + 2 * shape.h) + shape.h + shape.h * shape.v;
  const std::string trace = graph_of({});
  const char *stay = "zero3(reshard_after_forward=no)", *go = "zero3";
  const Problem problem = problem_on(trace, "h100_sxm_8", 8, stay);
  std::map<TensorId, Bytes> gathered;
  Bytes kept;
  for (const Op& op : problem.graph.ops) {
    const auto exchange = collective_of(op);
    if (exchange && exchange->kind == CollectiveKind::all_gather) {
      CHECK(op.phase == Phase::forward);
      for (const TensorId t : op.outputs) gathered[t] = problem.graph[t].bytes;
    }
    for (const TensorId t : op.inputs) {
      if (is_backward(op.phase) && gathered.contains(t)) kept += std::exchange(gathered[t], Bytes{0});
    }
  }
  CHECK(kept == Bytes{2 * in_backward});
  const Plan more = judged_plan(problem, stay), less = judged_plan(problem_on(trace, "h100_sxm_8", 8, go), go);
  CHECK(more.peak > less.peak);
  CHECK(more.peak <= less.peak + kept);
  CHECK(more.makespan <= less.makespan);
}

// FSDP2's reshard_after_forward=2 of eight ranks: four pairs. All eight gather for the forward, pairs for the backward
// what that reads, whose half a rank has kept. Gradients are scattered over all eight.
TEST_CASE("parameters that stay as shares over some ranks are gathered by these", "[hybrid]") {
  const TransformerSizes shape;
  const std::int64_t in_backward = shape.layers * (12 * shape.h * shape.h + 2 * shape.h) + shape.h + shape.h * shape.v;
  const std::string trace = graph_of({});
  const std::int64_t all = sum_of(problem_on(trace, "h100_sxm_8", 8, "store_all").graph, TensorKind::parameter).count;
  const char *pairs = "zero3(reshard_after_forward=2)", *stay = "zero3(reshard_after_forward=no)", *go = "zero3";
  const Problem problem = problem_on(trace, "h100_sxm_8", 8, pairs);
  CHECK(problem.micro_batches == 1);
  REQUIRE(problem.mesh->axes.size() == 2);
  CHECK(problem.mesh->axes[0] == Axis{"data", 4, true, CollectiveWay::nccl});
  CHECK(problem.mesh->axes[1] == Axis{"near", 2, true, CollectiveWay::nccl});
  CHECK(sum_of(problem.graph, TensorKind::parameter).count == all / 8);
  std::map<std::pair<std::string, std::string>, std::int64_t> by_axis;
  Bytes kept;
  for (const Op& op : problem.graph.ops) {
    const auto exchange = collective_of(op);
    if (exchange) {
      by_axis[{std::string(written(exchange->kind)), std::string(exchange->axis)}] +=
          exchanged_bytes(problem.graph, op).count;
    }
    if (op.kind == "share") {
      CHECK(op.phase == Phase::forward);
      for (const TensorId t : op.outputs) kept += problem.graph[t].bytes;
    }
  }
  CHECK(by_axis ==
        std::map<std::pair<std::string, std::string>, std::int64_t>{{{"all_gather", "data+near"}, all},
                                                                    {{"all_gather", "near"}, 2 * in_backward},
                                                                    {{"reduce_scatter", "data+near"}, all}});
  CHECK(kept.count == in_backward);
  const auto peak = [&](const char* spec) { return judged_plan(problem_on(trace, "h100_sxm_8", 8, spec), spec).peak; };
  CHECK(peak(go) <= peak(pairs));
  CHECK(peak(pairs) <= peak(go) + kept);
  CHECK(peak(pairs) < peak(stay));
  const Problem as_always = problem_on(trace, "h100_sxm_8", 8, "zero3(reshard_after_forward=8)");
  CHECK(as_always.mesh->axes.size() == 1);
  CHECK(exchanged(as_always.graph, Phase::backward).at("all_gather") == 2 * in_backward);
  CHECK(refusal(trace, "h100_sxm_8", 8, "zero3(reshard_after_forward=3)") ==
        "zero3: reshard_after_forward=3: must divide the 8 ranks that share parameters out");
}

// A stage of a chain keeps half of its parameters on each of two ranks, and gathers them within the pair.
TEST_CASE("stages of chains keep shares over some ranks, and gather these", "[hybrid]") {
  const std::string trace = "transformer:layers=3,width=64,heads=4,sequence=32,vocabulary=100";
  const Problem before = problem_on(trace, "h100_sxm_8", 8, "store_all");
  const Problem after = problem_on(trace, "h100_sxm_8", 8, "zero3(ranks=4,prefetch=0,reshard_after_forward=2)");
  const Problem always = problem_on(trace, "h100_sxm_8", 8, "zero3(ranks=4,prefetch=0)");
  auto times_or_why = CollectiveTimes::on(
      before.platform, Mesh{{{"data", 2, true, CollectiveWay::ring}, {"near", 2, true, CollectiveWay::ring}}});
  CollectiveTimes& times = std::get<CollectiveTimes>(times_or_why);
  constexpr std::uint32_t both[] = {0, 1};
  for (std::size_t s = 0; s < before.chain->stages.size(); ++s) {
    const Stage &plain = before.chain->stages[s], &pair = after.chain->stages[s], &all = always.chain->stages[s];
    Bytes parameters, halves;
    for (const std::uint32_t p : std::set<std::uint32_t>(plain.parameters.begin(), plain.parameters.end())) {
      const Bytes each = before.chain->parameters[p].bytes;
      parameters += each;
      halves += Bytes{(each.count + 1) / 2};
    }
    const auto gather = [&](std::span<const std::uint32_t> axes) {
      return parameters > Bytes{0} ? times.seconds(CollectiveKind::all_gather, parameters, axes).value : 0;
    };
    CHECK(pair.saved == plain.saved + halves);
    CHECK(pair.forward.value == Approx(all.forward.value).epsilon(1e-12));
    CHECK(pair.backward.value ==
          Approx(all.backward.value - gather(both) + gather(std::span(both).subspan(1))).epsilon(1e-12));
    CHECK(pair.backward_workspace == all.backward_workspace);
  }
}

// Replicas of two, each shared out among four: a share's gradients are scattered within the replica, then summed over
// the replicas.
TEST_CASE("replicas that are shared out keep ZeRO's shares and sum these", "[hybrid]") {
  const std::string trace = graph_of({});
  const Problem whole = problem_on(trace, "h100_sxm_8", 8, "store_all");
  const std::int64_t p = sum_of(whole.graph, TensorKind::parameter).count / 2;
  for (const char* spec : {"data_parallel(ranks=2)|zero3(ranks=4)", "data_parallel(ranks=2)|zero3"}) {
    const Problem problem = problem_on(trace, "h100_sxm_8", 16, spec);
    CHECK(problem.micro_batches == 2);
    REQUIRE(problem.mesh->axes.size() == 2);
    CHECK(problem.mesh->axes[0].name == "data");  // the outer one: neighbours share a replica out
    CHECK(problem.mesh->axes[1].name == "shards");
    CHECK(problem.mesh->axes[1].ranks == 4);
    CHECK(sum_of(problem.graph, TensorKind::parameter).count == 2 * p / 4);
    CHECK(sum_of(problem.graph, TensorKind::parameter_gradient).count == 2 * p / 4);
    CHECK(sum_of(problem.graph, TensorKind::optimizer_state).count == 12 * p / 4);
    CHECK(exchanged(problem.graph, Phase::update) == std::map<std::string, std::int64_t>{{"all_reduce", 2 * p / 4}});
    CHECK(exchanged(problem.graph, Phase::backward).at("reduce_scatter") == 2 * p);
    judged_plan(problem, spec);
  }
  const Problem two = problem_on(trace, "h100_sxm_8", 8, "data_parallel(ranks=2)|zero2(ranks=4)");
  CHECK(sum_of(two.graph, TensorKind::parameter_gradient).count == 2 * p / 4);
  CHECK(exchanged(two.graph, Phase::update) ==
        std::map<std::string, std::int64_t>{{"all_gather", 2 * p}, {"all_reduce", 2 * p / 4}});
  const Problem chain = problem_on("transformer:layers=2,width=64,heads=8,sequence=16,batch=4,vocabulary=64",
                                   "h100_sxm_8", 8, "data_parallel(ranks=2)|zero3(ranks=4)");
  CHECK(sum_of(chain.graph, TensorKind::parameter).count == 2 * p / 4);
  CHECK(exchanged(chain.graph, Phase::update) == std::map<std::string, std::int64_t>{{"all_reduce", 2 * p / 4}});
  judged_plan(chain, "data_parallel(ranks=2)|zero3(ranks=4)");
  const char* behind = "data_parallel(ranks=2)|zero3(ranks=2)|1f1b(stages=2)";
  judged_plan(problem_on(trace, "h100_sxm_8", 16, behind), behind);
  CHECK(refusal(trace, "h100_sxm_8", 8, "data_parallel(ranks=2)|zero3(ranks=2)|zero3(ranks=2)") ==
        "test:1:39: 'zero3' cannot follow 'zero3': both are hybrid strategies, and one part has one");
}

TEST_CASE("what a framework overlaps has its name, and means what its options mean", "[hybrid]") {
  const std::string trace = graph_of({});
  const auto asked = [&](const std::string& spec) {
    return judged_plan(problem_on(trace, "h100_sxm_8", 8, spec), spec);
  };
  for (const auto& [named, spelled] : {std::pair{"data_parallel(overlap=ddp)", "data_parallel"},
                                       {"data_parallel(overlap=megatron)", "data_parallel(overlap=no,bucket_view=yes)"},
                                       {"data_parallel(overlap=none)", "data_parallel(overlap=no)"},
                                       {"zero1(overlap=megatron)", "zero1(overlap=no)"},
                                       {"zero2(overlap=fsdp2)", "zero2"},
                                       {"zero3(overlap=fsdp2,prefetch=2)", "zero3(prefetch=2)"}}) {
    CAPTURE(named);
    const Plan one = asked(named), other = asked(spelled);
    CHECK(one.makespan == other.makespan);
    CHECK(one.peak == other.peak);
  }
  for (const auto& [spec, why] :
       {std::pair{"zero1(overlap=ddp)",
                  "zero1: overlap=ddp: PyTorch's DistributedDataParallel shares nothing out, as "
                  "data_parallel does"},
        {"zero3(overlap=megatron)",
         "zero3: overlap=megatron: Megatron's distributed optimizer shares states out, as "
         "zero1 does, and no more"},
        {"data_parallel(overlap=fsdp2)",
         "data_parallel: overlap=fsdp2: FSDP2 shares gradients out, as zero2 and zero3 "
         "do"}}) {
    CHECK(refusal(trace, "h100_sxm_8", 8, spec) == why);
  }
}

// Every gather and every sum is waited for: a graph takes the time of all its ops, and a stage of a chain that of its
// own exchanges on top.
TEST_CASE("ZeRO without overlap waits for all that it exchanges", "[hybrid]") {
  for (const char* spec :
       {"zero2(overlap=none)", "zero3(overlap=none)", "zero3(overlap=none,reshard_after_forward=2)"}) {
    CAPTURE(spec);
    const Problem problem = problem_on(graph_of({}), "h100_sxm_8", 8, spec);
    CHECK(std::ranges::none_of(problem.graph.ops, runs_beside));
    Seconds all;
    for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
      all += duration_on(problem, id_at<OpId>(o), DeviceId{0}, Saving::keep);
    }
    CHECK(judged_plan(problem, spec).makespan.value == Approx(all.value));
  }
  const std::string trace = "transformer:layers=3,width=64,heads=4,sequence=32,vocabulary=100";
  const Problem before = problem_on(trace, "h100_sxm_8", 8, "store_all");
  const Problem after = problem_on(trace, "h100_sxm_8", 8, "zero3(ranks=4,overlap=none)");
  auto times_or_why = CollectiveTimes::on(before.platform, Mesh{{{"data", 4, true, CollectiveWay::ring}}});
  CollectiveTimes& times = std::get<CollectiveTimes>(times_or_why);
  constexpr std::uint32_t axis = 0;
  for (std::size_t s = 0; s < before.chain->stages.size(); ++s) {
    const Stage &plain = before.chain->stages[s], &shared = after.chain->stages[s];
    Bytes parameters;
    for (const std::uint32_t p : std::set<std::uint32_t>(plain.parameters.begin(), plain.parameters.end())) {
      parameters += before.chain->parameters[p].bytes;
    }
    const auto seconds = [&](CollectiveKind kind, Bytes bytes) {
      return bytes > Bytes{0} ? times.seconds(kind, bytes, std::span(&axis, 1)).value : 0;
    };
    const double gather = seconds(CollectiveKind::all_gather, parameters),
                 sum = seconds(CollectiveKind::reduce_scatter, plain.parameter_gradient.value_or(parameters));
    CHECK(shared.forward.value == Approx(plain.forward.value + gather).epsilon(1e-12));
    CHECK(shared.backward.value == Approx(plain.backward.value + gather + sum).epsilon(1e-12));
  }
}

TEST_CASE("without overlap gradients are summed when the whole backward is over", "[hybrid]") {
  for (const char* name : {"data_parallel", "zero1"}) {
    const std::string spec = name, apart = spec + "(overlap=no)";
    const Problem beside = problem_on(graph_of({}), "h100_sxm_8", 8, spec),
                  after = problem_on(graph_of({}), "h100_sxm_8", 8, apart);
    CHECK(std::ranges::none_of(after.graph.ops, runs_beside));
    CHECK(exchanged(after.graph, Phase::update) == exchanged(beside.graph, Phase::update));
    Seconds all;  // nothing runs beside anything
    for (std::size_t o = 0; o < after.graph.ops.size(); ++o) {
      all += duration_on(after, id_at<OpId>(o), DeviceId{0}, Saving::keep);
    }
    CHECK(judged_plan(after, apart).makespan.value == Approx(all.value));
    CHECK(judged_plan(beside, spec).makespan < judged_plan(after, apart).makespan);
  }
}

TEST_CASE("gradients of a stage are summed in buckets", "[hybrid]") {
  const auto sums = [](const char* spec) {
    const Problem problem = problem_on(graph_of({}), "h100_sxm_8", 8, spec);
    return std::ranges::count_if(problem.graph.ops, runs_beside);
  };
  const std::ptrdiff_t parameters = 2 * (6 + 6) + 2 + 3;
  CHECK(sums("data_parallel(buckets=off)") == parameters);
  CHECK(sums("data_parallel") == 2 * 2 + 2);  // stages with parameters
}

TEST_CASE("shares that are handed out have no place between updates within an iteration", "[hybrid]") {
  for (const char* spec : {"zero1(ranks=2)|pipedream(stages=2)", "zero2(ranks=2)|pipedream_2bw(stages=2)"}) {
    CAPTURE(spec);
    const Problem problem =
        problem_on("transformer:layers=3,width=64,heads=4,sequence=32,vocabulary=100", "h100_sxm_8", 8, spec);
    CHECK_THROWS_AS(plan(problem, parse_spec(spec, "test"), std::nullopt), InputError);
  }
}

TEST_CASE("chains train in replicas, too", "[hybrid]") {
  for (const char* spec : {"data_parallel", "zero1", "zero2", "zero3", "zero3|rotor|offload_greedy",
                           "zero1(ranks=2)|1f1b|rotor", "data_parallel(ranks=4)|pipedream", "zero3(ranks=2)|zb_h1"}) {
    CAPTURE(spec);
    const Problem problem =
        problem_on("transformer:layers=3,width=64,heads=4,sequence=32,vocabulary=100", "h100_sxm_8", 8, spec);
    judged_plan(problem, spec);
  }
}

// Where stages are planned, what ZeRO exchanges is part of them: gathers of the stage's own parameters, sums of their
// gradients, each by the closed form, and as much room.
// Beside a forward runs the gather of the next stage; beside a backward the gather of the stage before and the sum of
// the one behind.
TEST_CASE("stages of chains take of ZeRO's exchanges what their neighbours do not hide", "[hybrid]") {
  const std::string trace = "transformer:layers=3,width=64,heads=4,sequence=32,vocabulary=100";
  const Problem before = problem_on(trace, "h100_sxm_8", 8, "store_all");
  const std::vector<Stage>& plain = before.chain->stages;
  auto times_or_why = CollectiveTimes::on(before.platform, Mesh{{{"data", 4, true, CollectiveWay::ring}}});
  CollectiveTimes& times = std::get<CollectiveTimes>(times_or_why);
  constexpr std::uint32_t axis = 0;
  const std::size_t count = plain.size();
  std::vector<Bytes> parameters(count + 2), gradients(count + 2);
  for (std::size_t s = 0; s < count; ++s) {
    for (const std::uint32_t p : std::set<std::uint32_t>(plain[s].parameters.begin(), plain[s].parameters.end())) {
      parameters[s] += before.chain->parameters[p].bytes;
    }
    gradients[s] = plain[s].parameter_gradient.value_or(parameters[s]);
  }
  const auto seconds = [&](CollectiveKind kind, Bytes bytes) {
    return bytes > Bytes{0} ? times.seconds(kind, bytes, std::span(&axis, 1)).value : 0;
  };
  std::size_t exchanging = 0, hidden = 0;
  for (const char* spec :
       {"zero2(ranks=4)", "zero3(ranks=4,prefetch=0)", "zero3(ranks=4)", "zero3(ranks=4,reshard_after_forward=no)",
        "zero3(ranks=4,prefetch=0,reshard_after_forward=no)"}) {
    CAPTURE(spec);
    const std::string_view asked = spec;
    const bool gathers = asked.starts_with("zero3"), is_ahead = gathers && asked.find("prefetch=0") == asked.npos,
               stay = asked.find("reshard") != asked.npos;
    const Problem after = problem_on(trace, "h100_sxm_8", 8, spec);
    REQUIRE(after.chain->stages.size() == count);
    const auto gather = [&](std::size_t s) { return gathers ? seconds(CollectiveKind::all_gather, parameters[s]) : 0; };
    const auto sum = [&](std::size_t s) { return seconds(CollectiveKind::reduce_scatter, gradients[s]); };
    const auto left = [](double exchange, Seconds beside) { return std::max(exchange - beside.value, 0.0); };
    for (std::size_t s = 0; s < count; ++s) {
      const Stage& shared = after.chain->stages[s];
      const bool is_first = s == 0, is_last = s + 1 == count;
      const double waits = is_ahead && !is_first ? left(gather(s), plain[s - 1].forward) : gather(s);
      CHECK(shared.forward.value == Approx(plain[s].forward.value + waits).epsilon(1e-12));
      const Seconds behind = is_last ? plain[s].forward : plain[s + 1].backward;
      const double again = stay ? 0 : gather(s);
      double backward = is_ahead ? left(again, behind) : again;
      const double first = is_ahead && s > 1 && !stay ? gather(s - 2) : 0;  // on the link, before the sum
      backward += is_first ? sum(0) : left(first + sum(s), plain[s - 1].backward) - left(first, plain[s - 1].backward);
      CHECK(shared.backward.value == Approx(plain[s].backward.value + backward).epsilon(1e-12));
      const Bytes own = gathers ? parameters[s] : Bytes{0};
      const Bytes run = stay ? Bytes{0} : own;  // whole while a pass runs, beside what is saved
      const Bytes next = is_ahead ? (is_last ? run : parameters[s + 1]) : Bytes{0};
      CHECK(shared.forward_workspace == plain[s].forward_workspace + run + next);
      CHECK(shared.forward_nograd_workspace == plain[s].forward_nograd_workspace + own + next);
      CHECK(shared.saved == plain[s].saved + (stay ? own : Bytes{0}));
      const Bytes former = is_ahead && !is_first && !stay ? parameters[s - 1] : Bytes{0};
      CHECK(shared.backward_workspace == plain[s].backward_workspace + gradients[s] + run + gradients[s + 1] + former);
      exchanging += sum(s) > 0 ? 1 : 0;
      hidden += gather(s) > waits ? 1 : 0;
    }
  }
  CHECK(exchanging >= 9);
  CHECK(hidden >= 2);
}

// What is planned by ops knows the date of each exchange; stages know their neighbours only, and wait no less.
TEST_CASE("stages of a graph hide gathers, and not more than its ops do", "[hybrid]") {
  const std::string trace = graph_of({.layers = 4, .h = 512, .a = 8, .s = 256, .b = 8, .v = 512});
  const auto makespan = [&](const std::string& spec) {
    return judged_plan(problem_on(trace, "h100_sxm_8", 8, spec), spec).makespan;
  };
  const Seconds by_ops = makespan("zero3"), ahead = makespan("zero3|rotor"), late = makespan("zero3(prefetch=0)|rotor");
  CHECK(by_ops <= (1 + 1e-9) * ahead);
  CHECK(ahead < late);
}

TEST_CASE("more replicas keep less, and never take longer to compute", "[hybrid]") {
  const std::string trace = graph_of({});
  for (const char* name : {"zero1", "zero2", "zero3"}) {
    std::optional<Bytes> before;
    for (const int ranks : {1, 2, 4, 8}) {
      const std::string spec = std::string(name) + "(ranks=" + std::to_string(ranks) + ")";
      CAPTURE(spec);
      const Bytes peak = judged_plan(problem_on(trace, "h100_sxm_8", 8, spec), spec).peak;
      if (before) CHECK(peak <= *before);
      before = peak;
    }
  }
}
