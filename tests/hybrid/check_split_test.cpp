// The judge of splits: finds nothing in what rank_graph makes, and what a mutant of that breaks.

#include "sim/mesh/check_split.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>

#include "platforms/platform_file.h"
#include "sim/core/collective_op.h"
#include "sim/mesh/rank_graph.h"
#include "strategies/compose/plan.h"
#include "strategies/hybrid/bsp_model.h"
#include "traces/models/synthetic.h"

using namespace plimsoll;

namespace {

struct Split {
  Graph whole, rank;
  Mesh mesh;
};

/// As Megatron cuts a transformer, with positions between blocks.
Split megatron_split() {
  Split made;
  auto problem = make_problem(synthetic_model("transformer:layers=1,width=32,heads=4,sequence=16,batch=4,vocabulary=32,"
                                              "view=graph,dropout=yes"),
                              load_platform("h100_sxm_8"), {.optimizer = Optimizer::adam});
  made.whole = std::get<Problem>(problem).graph;
  made.mesh.axes = {{"tensor", 2}};
  SplitPlan plan{made.mesh, {}};
  for (std::size_t o = 0; o < made.whole.ops.size(); ++o) {
    auto& cuts = plan.cuts.emplace_back(1);
    const auto found = loop_of(made.whole, id_at<OpId>(o));
    const OpLoop* loop = std::get_if<OpLoop>(&found);
    for (const char* name : {"a", "f", "v", "s"}) {
      if (loop != nullptr && !cuts.front()) cuts.front() = loop->dim(name);
    }
  }
  made.rank = std::get<Graph>(rank_graph(made.whole, plan));
  return made;
}

Op* find(Graph& graph, const std::function<bool(const Op&)>& is_it) {
  const auto found = std::ranges::find_if(graph.ops, is_it);
  return found == graph.ops.end() ? nullptr : &*found;
}

std::function<bool(const Op&)> collective_in(CollectiveKind kind, Phase phase) {
  return [=](const Op& op) {
    const auto what = collective_of(op);
    return what && what->kind == kind && op.phase == phase;
  };
}

std::function<bool(const Op&)> named(std::string name) {
  return [name = std::move(name)](const Op& op) { return op.name == name; };
}

}  // namespace

TEST_CASE("check_split finds nothing in what rank_graph makes", "[hybrid]") {
  const Split split = megatron_split();
  CHECK(check_split(split.whole, split.rank, split.mesh) == std::vector<std::string>{});
}

TEST_CASE("check_split finds what a mutant breaks", "[hybrid]") {
  Split split = megatron_split();
  const auto complaint = [&] {
    const std::vector<std::string> found = check_split(split.whole, split.rank, split.mesh);
    return found.empty() ? std::string("nothing") : found.front();
  };
  using enum CollectiveKind;
  SECTION("a sum is left out") {
    Op* sum = find(split.rank, collective_in(reduce_scatter, Phase::forward));
    REQUIRE(sum != nullptr);
    const TensorId partial = sum->inputs.front(), summed = sum->outputs.front();
    for (Op& op : split.rank.ops) std::ranges::replace(op.inputs, summed, partial);
    std::erase_if(split.rank.ops, [&](const Op& op) { return op.outputs == std::vector{summed}; });
    CHECK(complaint().find("is a partial sum along 'tensor'") != std::string::npos);
  }
  SECTION("a sum is made twice") {
    Op* sum = find(split.rank, collective_in(all_reduce, Phase::update));
    REQUIRE(sum != nullptr);
    const Op again = *sum;
    split.rank.ops.insert(split.rank.ops.begin() + (sum - split.rank.ops.data()), again);
    CHECK(complaint().find("sums values that are not partial sums") != std::string::npos);
  }
  SECTION("the sum of a gradient is left out") {
    const Op* sum = find(split.rank, collective_in(all_reduce, Phase::update));
    const std::string name = sum->name;
    std::erase_if(split.rank.ops, named(name));
    CHECK(complaint().find("is a partial sum along 'tensor'") != std::string::npos);
  }
  SECTION("shares are summed, not gathered") {
    Op* gather = find(split.rank, collective_in(all_gather, Phase::forward));
    REQUIRE(gather != nullptr);
    gather->kind = "all_reduce";
    CHECK(complaint().find("sums values that are not partial sums") != std::string::npos);
  }
  SECTION("an op reads a share for the whole") {
    Op* gather = find(split.rank, collective_in(all_gather, Phase::forward));
    const TensorId share = gather->inputs.front(), whole = gather->outputs.front();
    for (Op& op : split.rank.ops) {
      if (&op != gather) std::ranges::replace(op.inputs, whole, share);
    }
    CHECK(complaint().find("lies otherwise along 'tensor'") != std::string::npos);
  }
  SECTION("an op is cut otherwise than it says") {
    Op* op = find(split.rank, named("layer0.mlp.up"));
    for (auto& [key, value] : op->attributes) {
      if (key == "cuts") value = "tensor:b";
    }
    CHECK(complaint() != "nothing");
  }
  SECTION("an op says that it is cut along what it needs whole") {
    Op* op = find(split.rank, named("layer0.mlp.norm"));
    for (auto& [key, value] : op->attributes) {
      if (key == "cuts") value = "tensor:w";
    }
    CHECK(complaint() == "'layer0.mlp.norm' cannot be cut as it says: tensor:w");
  }
  SECTION("an op is left out") {
    std::erase_if(split.rank.ops, named("layer0.mlp.norm backward"));
    CHECK(complaint() != "nothing");
  }
  SECTION("an op is there twice") {
    const Op again = *find(split.rank, named("layer0.attention.score"));
    split.rank.ops.insert(split.rank.ops.begin() + (find(split.rank, named(again.name)) - split.rank.ops.data()),
                          again);
    CHECK(complaint() == "'layer0.attention.score' is there 2 times");
  }
  SECTION("a rank does all of the work") {
    Op* op = find(split.rank, named("layer0.mlp.down"));
    op->flops = Flops{2 * op->flops->count};
    CHECK(complaint() == "'layer0.mlp.down' has not 1/2 of the work");
  }
  SECTION("a rank has all of a parameter") {
    const Op* op = find(split.rank, named("layer0.mlp.down"));
    const TensorId weight = op->inputs[1];
    split.rank.tensors[weight.index] = split.whole.tensors[weight.index];
    CHECK(complaint() == "'layer0.mlp.down.weight' has not the size of a rank's share");
  }
  SECTION("a collective makes other bytes") {
    Op* gather = find(split.rank, collective_in(all_gather, Phase::forward));
    split.rank.tensors[gather->outputs.front().index].bytes += Bytes{2};
    CHECK(complaint().find("makes another number of bytes") != std::string::npos);
  }
  SECTION("the maximum of a softmax is not exchanged") {
    Op* exchange =
        find(split.rank, [](const Op& op) { return collective_of(op) && op.outputs.empty() && op.mutates.empty(); });
    REQUIRE(exchange != nullptr);
    const std::string name = exchange->name;
    std::erase_if(split.rank.ops, named(name));
    CHECK(complaint() == "'losses' is exchanged 1 times too few over tensor");
  }
}
