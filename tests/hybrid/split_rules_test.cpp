// How ops of every kind split, where a trace states no loop: one entry a kind and form of operands, by hand.

#include "sim/ops/split_rules.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "sim/core/op_kind.h"
#include "sim/mesh/check_split.h"
#include "sim/mesh/rank_graph.h"
#include "sim/ops/op_loop.h"

using namespace plimsoll;

namespace {

using Extents = std::vector<std::int64_t>;

struct Entry {
  std::string kind;
  std::vector<Extents> inputs, outputs;
  std::string loop;
  std::vector<std::pair<std::string, std::string>> attributes = {};
  Phase phase = Phase::forward;
  std::vector<TensorKind> kinds = {};  // of the inputs; parameters where none is named
  std::string reduces = {};
};

// Sizes are even, so that two ranks can share out whatever may be cut.
const Extents bsw{2, 4, 6}, bsn{2, 4, 10}, wn{6, 10}, w{6}, n{10}, bw{2, 6}, bn{2, 10};
const Extents picture{2, 8, 8, 4}, smaller{2, 4, 4, 6}, filter{3, 3, 4, 6}, channels{4};
const Extents qkv{2, 4, 12}, scores{2, 2, 4, 4}, mixed{2, 4, 4}, kv{2, 4, 8}, sums{2, 2, 4};
const Extents state{2, 8}, gates{2, 16}, cell{4, 16};

std::vector<Entry> of_networks() {
  return {
      {"linear", {bsw, wn, n}, {bsn}, "b s k, k n, n -> b s n"},
      {"linear", {bw, wn, n}, {bn}, "b w, w f, f -> b f", {{"features", "w f"}}},
      {"linear_input_gradient", {bsn, wn}, {bsw}, "b s n, k n -> b s k"},
      {"linear_weight_gradient", {bsw, bsn}, {wn, n}, "b s k, b s n -> k n, n =k"},
      {"linear_weight_gradient", {bw, bn}, {wn, n}, "b f, b w -> f w, w =f", {{"features", "f w"}}},
      {"convolution", {picture, filter}, {smaller}, "b - - c, - - c o -> b - - o", {{"stride", "2"}}},
      {"convolution_input_gradient", {smaller, filter}, {picture}, "b - - o, - - c o -> b - - c"},
      {"convolution_weight_gradient", {picture, smaller}, {filter}, "b - - c, b - - o -> - - c o"},
      {"batch_norm", {picture, channels, channels}, {picture}, "b! - - c, c, c -> b - - c"},
      {"batch_norm_input_gradient", {picture, channels, picture}, {picture}, "b! - - c, c, b - - c -> b - - c"},
      {"batch_norm_weight_gradient", {picture, picture}, {channels, channels}, "b! - - c, b - - c -> c, c"},
      {"layer_norm", {bsw, w, w}, {bsw}, "b s w!, w, w -> b s w"},
      {"layer_norm_input_gradient", {bsw, w, bsw}, {bsw}, "b s w!, w, b s w -> b s w"},
      {"layer_norm_weight_gradient", {bsw, bsw}, {w, w}, "b s w!, b s w -> w, w"},
      {"relu", {picture}, {picture}, "b y x w -> b y x w"},
      {"relu_gradient", {bw, bw}, {bw}, "b f, b f -> b f", {{"features", "f"}}},
      {"gelu", {bsw}, {bsw}, "b s w -> b s w"},
      {"gelu_gradient", {bsw, bsw}, {bsw}, "b s w, b s w -> b s w"},
      {"add", {bsw, bsw}, {bsw}, "b s w, b s w -> b s w"},
      {"max_pool", {picture}, {{2, 4, 4, 4}}, "b - - c -> b - - c"},
      {"max_pool_gradient", {picture, {2, 4, 4, 4}}, {picture}, "b - - c, b - - c -> b - - c"},
      {"average_pool", {picture}, {{2, 4}}, "b - - c -> b c"},
      {"average_pool_gradient", {{2, 4}}, {picture}, "b c -> b - - c"},
      {"attention_scores", {qkv}, {scores}, "b s! a* -> b a s -", {{"heads", "2"}}},
      {"softmax", {scores}, {scores}, "b a s t! -> b a s t"},
      {"softmax_gradient", {scores, scores}, {scores}, "b a s t!, b a s t -> b a s t"},
      {"attention_values", {scores, qkv}, {mixed}, "b a s! -, b s a* -> b s a*"},
      {"attention_values_gradient", {mixed, qkv}, {scores}, "b s! a*, b s a* -> b a s -"},
      {"attention_qkv_gradient", {scores, scores, mixed, qkv}, {qkv}, "b a s! -, b a s -, b s a*, b s a* -> b s a*"},
      {"fused_attention", {mixed, kv}, {mixed, sums}, "b s~ a*, b t! a* -> b s a*, b a s"},
      {"fused_attention_backward",
       {mixed, mixed, kv, mixed, sums},
       {mixed, kv},
       "b s~ a*, b s a*, b t! a*, b s a*, b a s -> b s a*, b t a*"},
      {"embedding", {{2, 4}, {8, 6}, {4, 6}}, {bsw}, "b s, - w, s w -> b s w"},
      {"embedding_weight_gradient", {{2, 4}, bsw}, {{8, 6}, {4, 6}}, "b s, b s w -> - w, s w"},
      {"linear", {bsw, wn}, {bsn}, "b s w, w f -> b s f", {{"features", "w f"}}},
      {"linear_weight_gradient", {bsw, bsn}, {wn}, "b s k, b s n -> k n"},
      {"linear", {bsw, {10, 6}}, {bsn}, "b s w, v w -> b s v", {{"features", "w v"}, {"transposed", "yes"}}},
      {"linear_input_gradient", {bsn, {10, 6}}, {bsw}, "b s n, n k -> b s k", {{"transposed", "yes"}}},
      {"linear_weight_gradient", {bsw, bsn}, {{10, 6}}, "b s k, b s n -> n k", {{"transposed", "yes"}}},
      {"fused_attention", {mixed, mixed}, {mixed, {2, 2, 1, 4}}, "b s~ a*, b t! a* -> b s a*, b a - s"},
      {"fused_attention_backward",
       {mixed, mixed, mixed, mixed, {2, 2, 1, 4}},
       {mixed, mixed},
       "b s~ a*, b s a*, b t! a*, b s a*, b a - s -> b s a*, b t a*"},
      {"embedding", {{2, 4}, {8, 6}}, {bsw}, "b s, - w -> b s w", {{"positions", "none"}}},
      {"embedding_weight_gradient", {{2, 4}, bsw}, {{8, 6}}, "b s, b s w -> - w", {{"positions", "none"}}},
      {"root_norm", {bsw, w}, {bsw}, "b s w!, w -> b s w"},
      {"root_norm_input_gradient", {bsw, w, bsw}, {bsw}, "b s w!, w, b s w -> b s w"},
      {"root_norm_weight_gradient", {bsw, bsw}, {w}, "b s w!, b s w -> w"},
      {"rotation", {mixed}, {mixed}, "b s! - -> b s -"},
      {"rotation_gradient", {mixed}, {mixed}, "b s! - -> b s -"},
      {"gated_silu", {bsw, bsw}, {bsw}, "b s f, b s f -> b s f", {{"features", "f"}}},
      {"gated_silu_gradient", {bsw, bsw, bsw}, {bsw, bsw}, "b s w, b s w, b s w -> b s w, b s w"},
      {"softmax", {bsw}, {bsw}, "b s t! -> b s t"},
      {"softmax_gradient", {bsw, bsw}, {bsw}, "b s t!, b s t -> b s t"},
      {"to_experts", {bsw, {2, 4, 8}}, {{8, 3, 6}}, "- - -, - - - -> - - -"},
      {"to_experts_gradient", {{8, 3, 6}, {2, 4, 8}}, {bsw}, "- - -, - - - -> - - -"},
      {"from_experts", {{8, 3, 6}, {2, 4, 8}}, {bsw}, "- - -, - - - -> - - -"},
      {"from_experts_gradient",
       {bsw, {8, 3, 6}, {2, 4, 8}},
       {{8, 3, 6}, {2, 4, 8}},
       "- - -, - - -, - - - -> - - -, - - -"},
      {"expert_product", {{8, 3, 6}, {8, 6, 4}}, {{8, 3, 4}}, "- - w, - w f -> - - f", {{"features", "w f"}}},
      {"expert_product_input_gradient", {{8, 3, 4}, {8, 6, 4}}, {{8, 3, 6}}, "- - n, - k n -> - - k"},
      {"expert_product_weight_gradient", {{8, 3, 6}, {8, 3, 4}}, {{8, 6, 4}}, "- - k, - - n -> - k n"},
      {"lstm_gates", {state, cell, {16}}, {gates}, "b -, - -, - -> b -"},
      {"lstm_cell", {gates, state}, {state}, "b -, b - -> b -"},
      {"lstm_cell_gradient", {state, gates, state}, {gates}, "b -, b -, b - -> b -"},
      {"lstm_state_gradient", {gates, cell, state, gates, state}, {state}, "b -, - -, b -, b -, b - -> b -"},
      {"lstm_weight_gradient", {state, gates}, {cell, {16}}, "b -, b - -> - -, -"},
      {"cross_entropy", {bn}, {bn}, "b c! -> b c"},
      {"cross_entropy_gradient", {bsn}, {bsn}, "b s c! -> b s c"},
  };
}

const Extents maps{2, 4, 8, 8}, fewer{2, 6, 4, 4}, window{6, 4, 3, 3}, six{6}, four{4}, number{};
const Extents rows{2, 4, 6}, merged{8, 10}, weight{10, 6}, heads{4, 4, 4};
constexpr TensorKind value = TensorKind::optimizer_state, given = TensorKind::parameter;  // both there from the start

std::vector<Entry> of_pytorch() {
  const Phase backward = Phase::backward;
  return {
      {"convolution", {maps, window}, {fewer}, "b c - -, o c - - -> b o - -"},
      {"convolution", {maps, window, six}, {fewer}, "b c - -, o c - -, o -> b o - -"},
      {"convolution_backward", {fewer, maps, window}, {maps, window}, "b o - -, b c - -, o c - - -> b c - -, o c - -"},
      {"convolution_backward",
       {fewer, maps, window},
       {maps, window, six},
       "b o - -, b c - -, o c - - -> b c - -, o c - -, o =c"},
      {"convolution_backward", {fewer, maps, window}, {window}, "b o - -, b c - -, o c - - -> o c - -"},
      {"convolution_backward", {fewer, maps, window}, {window, six}, "b o - -, b c - -, o c - - -> o c - -, o =c"},
      {"native_batch_norm",
       {maps, four, four},
       {maps, four, four},
       "b c - -, c, c -> b c - -, c =b, c =b",
       {},
       Phase::forward,
       {},
       "b 2 4"},
      {"native_batch_norm_backward",
       {maps, maps, four, four, four},
       {maps, four, four},
       "b c - -, b c - -, c, c, c -> b c - -, c, c",
       {},
       backward,
       {},
       "b 2 3"},
      {"native_layer_norm", {rows, six, six}, {rows, {2, 4, 1}, {2, 4, 1}}, "b s w!, w, w -> b s w, b s -, b s -"},
      {"native_layer_norm_backward",
       {rows, rows, {2, 4, 1}, {2, 4, 1}, six, six},
       {rows, six, six},
       "b s w!, b s w, b s -, b s -, w, w -> b s w, w, w"},
      {"native_layer_norm_backward",
       {{8, 6}, rows, {2, 4, 1}, {2, 4, 1}, six, six},
       {rows, six, six},
       "b*4 w!, b - w, b - -, b - -, w, w -> b - w, w, w"},
      {"relu_", {maps}, {maps}, "b c - - -> b c - -"},
      {"relu_", {bw}, {bw}, "b w -> b w"},
      {"threshold_backward", {maps, maps}, {maps}, "b c - -, b c - - -> b c - -"},
      {"threshold_backward", {bw, bw}, {bw}, "b w, b w -> b w"},
      {"gelu", {{8, 6}}, {rows}, "b*4 w -> b - w"},
      {"gelu_backward", {rows, rows}, {rows}, "b s w, b s w -> b s w"},
      {"max_pool2d_with_indices", {maps}, {{2, 4, 4, 4}, {2, 4, 4, 4}}, "b c - - -> b c - -, b c - -"},
      {"max_pool2d_with_indices_backward",
       {{2, 4, 4, 4}, maps, {2, 4, 4, 4}},
       {maps},
       "b c - -, b c - -, b c - - -> b c - -"},
      {"mean", {maps}, {{2, 4, 1, 1}}, "b c - - -> b c - -"},
      {"mean", {rows}, {bw}, "b - w -> b w"},
      {"div", {{2, 4}}, {maps}, "b c -> b c - -", {}, backward},
      {"div", {heads}, {{2, 2, 4, 4}}, "b*2 - - -> b - - -"},
      {"addmm", {n, {2, 6, 1, 1}, weight}, {bn}, "n, b k - -, n k -> b n"},
      {"addmm", {n, rows, weight}, {merged}, "n, b - k, n k -> b*4 n"},
      {"addmm", {n, rows, weight}, {bn}, "n, b - k, n k -> b n"},  // of the first row of each sample
      {"mm", {{2, 6, 1, 1}, weight}, {bn}, "b k - -, n k -> b n"},
      {"mm", {rows, weight}, {bsn}, "b s k, n k -> b s n"},
      {"mm", {merged, weight}, {{8, 6}}, "b n, n k -> b k", {}, backward, {value, given}},
      {"mm", {merged, rows}, {weight}, "b*4 n, b - k -> n k", {}, backward, {value, value}},
      {"mm", {bn, {2, 6, 1, 1}}, {weight}, "b n, b k - - -> n k", {}, backward, {value, value}},
      {"bmm", {{2, 2, 4, 6}, {2, 2, 6, 4}}, {heads}, "b - - -, b - - - -> b*2 - -"},
      {"add", {rows, {1, 4, 6}}, {rows}, "b s w, - s w -> b s w"},
      {"add", {rows, {4, 6}}, {rows}, "b s w, s w -> b s w"},
      {"add", {rows, six}, {rows}, "b s w, w -> b s w"},
      {"add_", {maps, maps}, {maps}, "b c - -, b c - - -> b c - -"},
      {"add_", {rows, rows}, {rows}, "b s w, b s w -> b s w"},
      {"add_", {}, {}, " -> "},
      {"empty", {}, {}, " -> "},
      {"mul", {rows}, {rows}, "b s w -> b s w"},
      {"mul", {six, rows}, {rows}, "w, b s w -> b s w"},
      {"mul", {rows, six}, {rows}, "b s w, w -> b s w"},
      {"mul", {rows, rows}, {rows}, "b s w, b s w -> b s w"},
      {"sum", {rows}, {six}, "b s n -> n", {}, backward},
      {"sum", {bn}, {{1, 10}}, "b n -> - n", {}, backward},
      {"sum", {rows}, {{1, 4, 6}}, "b s w -> - s w", {}, backward},
      {"sum", {rows}, {{1, 1, 6}}, "b s w -> - - w", {}, backward},
      {"embedding", {{8, 6}, {2, 4}}, {rows}, "- w, b s -> b s w"},
      {"embedding", {{4, 6}}, {{4, 6}}, "- w -> - w"},
      {"embedding", {{4, 6}}, {{1, 4, 6}}, "- w -> - - w"},
      {"embedding_dense_backward", {rows, {2, 4}}, {{8, 6}}, "b s w, b s -> - w", {}, backward},
      {"embedding_dense_backward", {{2, 4, 6}}, {{4, 6}}, "b s w -> - w", {}, backward},
      {"_softmax", {scores}, {scores}, "b y x t! -> b y x t"},
      {"_softmax_backward_data", {heads, scores}, {scores}, "b*2 - t!, b - - t -> b - - t", {}, backward},
      {"_log_softmax", {bn}, {bn}, "b v! -> b v"},
      {"_log_softmax_backward_data", {bn, bn}, {bn}, "b v!, b v -> b v", {}, backward},
      {"nll_loss_forward", {bn}, {number, number}, "b v! -> , "},
      {"ones_like", {}, {number}, " -> ", {}, backward},
      {"nll_loss_backward", {number, bn, number}, {bn}, ", b v!,  -> b v", {}, backward},
      {"clone", {merged}, {{2, 2, 4, 5}}, "b*4 - -> b - - -"},
      {"masked_fill", {scores}, {scores}, "b - - - -> b - - -"},
      {"masked_fill", {scores, {4, 4}}, {scores}, "b - - -, - - -> b - - -"},
      {"arange", {}, {{4}}, " -> -"},
      {"ones", {}, {{4, 4}}, " -> - -"},
      {"triu", {{4, 4}}, {{4, 4}}, "- - -> - -"},
      {"empty_like", {}, {rows}, " -> b - -"},
      {"bernoulli_", {rows}, {rows}, "b - - -> b - -"},
      {"div_", {rows}, {rows}, "b - - -> b - -"},
      {"bmm", {scores, heads, heads}, {heads}, "b - - -, b*2 - -, b*2 - - -> b*2 - -", {}, backward},
      {"mm", {bn, weight, bw}, {bw}, "b n, n k, b k -> b k", {}, backward, {value, given, value}},
      {"mm", {{2, 10, 4}, weight, rows}, {rows}, "b - -, - -, b - - -> b - -", {}, backward, {value, given, value}},
      {"sum", {{2, 6, 4}}, {{1, 6}}, "b - - -> - -", {}, backward},
      {"cat", {{1, 1, 4}, maps}, {{2, 65, 4}}, "- - -, b - - - -> b - -"},
      {"cat", {rows, rows}, {{2, 4, 12}}, "b - -, b - - -> b - -"},
      {"cat", {{2, 4, 2, 4}, heads, {2, 4, 2, 4}}, {{2, 4, 24}}, "b - - -, b*2 - -, b - - - -> b - -"},
      {"stack", {heads, heads, heads}, {{2, 4, 24}}, "b*2 - -, b*2 - -, b*2 - - -> b - -"},
      {"slice", {{2, 17, 4}}, {{2, 4, 4, 4}}, "b - - -> b - - -"},
      {"convolution", {maps, window, six}, {{2, 16, 6}}, "b - - -, - - - -, - -> b - -"},  // seen as rows
      {"convolution", {maps, window}, {{2, 16, 6}}, "b - - -, - - - - -> b - -"},
      {"convolution_backward",
       {{2, 16, 6}, maps, window},
       {maps, window, six},
       "b - -, b - - -, - - - - -> b - - -, - - - -, -"},
      {"convolution_backward",
       {{2, 16, 6}, maps, window},
       {maps, window},
       "b - -, b - - -, - - - - -> b - - -, - - - -"},
      {"convolution_backward", {{2, 16, 6}, maps, window}, {window, six}, "b - -, b - - -, - - - - -> - - - -, -"},
      {"convolution_backward", {{2, 16, 6}, maps, window}, {window}, "b - -, b - - -, - - - - -> - - - -"},
      {"addmm", {n, {2, 6, 4}, weight}, {{2, 4, 10}}, "-, b - -, - - -> b - -"},  // seen transposed
      {"mm", {{2, 6, 4}, weight}, {{2, 4, 10}}, "b - -, - - -> b - -"},
      {"mm", {{2, 10, 4}, weight}, {{2, 4, 6}}, "b - -, - - -> b - -", {}, backward, {value, given}},
      {"mm", {{2, 10, 4}, {2, 6, 4}}, {weight}, "b - -, b - - -> - -", {}, backward, {value, value}},
      {"add", {{2, 6, 4}, six}, {rows}, "b - -, - -> b - -"},
      {"add", {{2, 6, 4}, rows}, {rows}, "b - -, b - - -> b - -"},
      {"mul", {six, {2, 6, 4}}, {rows}, "-, b - - -> b - -"},
      {"mul", {{2, 6, 4}, six}, {rows}, "b - -, - -> b - -"},
      {"mul", {{2, 6, 4}, rows}, {rows}, "b - -, b - - -> b - -"},
      {"gelu", {{2, 6, 4}}, {rows}, "b - - -> b - -"},
      {"gelu_backward", {{2, 6, 4}, rows}, {rows}, "b - -, b - - -> b - -"},
      {"sum", {{2, 6, 4}}, {six}, "b - - -> -"},
      {"select_backward", {{2, 6}}, {rows}, "b - -> b - -"},
  };
}

Graph graph_of(const Entry& entry) {
  Graph graph;
  Op op;
  op.name = "it";
  op.kind = entry.kind;
  op.phase = entry.phase;
  op.flops = Flops{4800};
  op.attributes = entry.attributes;
  const auto add = [&](const std::vector<Extents>& shapes, std::vector<TensorId>& list, bool given) {
    for (const Extents& shape : shapes) {
      Tensor tensor;
      tensor.name = "t" + std::to_string(graph.tensors.size());
      if (given && list.size() < entry.kinds.size()) tensor.kind = entry.kinds[list.size()];
      if (given && entry.kinds.empty()) tensor.kind = TensorKind::parameter;
      tensor.shape = shape;
      tensor.bytes = Bytes{4};
      for (const std::int64_t extent : shape) tensor.bytes = extent * tensor.bytes;
      tensor.storage = id_at<StorageId>(graph.storages++);
      list.push_back(id_at<TensorId>(graph.tensors.size()));
      graph.tensors.push_back(std::move(tensor));
    }
  };
  add(entry.inputs, op.inputs, true);
  add(entry.outputs, op.outputs, false);
  graph.ops.push_back(std::move(op));
  return graph;
}

/// The operands of a loop as it is written, each a list of words.
std::vector<std::vector<std::string>> operands_of(std::string text) {
  const std::size_t arrow = text.find("->");
  text.replace(arrow, 2, ",");
  std::vector<std::vector<std::string>> operands;
  std::stringstream all(text);
  for (std::string one; std::getline(all, one, ',');) {
    std::stringstream words(one);
    std::vector<std::string>& list = operands.emplace_back();
    for (std::string word; words >> word;) list.push_back(word);
  }
  return operands;
}

void check_entry(const Entry& entry) {
  CAPTURE(entry.kind, entry.loop);
  const Graph graph = graph_of(entry);
  const auto ruled = loops_by_rule(graph, OpId{0});
  REQUIRE(std::holds_alternative<std::vector<RuledLoop>>(ruled));
  const auto& loops = std::get<std::vector<RuledLoop>>(ruled);
  const auto it = std::ranges::find(loops, entry.loop, &RuledLoop::loop);
  REQUIRE(it != loops.end());
  CHECK(it->reduces == entry.reduces);
  const auto found = loop_of(graph, OpId{0});
  if (const std::string* why = std::get_if<std::string>(&found)) FAIL_CHECK(*why);
  REQUIRE(std::holds_alternative<OpLoop>(found));
  const OpLoop& loop = std::get<OpLoop>(found);
  // Of each split of two ranks: half of the work, half of the operands that have the dimension, all of the others.
  auto operands = operands_of(entry.loop);
  if (entry.inputs.empty()) operands.erase(operands.begin());
  std::size_t cuts = 0;
  for (std::uint8_t d = 0; d < loop.dims.size(); ++d) {
    const std::string& name = loop.dims[d].name;
    const bool is_whole = entry.loop.find(name + "!") != std::string::npos ||  // or in pieces from either end only
                          entry.loop.find(name + "~") != std::string::npos;
    CHECK(loop.dims[d].cuttable == (name != "-" && !is_whole));
    if (!loop.dims[d].cuttable) continue;
    ++cuts;
    CAPTURE(name);
    const Mesh mesh{{{"half", 2}}};
    const auto made = rank_graph(graph, {mesh, {{d}}});
    REQUIRE(std::holds_alternative<Graph>(made));
    const Graph& rank = std::get<Graph>(made);
    CHECK(check_split(graph, rank, mesh) == std::vector<std::string>{});
    CHECK(rank.ops.front().flops == Flops{2400});
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      const bool has_it = std::ranges::any_of(
          operands[t], [&](const std::string& word) { return word == name || word.starts_with(name + "*"); });
      CHECK(rank.tensors[t].bytes.count * (has_it ? 2 : 1) == graph.tensors[t].bytes.count);
    }
  }
  CHECK((cuts > 0 || entry.loop.find('b') == std::string::npos));
}

}  // namespace

TEST_CASE("ops of networks split as their kind says", "[hybrid]") {
  std::set<std::string> kinds;
  for (const Entry& entry : of_networks()) {
    check_entry(entry);
    kinds.insert(entry.kind);
  }
  for (std::size_t k = 0; k < network_kind_count; ++k) {
    const auto kind = static_cast<OpKind>(k);
    INFO(name_of(kind));
    CHECK((kinds.contains(std::string(name_of(kind))) || kind == OpKind::optimizer));  // that lies as its parameter
  }
}

TEST_CASE("ops of eager PyTorch split as their kind says", "[hybrid]") {
  for (const Entry& entry : of_pytorch()) check_entry(entry);
}

TEST_CASE("an op without a rule, or without shapes, is refused by name", "[hybrid]") {
  const auto why = [](const Entry& entry) { return std::get<std::string>(loop_of(graph_of(entry), OpId{0})); };
  CHECK(why({"mystery", {bw}, {bw}, ""}) ==
        "'it' (mystery) has no rule by which it could be cut: the trace gives it no attribute 'loop'");
  CHECK(why({"linear", {bw}, {bn}, ""}) ==
        "'it' (linear) has other operands than the rule of its kind, and the trace gives it no attribute 'loop'");
  // Positions come first, in one value or the other.
  const std::string hidden =
      " cannot be cut: not all of its values begin with samples, and views hide where these are; the trace gives it no "
      "attribute 'loop'";
  CHECK(why({"clone", {bsw}, {{4, 2, 6}}, ""}) == "'it' (clone)" + hidden);
  CHECK(why({"bmm", {{3, 2, 4}, {2, 4, 3}}, {{2, 2, 3}}, ""}) == "'it' (bmm)" + hidden);
  CHECK(why({"linear", {bw, wn, {12}}, {bn}, ""}) == "the loop of 'it' gives 'n' the sizes 10 and 12");
  Graph shapeless = graph_of({"relu", {bw}, {bw}, ""});
  shapeless.tensors[1].shape.clear();
  CHECK(std::get<std::string>(loop_of(shapeless, OpId{0})) ==
        "'it' (relu) cannot be cut: the trace gives 't1' no shape");
}
