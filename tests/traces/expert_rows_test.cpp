// Rows of experts by a law of their ranks, against tokens that are given to experts one by one.

#include "traces/models/mixtures/expert_rows.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/op_attribute.h"
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

TEST_CASE("wrong skews are refused", "[traces][experts]") {
  CHECK(complaint_of([] { formula_graph_of("llama:skew=1"); }) ==
        "llama: skew: expected experts, among which rows differ");
  CHECK(complaint_of([] { formula_graph_of("llama:experts=4,skew=-1"); }) == "llama: skew: expected 0 to 10, found -1");
}
