// Products of a Llama in 8 bits: copies, what is kept, and times.

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "sim/core/scaling.h"
#include "sim/ops/op_loop.h"
#include "tests/bad_input.h"
#include "tests/traces/formula_graphs.h"

using namespace plimsoll;

namespace {

const std::string small =
    "llama:layers=2,width=64,heads=8,kv_heads=2,inner=160,sequence=32,batch=2,vocabulary=96,dtype=";

Graph in_float8(const std::string& options) {
  return formula_graph_of(options + ",products=fp8");
}

bool is_copied(const Graph& graph, const Op& op) {
  return op.kind == "to" && graph[op.outputs.front()].dtype == "fp8";
}

bool is_layers_product(const Op& op) {
  return op.kind == "linear" && op.name.starts_with("layer");
}

/// As an H100 by its data sheet.
Device gpu() {
  Device device;
  device.name = device.model = "gpu";
  device.peak = {{"bf16", FlopsPerSecond{989.4e12}}, {"fp8", FlopsPerSecond{1978.9e12}}};
  device.memory_bandwidth = BytesPerSecond{3.35e12};
  device.launch_overhead = Seconds{3e-6};
  return device;
}

}  // namespace

// matmul_with_hp_or_float8_args of torchao saves its two operands, which are those that a product in 16 bits saves.
TEST_CASE("products in fp8 keep what products in 16 bits keep, and train the same parameters", "[traces][llama]") {
  for (const char* dtype : {"bf16", "fp32"}) {
    const Graph graph = in_float8(small + dtype), plain = formula_graph_of(small + dtype);
    for (const char* part : {"embedding", "layer0.", "layer1.", "head", "loss"}) {
      INFO(dtype << " " << part);
      CHECK(kept_bytes(graph, part) == kept_bytes(plain, part));
    }
    CHECK(parameter_bytes(graph) == parameter_bytes(plain));
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.kind == TensorKind::parameter_gradient) CHECK(tensor.dtype == dtype);
    }
  }
}

TEST_CASE("each product of a layer in fp8 copies both operands for itself", "[traces][llama]") {
  const Graph graph = in_float8(small + "bf16");
  std::int64_t copies = 0, products = 0, numbers = 0;
  for (const Op& op : graph.ops) {
    if (is_layers_product(op)) {
      ++products;
      CHECK(std::ranges::all_of(op.inputs, [&](TensorId t) { return graph[t].dtype == "fp8"; }));
      CHECK(graph[op.outputs.front()].dtype == "bf16");
    } else if (op.kind == "linear") {  // the head
      CHECK(graph[op.inputs.front()].dtype == "bf16");
    }
    if (!is_copied(graph, op)) continue;
    ++copies;
    numbers += graph[op.outputs.front()].bytes.count;
    CHECK(op.bytes_moved->count == 5 * graph[op.outputs.front()].bytes.count);  // read twice, written
    CHECK(op.launches == 2);
    const auto readers = std::ranges::count_if(graph.ops, [&](const Op& each) {
      return std::ranges::find(each.inputs, op.outputs.front()) != each.inputs.end();
    });
    CHECK(readers == 1);
  }
  CHECK(products == 2 * 7 * 3);
  CHECK(copies == 2 * products);
  // Forward x and w, and dy and w, and x and dy: of each product twice its three matrices.
  const std::int64_t tokens = 2 * 32, queries = tokens * 64 + 64 * 64 + tokens * 64,
                     keys = tokens * 64 + 64 * 16 + tokens * 16, widening = tokens * 64 + 64 * 160 + tokens * 160;
  CHECK(numbers == 2 * 2 * (2 * queries + 2 * keys + 3 * widening));
}

// Likewise of linear layers of latent attention and of joined products, and of torchao's products of groups of rows
// (_Float8GroupedMM), which save what came, too. Routers stay as they are.
TEST_CASE("latent attention, joined products and experts in fp8 keep what they keep in 16 bits", "[traces][llama]") {
  const std::string latent = "kv_rank=16,rope_size=4,head_size=12,value_size=10", experts = "experts=4,expert_inner=48";
  for (const auto& [options, products] : {std::pair{"," + latent, 2 * (4 + 3)},
                                          {"," + latent + ",q_rank=24", 2 * (5 + 3)},
                                          {std::string(",joined=yes"), 2 * (2 + 2)},
                                          {"," + experts, 2 * (4 + 2)},
                                          {"," + experts + ",shared=1,router=sigmoid," + latent, 2 * (4 + 2 + 3)}}) {
    INFO(options);
    const Graph graph = in_float8(small + "bf16" + options), plain = formula_graph_of(small + "bf16" + options);
    CHECK(kept_bytes(graph) == kept_bytes(plain));
    CHECK(parameter_bytes(graph) == parameter_bytes(plain));
    const auto is_in_float8 = [&](const Op& op) {
      return op.kind == "linear" && std::ranges::all_of(op.inputs, [&](TensorId t) { return graph[t].dtype == "fp8"; });
    };
    CHECK(std::ranges::count_if(graph.ops, is_in_float8) == 3 * products);
    CHECK(std::ranges::count_if(graph.ops, [&](const Op& op) { return is_copied(graph, op); }) == 2 * 3 * products);
    for (const Op& op : graph.ops) {
      if (op.kind != "linear" || is_in_float8(op)) continue;
      INFO(op.name);
      CHECK((op.name.starts_with("head") || op.name.find(".router") != std::string::npos));
    }
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      INFO(graph.ops[o].name);
      CHECK(std::holds_alternative<OpLoop>(loop_of(graph, id_at<OpId>(o))));
    }
  }
}

// Frozen, each of seven products a layer is computed there and for its input's gradient: with two copies each.
TEST_CASE("adapters beside products in fp8 keep what they keep beside those in 16 bits", "[traces][llama]") {
  const Graph graph = in_float8(small + "bf16,lora=4"), plain = formula_graph_of(small + "bf16,lora=4");
  CHECK(kept_bytes(graph) == kept_bytes(plain));
  std::ptrdiff_t products = 0;
  for (const Op& op : graph.ops) {
    if (!is_layers_product(op)) continue;
    INFO(op.name);
    const bool is_adapter = op.name.find(".adapter.") != std::string::npos;
    const char* dtype = is_adapter ? "fp32" : "fp8";
    CHECK(std::ranges::all_of(op.inputs, [&](TensorId t) { return graph[t].dtype == dtype; }));
    products += is_adapter ? 0 : 1;
  }
  CHECK(products == 2 * 7 * 2 - 3);  // the first layer's input has no gradient
  CHECK(std::ranges::count_if(graph.ops, [&](const Op& op) { return is_copied(graph, op); }) == 2 * products);
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.gradient_of && graph[*tensor.gradient_of].kind == TensorKind::parameter) CHECK(tensor.dtype == "fp32");
  }
}

// A transposed copy in 16 bits, which is read twice, as triton_fp8_per_group_colwise_scales wants it: 2 and 2 bytes a
// number more than the two reads and the byte of other copies.
TEST_CASE("gradients of experts' weights in fp8 scale columns of each group of rows", "[traces][llama]") {
  const Graph graph = in_float8(small + "bf16,experts=4");
  std::int64_t turned = 0;
  for (const Op& op : graph.ops) {
    if (!is_copied(graph, op) || op.name.find(".mlp.") == std::string::npos) continue;
    const bool is_of_groups = op.name.ends_with("again)") || op.name.ends_with("(input to fp8)");
    INFO(op.name);
    CHECK(op.bytes_moved->count == (is_of_groups ? 9 : 5) * graph[op.outputs.front()].bytes.count);
    CHECK(op.launches == (is_of_groups ? 3 : 2));
    turned += is_of_groups ? 1 : 0;
  }
  CHECK(turned == 2 * 2 * 2);
}

TEST_CASE("every op of a Llama in fp8 has a loop that its shapes agree with", "[traces][llama]") {
  const Graph graph = in_float8(small + "bf16");
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const std::variant<OpLoop, std::string> loop = loop_of(graph, id_at<OpId>(o));
    const std::string* why = std::get_if<std::string>(&loop);
    INFO(graph.ops[o].name << ": " << (why == nullptr ? "" : *why));
    CHECK(why == nullptr);
  }
}

TEST_CASE("a product in fp8 computes at the platform's peak of fp8, others at that of their type", "[traces][llama]") {
  const Graph graph = in_float8("llama:layers=1,sequence=4096,batch=2");
  for (const Op& op : graph.ops) {
    if (op.kind != "linear") continue;
    const double peak = is_layers_product(op) ? 1978.9e12 : 989.4e12;
    INFO(op.name);
    CHECK(duration(graph, op, gpu(), Saving::keep).value().value == Approx(op.flops->count / peak + 3e-6));
  }
  Device older = gpu();
  older.peak.erase("fp8");
  const std::optional<std::string> why = no_times(graph, older);
  REQUIRE(why);
  CHECK(*why ==
        "times are of no device and cannot be re-scaled to 'gpu': the platform gives no peak for fp8, in which "
        "'layer0.attention.q' computes");
}

TEST_CASE("fp8 is refused where it is not known", "[traces][llama]") {
  CHECK(complaint_of([] { in_float8("llama:lora=4,base=nf4"); }) ==
        "llama: products=fp8: not with base=nf4, whose products compute in what they unpack");
  CHECK(complaint_of([] { formula_graph_of("llama:products=fp4"); }).find("dtype or fp8") != std::string::npos);
  CHECK(complaint_of([] { synthetic_model("llama:view=chain,products=fp8"); }) ==
        "llama: products=fp8: not with view=chain, whose stages compute in one type; try view=graph");
}
