// Networks whose ops say nothing of how they split: cut at random by the rules of their kinds, they compute by numbers
// what the whole does.

#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/core/op_kind.h"
#include "sim/mesh/check_split.h"
#include "sim/mesh/rank_graph.h"
#include "sim/ops/operators.h"
#include "sim/ops/split_rules.h"
#include "tests/generate/random.h"
#include "tests/hybrid/rank_numbers.h"
#include "tests/random_case.h"
#include "traces/imports/eager_graph.h"
#include "traces/models/synthetic.h"
#include "traces/trace_file.h"
#include "validate/networks/networks.h"

using namespace plimsoll;

namespace {

/// With the loops that the rules give, stated: those of a rank's op are the whole's, whatever its shares look like.
Graph with_loops(Graph graph) {
  for (std::uint32_t o = 0; o < graph.ops.size(); ++o) {
    Op& op = graph.ops[o];
    if (op.phase == Phase::update) continue;
    const auto ruled = loops_by_rule(graph, OpId{o});
    if (const NoRule* none = std::get_if<NoRule>(&ruled)) FAIL(none->why);
    for (const RuledLoop& each : std::get<std::vector<RuledLoop>>(ruled)) {
      op.attributes.emplace_back("loop", each.loop);
      if (!each.reduces.empty()) op.attributes.emplace_back("loop_reduces", each.reduces);
      if (std::holds_alternative<OpLoop>(loop_of(graph, OpId{o}))) break;
      std::erase_if(op.attributes, [](const auto& attribute) { return attribute.first.starts_with("loop"); });
    }
  }
  return graph;
}

SplitPlan random_cuts(const Graph& graph, std::uint64_t seed) {
  Random random(seed + 104'729);
  SplitPlan plan{{{{"half", 2}}}, {}};
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    auto& cuts = plan.cuts.emplace_back(1);
    if (graph.ops[o].phase == Phase::update) continue;
    const auto found = loop_of(graph, id_at<OpId>(o));
    REQUIRE(std::holds_alternative<OpLoop>(found));
    const OpLoop& loop = std::get<OpLoop>(found);
    if (loop.dims.empty()) continue;
    const auto d = static_cast<std::uint8_t>(random.below(static_cast<std::uint32_t>(loop.dims.size())));
    if (loop.dims[d].cuttable && loop.dims[d].size % 2 == 0) cuts.front() = d;
  }
  return plan;
}

/// What cuts at random make of a graph, by numbers. How many ops were cut; nothing where the plan cannot be.
std::optional<std::size_t> compare(const Graph& graph, std::uint64_t seed) {
  const SplitPlan plan = random_cuts(graph, seed);
  const auto made = rank_graph(graph, plan);
  if (const std::string* why = std::get_if<std::string>(&made)) {
    // Gradients of which several ops make a part must be laid out by all of them alike.
    CHECK(why->find("differently") != std::string::npos);
    return std::nullopt;
  }
  const Graph& rank = std::get<Graph>(made);
  CHECK(check_split(graph, rank, plan.mesh) == std::vector<std::string>{});
  std::map<TensorId, NumberArray> given;
  for (std::uint32_t t = 0; t < graph.tensors.size(); ++t) {
    if (is_given(graph.tensors[t].kind)) given[TensorId{t}] = random_numbers(graph.tensors[t].shape, seed * 100 + t);
  }
  const auto whole = computed(graph, given);
  const auto on_ranks = computed_on_ranks(rank, plan.mesh, given);
  std::size_t compared = 0;
  for (std::uint32_t t = 0; t < graph.tensors.size(); ++t) {
    const TensorId id{t};
    if (graph[id].kind != TensorKind::parameter_gradient) continue;
    for (std::uint32_t r = 0; r < plan.mesh.ranks(); ++r) {
      CAPTURE(graph[id].name);
      CHECK(on_ranks[r].at(id) == share_of(whole.at(id), rank[id].shape, plan.mesh, r));
      ++compared;
    }
  }
  CHECK(compared > 0);
  return std::ranges::count_if(plan.cuts, [](const auto& cuts) { return cuts.front().has_value(); });
}

Graph small_pictures() {
  EagerGraph made("pictures");
  made.next_stage("all");
  TensorId x = made.input({4, 2, 4, 4});
  x = made.max_pool(made.relu_in_place(made.batch_norm(made.convolution(x, 4, {3, 1, 1}))), {3, 2, 1});
  const TensorId beside = x;
  x = made.batch_norm(made.convolution(x, 4, {1, 1, 0}, true));
  x = made.relu_in_place(made.add_in_place(x, beside));
  return std::move(made).trained(made.linear(made.mean(x), 4));
}

Graph small_transformer() {
  EagerGraph made("transformer");
  made.next_stage("all");
  TensorId x = made.input({2, 2, 2, 2});
  x = made.rows_of_pictures(made.convolution(x, 4, {1, 1, 0}, true));
  x = made.add_parameter(x, "positions");
  const std::vector<TensorId> parts = made.split(made.linear(made.layer_norm(x), 12), {4, 5, 2}, 3);
  const TensorId weights = made.softmax(made.scaled(made.batched_product_with_transposed(parts[0], parts[1])));
  x = made.add(x, made.linear(made.copied(made.batched_product(weights, parts[2]), {2, 5, 4}), 4));
  x = made.add_columns(made.times_columns(x, "alpha"), "beta");
  x = made.add(x, made.linear(made.gelu(made.linear(x, 8)), 4));
  return std::move(made).trained(made.linear_of_first_row(made.layer_norm(x), 4));
}

/// As the exporter recorded it: masks, dropout, attention across, values that later ops hold on to.
Graph exported_encoder_decoder() {
  return std::get<Graph>(load_trace("tests/hybrid/measured/encoder_decoder_ops.json").model);
}

}  // namespace

TEST_CASE("networks cut at random by the rules of their kinds compute what the whole does", "[hybrid]") {
  const std::string reference = GENERATE(
      "mlp:layers=2,width=4,batch=4,classes=4,view=graph",
      "gpt:layers=1,width=8,heads=4,sequence=4,batch=4,vocabulary=4,view=graph",
      "resnet:blocks=1,channels=4,picture=8,batch=2,classes=4,view=graph",
      "lstm:steps=2,width=4,batch=4,classes=4,view=graph",
      "decoder:layers=1,width=8,heads=4,kv_heads=2,inner=4,sequence=4,batch=4,vocabulary=4,view=graph",
      "decoder:layers=1,width=8,heads=4,kv_heads=2,inner=4,sequence=4,batch=4,vocabulary=4,experts=4,view=graph");
  CAPTURE(reference);
  const Graph graph = with_loops(named_network(reference).network.graph);
  std::size_t cut = 0;
  for (const RandomCase seed : random_cases(1, reference.starts_with("resnet") ? 4 : 20)) {
    cut += compare(graph, seed).value_or(0);
  }
  if (all_cases()) CHECK(cut > 40);
}

TEST_CASE("an encoder with a decoder, cut at random, computes what the whole does", "[hybrid]") {
  const std::string reference =
      "transformer:layers=1,decoder=2,width=4,heads=2,sequence=2,batch=2,vocabulary=4,view=graph";
  const Graph graph = std::get<Graph>(synthetic_model(reference + GENERATE("", ",dropout=yes")));
  std::size_t cut = 0;
  for (const RandomCase seed : random_cases(1, 20)) cut += compare(graph, seed).value_or(0);
  if (all_cases()) CHECK(cut > 200);
}

TEST_CASE("graphs of eager PyTorch cut at random compute what the whole does", "[hybrid]") {
  const Graph graph = with_loops(GENERATE(small_pictures(), small_transformer(), exported_encoder_decoder()));
  std::size_t cut = 0;
  for (const RandomCase seed : random_cases(1, 20)) cut += compare(graph, seed).value_or(0);
  if (all_cases()) CHECK(cut > 200);
}

/// What the backward ops of an operator read of its forward's values.
OpSaves read_of(const Graph& graph, const Operator& of) {
  const Op& forward = graph[of.forward];
  const auto is_value = [&](TensorId t) {
    return graph[t].kind == TensorKind::activation || graph[t].kind == TensorKind::input;
  };
  OpSaves read = OpSaves::nothing;
  for (const OpId backward : of.backward) {
    for (const TensorId t : graph[backward].inputs) {
      const auto place = std::ranges::find(forward.outputs, t);
      if (place == forward.outputs.begin() && place != forward.outputs.end()) read = read | OpSaves::result;
      if (place != forward.outputs.begin() && place != forward.outputs.end()) read = read | OpSaves::marks;
      const bool is_input = std::ranges::find(forward.inputs, t) != forward.inputs.end();
      if (is_input && is_value(t)) read = read | OpSaves::input;
    }
  }
  return read;
}

TEST_CASE("forwards save what the table of kinds says", "[hybrid]") {
  const std::string reference = GENERATE(
      "resnet50:batch=8", "deit_s:batch=8", "gpt4_ops_w256_t128_b4_cpu", "mlp:layers=2,width=4,view=graph",
      "gpt:layers=1,width=8,heads=4,sequence=4,batch=4,vocabulary=4,view=graph",
      "resnet:blocks=1,channels=4,picture=8,batch=2,classes=4,view=graph",
      "lstm:steps=2,width=4,batch=4,classes=4,view=graph",
      "decoder:layers=1,width=8,heads=4,kv_heads=2,inner=4,sequence=4,batch=4,vocabulary=4,view=graph",
      "decoder:layers=1,width=8,heads=4,kv_heads=2,inner=4,sequence=4,batch=4,vocabulary=4,experts=4,view=graph");
  CAPTURE(reference);
  const Graph graph =
      is_network(reference) ? named_network(reference).network.graph : std::get<Graph>(load_trace(reference).model);
  std::map<OpKind, OpSaves> saves;
  for (const Operator& each : operators_of(graph)) {
    const std::optional<OpKind> kind = op_kind(graph[each.forward]);
    if (kind && !each.backward.empty()) saves[*kind] = saves[*kind] | read_of(graph, each);
  }
  CHECK(saves.size() > 2);
  for (const auto& [kind, read] : saves) {
    INFO(name_of(kind) << " or " << row_of(kind).names.pytorch);
    CHECK(static_cast<int>(read) == static_cast<int>(row_of(kind).saves));
  }
}

TEST_CASE("every op of the references of eager PyTorch has a loop, and backward ops their forward", "[hybrid]") {
  const std::string reference =
      GENERATE("resnet18:batch=8", "resnet50:batch=8", "deit_s:batch=8", "resmlp_s12:batch=8", "resnet18_ops_b8_cpu",
               "gpt4_ops_w256_t128_b4_cpu", "tests/hybrid/measured/encoder_decoder_ops.json");
  CAPTURE(reference);
  const Graph graph = std::get<Graph>(load_trace(reference).model);
  std::map<std::string, std::size_t> forwards, backwards, by_kind;
  for (std::uint32_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    const auto found = loop_of(graph, OpId{o});
    if (op.phase == Phase::forward) ++forwards[op.kind];
    if (is_backward(op.phase)) ++backwards[op.kind];
    if (const std::string* why = std::get_if<std::string>(&found); why != nullptr) {
      FAIL_CHECK(*why);
    }
  }
  for (const Operator& each : operators_of(graph)) {
    for (const OpId op : each.backward) {
      ++by_kind[graph[op].kind];
      const std::string &kind = graph[op].kind, &forward = graph[each.forward].kind;
      if (kind == forward + "_backward") ++by_kind["named alike"];
      if (kind == "mm") CHECK((forward == "mm" || forward == "addmm"));
      if (kind == "threshold_backward") CHECK(forward == "relu_");
    }
    if (graph[each.forward].kind == "convolution") CHECK(each.backward.size() == 1);
  }
  for (const char* kind : {"convolution_backward", "native_batch_norm_backward", "native_layer_norm_backward",
                           "threshold_backward", "gelu_backward", "max_pool2d_with_indices_backward", "mm", "bmm",
                           "_softmax_backward_data", "_log_softmax_backward_data", "nll_loss_backward"}) {
    CAPTURE(kind);
    CHECK(by_kind[kind] == backwards[kind]);
  }
}
