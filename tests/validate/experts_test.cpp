// Which experts tokens go to, and who finds no room: by hand.

#include <catch2/catch.hpp>

#include <vector>

#include "tests/training/op_cases.h"
#include "validate/networks/networks.h"
#include "validate/reference/experts.h"

namespace plimsoll {
namespace {

/// Of four tokens and three experts, of which each token goes to two and each expert takes two tokens.
struct SmallMixture {
  std::vector<float> chances{0.5F, 0.3F, 0.2F, 0.5F, 0.25F, 0.25F,  // of equal ones the first
                             0.1F, 0.2F, 0.7F, 0.6F, 0.1F,  0.3F};
  OpCase to, from;

  SmallMixture() {
    const auto tensor = [](OpCase& made, std::vector<std::int64_t> shape) {
      std::int64_t bytes = 4;
      for (const std::int64_t n : shape) bytes *= n;
      made.graph.tensors.push_back({.name = "t", .bytes = Bytes{bytes}, .shape = std::move(shape), .dtype = "fp32"});
      return id_at<TensorId>(made.graph.tensors.size() - 1);
    };
    for (OpCase* each : {&to, &from}) {
      const bool is_there = each == &to;
      each->op.kind = is_there ? "to_experts" : "from_experts";
      each->op.attributes = {{"top", "2"}, {"room", "2"}};
      const std::vector<std::int64_t> words{1, 4, 1}, rows{3, 2, 1};
      each->op.inputs = {tensor(*each, is_there ? words : rows), tensor(*each, {1, 4, 3})};
      each->op.outputs = {tensor(*each, is_there ? rows : words)};
    }
  }
};

TEST_CASE("tokens go to their likeliest experts in their order, as far as there is room", "[reference]") {
  const SmallMixture mixture;
  OpValues values{{{1, 2, 3, 4}, mixture.chances}, {std::vector<float>(6)}, {}};
  // Expert 0 is chosen by tokens 1, 2 and 4, the last of which finds no room; 1 by 1, 2 and 3; 2 by 3 and 4.
  CHECK(on_cpu(mixture.to, values).outputs[0] == std::vector<float>{1, 2, 1, 2, 3, 4});
}

TEST_CASE("a token becomes its rows at experts by their shares, without what found no room", "[reference]") {
  const SmallMixture mixture;
  OpValues values{{{10, 20, 30, 40, 50, 60}, mixture.chances}, {std::vector<float>(4)}, {}};
  const std::vector<float> made = on_cpu(mixture.from, values).outputs[0];
  CHECK(made[0] == Approx((0.5 * 10 + 0.3 * 30) / 0.8));
  CHECK(made[1] == Approx((0.5 * 20 + 0.25 * 40) / 0.75));
  CHECK(made[2] == Approx(0.7 * 50 / 0.9));  // not at expert 1
  CHECK(made[3] == Approx(0.3 * 60 / 0.9));  // not at expert 0
}

TEST_CASE("a decoder's experts have room for what the capacity says, at most for all tokens", "[networks]") {
  const auto rows = [](const std::string& options) {
    const Network made = named_network("decoder:layers=1,sequence=6,batch=2,experts=4," + options).network;
    for (const Op& op : made.graph.ops) {
      if (op.kind == "to_experts") return made.graph[op.outputs[0]].shape;
    }
    return std::vector<std::int64_t>();
  };
  CHECK(rows("capacity=1") == std::vector<std::int64_t>{4, 6, 128});
  CHECK(rows("capacity=1.1") == std::vector<std::int64_t>{4, 7, 128});
  CHECK(rows("capacity=9") == std::vector<std::int64_t>{4, 12, 128});
  CHECK(rows("capacity=1,top_k=1") == std::vector<std::int64_t>{4, 3, 128});
}

TEST_CASE("sizes that a decoder cannot have are refused with their option", "[networks]") {
  const auto complaint = [](const std::string& reference) {
    try {
      named_network(reference);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(complaint("decoder:heads=3") == "decoder:heads=3: heads: must divide width 128, found 3");
  CHECK(complaint("decoder:width=12,heads=4") ==
        "decoder:width=12,heads=4: heads: a head's numbers are turned in pairs, and width 12 leaves it 3");
  CHECK(complaint("decoder:kv_heads=3") == "decoder:kv_heads=3: kv_heads: must divide heads 4, found 3");
  CHECK(complaint("decoder:experts=2,top_k=3") ==
        "decoder:experts=2,top_k=3: top_k: a token goes to at most the 2 experts there are, found 3");
  CHECK(complaint("decoder:experts=2,capacity=0") ==
        "decoder:experts=2,capacity=0: capacity: must be above 0, found 0");
  CHECK(complaint("decoder:experts=2,balance=-1") ==
        "decoder:experts=2,balance=-1: balance: must be at least 0, found -1");
  CHECK(complaint("decoder:balance=1") == "decoder:balance=1: balance: only of experts: experts=8 has some");
  CHECK_THROWS_WITH(network_in_slices("decoder:sequence=8", std::nullopt, 2),
                    "decoder:sequence=8: has no sequence to slice: its kernels count positions from the first row of a "
                    "sequence");
}

}  // namespace
}  // namespace plimsoll
