// What networks know of each kind of op, by hand.

#include <catch2/catch.hpp>

#include "sim/core/optimizer.h"
#include "tests/training/op_cases.h"
#include "validate/networks/networks.h"
#include "validate/networks/op_rules.h"

namespace plimsoll {
namespace {

std::vector<OpKind> all_kinds() {
  std::vector<OpKind> kinds;
  for (std::size_t i = 0; i < network_kind_count; ++i) kinds.push_back(static_cast<OpKind>(i));
  return kinds;
}

TEST_CASE("there is a case of every kind of op, and the CPU runs it", "[networks]") {
  for (const OpKind kind : all_kinds()) {
    const std::string name(name_of(kind));
    INFO(name);
    CHECK(!on_cpu(op_case(name), random_values(op_case(name), 1)).inputs.empty());
  }
}

TEST_CASE("the results of forwards have the shapes that their rules say", "[networks]") {
  std::size_t forwards = 0;
  for (const OpKind kind : all_kinds()) {
    if (rule_of(kind).result == nullptr) continue;
    const OpCase c = op_case(std::string(name_of(kind)));
    INFO(c.op.kind);
    CHECK(rule_of(kind).result(c.graph, c.op) == c.graph[c.op.outputs[0]].shape);
    CHECK(rule_of(kind).backward != nullptr);
    ++forwards;
  }
  CHECK(forwards == 23);
}

TEST_CASE("what ops are said to cost, by hand", "[networks]") {
  const auto flops = [](const std::string& kind) {
    const OpCase c = op_case(kind);
    return rule_of(c.op).flops(c.graph, c.op).count;
  };
  for (const char* kind : {"linear", "linear_input_gradient", "linear_weight_gradient"}) {
    INFO(kind);
    CHECK(flops(kind) == 2 * 7 * 33 * 10);
  }
  for (const char* kind : {"lstm_gates", "lstm_state_gradient", "lstm_weight_gradient"}) {
    INFO(kind);
    CHECK(flops(kind) == 2 * 6 * 8 * 32);  // the hidden half of the state only
  }
  for (const char* kind : {"convolution", "convolution_input_gradient", "convolution_weight_gradient"}) {
    INFO(kind);
    CHECK(flops(kind) == 2 * (2 * 5 * 4 * 6) * (3 * 3 * 5));
  }
  for (const char* kind : {"attention_scores", "attention_values", "attention_values_gradient"}) {
    INFO(kind);
    CHECK(flops(kind) == 2 * 2 * 9 * 9 * 8);
  }
  CHECK(flops("attention_qkv_gradient") == 3 * (2 * 2 * 9 * 9 * 8));
  CHECK(flops("fused_attention") == 2 * (2 * 2 * 9 * 9 * 8) / 2);  // of two products that half is left of
  CHECK(flops("fused_attention_backward") == 5 * (2 * 2 * 9 * 9 * 8) / 2);
  CHECK(flops("batch_norm_weight_gradient") == 8 * (3 * 40 * 30 * 9));
  CHECK(flops("layer_norm") == 8 * (5 * 37));
  CHECK(flops("root_norm") == 4 * (5 * 37));
  for (const char* kind : {"expert_product", "expert_product_input_gradient", "expert_product_weight_gradient"}) {
    INFO(kind);
    CHECK(flops(kind) == 2 * 5 * 4 * 6 * 7);
  }
  CHECK(flops("rotation") == 3 * (2 * 7 * 24));
  CHECK(flops("gated_silu_gradient") == 12 * (5 * 37));
  CHECK(flops("relu_gradient") == 5 * 37);
  CHECK(flops("gelu_gradient") == 20 * (5 * 37));
  CHECK(flops("cross_entropy_gradient") == 5 * (5 * 37));
  CHECK(flops("max_pool") == 3 * (2 * 9 * 8 * 5));
  CHECK(flops("average_pool") == 2 * 9 * 8 * 5);
  CHECK(flops("average_pool_gradient") == 2 * 9 * 8 * 5);
  CHECK(flops("embedding") == 3 * 7 * 6);
  CHECK(flops("embedding_weight_gradient") == 3 * 7 * 6);
  CHECK(flops("lstm_cell") == 8 * (6 * 32));
  CHECK(flops("lstm_cell_gradient") == 10 * (6 * 32));
  CHECK(flops("optimizer") == 0);
  const OpCase c = op_case("linear");
  CHECK(rule_of(c.op).bytes_moved(c.graph, c.op) == Bytes{4 * (7 * 33 + 33 * 10 + 10 + 7 * 10)});
}

TEST_CASE("an update moves what its optimizer is known to move", "[networks]") {
  for (const Optimizer optimizer : {Optimizer::sgd, Optimizer::momentum, Optimizer::adam}) {
    const Network network = named_network("mlp:layers=2,width=8,batch=4,classes=3", optimizer).network;
    std::size_t updates = 0;
    for (const Op& op : network.graph.ops) {
      if (network_kind(op.kind) != OpKind::optimizer) continue;
      CHECK(op.bytes_moved == optimizer_moves(optimizer) * network.graph[op.inputs[0]].bytes);
      CHECK(op.flops == Flops{0});
      ++updates;
    }
    CHECK(updates == 4);
  }
}

}  // namespace
}  // namespace plimsoll
