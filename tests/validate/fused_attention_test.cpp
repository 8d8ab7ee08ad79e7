// Attention without whole weights, held against the one that has them, whole and in blocks of keys.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/random_case.h"
#include "tests/training/op_cases.h"
#include "validate/networks/networks.h"
#include "validate/reference/fused_attention.h"

namespace plimsoll {
namespace {

using Numbers = std::vector<float>;

/// What kinds with whole weights make of the same queries, keys and values, a head's one after the other.
struct Eager {
  Numbers mixed, sums, dq, dkv;

  Eager(const FusedSizes& s, const Numbers& q, const Numbers& kv, const Numbers& dmixed)
      : mixed(q.size()), sums(static_cast<std::size_t>(s.rows(s.queries))), dq(q.size()), dkv(kv.size()) {
    for (std::int64_t row = 0; row < s.rows(s.queries); ++row) {
      const std::int64_t b = row / (s.heads * s.queries), h = row / s.queries % s.heads, i = row % s.queries;
      const auto query = [&](std::int64_t d) { return place(((b * s.queries + i) * s.heads + h) * s.size + d); };
      const auto key = [&](std::int64_t j, std::int64_t d) {
        return place(((b * s.keys + j) * s.heads + h) * 2 * s.size + d);
      };
      std::vector<double> weights, slopes;
      double sum = 0, mean = 0;
      for (std::int64_t j = 0; j <= i; ++j) {
        double score = 0, slope = 0;
        for (std::int64_t d = 0; d < s.size; ++d) {
          score += double{q[query(d)]} * double{kv[key(j, d)]};
          slope += double{dmixed[query(d)]} * double{kv[key(j, s.size + d)]};
        }
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s.size))));
        slopes.push_back(slope);
        sum += weights.back();
      }
      sums[place(row)] = static_cast<float>(std::log(sum));
      for (std::size_t j = 0; j < weights.size(); ++j) mean += (weights[j] /= sum) * slopes[j];
      for (std::int64_t j = 0; j <= i; ++j) {
        const double weight = weights[place(j)];
        const auto of_score = static_cast<float>(weight * (slopes[place(j)] - mean) / std::sqrt(double(s.size)));
        for (std::int64_t d = 0; d < s.size; ++d) {
          mixed[query(d)] += static_cast<float>(weight) * kv[key(j, s.size + d)];
          dq[query(d)] += of_score * kv[key(j, d)];
          dkv[key(j, d)] += of_score * q[query(d)];
          dkv[key(j, s.size + d)] += static_cast<float>(weight) * dmixed[query(d)];
        }
      }
    }
  }

  static std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i); }
};

constexpr double near = 1e-5;

/// Rows of `each` numbers of these positions.
Numbers at_positions(const Numbers& whole, std::int64_t items, std::int64_t each, const std::vector<std::int32_t>& at) {
  const auto rows = static_cast<std::int64_t>(whole.size()) / each / items;
  Numbers own;
  for (std::int64_t item = 0; item < items; ++item) {
    for (const std::int32_t position : at) {
      const auto first = whole.begin() + (item * rows + position) * each;
      own.insert(own.end(), first, first + each);
    }
  }
  return own;
}

/// A rank's positions: two pieces, one from either end.
std::vector<std::int32_t> from_either_end(std::int32_t rank, std::int32_t ranks, std::int32_t each) {
  std::vector<std::int32_t> own;
  for (const std::int32_t piece : {rank, 2 * ranks - 1 - rank}) {
    for (std::int32_t i = 0; i < each; ++i) own.push_back(piece * each + i);
  }
  return own;
}

TEST_CASE("fused attention mixes what whole weights mix, and has its gradients", "[reference]") {
  const OpCase c = op_case("fused_attention"), of_backward = op_case("fused_attention_backward");
  const FusedSizes s = fused_sizes(c.graph, c.op);
  for (const RandomCase seed : random_cases(1, 5)) {
    const OpValues forward = on_cpu(c, random_values(c, seed));
    OpValues given = random_values(of_backward, seed + 7);
    given.inputs[1] = forward.inputs[0];
    given.inputs[2] = forward.inputs[1];
    given.inputs[3] = forward.outputs[0];
    given.inputs[4] = forward.outputs[1];
    const OpValues backward = on_cpu(of_backward, given);
    const Eager eager(s, forward.inputs[0], forward.inputs[1], given.inputs[0]);
    CHECK(difference(forward.outputs[0], eager.mixed) <= near);
    CHECK(difference(forward.outputs[1], eager.sums) <= near);
    CHECK(difference(backward.outputs[0], eager.dq) <= near);
    CHECK(difference(backward.outputs[1], eager.dkv) <= near);
  }
}

TEST_CASE("blocks of keys from either end of a sequence, put together, are attention to all", "[reference]") {
  constexpr std::int32_t ranks = 3, each = 2;
  constexpr std::int64_t items = 2, heads = 2, size = 4, positions = 2 * ranks * each, width = heads * size;
  const FusedSizes whole{
      .batch = items, .heads = heads, .size = size, .queries = positions, .keys = positions, .scale = 0.5F};
  const auto numbers = [](std::int64_t n, double phase) {
    Numbers made(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<float>(std::sin(phase + 1.7 * double(i)));
    return made;
  };
  const Numbers q = numbers(items * positions * width, 0), kv = numbers(items * positions * 2 * width, 1);
  const Numbers dmixed = numbers(items * positions * width, 2);
  const Eager eager(whole, q, kv, dmixed);
  Numbers dkv(kv.size(), 0);
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    INFO("rank " << rank);
    const std::vector<std::int32_t> own = from_either_end(rank, ranks, each);
    const Numbers own_q = at_positions(q, items, width, own), own_dmixed = at_positions(dmixed, items, width, own);
    FusedSizes s = whole;
    s.queries = s.keys = 2 * each;
    s.query_at = own.data();
    Numbers mixed(own_q.size()), sums(static_cast<std::size_t>(s.rows(s.queries))), dq(own_q.size(), 0);
    for (const bool is_forward : {true, false}) {
      for (std::int32_t block = 0; block < ranks; ++block) {
        const std::vector<std::int32_t> keys = from_either_end((rank + ranks - block) % ranks, ranks, each);
        s.key_at = keys.data();
        const Numbers own_kv = at_positions(kv, items, 2 * width, keys);
        Numbers part(mixed.size()), part_sums(sums.size()), part_dkv(own_kv.size());
        if (is_forward) {
          plain::fused_attention(s, own_q.data(), own_kv.data(), part.data(), part_sums.data());
          if (block == 0) std::tie(mixed, sums) = std::tie(part, part_sums);
          if (block > 0) plain::merge_attention(s, mixed.data(), sums.data(), part.data(), part_sums.data());
          continue;
        }
        plain::fused_attention_backward(s, {own_dmixed.data(), own_q.data(), own_kv.data(), mixed.data(), sums.data()},
                                        part.data(), part_dkv.data());
        for (std::size_t i = 0; i < dq.size(); ++i) dq[i] += part[i];
        for (std::size_t i = 0; i < part_dkv.size(); ++i) {
          const auto row = static_cast<std::int64_t>(i) / (2 * width),
                     column = static_cast<std::int64_t>(i) % (2 * width);
          const std::int64_t item = row / s.keys, position = keys[static_cast<std::size_t>(row % s.keys)];
          dkv[static_cast<std::size_t>((item * positions + position) * 2 * width + column)] += part_dkv[i];
        }
      }
    }
    CHECK(difference(mixed, at_positions(eager.mixed, items, width, own)) <= near);
    CHECK(difference(dq, at_positions(eager.dq, items, width, own)) <= near);
  }
  CHECK(difference(dkv, eager.dkv) <= near);
}

TEST_CASE("slices of a sequence with fused attention are refused", "[networks]") {
  CHECK_THROWS_WITH(network_in_slices("gpt:sequence=8,attention=fused", std::nullopt, 2),
                    Catch::Contains("fused attention has no kernels for slices of a sequence; attention=eager has"));
}

}  // namespace
}  // namespace plimsoll
