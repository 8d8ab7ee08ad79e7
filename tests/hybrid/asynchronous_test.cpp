// Asynchronous tensor parallelism: bytes and work of blocks by hand, the time of one product, and plans of all sorts.

#include "sim/mesh/asynchronous_products.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "sim/core/collective_op.h"
#include "sim/core/op_attribute.h"
#include "sim/core/scaling.h"
#include "sim/io/input_error.h"
#include "sim/ops/efficiency.h"
#include "tests/hybrid/judged_plan.h"

using namespace plimsoll;

namespace {

const std::string small_blocks =
                      "transformer:layers=2,width=64,heads=8,sequence=16,batch=4,vocabulary=64,view=graph,dropout=yes",
                  large_blocks = "transformer:layers=2,width=4096,heads=32,sequence=4096,vocabulary=1024,view=graph",
                  in_step = "megatron(tensor=4,sequence=yes)",
                  in_blocks = "megatron(tensor=4,sequence=yes,asynchronous=yes)";

/// Bytes that a rank's ops exchange along the axis, of a shift all that it hands on.
std::map<std::string, std::int64_t> bytes_by_kind(const Graph& graph) {
  std::map<std::string, std::int64_t> sums;
  for (const Op& op : graph.ops) {
    if (collective_of(op)) sums[op.kind] += exchanged_bytes(graph, op).count;
  }
  return sums;
}

double flops_of_all(const Graph& graph) {
  double sum = 0;
  for (const Op& op : graph.ops) sum += op.flops->count;
  return sum;
}

/// Two positions of each of four ranks, width 3: gathered for a product with 5 columns.
Graph gathered_product() {
  Graph graph;
  graph.name = "product";
  const auto tensor = [&](const char* name, TensorKind kind, std::vector<std::int64_t> shape) {
    std::int64_t numbers = 1;
    for (const std::int64_t extent : shape) numbers *= extent;
    Tensor made;
    made.name = name;
    made.kind = kind;
    made.bytes = Bytes{4 * numbers};
    made.storage = id_at<StorageId>(graph.storages++);
    made.shape = std::move(shape);
    graph.tensors.push_back(std::move(made));
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId share = tensor("share", TensorKind::activation, {2, 3}),
                 all = tensor("all", TensorKind::activation, {8, 3}),
                 weight = tensor("weight", TensorKind::parameter, {3, 5}),
                 made = tensor("made", TensorKind::activation, {8, 5});
  Op gather = collective_op("gather", {CollectiveKind::all_gather, "tensor"}, Phase::forward);
  gather.inputs = {share};
  gather.outputs = {all};
  Op product;
  product.name = "product";
  product.kind = "linear";
  product.phase = Phase::forward;
  product.duration = Seconds{8};
  product.flops = Flops{240};
  product.bytes_moved = Bytes{4 * (24 + 15 + 40)};
  product.inputs = {all, weight};
  product.outputs = {made};
  product.attributes.emplace_back("loop", "s w, w f -> s f");
  graph.ops = {std::move(gather), std::move(product)};
  return graph;
}

}  // namespace

// Each of four products multiplies 2 x 3 by 3 x 5 and writes two of the eight rows; three shifts bring 2 x 3 numbers.
TEST_CASE("a product whose input is gathered runs with what is there while the next block comes", "[asynchronous]") {
  const Graph made = with_asynchronous_products(gathered_product(), Mesh{{{"tensor", 4}}}, "tensor");
  REQUIRE(made.ops.size() == 7);
  std::size_t shifts = 0, products = 0;
  std::set<StorageId> blocks{made[made.ops.front().inputs.front()].storage};
  for (const Op& op : made.ops) {
    if (collective_of(op)) {
      CHECK(blocks.insert(made[op.outputs.front()].storage).second);  // beside the one that is multiplied
      CHECK(op.kind == "shift");
      CHECK(runs_beside(op));
      CHECK(exchanged_bytes(made, op) == Bytes{4 * 6});
      CHECK(products == shifts);  // it leaves before the product with what it hands on begins
      ++shifts;
      continue;
    }
    CHECK(op.flops->count == 60);
    CHECK(op.duration == Seconds{2});
    CHECK(*op.bytes_moved == Bytes{4 * (6 + 15 + 10)});
    CHECK(op.mutates.size() == (products == 0 ? 0U : 1U));
    CHECK(made[op.outputs.front()].storage == made[made.ops.back().outputs.front()].storage);
    ++products;
  }
  CHECK(shifts == 3);
  CHECK(products == 4);
  CHECK(made.ops.back().name == "product");
  CHECK(with_asynchronous_products(gathered_product(), Mesh{{{"tensor", 1}}}, "tensor").ops.size() == 2);
}

// Of n ranks n - 1 shifts bring what an all_gather brings, or sum what a reduce_scatter sums: (n - 1) / n of its bytes.
// What no product reads first, or makes, stays.
TEST_CASE("blocks that go round have the bytes of what is gathered and scattered", "[asynchronous]") {
  for (const std::int64_t ranks : {2, 4, 8}) {
    const std::string text = "tensor=" + std::to_string(ranks) + ",sequence=yes";
    const Graph whole = problem_on(small_blocks, "h100_sxm_8", 1, "megatron(" + text + ")").graph,
                blocks = problem_on(small_blocks, "h100_sxm_8", 1, "megatron(" + text + ",asynchronous=yes)").graph;
    auto before = bytes_by_kind(whole), after = bytes_by_kind(blocks);
    const std::int64_t gone =
        before["all_gather"] + before["reduce_scatter"] - after["all_gather"] - after["reduce_scatter"];
    CHECK(gone > 0);
    CHECK(after["shift"] == gone / ranks * (ranks - 1));
    CHECK(after["all_reduce"] == before["all_reduce"]);
    CHECK(flops_of_all(blocks) == Approx(flops_of_all(whole)).epsilon(1e-12));
    // A layer's four products gather for the forward or scatter behind it, and likewise back; and the head's.
    CHECK(after["reduce_scatter"] < before["reduce_scatter"] / 4);
  }
}

TEST_CASE("a block has the sizes of its part of the product", "[asynchronous]") {
  const Graph whole = problem_on(large_blocks, "h100_sxm_8", 1, in_step).graph,
              blocks = problem_on(large_blocks, "h100_sxm_8", 1, in_blocks).graph;
  const auto kernel = [](const Graph& graph, const std::string& name) {
    const auto found = std::ranges::find(graph.ops, name, &Op::name);
    REQUIRE(found != graph.ops.end());
    return gpu_kernel(graph, *found);
  };
  for (const std::string name :
       {"layer0.mlp.up", "layer1.mlp.down", "layer0.attention.qkv", "layer1.mlp.up backward (input)"}) {
    CAPTURE(name);
    const GpuKernel all = kernel(whole, name);
    CHECK(all.kind == KernelKind::product);
    for (const std::string& block : {name, name + " (block 0)", name + " (block 2)"}) {
      const GpuKernel part = kernel(blocks, block);
      CHECK(part.kind == KernelKind::product);
      CHECK(part.m * 4 == all.m);
      CHECK(part.n == all.n);
      CHECK(part.k == all.k);
    }
  }
}

TEST_CASE("plans of products in blocks are legal in both engines, and hide what they exchange", "[asynchronous]") {
  for (const std::string behind : {"", "|greedy_recompute", "|full_recompute", "|rotor", "|1f1b(stages=2)",
                                   "|zero1(ranks=2)", "|zero3(ranks=2)", "|data_parallel(ranks=2)"}) {
    const std::string spec = in_blocks + behind;
    CAPTURE(spec);
    judged_plan(problem_on(small_blocks, "h100_sxm_8", 4, spec), spec);
  }
  const auto makespan = [&](const std::string& spec) {
    return judged_plan(problem_on(large_blocks, "h100_sxm_8", 1, spec), spec).makespan;
  };
  CHECK(makespan(in_blocks) < makespan(in_step));
  CHECK(makespan(in_blocks + "|1f1b(stages=2)") < makespan(in_step + "|1f1b(stages=2)"));
}

TEST_CASE("asynchronous products need positions that are shared out", "[asynchronous]") {
  std::string why;
  try {
    problem_on(small_blocks, "h100_sxm_8", 1, "megatron(tensor=4,asynchronous=yes)");
  } catch (const InputError& error) {
    why = error.what();
  }
  CHECK(why ==
        "megatron: asynchronous=yes: needs sequence=yes, whose blocks go round; without it whole sums are exchanged");
}
