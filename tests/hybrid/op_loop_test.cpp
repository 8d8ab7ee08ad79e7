#include "sim/ops/op_loop.h"

#include <catch2/catch.hpp>

#include "sim/mesh/layout.h"

using namespace plimsoll;

namespace {

Graph one_op(std::string loop, std::string reduces = {}) {
  Graph graph;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{4, 6}, std::vector<std::int64_t>{6, 8}, std::vector<std::int64_t>{4, 8}}) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(graph.tensors.size());
    tensor.shape = shape;
    graph.tensors.push_back(tensor);
  }
  Op op;
  op.name = "product";
  op.inputs = {TensorId{0}, TensorId{1}};
  op.outputs = {TensorId{2}};
  op.attributes.emplace_back("loop", std::move(loop));
  if (!reduces.empty()) op.attributes.emplace_back("loop_reduces", std::move(reduces));
  graph.ops.push_back(op);
  return graph;
}

OpLoop loop_in(const std::string& text, const std::string& reduces = {}) {
  return std::get<OpLoop>(loop_of(one_op(text, reduces), OpId{0}));
}

std::string why_not(const std::string& text, const std::string& reduces = {}) {
  return std::get<std::string>(loop_of(one_op(text, reduces), OpId{0}));
}

constexpr AxisLayout whole{}, partial{AxisLayout::Kind::partial};
AxisLayout cut(std::uint8_t dim) {
  return {AxisLayout::Kind::cut, dim};
}

}  // namespace

TEST_CASE("a loop names the dimensions of its operands", "[hybrid]") {
  const OpLoop loop = loop_in("row inner!, inner column -> row column", "column 2");
  CHECK(loop.dims == std::vector<LoopDim>{{"row", 4, true}, {"inner", 6, false}, {"column", 8, true}});
  CHECK(loop.inputs == std::vector<std::vector<std::uint8_t>>{{0, 1}, {1, 2}});
  CHECK(loop.outputs == std::vector<std::vector<std::uint8_t>>{{0, 2}});
  CHECK(loop.reductions == std::vector<LoopReduction>{{2, 2}});
  CHECK(loop.dim("column") == 2);
  CHECK_FALSE(loop.dim("other"));
  const OpLoop causal = loop_in("row~ inner, inner column -> row column");
  CHECK(causal.dims.front() == LoopDim{"row", 4, false, true});
  CHECK(loop_in("row~ inner!, inner~ column -> row! column").dims[0] == LoopDim{"row", 4, false, false});
  CHECK(loop_in("row~ inner!, inner~ column -> row! column").dims[1] == LoopDim{"inner", 6, false, false});
  const OpLoop own = loop_in("i -, - j -> i j");
  CHECK(own.dims.size() == 4);
  CHECK_FALSE(own.dims[1].cuttable);
}

TEST_CASE("a loop that does not fit the op is refused with what does not", "[hybrid]") {
  CHECK(why_not("i k, k j") == "the loop of 'product' has no '->'");
  CHECK(why_not("i k -> i j") == "the loop of 'product' names the dimensions of 1 inputs, but the op has 2");
  CHECK(why_not("i k, k -> i j") == "the loop of 'product' names 1 dimensions of 't1', whose shape has 2");
  CHECK(why_not("i k, j k -> i j") == "the loop of 'product' gives 'k' the sizes 6 and 8");
  CHECK(why_not("i k, k j -> i j", "z 1") == "the loop of 'product' reduces 'z 1', expected a dimension and a count");
}

TEST_CASE("operands lie as the op is cut", "[hybrid]") {
  const OpLoop loop = loop_in("i k, k j -> i j");
  const std::optional<std::uint8_t> by_k[] = {loop.dim("k"), std::nullopt}, by_i[] = {std::nullopt, loop.dim("i")};
  CHECK(layout_of(loop.inputs[0], by_k, false) == Layout{cut(1), whole});
  CHECK(layout_of(loop.inputs[1], by_k, false) == Layout{cut(0), whole});
  CHECK(layout_of(loop.outputs[0], by_k, true) == Layout{partial, whole});
  CHECK(layout_of(loop.inputs[1], by_i, false) == Layout{whole, whole});
  CHECK(layout_of(loop.outputs[0], by_i, true) == Layout{whole, cut(0)});
}

TEST_CASE("values are laid out anew with the collectives that it takes", "[hybrid]") {
  using enum CollectiveKind;
  const auto kinds = [](const Layout& from, const Layout& to) {
    std::vector<std::pair<std::uint32_t, std::optional<CollectiveKind>>> made;
    const std::optional<std::vector<Relayout>> steps = relayouts(from, to);
    for (const Relayout& step : *steps) made.emplace_back(step.axis, step.kind);
    return made;
  };
  using Steps = std::vector<std::pair<std::uint32_t, std::optional<CollectiveKind>>>;
  CHECK(kinds({partial}, {whole}) == Steps{{0, all_reduce}});
  CHECK(kinds({partial}, {cut(1)}) == Steps{{0, reduce_scatter}});
  CHECK(kinds({cut(0)}, {whole}) == Steps{{0, all_gather}});
  CHECK(kinds({cut(0)}, {cut(1)}) == Steps{{0, all_to_all}});
  CHECK(kinds({whole}, {cut(1)}) == Steps{{0, std::nullopt}});
  CHECK(kinds({cut(0)}, {cut(0)}) == Steps{});
  // Shares along the second axis lie within those along the first: both are gathered, the inner one first.
  CHECK(kinds({cut(0), cut(0)}, {whole, cut(0)}) == Steps{{1, all_gather}, {0, all_gather}, {1, std::nullopt}});
  CHECK(kinds({cut(0), cut(0)}, {cut(0), whole}) == Steps{{1, all_gather}});
  // A sum over the outer axis cannot end inside of shares along the inner one.
  CHECK(kinds({partial, cut(0)}, {cut(0), cut(0)}) ==
        Steps{{0, all_reduce}, {1, all_gather}, {0, std::nullopt}, {1, std::nullopt}});
  // Shares of one dimension for those of another: along both axes at once, or along the inner one alone.
  CHECK(kinds({cut(0), cut(0)}, {cut(1), cut(1)}) == Steps{{1, all_to_all}, {0, all_to_all}});
  CHECK(joint_relayouts({cut(0), cut(0)}, {cut(1), cut(1)})->size() == 1);
  CHECK(kinds({cut(0), cut(0)}, {cut(0), cut(1)}) == Steps{{1, all_to_all}});
  CHECK(kinds({cut(0), cut(0)}, {cut(1), cut(2)}) == Steps{{1, all_to_all}, {0, all_to_all}});
  CHECK(joint_relayouts({cut(0), cut(0)}, {cut(1), cut(2)})->size() == 2);
  CHECK_FALSE(relayouts({whole}, {partial}));
}
