// The table of the kinds of ops: complete, and what it says of them by hand.

#include "sim/core/op_kind.h"

#include <catch2/catch.hpp>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "sim/ops/layers.h"

namespace plimsoll {
namespace {

struct TestRow {
  OpKind kind = OpKind::linear;
};

template <std::size_t kinds>
OpTable<TestRow, kinds> whole_table() {
  OpTable<TestRow, kinds> table;
  for (std::size_t i = 0; i < kinds; ++i) table[i] = {static_cast<OpKind>(i)};
  return table;
}

template <std::size_t kinds>
void check_what_is_complete() {
  CHECK(has_every_kind(whole_table<kinds>()));
  for (std::size_t i = 0; i < kinds; ++i) {
    OpTable<TestRow, kinds> table = whole_table<kinds>();
    for (std::size_t j = i; j + 1 < kinds; ++j) table[j] = table[j + 1];  // a row that was forgotten
    table.back() = {};
    CHECK_FALSE(has_every_kind(table));
    if (i == 0) continue;
    table = whole_table<kinds>();
    std::swap(table[i - 1], table[i]);
    CHECK_FALSE(has_every_kind(table));
  }
}

TEST_CASE("a table that lacks a kind, or has one twice or out of order, is not complete", "[kinds]") {
  check_what_is_complete<network_kind_count>();
  check_what_is_complete<op_kind_count>();
}

std::vector<std::string_view> names_of(const OpRow& row) {
  std::vector<std::string_view> names;
  op_names::for_names(row, [&](std::string_view name) { names.push_back(name); });
  return names;
}

TEST_CASE("every name of a kind is that kind's alone", "[kinds]") {
  std::set<std::string_view> seen;
  for (const OpRow& row : op_table) {
    CHECK_FALSE(names_of(row).empty());
    for (const std::string_view name : names_of(row)) {
      INFO(name);
      CHECK(op_kind(name) == row.kind);
      CHECK(nearest_kind(name) == row.kind);
      CHECK(seen.insert(name).second);
      const bool has_kernels = row.kind <= OpKind::optimizer && name == row.names.ours;
      CHECK(network_kind(name) == (has_kernels ? std::optional(row.kind) : std::nullopt));
    }
  }
  CHECK(op_kind("relu_gradient") == OpKind::relu_gradient);
  CHECK(op_kind("threshold_backward") == OpKind::relu_gradient);
  CHECK(op_kind("addmm") == OpKind::linear);
  CHECK(op_kind("mish_backward") == OpKind::activation_backward);
  CHECK(op_kind("_scaled_dot_product_flash_attention_backward") == OpKind::fused_attention_backward);
  for (const char* word : {"mystery", "", "relu ", "Relu", "addm", "silu_backward tanh_backward"}) {
    INFO(word);
    CHECK_FALSE(op_kind(word));
    CHECK_FALSE(network_kind(word));
  }
}

TEST_CASE("a word that is no kind's name belongs to the layer whose name it begins with", "[kinds]") {
  const auto layer = [](const char* kind) { return layer_of(Op{.kind = kind}); };
  CHECK(layer("max_pool3d_with_indices") == SavedBy::pool);
  CHECK(layer("avg_pool2d_backward") == SavedBy::pool);
  CHECK(layer("native_batch_norm_legit") == SavedBy::bn);
  CHECK(layer("softmax_of_mine") == SavedBy::softmax);
  CHECK(layer("_log_softmax_of_mine") == SavedBy::loss);
  CHECK(layer("baddbmm_") == SavedBy::matmul);
  CHECK(layer("bmm_") == SavedBy::matmul);
  CHECK(layer("mm_") == SavedBy::linear);
  CHECK(layer("lstm") == SavedBy::lstm);
  CHECK(layer("cudnn_batch_norm") == SavedBy::bn);
  for (const char* word : {"add_relu", "leaky_relu", "adaptive_avg_pool2d", "hardswish", "m", ""}) {
    INFO(word);
    CHECK(layer(word) == SavedBy::other);
  }
}

TEST_CASE("a gradient belongs to forwards of its layer", "[kinds]") {
  for (const OpRow& row : op_table) {
    for (const OpKind forward : row.of) {
      if (forward == OpKind::count) continue;
      INFO(names_of(row).front());
      CHECK((row_of(forward).layer == row.layer || row.layer == SavedBy::other));
    }
  }
  CHECK(row_of(OpKind::mm).of == Forwards{OpKind::linear, OpKind::mm, OpKind::count});
}

}  // namespace
}  // namespace plimsoll
