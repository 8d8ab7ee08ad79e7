#include "tests/training/op_cases.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "validate/cpu/kernels/kernel.h"

namespace plimsoll {
namespace {

using Shape = std::vector<std::int64_t>;
using Attributes = std::vector<std::pair<std::string, std::string>>;

OpCase made(const std::string& kind, const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
            Attributes attributes = {}) {
  OpCase made;
  made.op.kind = made.op.name = kind;
  made.op.attributes = std::move(attributes);
  const auto add = [&made](const Shape& shape) {
    const std::int64_t n = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    made.graph.tensors.push_back({.name = "t",
                                  .kind = TensorKind::activation,
                                  .bytes = Bytes{4 * n},
                                  .storage = id_at<StorageId>(made.graph.storages++),
                                  .shape = shape,
                                  .dtype = "fp32"});
    return id_at<TensorId>(made.graph.tensors.size() - 1);
  };
  for (const Shape& shape : inputs) made.op.inputs.push_back(add(shape));
  for (const Shape& shape : outputs) made.op.outputs.push_back(add(shape));
  if (kind.starts_with("embedding")) made.graph.tensors[made.op.inputs[0].index].dtype = "int32";
  return made;
}

bool has_tokens(const OpCase& c) {
  return c.op.kind.starts_with("embedding");
}

std::int64_t vocabulary(const OpCase& c) {
  return c.graph[c.op.kind == "embedding" ? c.op.inputs[1] : c.op.outputs[0]].shape[0];
}

std::vector<OpCase> products() {
  const Shape x{7, 33}, w{33, 10}, b{10}, y{7, 10};
  const Shape state{6, 16}, gates{6, 32}, lstm{8, 32};
  const Shape qkv{2, 9, 24}, square{2, 4, 9, 9}, mixed{2, 9, 8};
  const Shape deep{3, 5, 12}, many{3, 2, 5, 5}, thin{3, 5, 4};  // more pictures than heads
  const Shape kv{2, 9, 16}, sums{2, 4, 9};
  const Attributes four{{"heads", "4"}}, two{{"heads", "2"}};
  const Shape fewer_kv{2, 9, 8}, grouped{2, 2, 2, 9};  // two heads of keys for four of queries
  return {made("linear", {x, w, b}, {y}),
          made("linear", {{64, 128}, {128, 256}, {256}}, {{64, 256}}),
          made("linear_input_gradient", {y, w}, {x}),
          made("linear_weight_gradient", {x, y}, {w, b}),
          made("linear_weight_gradient", {{700, 24}, {700, 40}}, {{24, 40}, {40}}),
          made("lstm_gates", {state, lstm, {32}}, {gates}),
          made("lstm_weight_gradient", {state, gates}, {lstm, {32}}),
          made("lstm_state_gradient", {gates, lstm, state, gates, state}, {state}),
          made("attention_scores", {qkv}, {square}, four),
          made("attention_values", {square, qkv}, {mixed}, four),
          made("attention_values_gradient", {mixed, qkv}, {square}, four),
          made("attention_qkv_gradient", {square, square, mixed, qkv}, {qkv}, four),
          made("fused_attention", {mixed, kv}, {mixed, sums}, four),
          made("fused_attention_backward", {mixed, mixed, kv, mixed, sums}, {mixed, kv}, four),
          made("fused_attention", {mixed, fewer_kv}, {mixed, grouped}),
          made("fused_attention_backward", {mixed, mixed, fewer_kv, mixed, grouped}, {mixed, fewer_kv}),
          made("expert_product", {{5, 4, 6}, {5, 6, 7}}, {{5, 4, 7}}),
          made("expert_product_input_gradient", {{5, 4, 7}, {5, 6, 7}}, {{5, 4, 6}}),
          made("expert_product_weight_gradient", {{5, 4, 6}, {5, 4, 7}}, {{5, 6, 7}}),
          made("linear", {x, w}, {y}),
          made("linear", {x, {10, 33}}, {y}, {{"transposed", "yes"}}),
          made("linear_input_gradient", {y, {10, 33}}, {x}, {{"transposed", "yes"}}),
          made("linear_weight_gradient", {x, y}, {{10, 33}}, {{"transposed", "yes"}}),
          made("linear_weight_gradient", {x, y}, {w}),
          made("attention_scores", {deep}, {many}, two),
          made("attention_qkv_gradient", {many, many, thin, deep}, {deep}, two)};
}

std::vector<OpCase> pictures() {
  const Shape x{2, 9, 8, 5}, y{2, 5, 4, 5}, weight{3, 3, 5, 6}, to{2, 5, 4, 6};
  const Shape wide{2, 16, 16, 8}, point{1, 1, 8, 16}, kept{2, 16, 16, 16};
  const Attributes by_two{{"stride", "2"}}, by_one{{"stride", "1"}};
  return {made("convolution", {x, weight}, {to}, by_two),
          made("convolution_input_gradient", {to, weight}, {x}, by_two),
          made("convolution_weight_gradient", {x, to}, {weight}, by_two),
          made("convolution", {wide, point}, {kept}, by_one),
          made("convolution_input_gradient", {kept, point}, {wide}, by_one),
          made("convolution_weight_gradient", {wide, kept}, {point}, by_one),
          made("max_pool", {x}, {y}),
          made("max_pool_gradient", {x, y}, {x}),
          made("average_pool", {x}, {{2, 5}}),
          made("average_pool_gradient", {{2, 5}}, {x})};
}

std::vector<OpCase> others() {
  const Shape x{5, 37}, row{37}, picture{3, 40, 30, 9}, channel{9};  // 3600 rows: several chunks of a column's sum
  const Shape tokens{3, 7}, table{11, 6}, places{7, 6}, embedded{3, 7, 6};
  const Shape state{6, 16}, gates{6, 32};
  const Shape parameter{300};
  const Shape heads{2, 7, 24};
  const Shape words{2, 9, 6}, chances{2, 9, 5}, rows{5, 4, 6};  // some find no room
  const Attributes top{{"top", "2"}, {"room", "4"}}, balanced{{"top", "2"}, {"room", "4"}, {"balance", "0.5"}};
  const Attributes of_queries{{"head_size", "6"}, {"parts", "1"}, {"base", "100"}},
      of_keys{{"head_size", "6"}, {"parts", "2"}, {"base", "100"}};
  return {made("relu", {x}, {x}),
          made("relu_gradient", {x, x}, {x}),
          made("gelu", {x}, {x}),
          made("gelu_gradient", {x, x}, {x}),
          made("add", {x, x}, {x}),
          made("softmax", {x}, {x}),
          made("softmax_gradient", {x, x}, {x}),
          made("cross_entropy", {x}, {x}),
          made("cross_entropy_gradient", {x}, {x}),
          made("batch_norm", {picture, channel, channel}, {picture}),
          made("batch_norm_input_gradient", {picture, channel, picture}, {picture}),
          made("batch_norm_weight_gradient", {picture, picture}, {channel, channel}),
          made("layer_norm", {x, row, row}, {x}),
          made("layer_norm_input_gradient", {x, row, x}, {x}),
          made("layer_norm_weight_gradient", {x, x}, {row, row}),
          made("embedding", {tokens, table, places}, {embedded}),
          made("embedding_weight_gradient", {tokens, embedded}, {table, places}),
          made("embedding", {tokens, table}, {embedded}, {{"positions", "none"}}),
          made("embedding_weight_gradient", {tokens, embedded}, {table}, {{"positions", "none"}}),
          made("root_norm", {x, row}, {x}),
          made("root_norm_input_gradient", {x, row, x}, {x}),
          made("root_norm_weight_gradient", {x, x}, {row}),
          made("root_norm_weight_gradient", {{700, 9}, {700, 9}}, {channel}),
          made("rotation", {heads}, {heads}, of_queries),
          made("rotation", {heads}, {heads}, of_keys),
          made("rotation_gradient", {heads}, {heads}, of_queries),
          made("rotation_gradient", {heads}, {heads}, of_keys),
          made("to_experts", {words, chances}, {rows}, top),
          made("to_experts_gradient", {rows, chances}, {words}, top),
          made("from_experts", {rows, chances}, {words}, top),
          made("from_experts_gradient", {words, rows, chances}, {rows, chances}, top),
          made("from_experts_gradient", {words, rows, chances}, {rows, chances}, balanced),
          made("to_experts", {{3, 200, 2}, {3, 200, 3}}, {{3, 500, 2}}, {{"top", "1"}, {"room", "500"}}),
          made("gated_silu", {x, x}, {x}),
          made("gated_silu_gradient", {x, x, x}, {x, x}),
          made("lstm_cell", {gates, state}, {state}),
          made("lstm_cell_gradient", {state, gates, state}, {gates}),
          made("optimizer", {parameter, parameter}, {}, {{"optimizer", "sgd"}}),
          made("optimizer", {parameter, parameter, parameter}, {}, {{"optimizer", "momentum"}}),
          made("optimizer", {parameter, parameter, parameter, parameter}, {}, {{"optimizer", "adam"}})};
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> all;
  for (const std::vector<OpCase>& family : {products(), pictures(), others()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

OpCase op_case(const std::string& kind) {
  const std::vector<OpCase> all = op_cases();
  const auto found = std::ranges::find_if(all, [&](const OpCase& c) { return c.op.kind == kind; });
  REQUIRE(found != all.end());
  return *found;
}

OpValues random_values(const OpCase& c, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  OpValues values;
  const auto count = [&](TensorId t) { return static_cast<std::size_t>(c.graph[t].bytes.count / 4); };
  const bool has_chances = c.op.kind.find("_experts") != std::string::npos;
  const float least = c.op.kind == "optimizer" || has_chances ? 0.01F : -1.0F;
  std::uniform_real_distribution<float> number(least, 1.0F);
  for (const TensorId t : c.op.inputs) {
    std::vector<float>& own = values.inputs.emplace_back(count(t));
    for (float& n : own) n = number(random);
  }
  if (has_tokens(c)) {
    std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(vocabulary(c)) - 1);
    for (float& n : values.inputs[0]) {
      const std::int32_t word = token(random);
      std::memcpy(&n, &word, sizeof n);
    }
  }
  for (const TensorId t : c.op.outputs) values.outputs.emplace_back(count(t), std::numeric_limits<float>::quiet_NaN());
  if (c.op.kind == "batch_norm") values.statistics.assign(2 * count(c.op.inputs[1]), 0.5F);
  return values;
}

OpValues on_cpu(const OpCase& c, OpValues values) {
  use_one_thread();
  const std::optional<Kernel> kernel = make_kernel(c.graph, c.op);
  REQUIRE(kernel);
  std::vector<std::byte> scratch(static_cast<std::size_t>(kernel->scratch.count) + 64);
  KernelArguments arguments;
  for (std::vector<float>& input : values.inputs) arguments.inputs.push_back(input.data());
  for (std::vector<float>& output : values.outputs) arguments.outputs.push_back(output.data());
  arguments.scratch = scratch.data();
  if (!values.statistics.empty()) arguments.statistics = values.statistics.data();
  kernel->run(arguments);
  return values;
}

double difference(const std::vector<float>& left, const std::vector<float>& right) {
  double largest = 0, difference = 0;
  if (left.size() != right.size()) return INFINITY;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i]) continue;  // minus infinity too
    if (!std::isfinite(left[i]) || !std::isfinite(right[i])) return INFINITY;
    difference = std::max(difference, std::abs(double{left[i]} - double{right[i]}));
  }
  for (const float n : right) {
    if (std::isfinite(n)) largest = std::max(largest, std::abs(double{n}));
  }
  return difference == 0 ? 0 : difference / largest;
}

}  // namespace plimsoll
