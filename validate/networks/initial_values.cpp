#include "validate/networks/initial_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "sim/core/op_kind.h"
#include "validate/networks/bf16.h"
#include "validate/networks/kernel_arguments.h"

namespace plimsoll {
namespace {

// splitmix64. Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014, as in its reference
// C.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

std::uint64_t seed_of(std::string_view name) {
  std::uint64_t seed = 1469598103934665603ULL;  // FNV-1a
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return seed;
}

/// In [-1, 1).
float signed_unit(std::uint64_t seed, std::uint64_t i) {
  return static_cast<float>(static_cast<double>(mixed(seed + i) >> 11U) * 0x1p-52 - 1.0);
}

template <class Number>
std::vector<std::byte> bytes_of(const std::vector<Number>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(Number));
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::vector<float> random_numbers(std::uint64_t seed, std::size_t n, float scale) {
  std::vector<float> numbers(n);
  for (std::size_t i = 0; i < n; ++i) numbers[i] = scale * signed_unit(seed, i);
  return numbers;
}

/// Slice j of every row of the batch.
std::vector<std::byte> slice_of(const std::vector<std::byte>& whole, std::int64_t batch, std::size_t j,
                                std::size_t slices) {
  const std::size_t row = whole.size() / static_cast<std::size_t>(batch), part = row / slices;
  std::vector<std::byte> slice;
  for (std::size_t begin = j * part; begin < whole.size(); begin += row) {
    const auto from = whole.begin() + static_cast<std::ptrdiff_t>(begin);
    slice.insert(slice.end(), from, from + static_cast<std::ptrdiff_t>(part));
  }
  return slice;
}

}  // namespace

std::vector<std::byte> initial_value(const Tensor& tensor, std::uint64_t seed) {
  const auto n = static_cast<std::size_t>(number_count(tensor));
  const std::string_view name = tensor.name;
  if (tensor.kind != TensorKind::parameter) return std::vector<std::byte>(static_cast<std::size_t>(tensor.bytes.count));
  if (name.ends_with(".scale")) return bytes_of(std::vector<float>(n, 1.0F));
  if (name.ends_with(".statistics")) {
    std::vector<float> numbers(n, 0.0F);
    std::fill(numbers.begin() + static_cast<std::ptrdiff_t>(n / 2), numbers.end(), 1.0F);
    return bytes_of(numbers);
  }
  // A weight's last dimension is its outputs; all others are summed over.
  const bool is_weight = tensor.shape.size() > 1;
  double summed = is_weight ? static_cast<double>(n) / static_cast<double>(tensor.shape.back()) : 100.0;
  if (name.ends_with(".experts")) summed /= static_cast<double>(tensor.shape.front());  // each has its own
  const std::uint64_t own = seed == 0 ? seed_of(name) : mixed(seed_of(name) ^ mixed(seed));
  return bytes_of(random_numbers(own, n, static_cast<float>(std::sqrt(3.0 / summed))));
}

std::vector<std::byte> input_value(const Tensor& tensor, std::uint32_t micro_batch, std::int64_t vocabulary) {
  const auto n = static_cast<std::size_t>(number_count(tensor));
  const std::uint64_t seed = mixed(seed_of(tensor.name) + micro_batch);
  if (is_bf16(tensor)) {
    std::vector<Bf16> narrow(n);
    const std::vector<float> drawn = random_numbers(seed, n, 1.0F);
    std::ranges::transform(drawn, narrow.begin(), as_bf16);
    return bytes_of(narrow);
  }
  if (tensor.dtype != "int32") return bytes_of(random_numbers(seed, n, 1.0F));
  std::vector<std::int32_t> tokens(n);
  for (std::size_t i = 0; i < n; ++i) {
    tokens[i] = static_cast<std::int32_t>(mixed(seed + i) % static_cast<std::uint64_t>(vocabulary));
  }
  return bytes_of(tokens);
}

std::vector<std::vector<std::byte>> input_values(const Network& network, std::uint32_t micro_batches,
                                                 std::uint32_t batch) {
  std::int64_t vocabulary = 1;
  for (const Op& op : network.graph.ops) {
    if (network_kind(op.kind) == OpKind::embedding) vocabulary = network.graph[op.inputs[1]].shape[0];
  }
  const Tensor& input = network.graph[network.boundaries[0]];
  const std::size_t slices = std::max<std::size_t>(1, network.slices.size());
  const auto wholes = static_cast<std::uint32_t>(micro_batches / slices);
  std::vector<std::vector<std::byte>> values;
  for (std::uint32_t m = 0; m < wholes; ++m) {
    const std::vector<std::byte> whole = input_value(input, batch * wholes + m, vocabulary);
    if (slices == 1) {
      values.push_back(whole);
      continue;
    }
    for (std::size_t j = 0; j < slices; ++j) values.push_back(slice_of(whole, input.shape[0], j, slices));
  }
  return values;
}

}  // namespace plimsoll
