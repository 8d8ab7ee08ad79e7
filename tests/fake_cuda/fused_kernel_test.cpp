// How many kernels an op takes, and how often they read their rows: what validate/cuda.md says.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/placed_values.h"
#include "tests/training/op_cases.h"
#include "validate/cuda/cuda_kernel.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/launch.h"
#include "validate/reference/decoder_layers.h"
#include "validate/reference/fused_attention.h"
#include "validate/reference/layers.h"
#include "validate/reference/normalization.h"

namespace plimsoll {
namespace {

using Numbers = std::vector<float>;

Numbers waves(std::int64_t n, float pace) {
  Numbers x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(pace * static_cast<float>(i)) + 0.25F;
  return x;
}

/// What a call issues: kernels, and numbers that blocks read row by row.
struct Issued {
  int launches = 0;
  std::int64_t reads = 0;
};

template <class Call>
Issued issued_by(Call call) {
  const int launches = fake::launches();
  const std::int64_t reads = fake::numbers_read();
  {
    const OwnedStream stream = new_stream();
    call(*stream);
  }  // is drained
  return {fake::launches() - launches, fake::numbers_read() - reads};
}

TEST_CASE("norms and losses and updates and fused attention take as many kernels as their page says", "[fake_cuda]") {
  fake::begin({});
  const std::map<std::string, int> kernels{{"layer_norm", 1},
                                           {"layer_norm_input_gradient", 1},
                                           {"layer_norm_weight_gradient", 2},
                                           {"root_norm", 1},
                                           {"root_norm_input_gradient", 1},
                                           {"root_norm_weight_gradient", 2},
                                           {"softmax", 1},
                                           {"softmax_gradient", 1},
                                           {"cross_entropy", 1},
                                           {"fused_attention", 1},
                                           {"fused_attention_backward", 2},
                                           {"cross_entropy_gradient", 1},
                                           {"gated_silu", 1},
                                           {"gated_silu_gradient", 1},
                                           {"rotation", 1},
                                           {"rotation_gradient", 1},
                                           {"optimizer", 1}};
  for (const auto& [kind, expected] : kernels) {
    INFO(kind);
    const OpCase c = op_case(kind);
    const std::optional<CudaKernel> kernel = make_cuda_kernel(c.graph, c.op, {});
    REQUIRE(kernel);
    const PlacedValues placed(random_values(c, 5));
    const ScratchPiece scratch(kernel->scratch, 1);
    KernelArguments arguments = placed.arguments();
    arguments.scratch = scratch.address();
    const Issued issued = issued_by([&](cudaStream_t stream) { kernel->run(arguments, {stream, nullptr, nullptr}); });
    CHECK(issued.launches == expected);
  }
}

TEST_CASE("rows that a block can hold are read once and wider ones are as right", "[fake_cuda]") {
  fake::begin({});
  constexpr std::int64_t rows = 2, most_held = 8192;
  for (const std::int64_t columns : {5, 1025, 8192, 8200}) {
    INFO(columns);
    const RowSizes s{rows, columns};
    const std::int64_t n = rows * columns;
    const bool held = columns <= most_held;
    const Numbers x = waves(n, 0.7F), dy = waves(n, 1.3F), scale = waves(columns, 0.1F), shift = waves(columns, 0.3F);
    Numbers made(x.size()), expected(x.size()), mean(rows), variance(rows);
    plain::row_statistics(x.data(), s, mean.data(), variance.data());
    const auto check = [&](const Issued& issued, std::int64_t reads) {
      CHECK(difference(made, expected) <= 2e-6);
      CHECK(issued.launches == 1);
      CHECK(issued.reads == rows * columns * reads);
    };

    plain::layer_norm(x.data(), scale.data(), shift.data(), s, mean.data(), variance.data(), expected.data());
    check(issued_by([&](cudaStream_t stream) {
            launch::layer_norm(x.data(), scale.data(), shift.data(), s, made.data(), stream);
          }),
          held ? 3 : 5);  // x, scale, shift
    plain::layer_norm_input_gradient(x.data(), scale.data(), dy.data(), s, mean.data(), variance.data(),
                                     expected.data());
    check(issued_by([&](cudaStream_t stream) {
            launch::layer_norm_input_gradient(x.data(), scale.data(), dy.data(), s, made.data(), stream);
          }),
          held ? 4 : 8);  // x, dy, the scale twice
    plain::root_norm(x.data(), scale.data(), s, expected.data());
    check(issued_by([&](cudaStream_t stream) { launch::root_norm(x.data(), scale.data(), s, made.data(), stream); }),
          held ? 2 : 4);
    plain::root_norm_input_gradient(x.data(), scale.data(), dy.data(), s, expected.data());
    check(issued_by([&](cudaStream_t stream) {
            launch::root_norm_input_gradient(x.data(), scale.data(), dy.data(), s, made.data(), stream);
          }),
          held ? 4 : 8);
    plain::softmax(x.data(), rows, columns, expected.data());
    check(issued_by([&](cudaStream_t stream) { launch::softmax(x.data(), s, made.data(), stream); }), held ? 1 : 2);
    const Numbers y = expected;
    plain::softmax_gradient(y.data(), dy.data(), rows, columns, expected.data());
    check(
        issued_by([&](cudaStream_t stream) { launch::softmax_gradient(y.data(), dy.data(), s, made.data(), stream); }),
        held ? 2 : 4);
  }
}

TEST_CASE("a softmax of a wide row whose numbers grow, or are minus infinity, is right", "[fake_cuda]") {
  fake::begin({});
  constexpr std::int64_t columns = 8400;
  Numbers x(columns), made(columns), expected(columns);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 3 == 1 ? -INFINITY : static_cast<float>(i) / 50;
  issued_by([&](cudaStream_t stream) { launch::softmax(x.data(), {1, columns}, made.data(), stream); });
  plain::softmax(x.data(), 1, columns, expected.data());
  CHECK(difference(made, expected) <= 2e-6);
}

/// The layer norm's weight gradients, held against the plain loops.
Issued checked_layer_gradients(RowSizes s) {
  const std::int64_t n = s.rows * s.columns;
  const Numbers x = waves(n, 0.7F), dy = waves(n, 1.3F);
  Numbers mean(static_cast<std::size_t>(s.rows)), variance = mean;
  Numbers dscale(static_cast<std::size_t>(s.columns)), dshift = dscale, right_scale = dscale, right_shift = dscale;
  plain::row_statistics(x.data(), s, mean.data(), variance.data());
  plain::layer_norm_weight_gradient(x.data(), dy.data(), s, mean.data(), variance.data(), right_scale.data(),
                                    right_shift.data());
  const ScratchPiece scratch(Bytes{launch::layer_norm_weight_scratch(s)}, 1);
  const Issued issued = issued_by([&](cudaStream_t stream) {
    launch::layer_norm_weight_gradient(x.data(), dy.data(), s, scratch.address(), dscale.data(), dshift.data(), stream);
  });
  CHECK(difference(dscale, right_scale) <= 2e-6);
  CHECK(difference(dshift, right_shift) <= 2e-6);
  CHECK(scratch.is_untouched_behind());
  return issued;
}

TEST_CASE("gradients of a norm's weights come from one pass over its rows and one over partial sums", "[fake_cuda]") {
  fake::begin({});
  for (const RowSizes s : {RowSizes{3, 5}, RowSizes{2, 1030}}) {  // more rows: op_cases.cpp
    INFO(s.rows << " x " << s.columns);
    const std::int64_t n = s.rows * s.columns;
    const Issued layer = checked_layer_gradients(s);
    CHECK(layer.launches == 2);
    CHECK(layer.reads == 2 * n);  // x and dy

    const Numbers x = waves(n, 0.7F), dy = waves(n, 1.3F);
    Numbers dscale(static_cast<std::size_t>(s.columns)), right = dscale;
    plain::root_norm_weight_gradient(x.data(), dy.data(), s, right.data());
    const ScratchPiece scratch(Bytes{launch::root_norm_weight_scratch(s)}, 1);
    const Issued root = issued_by([&](cudaStream_t stream) {
      launch::root_norm_weight_gradient(x.data(), dy.data(), s, scratch.address(), dscale.data(), stream);
    });
    CHECK(difference(dscale, right) <= 2e-6);
    CHECK(scratch.is_untouched_behind());
    CHECK(root.launches == 2);
    CHECK(root.reads == 2 * n);
  }
}

TEST_CASE("gradients of a norm's weights find statistics apart where no block holds a row", "[fake_cuda][eleventh-6]") {
  fake::begin({});
  CHECK(checked_layer_gradients({1, 8200}).launches == 3);
}

/// Fused attention, forward and backward, by the plain loops and by kernels: to the bit. Returns what kernels issued.
std::pair<Issued, Issued> checked_attention(const FusedSizes& s) {
  const std::int64_t all_queries = s.rows(s.queries) * s.size, all_keys = s.rows_of_keys() * 2 * s.size;
  const Numbers q = waves(all_queries, 0.7F), kv = waves(all_keys, 1.3F), dmixed = waves(all_queries, 0.4F);
  Numbers mixed(q.size(), 7), sums(static_cast<std::size_t>(s.rows(s.queries)), 7), dq = mixed, dkv(kv.size(), 7);
  Numbers right_mixed = mixed, right_sums = sums, right_dq = dq, right_dkv = dkv;
  plain::fused_attention(s, q.data(), kv.data(), right_mixed.data(), right_sums.data());
  const Issued forward = issued_by(
      [&](cudaStream_t stream) { launch::fused_attention(s, q.data(), kv.data(), mixed.data(), sums.data(), stream); });
  CHECK(mixed == right_mixed);
  CHECK(sums == right_sums);
  const FusedSaved saved{dmixed.data(), q.data(), kv.data(), mixed.data(), sums.data()};
  plain::fused_attention_backward(s, saved, right_dq.data(), right_dkv.data());
  const Issued backward = issued_by(
      [&](cudaStream_t stream) { launch::fused_attention_backward(s, saved, dq.data(), dkv.data(), stream); });
  CHECK(dq == right_dq);
  CHECK(dkv == right_dkv);
  return {forward, backward};
}

TEST_CASE("fused attention has the bits of its formulas and reads keys once for 64 queries", "[fake_cuda]") {
  fake::begin({});
  for (const std::int64_t size : {6, 64, 80}) {
    for (const std::int64_t group : {1, 2}) {
      INFO("heads of " << size << ", groups of " << group);
      FusedSizes s{.batch = 1, .heads = 2, .size = size, .queries = 70, .keys = 70, .scale = 0.3F};
      s.group = group;
      const auto [forward, backward] = checked_attention(s);
      CHECK(forward.launches == 1);
      CHECK(backward.launches == 2);
      const std::int64_t keys = 2 * (64 + 70), queries = 2 * (70 + 6);  // seen by two blocks of queries; of keys
      CHECK(forward.reads == s.heads * size * (70 + keys));
      CHECK(backward.reads == s.heads * size * (2 * 70 + keys + queries) + s.key_heads() * size * 2 * 70);
    }
  }
  checked_attention({.batch = 2, .heads = 1, .size = 6, .queries = 65, .keys = 65, .scale = 1});
  checked_attention({.batch = 1, .heads = 1, .size = 130, .queries = 3, .keys = 3, .scale = 1});  // a thread a row
}

TEST_CASE("fused attention in tiles follows the positions of its rows", "[fake_cuda]") {
  fake::begin({});
  std::vector<std::int32_t> queries(66), keys(40);
  for (std::size_t i = 0; i < queries.size(); ++i) queries[i] = static_cast<std::int32_t>(i * 7 % 66);
  for (std::size_t j = 0; j < keys.size(); ++j) keys[j] = static_cast<std::int32_t>(3 + j * 11 % 40);
  FusedSizes s{.batch = 1, .heads = 1, .size = 8, .queries = 66, .keys = 40, .scale = 1};
  s.query_at = queries.data();
  s.key_at = keys.data();
  checked_attention(s);
}

}  // namespace
}  // namespace plimsoll
