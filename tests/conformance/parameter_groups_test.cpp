// Groups of parameters that other optimizers update: what they take by hand, states and moves counted again from names,
// who plans by stages, and headers that say otherwise.

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>

#include "platforms/platform_file.h"
#include "sim/core/optimizer.h"
#include "sim/io/parameter_groups.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/conformance/judged_pipelines.h"
#include "tests/conformance/measured_stages.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

Problem four_stages(const ProblemOptions& options) {
  return on_measured(4, 2, options);
}

const std::vector<ParameterGroup> two_groups{{"w0", Optimizer::adam}, {"w[0-1]", Optimizer::momentum}};

// Of 8 bytes each: `w0` by Adam, `w1` by momentum, `w2` and `w3` by SGD. States: 2, 1 and none. Moves of 8 bytes, of
// all at once: 7, 5, 3 and 3. One operation at a time: 18, 8, 3 and 3; kernels then are 7, 3 and 1. Roots of Adam's
// second moments are 8 bytes, of its group alone.
TEST_CASE("groups of parameters by hand: states, moves, kernels and roots", "[groups]") {
  struct Taken {
    UpdateKernels kernels;
    double moves, launches;
  };
  for (const Taken& of :
       {Taken{UpdateKernels::fused, 18, 3}, {UpdateKernels::foreach, 32, 11}, {UpdateKernels::single, 18, 4}}) {
    const ProblemOptions grouped{
        .micro_batches = 2, .optimizer = Optimizer::sgd, .parameter_groups = two_groups, .update_kernels = of.kernels};
    ProblemOptions plain = grouped;
    plain.parameter_groups.clear();
    for (const char* spec : {"store_all", "rotor", "chen_sqrt"}) {
      const Plan before = counted_plan(four_stages(plain), spec), after = counted_plan(four_stages(grouped), spec);
      const double launches = of.kernels == UpdateKernels::single ? 4 : 1;
      CHECK(after.makespan.value - before.makespan.value ==
            Approx((of.moves - 12) * 8 / 16 + (of.launches - launches) * 0.01));
      CHECK(after.peak - before.peak == Bytes{3 * 8});
    }
    const Graph& graph = four_stages(grouped).graph;
    for (const Op& op : graph.ops) {
      if (op.phase != Phase::update) continue;
      const bool has_roots = op.name == "update of w0" && of.kernels == UpdateKernels::foreach;
      CHECK(op.workspace == Bytes{has_roots ? 8 : 0});
    }
  }
}

TEST_CASE("groups need parameters, an optimizer for the rest and a trace without updates", "[groups]") {
  const auto refused = [](std::vector<ParameterGroup> groups, Optimizer rest) {
    Chain chain = even_chain(2);
    chain.stages[1].parameters = {0};
    chain.parameters = {{"w0", Bytes{8}}};
    const auto made = make_problem(chain, gpus({}), {.optimizer = rest, .parameter_groups = std::move(groups)});
    return std::holds_alternative<std::string>(made) ? std::get<std::string>(made) : "";
  };
  CHECK(refused({{"w0", Optimizer::sgd}}, Optimizer::adam).empty());
  CHECK_THAT(refused({{"w0", Optimizer::sgd}}, Optimizer::none), Catch::Contains("found none"));
  CHECK_THAT(refused({{"v*", Optimizer::sgd}}, Optimizer::adam), Catch::Contains("'v*' matches no trained"));
  CHECK_THAT(refused({{"*", Optimizer::sgd}, {"w?", Optimizer::adam}}, Optimizer::adam),
             Catch::Contains("no parameter is left for the group 'w?': 'w0' is in '*', which comes before it"));
}

TEST_CASE("a stage's one gradient of parameters in several groups is refused", "[groups]") {
  Chain chain = even_chain(2);
  chain.stages[1].parameters = {0, 1};
  chain.stages[1].parameter_gradient = Bytes{20};
  chain.parameters = {{"w0", Bytes{8}}, {"w1", Bytes{8}}};
  ProblemOptions options{.optimizer = Optimizer::adam, .parameter_groups = {{"w0", Optimizer::sgd}}};
  const auto made = make_problem(chain, gpus({}), options);
  REQUIRE(std::holds_alternative<std::string>(made));
  CHECK_THAT(std::get<std::string>(made), Catch::Contains("has one gradient for its parameters"));
}

TEST_CASE("groups are read as they are written", "[groups]") {
  const auto read = [](std::string_view text) { return parse_parameter_groups(text); };
  CHECK(read("w0=adam, w[0-1] = momentum").value == two_groups);
  CHECK(written(two_groups) == "w0=adam, w[0-1]=momentum");
  CHECK(read("a=b=sgd").value == std::vector<ParameterGroup>{{"a=b", Optimizer::sgd}});
  for (const char* wrong : {"", "=adam", "adam", "w=none", "w=lion", "w=adam,"}) CHECK(!read(wrong).fine());
  CHECK_THAT(read("w=addam").complaint,
             Catch::EndsWith("sgd, momentum or adam for 'w', found 'addam'; did you mean 'adam'?"));
  const std::vector<std::string> names{"block0.norm.scale", "block0.linear.weight"};
  CHECK(pattern_suggestion("*nrom*", names) == "; did you mean '*norm*'?");
  CHECK(pattern_suggestion("norm", names) == "; did you mean '*norm*'?");
  CHECK(pattern_suggestion("*.wieght", names) == "; did you mean '*.weight'?");
  CHECK(pattern_suggestion("*zzzzzz*", names).empty());
}

/// A pattern of `*` and `?` as a regular expression has it.
bool is_like(const std::string& pattern, const std::string& name) {
  std::string expression;
  for (const char c : pattern)
    expression += c == '*' ? "[^]*" : c == '?' ? "[^]" : c == '.' ? "\\." : std::string(1, c);
  return std::regex_match(name, std::regex(expression));
}

/// By name of a parameter: how many states it has, by a plain loop.
std::int64_t states_asked(const std::string& name, const std::vector<ParameterGroup>& groups, Optimizer rest) {
  Optimizer by = rest;
  for (std::size_t g = groups.size(); g-- > 0;) {
    if (is_like(groups[g].pattern, name)) by = groups[g].optimizer;
  }
  return by == Optimizer::adam ? 2 : by == Optimizer::momentum ? 1 : 0;
}

// In fp32 with a copy of bf16 parameters: 4 bytes a number for each state and copy, gradients and parameters 2.
TEST_CASE("states and moves of random groups are those counted from names", "[groups]") {
  const std::vector<std::string> patterns{"*norm*", "*attention*", "layer0*", "*bias", "*e*", "*1.*", "head*"};
  std::size_t made_problems = 0;
  for (const RandomCase seed : fewer_cases(1, 66)) {
    Random random(seed);
    std::vector<ParameterGroup> groups;
    for (std::uint32_t g = 0; g < 1 + random.below(3); ++g) {
      const std::array by{Optimizer::sgd, Optimizer::momentum, Optimizer::adam};
      groups.push_back({patterns[random.below(7)], by[random.below(3)]});
    }
    const Optimizer rest = random.chance(0.5) ? Optimizer::adam : Optimizer::sgd;
    const std::string view = random.chance(0.5) ? ",view=graph" : "";
    auto made = make_problem(
        synthetic_model("transformer:layers=2,width=32,heads=4,sequence=32,vocabulary=32,dtype=bf16" + view),
        load_platform("h200"), {.optimizer = rest, .parameter_groups = groups});
    if (std::holds_alternative<std::string>(made)) continue;  // a group is empty
    ++made_problems;
    const Graph& graph = std::get<Problem>(made).graph;
    for (const Op& op : graph.ops) {
      if (op.phase != Phase::update) continue;
      Bytes moved, states;
      for (const TensorId t : op.mutates) {
        const Tensor& tensor = graph[t];
        if (tensor.kind == TensorKind::optimizer_state) states += tensor.bytes;
        if (tensor.kind != TensorKind::parameter) continue;
        const std::int64_t numbers = tensor.bytes.count / 2;
        const std::int64_t kept = 1 + states_asked(tensor.name, groups, rest);
        states -= Bytes{4 * numbers * kept};
        moved += Bytes{(2 + 2 + 2 * 4 * kept) * numbers};
      }
      INFO(op.name << " " << written(groups));
      CHECK(states == Bytes{0});
      CHECK(op.bytes_moved == moved);
    }
  }
  if (all_cases()) CHECK(made_problems > 0);
}

Problem on_two(bool on_graph, std::vector<ParameterGroup> groups, UpdateKernels kernels = UpdateKernels::fused) {
  const Platform platform = parse_platform(
      "format: plimsoll.platform.v1\nname: machine\nsource: made up\ndevices:\n  - {name: gpu, count: 2, memory: 1 GB, "
      "peak: {bf16: 10 TFLOPS}, memory_bandwidth: 100 GBps, launch_overhead: 1 us}\n"
      "links:\n  - {name: fast, between: [gpu, gpu], bandwidth: 20 GBps, latency: 1 us}\n",
      "machine.yaml");
  const std::string view = on_graph ? ",view=graph" : "";
  return problem_of(synthetic_model("transformer:layers=2,width=32,heads=4,sequence=32,vocabulary=32" + view), platform,
                    {.micro_batches = 2,
                     .optimizer = Optimizer::adam,
                     .parameter_groups = std::move(groups),
                     .update_kernels = kernels});
}

TEST_CASE("who plans by stages knows the states of groups", "[groups]") {
  const std::vector<ParameterGroup> groups{{"*attention*", Optimizer::sgd}, {"*0*", Optimizer::momentum}};
  struct On {
    const char* spec;
    bool on_graph;
  };
  for (const On& on : {On{"chain|rotor", true},
                       {"data_parallel(ranks=2)|rotor", true},
                       {"megatron(tensor=2)|rotor", true},
                       {"zero1(ranks=2)|rotor", true},
                       {"rotor", false},
                       {"zero1(ranks=2)|rotor", false},
                       {"zero2(ranks=2)|rotor", false},
                       {"zero3(ranks=2)|rotor", false},
                       {"1f1b|rotor", false}}) {
    INFO(on.spec << (on.on_graph ? " on a graph" : " on a chain"));
    const std::vector<Pass> passes = parse_spec(on.spec, "test");
    const Problem plain = transformed(on_two(on.on_graph, {}), passes);
    const Problem grouped = transformed(on_two(on.on_graph, groups), passes);
    const Bytes fewer = bytes_of_kind(plain.graph, TensorKind::optimizer_state) -
                        bytes_of_kind(grouped.graph, TensorKind::optimizer_state);
    CHECK(fewer > Bytes{});
    const Plan whole = std::get<Plan>(plan(plain, passes, std::nullopt));
    for (const std::int64_t tenths : {10, 9, 8}) {
      const Bytes budget{whole.peak.count * tenths / 10};
      const PlanOutcome with = plan(grouped, passes, budget - fewer);
      const Plan* made = std::get_if<Plan>(&with);
      if (made != nullptr) judge_plan(grouped, *made, budget - fewer);
      if (std::string(on.spec) == "1f1b|rotor") continue;  // a device's states are a part of all
      const PlanOutcome without = plan(plain, passes, budget);
      REQUIRE(without.index() == with.index());
      if (made != nullptr) CHECK(std::get<Plan>(without).peak - made->peak == fewer);
    }
  }
}

TEST_CASE("a rank keeps the roots of its own shares of a group", "[groups]") {
  const std::vector<ParameterGroup> groups{{"*attention*", Optimizer::sgd}};
  for (const char* spec : {"zero1(ranks=2)", "zero2(ranks=2)", "zero3(ranks=2)"}) {
    for (const bool on_graph : {false, true}) {
      INFO(spec << on_graph);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem made = transformed(on_two(on_graph, groups, UpdateKernels::foreach), passes);
      Bytes roots;
      for (const Tensor& tensor : made.graph.tensors) {
        if (tensor.name.find("state 0 of ") != std::string::npos) roots += tensor.bytes;
      }
      CHECK(roots > Bytes{});
      for (const Op& op : made.graph.ops) {
        if (op.phase != Phase::update || op.bytes_moved.value_or(Bytes{}) == Bytes{}) continue;
        const bool has_state = std::ranges::any_of(
            op.mutates, [&](TensorId t) { return made.graph[t].name.find("state 0 of ") != std::string::npos; });
        if (has_state) CHECK(op.workspace == roots);
      }
    }
  }
}

TEST_CASE("optimizers in Adam's place leave the updates of other groups", "[groups]") {
  const auto changed = [](const std::string& spec, bool on_graph) {
    return transformed(on_two(on_graph, {{"*attention*", Optimizer::momentum}}), parse_spec(spec, "test"));
  };
  const auto states_of = [&](const std::string& spec, bool on_graph, bool of_group) {
    const Problem made = changed(spec, on_graph);
    std::map<std::string, Bytes> by_update;
    for (const Op& op : made.graph.ops) {
      if (op.phase != Phase::update || (op.name.find("attention") != std::string::npos) != of_group) continue;
      for (const TensorId t : op.mutates) {
        if (made.graph[t].kind == TensorKind::optimizer_state) by_update[op.name] += made.graph[t].bytes;
      }
    }
    return by_update;
  };
  for (const auto& [spec, on_graph] : {std::pair{"adam8bit(least=1)", false}, {"adafactor", true}}) {
    CHECK(!states_of(spec, on_graph, true).empty());
    CHECK(states_of(spec, on_graph, true) == states_of("store_all", on_graph, true));
    CHECK(states_of(spec, on_graph, false) != states_of("store_all", on_graph, false));
    const Problem made = changed(spec, on_graph);
    const Plan whole = std::get<Plan>(plan(made, parse_spec("store_all", "test"), std::nullopt));
    CHECK(check(whole.schedule, made.graph, made.platform).empty());
  }
}

TEST_CASE("check finds a header that says other groups than updates have", "[groups]") {
  const Problem problem =
      four_stages({.micro_batches = 2, .optimizer = Optimizer::sgd, .parameter_groups = two_groups});
  const Schedule right = counted_plan(problem, "gpipe").schedule;
  const auto first = [&](const Schedule& schedule) {
    const std::vector<Violation> found = check(schedule, problem.graph, problem.platform);
    return found.empty() ? "" : found.front().what;
  };
  CHECK(first(right).empty());
  CHECK(first(parse_schedule(schedule_text(right, ""), "file")).empty());
  CHECK(parse_schedule(schedule_text(right, ""), "file").parameter_groups == two_groups);
  Schedule other = right;
  other.parameter_groups = {{"w[!12]", Optimizer::adam}, {"w?", Optimizer::momentum}};
  CHECK_THAT(first(other), Catch::Contains("states of 'w"));
  other.parameter_groups = {{"w0", Optimizer::adam}, {"*1", Optimizer::momentum}};
  CHECK(first(other).empty());
}

}  // namespace
}  // namespace plimsoll
