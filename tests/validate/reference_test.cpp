// The plain loops that CUDA kernels are held against: known answers, properties, and oneDNN where it does the same.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "tests/training/op_cases.h"
#include "validate/networks/builders.h"
#include "validate/reference/compression.h"
#include "validate/reference/elementwise.h"
#include "validate/reference/layers.h"
#include "validate/reference/normalization.h"

namespace plimsoll {
namespace {

std::vector<float> random_numbers(std::size_t n, std::uint64_t seed, float least = -1, float most = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> number(least, most);
  std::vector<float> numbers(n);
  for (float& x : numbers) x = number(random);
  return numbers;
}

/// Runs the plain loop on a case's values; the outputs are those of `loop`.
using Loop = std::function<void(const OpCase&, OpValues&)>;

RowSizes rows_of(const OpCase& c) {
  return row_sizes(c.graph[c.op.inputs[0]]);
}

/// Statistics by column or by row, found by the plain loops.
struct Statistics {
  std::vector<float> mean, variance;
};

Statistics by_column(const OpCase& c, const OpValues& v) {
  const RowSizes s = rows_of(c);
  Statistics made{std::vector<float>(static_cast<std::size_t>(s.columns)),
                  std::vector<float>(static_cast<std::size_t>(s.columns))};
  std::vector<double> sums(made.mean.size());
  plain::column_statistics(v.inputs[0].data(), s, sums.data(), made.mean.data(), made.variance.data());
  return made;
}

Statistics by_row(const OpCase& c, const OpValues& v) {
  const RowSizes s = rows_of(c);
  Statistics made{std::vector<float>(static_cast<std::size_t>(s.rows)),
                  std::vector<float>(static_cast<std::size_t>(s.rows))};
  plain::row_statistics(v.inputs[0].data(), s, made.mean.data(), made.variance.data());
  return made;
}

const std::vector<std::pair<std::string, Loop>>& loops() {
  const auto n = [](const OpValues& v) { return static_cast<std::int64_t>(v.inputs[0].size()); };
  static const std::vector<std::pair<std::string, Loop>> all{
      {"relu", [n](const OpCase&, OpValues& v) { plain::relu(v.inputs[0].data(), v.outputs[0].data(), n(v)); }},
      {"relu_gradient",
       [n](const OpCase&, OpValues& v) {
         plain::relu_gradient(v.inputs[0].data(), v.inputs[1].data(), v.outputs[0].data(), n(v));
       }},
      {"gelu", [n](const OpCase&, OpValues& v) { plain::gelu(v.inputs[0].data(), v.outputs[0].data(), n(v)); }},
      {"gelu_gradient",
       [n](const OpCase&, OpValues& v) {
         plain::gelu_gradient(v.inputs[0].data(), v.inputs[1].data(), v.outputs[0].data(), n(v));
       }},
      {"add", [n](const OpCase&,
                  OpValues& v) { plain::add(v.inputs[0].data(), v.inputs[1].data(), v.outputs[0].data(), n(v)); }},
      {"softmax",
       [](const OpCase& c, OpValues& v) {
         plain::softmax(v.inputs[0].data(), rows_of(c).rows, rows_of(c).columns, v.outputs[0].data());
       }},
      {"softmax_gradient",
       [](const OpCase& c, OpValues& v) {
         plain::softmax_gradient(v.inputs[0].data(), v.inputs[1].data(), rows_of(c).rows, rows_of(c).columns,
                                 v.outputs[0].data());
       }},
      {"batch_norm",
       [](const OpCase& c, OpValues& v) {
         const Statistics s = by_column(c, v);
         plain::batch_norm(v.inputs[0].data(), v.inputs[1].data(), v.inputs[2].data(), rows_of(c), s.mean.data(),
                           s.variance.data(), v.outputs[0].data());
         plain::move_statistics(v.statistics.data(), s.mean.data(), s.variance.data(), rows_of(c).columns);
       }},
      {"batch_norm_input_gradient",
       [](const OpCase& c, OpValues& v) {
         const Statistics s = by_column(c, v);
         plain::batch_norm_input_gradient(v.inputs[0].data(), v.inputs[1].data(), v.inputs[2].data(), rows_of(c),
                                          s.mean.data(), s.variance.data(), v.outputs[0].data());
       }},
      {"layer_norm",
       [](const OpCase& c, OpValues& v) {
         const Statistics s = by_row(c, v);
         plain::layer_norm(v.inputs[0].data(), v.inputs[1].data(), v.inputs[2].data(), rows_of(c), s.mean.data(),
                           s.variance.data(), v.outputs[0].data());
       }},
      {"layer_norm_input_gradient",
       [](const OpCase& c, OpValues& v) {
         const Statistics s = by_row(c, v);
         plain::layer_norm_input_gradient(v.inputs[0].data(), v.inputs[1].data(), v.inputs[2].data(), rows_of(c),
                                          s.mean.data(), s.variance.data(), v.outputs[0].data());
       }},
      {"average_pool",
       [](const OpCase&, OpValues& v) { plain::average_pool(v.inputs[0].data(), 2, 72, 5, v.outputs[0].data()); }},
      {"average_pool_gradient", [](const OpCase&, OpValues& v) {
         plain::average_pool_gradient(v.inputs[0].data(), 2, 72, 5, v.outputs[0].data());
       }}};
  return all;
}

TEST_CASE("plain loops and oneDNN agree where both do an op", "[reference]") {
  constexpr double rounding = 1e-5;  // of sums of up to 3600 floats, relative to the largest number
  for (const auto& [kind, loop] : loops()) {
    const OpCase c = op_case(kind);
    OpValues plain = random_values(c, 7);
    const OpValues library = on_cpu(c, plain);
    loop(c, plain);
    INFO(kind);
    for (std::size_t o = 0; o < plain.outputs.size(); ++o) {
      CHECK(difference(plain.outputs[o], library.outputs[o]) <= rounding);
    }
    CHECK(difference(plain.statistics, library.statistics) <= rounding);
  }
}

TEST_CASE("there is a case of every kind of op that a network has", "[reference]") {
  std::vector<Network> all{mlp({.layers = 2, .width = 8, .batch = 4, .classes = 3}, {.updates = Optimizer::adam}),
                           resnet({.blocks = 3, .channels = 4, .picture = 16, .batch = 2, .classes = 5}, {}),
                           gpt({.layers = 1, .width = 16, .heads = 2, .sequence = 8, .batch = 2}, {}),
                           lstm({.steps = 2, .width = 8, .batch = 4, .classes = 3}, {})};
  for (const Network& network : all) {
    for (const Op& op : network.graph.ops) {
      INFO(op.kind);
      CHECK(!on_cpu(op_case(op.kind), random_values(op_case(op.kind), 1)).inputs.empty());
    }
  }
}

TEST_CASE("column sums, masks and transposes by hand", "[reference]") {
  const std::vector<float> x{1, 2, 3, 4, 5, 6};
  std::vector<float> sums(3), turned(6);
  plain::column_sums(x.data(), 2, 3, sums.data());
  CHECK(sums == std::vector<float>{5, 7, 9});
  plain::transpose(x.data(), 1, 2, 3, turned.data());
  CHECK(turned == std::vector<float>{1, 4, 2, 5, 3, 6});
  std::vector<float> scores(4, 1.0F);
  plain::mask_scores(scores.data(), 2, 2, 2);
  CHECK(scores == std::vector<float>{1, -INFINITY, 1, 1});
}

TEST_CASE("max pooling's gradient goes to the first largest pixel", "[reference]") {
  // 3 x 3 pixels, 2 x 2 windows; window (0, 0) sees 5 and 5 and takes the first, window (1, 1) sees only 2.
  const std::vector<float> x{5, 5, 1, 0, 0, 1, 0, 0, 2}, dy{10, 20, 30, 40};
  std::vector<float> dx(9);
  plain::max_pool_gradient(x.data(), dy.data(), {1, 3, 3, 1, 2, 2}, dx.data());
  // (0, 0): pixels 0 1 3 4 -> 0. (0, 1): 1 2 4 5 -> 1. (1, 0): 3 4 6 7 all 0 -> 3. (1, 1): 4 5 7 8 -> 8.
  CHECK(dx == std::vector<float>{10, 20, 0, 30, 0, 0, 0, 0, 40});
}

TEST_CASE("Adam's first step moves a parameter by the learning rate against the gradient's sign", "[reference]") {
  std::vector<float> w{1, 1}, m{0, 0}, v{0, 0};
  const std::vector<float> g{0.5F, -4};
  plain::adam(w.data(), g.data(), m.data(), v.data(), 2);
  CHECK(w[0] == Approx(1 - 0.01).epsilon(1e-5));
  CHECK(w[1] == Approx(1 + 0.01).epsilon(1e-5));
  CHECK(m[0] == Approx(0.05));
  CHECK(v[1] == Approx(0.016).epsilon(1e-4));
}

TEST_CASE("block means by hand, at edges that are smaller than a block", "[compression]") {
  const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8, 9};  // 3 x 3, blocks of 2 x 2
  const BlockSizes s{1, 3, 3, 1, 2};
  std::vector<float> means(4), back(9);
  plain::block_means(x.data(), s, means.data());
  CHECK(means == std::vector<float>{3, 4.5F, 7.5F, 9});
  plain::expand_blocks(means.data(), s, back.data());
  CHECK(back == std::vector<float>{3, 3, 4.5F, 3, 3, 4.5F, 7.5F, 7.5F, 9});
  std::vector<float> again(4);
  plain::block_means(back.data(), s, again.data());  // the means of what is constant in each block are its values
  CHECK(again == means);
}

TEST_CASE("block means in one dimension reduce along the width only", "[compression]") {
  const std::vector<float> x{1, 10, 3, 30, 5, 50};  // 3 pixels of 2 channels
  const BlockSizes s{1, 1, 3, 2, 2};
  std::vector<float> means(4);
  plain::block_means(x.data(), s, means.data());
  CHECK(means == std::vector<float>{2, 20, 5, 50});
}

TEST_CASE("expanding is the adjoint of summing blocks: <expand m, x> = <m, block size times means of x>",
          "[compression]") {
  const BlockSizes s{2, 8, 6, 3, 2};  // whole blocks
  const std::vector<float> x = random_numbers(288, 3), m = random_numbers(72, 4);
  std::vector<float> means(m.size()), expanded(x.size());
  plain::block_means(x.data(), s, means.data());
  plain::expand_blocks(m.data(), s, expanded.data());
  const double left = std::inner_product(x.begin(), x.end(), expanded.begin(), 0.0);
  const double right = 4 * std::inner_product(m.begin(), m.end(), means.begin(), 0.0);
  CHECK(left == Approx(right).epsilon(1e-5));
}

TEST_CASE("quantization by hand: two bits, four levels, four numbers a byte", "[compression]") {
  const std::vector<float> x{0, 1, 2, 3, 0.4F, 0.6F, 3, 0};
  const QuantizeSizes s{8, 8, 2};
  std::vector<float> scales(2), back(8);
  std::vector<std::uint8_t> packed(2);
  plain::quantize(x.data(), s, Rounding::nearest, 0, scales.data(), packed.data());
  CHECK(scales == std::vector<float>{0, 1});
  CHECK(packed == std::vector<std::uint8_t>{0b11100100, 0b00110100});
  plain::dequantize(packed.data(), scales.data(), s, back.data());
  CHECK(back == std::vector<float>{0, 1, 2, 3, 0, 1, 3, 0});
}

TEST_CASE("what is quantized comes back within half a step, or a whole one if rounded by chance", "[compression]") {
  const int bits = GENERATE(2, 4, 8);
  const std::int64_t numbers = GENERATE(1, 31, 64, 1000), group = GENERATE(8, 64, 256);
  const QuantizeSizes s{numbers, group, bits};
  const std::vector<float> x = random_numbers(static_cast<std::size_t>(numbers), 11, -3, 5);
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    std::vector<float> scales(static_cast<std::size_t>(2 * s.groups())), back(x.size());
    std::vector<std::uint8_t> packed(static_cast<std::size_t>(s.packed_bytes()));
    plain::quantize(x.data(), s, rounding, 5, scales.data(), packed.data());
    plain::dequantize(packed.data(), scales.data(), s, back.data());
    const float share = rounding == Rounding::nearest ? 0.5F : 1.0F;
    bool within = true;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float step = scales[2 * (i / static_cast<std::size_t>(group)) + 1];
      within = within && std::abs(back[i] - x[i]) <= share * step * 1.0001F + 1e-6F;
    }
    CHECK(within);
    // What is on a level stays there: packing and unpacking are inverse.
    std::vector<std::uint8_t> again(packed.size());
    std::vector<float> scales_again(scales.size());
    plain::quantize(back.data(), s, Rounding::nearest, 0, scales_again.data(), again.data());
    if (rounding == Rounding::nearest) CHECK(again == packed);
  }
}

TEST_CASE("stochastic rounding is right in the mean, and the same for the same seed", "[compression]") {
  constexpr std::int64_t numbers = 8;
  const QuantizeSizes s{numbers, numbers, 4};
  const std::vector<float> x{0, 15, 3.25F, 7.5F, 0.1F, 14.9F, 10, 5.75F};  // step 1
  std::vector<double> sums(x.size());
  std::vector<float> scales(2), back(x.size());
  std::vector<std::uint8_t> packed(4), first(4);
  constexpr int draws = 4000;
  for (int seed = 0; seed < draws; ++seed) {
    plain::quantize(x.data(), s, Rounding::stochastic, static_cast<std::uint64_t>(seed), scales.data(), packed.data());
    plain::dequantize(packed.data(), scales.data(), s, back.data());
    for (std::size_t i = 0; i < x.size(); ++i) sums[i] += back[i];
  }
  // The mean of 4000 draws with a deviation of at most 0.5: five standard errors are 0.04.
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(sums[i] / draws - x[i]) <= 0.04);
  for (auto* bytes : {&first, &packed}) {
    plain::quantize(x.data(), s, Rounding::stochastic, 42, scales.data(), bytes->data());
  }
  CHECK(first == packed);
}

TEST_CASE("a group of equal numbers is kept exactly", "[compression]") {
  const std::vector<float> x(16, 2.5F);
  const QuantizeSizes s{16, 16, 4};
  std::vector<float> scales(2), back(16);
  std::vector<std::uint8_t> packed(8);
  plain::quantize(x.data(), s, Rounding::stochastic, 1, scales.data(), packed.data());
  plain::dequantize(packed.data(), scales.data(), s, back.data());
  CHECK(back == x);
}

}  // namespace
}  // namespace plimsoll
