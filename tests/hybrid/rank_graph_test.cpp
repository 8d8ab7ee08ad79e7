// Graphs of one rank against the whole graph, by numbers: what ranks compute on their shares and exchange is what one
// device computes.

#include "sim/mesh/rank_graph.h"

#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/core/collective_op.h"
#include "sim/mesh/check_split.h"
#include "strategies/transforms/recompute_ops.h"
#include "tests/generate/random.h"
#include "tests/hybrid/rank_numbers.h"
#include "tests/random_case.h"

using namespace plimsoll;

namespace {

/// A graph of random products, elementwise ops and sums over tensors of two dimensions, some of which are gradients of
/// parameters in the end, with `read` after each value that nothing else reads.
class RandomLoops {
 public:
  explicit RandomLoops(std::uint64_t seed) : random_(seed) {
    for (int k = 0; k < 3; ++k) tensor("input" + std::to_string(k), k == 0 ? TensorKind::input : TensorKind::parameter);
    const std::uint32_t ops = random_.between(2, 6);
    for (std::uint32_t o = 0; o < ops; ++o) add(o);
    // Read whole, so that what every rank ends with can be compared.
    const std::size_t values = graph_.tensors.size();
    for (std::size_t t = 3; t < values; ++t) {
      if (graph_.tensors[t].kind == TensorKind::parameter_gradient) continue;
      const TensorId whole = tensor("read " + graph_.tensors[t].name, TensorKind::activation);
      op("read" + std::to_string(t), "r c -> r c", {id_at<TensorId>(t)}, {whole});
      read_.push_back(whole);
    }
  }

  const Graph& graph() const { return graph_; }
  const std::vector<TensorId>& read() const { return read_; }

 private:
  TensorId tensor(std::string name, TensorKind kind) {
    Tensor made;
    made.name = std::move(name);
    made.kind = kind;
    made.shape = {6, 6};
    made.bytes = Bytes{36 * 8};
    made.storage = id_at<StorageId>(graph_.storages++);
    graph_.tensors.push_back(std::move(made));
    return id_at<TensorId>(graph_.tensors.size() - 1);
  }

  void op(std::string name, std::string loop, std::vector<TensorId> inputs, std::vector<TensorId> outputs) {
    Op made;
    made.name = std::move(name);
    made.kind = "test";
    made.phase = phase_;
    made.duration = Seconds{6};
    made.flops = Flops{600};
    made.inputs = std::move(inputs);
    made.outputs = std::move(outputs);
    made.attributes = {{"loop", std::move(loop)}};
    graph_.ops.push_back(std::move(made));
  }

  void add(std::uint32_t number) {
    static constexpr std::string_view loops[] = {"i k, k j -> i j", "i j, i j -> i j", "i j, i j -> j i",
                                                 "i k, j k -> i j", "k i, k j -> i j"};
    if (number >= 2 && random_.chance(1.0 / 3)) phase_ = Phase::backward;
    std::vector<TensorId> values;
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (graph_.tensors[t].kind != TensorKind::parameter_gradient) values.push_back(id_at<TensorId>(t));
    }
    const auto any = [&] { return values[random_.below(static_cast<std::uint32_t>(values.size()))]; };
    const bool is_gradient = phase_ == Phase::backward && random_.chance(0.5);
    const std::string loop(loops[random_.below(5)]);
    const TensorId made =
        tensor("value" + std::to_string(number), is_gradient ? TensorKind::parameter_gradient : TensorKind::activation);
    op("op" + std::to_string(number), loop, {any(), any()}, {made});
  }

  Random random_;
  Graph graph_;
  Phase phase_ = Phase::forward;
  std::vector<TensorId> read_;
};

SplitPlan random_plan(const Graph& graph, std::uint64_t seed) {
  Random random(seed + 7919);
  SplitPlan plan{{{{"outer", 2}, {"inner", 3}}}, {}};
  if (random.chance(1.0 / 3)) std::swap(plan.mesh.axes[0].ranks, plan.mesh.axes[1].ranks);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    auto& cuts = plan.cuts.emplace_back(2);
    const auto found = loop_of(graph, id_at<OpId>(o));
    const OpLoop& loop = std::get<OpLoop>(found);
    if (graph.ops[o].name.starts_with("read")) continue;
    for (auto& cut : cuts) {
      if (random.chance(0.25)) continue;
      cut = static_cast<std::uint8_t>(random.below(static_cast<std::uint32_t>(loop.dims.size())));
    }
  }
  return plan;
}

}  // namespace

TEST_CASE("what ranks compute on their shares is what one device computes", "[hybrid]") {
  std::size_t collectives = 0, kinds = 0, gradients = 0;
  for (const RandomCase seed : random_cases(1, 400)) {
    const RandomLoops random(seed);
    const Graph& graph = random.graph();
    const SplitPlan plan = random_plan(graph, seed);
    const auto made = rank_graph(graph, plan);
    REQUIRE(std::holds_alternative<Graph>(made));
    const Graph& rank = std::get<Graph>(made);
    CHECK(check_split(graph, rank, plan.mesh) == std::vector<std::string>{});
    std::map<TensorId, NumberArray> given;
    for (std::uint32_t t = 0; t < 3; ++t) given[TensorId{t}] = random_numbers({6, 6}, seed * 10 + t);
    const auto whole = computed(graph, given);
    const auto on_ranks = computed_on_ranks(rank, plan.mesh, given);
    for (std::uint32_t r = 0; r < plan.mesh.ranks(); ++r) {
      for (const TensorId t : random.read()) CHECK(on_ranks[r].at(t) == whole.at(t));
      for (std::uint32_t t = 3; t < graph.tensors.size(); ++t) {
        if (graph.tensors[t].kind != TensorKind::parameter_gradient) continue;
        const TensorId id{t};
        CHECK(on_ranks[r].at(id) == share_of(whole.at(id), rank[id].shape, plan.mesh, r));
        ++gradients;
      }
    }
    for (const Op& op : rank.ops) {
      if (!collective_of(op)) continue;
      ++collectives;
      kinds |= 1U << static_cast<unsigned>(collective_of(op)->kind);
    }
  }
  if (!all_cases()) return;
  CHECK(collectives > 1000);
  CHECK(kinds == 0b10111);  // all but broadcasts
  CHECK(gradients > 300);
}

TEST_CASE("ranks share out the work of an op by what is cut", "[hybrid]") {
  Graph graph;
  const auto add = [&](TensorKind kind, std::vector<std::int64_t> shape) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(graph.tensors.size());
    tensor.kind = kind;
    tensor.bytes = Bytes{2};
    for (const std::int64_t extent : shape) tensor.bytes = extent * tensor.bytes;
    tensor.shape = std::move(shape);
    tensor.storage = id_at<StorageId>(graph.storages++);
    graph.tensors.push_back(std::move(tensor));
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId x = add(TensorKind::input, {4, 6}), w = add(TensorKind::parameter, {6, 10}),
                 y = add(TensorKind::activation, {4, 10});
  Op op;
  op.name = "product";
  op.duration = Seconds{1};
  op.flops = Flops{480};
  op.bytes_moved = Bytes{48 + 120 + 80};
  op.workspace = Bytes{100};
  op.inputs = {x, w};
  op.outputs = {y};
  op.attributes = {{"loop", "i k, k j -> i j"}};
  graph.ops.push_back(op);

  SECTION("along the columns: half of the parameter and of the result") {
    const auto made = rank_graph(graph, {{{{"tensor", 2}}}, {{std::uint8_t{2}}}});
    const Graph& rank = std::get<Graph>(made);
    CHECK(rank[x].bytes == Bytes{48});
    CHECK(rank[w].shape == std::vector<std::int64_t>{6, 5});
    CHECK(rank[w].bytes == Bytes{60});
    CHECK(rank[y].bytes == Bytes{40});
    CHECK(rank.ops.front().flops == Flops{240});
    CHECK(rank.ops.front().duration == Seconds{0.5});
    CHECK(rank.ops.front().bytes_moved == Bytes{48 + 60 + 40});
    CHECK(rank.ops.front().workspace == Bytes{50});
  }
  SECTION("a dimension that the ranks do not divide is refused with those that would") {
    const auto made = rank_graph(graph, {{{{"tensor", 4}}}, {{std::uint8_t{2}}}});
    CHECK(std::get<std::string>(made) == "'j' of 'product' has 10 in 't1', which 4 ranks do not divide; 2 or 5 would");
  }
  SECTION("an op without a loop cannot be cut") {
    graph.ops.front().attributes.clear();
    graph.ops.front().kind = "mystery";
    const auto made = rank_graph(graph, {{{{"tensor", 2}}}, {{std::uint8_t{2}}}});
    CHECK(std::get<std::string>(made) ==
          "'product' (mystery) has no rule by which it could be cut: the trace gives it no attribute 'loop'");
  }
  SECTION("a dimension that an op needs whole cannot be cut") {
    graph.ops.front().attributes = {{"loop", "i k, k j! -> i j"}};
    const auto made = rank_graph(graph, {{{{"tensor", 2}}}, {{std::uint8_t{2}}}});
    CHECK(std::get<std::string>(made) == "'product' needs all of its dimension 'j'");
  }
}

TEST_CASE("ops that run again leave the backward the same numbers, whole and on ranks", "[hybrid][recompute]") {
  std::size_t second_runs = 0, none = 0;
  for (const RandomCase seed : random_cases(1, 400)) {
    const RandomLoops random(seed);
    const Graph& graph = random.graph();
    Random choice(seed + 31);
    std::vector<bool> runs_again;
    for (const Op& op : graph.ops) runs_again.push_back(op.phase == Phase::forward && choice.chance(0.5));
    const auto made = with_recomputed_ops(graph, runs_again);
    REQUIRE(std::holds_alternative<Graph>(made));
    const Graph& again = std::get<Graph>(made);
    (again.ops.size() > graph.ops.size() ? second_runs : none) += 1;
    const auto forward_reads = [&](const Op& op, TensorId t) {
      return is_backward(op.phase) && std::ranges::count(op.inputs, t) > 0;
    };
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {  // what runs again does not wait
      if (!runs_again[o]) continue;
      for (const Op& op : again.ops) CHECK_FALSE(forward_reads(op, graph.ops[o].outputs.front()));
    }
    std::map<TensorId, NumberArray> given;
    for (std::uint32_t t = 0; t < 3; ++t) given[TensorId{t}] = random_numbers({6, 6}, seed * 10 + t);
    const auto whole = computed(graph, given), twice = computed(again, given);
    for (const auto& [tensor, numbers] : whole) CHECK(twice.at(tensor) == numbers);
    const SplitPlan plan = random_plan(again, seed);
    const auto split = rank_graph(again, plan);
    REQUIRE(std::holds_alternative<Graph>(split));
    const auto on_ranks = computed_on_ranks(std::get<Graph>(split), plan.mesh, given);
    for (std::uint32_t r = 0; r < plan.mesh.ranks(); ++r) {
      for (const TensorId t : random.read()) CHECK(on_ranks[r].at(t) == whole.at(t));
    }
  }
  if (!all_cases()) return;
  CHECK(second_runs > 100);
  CHECK(none > 10);
}
