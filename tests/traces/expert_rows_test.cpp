// Rows of experts by a law of their ranks, against tokens that are given to experts one by one.

#include "traces/models/mixtures/expert_rows.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/op_attribute.h"
#include "sim/ops/op_loop.h"
#include "tests/bad_input.h"
#include "tests/random_case.h"
#include "tests/traces/formula_graphs.h"

using namespace plimsoll;

namespace {

/// Experts of each token: the rows of an expert go to tokens in turn, going on where those of the last one ended.
std::vector<std::set<std::size_t>> given_out(const std::vector<std::int64_t>& rows, std::int64_t tokens) {
  std::vector<std::set<std::size_t>> experts_of(static_cast<std::size_t>(tokens));
  std::size_t token = 0;
  for (std::size_t expert = 0; expert < rows.size(); ++expert) {
    for (std::int64_t row = 0; row < rows[expert]; ++row) {
      REQUIRE(experts_of[token].insert(expert).second);  // each expert once
      token = (token + 1) % experts_of.size();
    }
  }
  return experts_of;
}

std::vector<std::int64_t> busiest_first(const ExpertLoad& of) {
  std::vector<std::int64_t> rows = expert_rows(of);
  std::ranges::sort(rows, std::ranges::greater{});
  return rows;
}

}  // namespace

TEST_CASE("each token passes its number of experts, whatever the skew", "[traces][experts]") {
  for (const std::uint64_t seed : random_cases(1, 60)) {
    std::mt19937_64 engine(seed);
    const auto experts = static_cast<std::int64_t>(1 + engine() % 40);
    const ExpertLoad of{.tokens = static_cast<std::int64_t>(1 + engine() % 300),
                        .top_k = static_cast<std::int64_t>(1 + engine() % static_cast<std::uint64_t>(experts)),
                        .experts = experts,
                        .skew = static_cast<double>(engine() % 400) / 100,
                        .seed = seed};
    const std::vector<std::int64_t> rows = expert_rows(of);
    REQUIRE(rows.size() == static_cast<std::size_t>(experts));
    CHECK(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == of.tokens * of.top_k);
    for (const std::set<std::size_t>& each : given_out(rows, of.tokens))
      CHECK(each.size() == static_cast<std::size_t>(of.top_k));
  }
}

// 1, 1/2, 1/3 and 1/4 of 2 x 600 rows over 25/12: 576, 288, 192, 144. With the square of them 1 of 1.4236 would be
// 842.9 rows of 600 tokens: 600, and the rest by 1/4, 1/9, 1/16 over 0.4236: 354.1, 157.4, 88.5.
TEST_CASE("rows of experts fall by the power of their rank, up to all tokens", "[traces][experts]") {
  ExpertLoad of{.tokens = 600, .top_k = 2, .experts = 4, .skew = 1};
  CHECK(busiest_first(of) == std::vector<std::int64_t>{576, 288, 192, 144});
  of.skew = 2;
  CHECK(busiest_first(of) == std::vector<std::int64_t>{600, 354, 157, 89});
  of.skew = 0;
  CHECK(busiest_first(of) == std::vector<std::int64_t>{300, 300, 300, 300});
}

// One by one: an expert that is full takes no more. With a power of two as experts and quarters no mean is rounded.
TEST_CASE("rows beyond a capacity are dropped, or made up to it", "[traces][experts]") {
  std::size_t dropping = 0;
  for (const std::uint64_t seed : random_cases(1, 60)) {
    std::mt19937_64 engine(seed);
    const std::int64_t experts = std::int64_t{1} << engine() % 6,
                       quarters = 1 + static_cast<std::int64_t>(engine() % 12);
    ExpertLoad of{.tokens = static_cast<std::int64_t>(1 + engine() % 300),
                  .top_k = static_cast<std::int64_t>(1 + engine() % static_cast<std::uint64_t>(experts)),
                  .experts = experts,
                  .skew = static_cast<double>(engine() % 300) / 100,
                  .seed = seed,
                  .capacity = static_cast<double>(quarters) / 4};
    std::int64_t room = 0;
    while (4 * room * experts < quarters * of.tokens * of.top_k) ++room;
    std::vector<std::int64_t> taken(static_cast<std::size_t>(experts));
    for (const std::set<std::size_t>& each : given_out(expert_rows(of), of.tokens)) {
      for (const std::size_t expert : each) taken[expert] += taken[expert] < room ? 1 : 0;
    }
    CHECK(computed_rows(of) == taken);
    dropping += taken == expert_rows(of) ? 0 : 1;
    of.is_padded = true;
    CHECK(computed_rows(of) == std::vector<std::int64_t>(static_cast<std::size_t>(experts), room));
  }
  CHECK(dropping > 10);
}

TEST_CASE("a capacity is rounded up", "[traces][experts]") {
  ExpertLoad of{.tokens = 40, .top_k = 1, .experts = 4, .capacity = 1.1};
  CHECK(row_limit(of) == 11);
  of.capacity = 1.11;
  CHECK(row_limit(of) == 12);
  of.capacity = 0.01;
  CHECK(row_limit(of) == 1);
  of.capacity = 0;
  CHECK(row_limit(of) == 40);
}

TEST_CASE("the busiest expert has more rows with more skew, and layers have others", "[traces][experts]") {
  ExpertLoad of{.tokens = 4096, .top_k = 8, .experts = 64};
  std::int64_t before = 0;
  for (const double skew : {0.0, 0.2, 0.4, 0.6}) {
    of.skew = skew;
    CHECK(busiest_first(of).front() > before);
    before = busiest_first(of).front();
  }
  const std::vector<std::int64_t> first = expert_rows(of);
  CHECK(expert_rows(of) == first);
  of.layer = 1;
  CHECK(expert_rows(of) != first);
  of = {.tokens = 4096, .top_k = 8, .experts = 64, .skew = 0.6, .seed = 2};
  CHECK(expert_rows(of) != first);
}

TEST_CASE("a decoder's experts state their rows, and nothing else of it changes", "[traces][experts]") {
  const std::string decoder =
      "llama:layers=3,width=64,heads=8,sequence=32,batch=2,vocabulary=96,experts=8,dense_layers=1";
  Graph skewed = formula_graph_of(decoder + ",skew=1,seed=7");
  std::set<std::string> texts;
  std::size_t states = 0;
  for (Op& op : skewed.ops) {
    const auto text = attribute_of(op, "expert_rows");
    if (!text) continue;
    ++states;
    texts.emplace(*text);
    CHECK((op.name.ends_with(".up") || op.name.ends_with(".down")));
    CHECK(words_of(*text).size() == 8);
    std::erase_if(op.attributes, [](const auto& each) { return each.first == "expert_rows"; });
  }
  CHECK(states == 2 * 2);
  CHECK(texts.size() == 2);  // layers
  Graph plain = formula_graph_of(decoder);
  plain.name = skewed.name;
  CHECK(plain == skewed);
}

namespace {

const std::string mixture =
    "llama:layers=2,width=64,heads=8,kv_heads=8,inner=160,sequence=32,batch=2,vocabulary=96,experts=4";

std::int64_t kept_by_mixture(const Graph& graph) {
  return kept_bytes(graph, "layer1.mlp.") - kept_bytes(graph, "layer1.mlp.norm") - kept_bytes(graph, "layer1.mlp.add");
}

std::int64_t rows_of(const Graph& graph) {
  const auto rows = std::ranges::find(graph.tensors, "layer1.mlp.rows", &Tensor::name);
  REQUIRE(rows != graph.tensors.end());
  return rows->shape.front();
}

}  // namespace

// By hooks, of a module whose rows are gathered likewise (traces/kept_by_mixtures.py, PyTorch 1.13, on a CPU,
// 2026-11-29): in bf16 162,796 and 189,740 bytes of 95 and 111 rows, 1,684 of each, in fp32 317,528 and 371,096 of 94
// and 110.
TEST_CASE("mixtures with a capacity keep the bytes that PyTorch keeps", "[traces][experts]") {
  for (const char* capacity :
       {",capacity=1,skew=1", ",capacity=1.25,skew=1", ",capacity=1.25,skew=2.5", ",capacity=0.5"}) {
    CAPTURE(capacity);
    const Graph narrow = formula_graph_of(mixture + capacity),
                wide = formula_graph_of(mixture + capacity + ",dtype=fp32");
    CHECK(rows_of(narrow) < 128);
    CHECK(kept_by_mixture(narrow) == 162'796 + 1684 * (rows_of(narrow) - 95));
    CHECK(kept_by_mixture(wide) == 317'528 + (371'096 - 317'528) / 16 * (rows_of(wide) - 94));
  }
  const std::string padded = mixture + ",capacity=1.25,padded=yes,skew=1";
  CHECK(rows_of(formula_graph_of(padded)) == 160);
  CHECK(kept_by_mixture(formula_graph_of(padded)) == 272'256);
  CHECK(kept_by_mixture(formula_graph_of(padded + ",dtype=fp32")) == 538'496);
}

// Likewise; 456,600 bytes with 110 rows, of which each has 1,812.
TEST_CASE("mixtures under autocast keep the bytes that PyTorch keeps", "[traces][experts]") {
  CHECK(kept_by_mixture(formula_graph_of(mixture + ",dtype=amp")) == 489'216);
  CHECK(kept_by_mixture(formula_graph_of(mixture + ",dtype=amp,capacity=1.25,padded=yes")) == 547'200);
  const Graph dropped = formula_graph_of(mixture + ",dtype=amp,capacity=1.25,skew=1");
  CHECK(kept_by_mixture(dropped) == 456'600 + 1812 * (rows_of(dropped) - 110));
}

TEST_CASE("products of experts with a capacity compute the rows that are left", "[traces][experts]") {
  for (const char* options : {",capacity=1.25,skew=1", ",capacity=1,skew=2,seed=5", ",capacity=2,padded=yes"}) {
    CAPTURE(options);
    const Graph graph = formula_graph_of(mixture + options);
    const auto rows = static_cast<double>(rows_of(graph));
    double flops = 0;
    for (const Op& op : graph.ops) {
      if (op.name.starts_with("layer1.mlp.up") || op.name.starts_with("layer1.mlp.down")) flops += op.flops->count;
      const auto text = attribute_of(op, "expert_rows");
      CHECK(text.has_value() == (op.phase == Phase::forward && std::string(options).find("skew") != std::string::npos &&
                                 (op.name.ends_with("mlp.up") || op.name.ends_with("mlp.down"))));
      if (!text || !op.name.starts_with("layer1.")) continue;
      double stated = 0;
      for (const std::string_view word : words_of(*text)) stated += std::stod(std::string(word));
      CHECK(stated == rows);
    }
    CHECK(flops == rows * 3 * 6 * 64 * 160);
  }
}

TEST_CASE("every op of a mixture under autocast or with a capacity has a loop", "[traces][experts]") {
  for (const char* options :
       {",dtype=amp", ",dtype=amp,capacity=1,skew=1", ",capacity=1.25,padded=yes,shared=1",
        ",dtype=amp,router=sigmoid,shared=1", ",dtype=fp32,capacity=1", ",capacity=1,products=fp8"}) {
    const Graph graph = formula_graph_of(mixture + options);
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const std::variant<OpLoop, std::string> loop = loop_of(graph, id_at<OpId>(o));
      const std::string* why = std::get_if<std::string>(&loop);
      INFO(options << ": " << graph.ops[o].name << ": " << (why == nullptr ? "" : *why));
      CHECK(why == nullptr);
    }
    for (const Tensor& tensor : graph.tensors) {
      const bool is_amp = std::string(options).find("amp") != std::string::npos;
      if (is_amp && (tensor.kind == TensorKind::parameter || tensor.gradient_of)) CHECK(tensor.dtype == "fp32");
    }
  }
}

TEST_CASE("wrong capacities are refused", "[traces][experts]") {
  CHECK(complaint_of([] { formula_graph_of("llama:capacity=1"); }) ==
        "llama: capacity: expected experts, whose rows it limits");
  CHECK(complaint_of([] { formula_graph_of("llama:experts=4,capacity=-1"); }) ==
        "llama: capacity: expected 0 to 1000, found -1");
  CHECK(complaint_of([] { formula_graph_of("llama:experts=4,padded=yes"); }) ==
        "llama: padded: expected a capacity, to which rows are padded");
}

TEST_CASE("wrong skews are refused", "[traces][experts]") {
  CHECK(complaint_of([] { formula_graph_of("llama:skew=1"); }) ==
        "llama: skew: expected experts, among which rows differ");
  CHECK(complaint_of([] { formula_graph_of("llama:experts=4,skew=-1"); }) == "llama: skew: expected 0 to 10, found -1");
}
