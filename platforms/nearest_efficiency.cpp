#include "platforms/nearest_efficiency.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "platforms/efficiency_file.h"
#include "sim/core/device_name.h"

namespace plimsoll {
namespace {

enum class Generation : std::uint8_t { unknown, volta, turing, ampere, ada, hopper, blackwell };

/// How words of a GPU's name begin.
constexpr std::pair<std::string_view, Generation> beginnings[] = {
    {"V100", Generation::volta},       {"T4", Generation::turing},        {"A100", Generation::ampere},
    {"A800", Generation::ampere},      {"A40", Generation::ampere},       {"A30", Generation::ampere},
    {"A10", Generation::ampere},       {"A6000", Generation::ampere},     {"L4", Generation::ada},
    {"H100", Generation::hopper},      {"H200", Generation::hopper},      {"H800", Generation::hopper},
    {"H20", Generation::hopper},       {"GH200", Generation::hopper},     {"B100", Generation::blackwell},
    {"B200", Generation::blackwell},   {"GB200", Generation::blackwell},  {"B300", Generation::blackwell},
    {"RTX 20", Generation::turing},    {"RTX 30", Generation::ampere},    {"RTX 40", Generation::ada},
    {"RTX 50", Generation::blackwell}, {"RTX PRO", Generation::blackwell}};

Generation generation_of(std::string_view model) {
  const auto begins_word = [&](const auto& beginning) {
    const std::size_t at = model.find(beginning.first);
    return at != std::string_view::npos && (at == 0 || model[at - 1] == ' ' || model[at - 1] == '-');
  };
  const auto* const found = std::ranges::find_if(beginnings, begins_word);
  return found == std::end(beginnings) ? Generation::unknown : found->second;
}

/// Logarithm of flops for each byte of its memory, in 16 bits.
template <class Gpu>
std::optional<double> intensity(const Gpu& gpu) {
  if (!gpu.memory_bandwidth) return std::nullopt;
  for (const char* dtype : {"bf16", "fp16"}) {
    const auto peak = gpu.peak.find(dtype);
    if (peak != gpu.peak.end()) return std::log(peak->second.value / gpu.memory_bandwidth->value);
  }
  return std::nullopt;
}

/// A model is sold with memories of several sizes: without this word and what follows it.
std::string_view without_memory(std::string_view model) {
  std::size_t end = model.find("GB");
  if (end == std::string_view::npos) return model;
  while (end > 0 && model[end - 1] >= '0' && model[end - 1] <= '9') --end;
  return end > 0 ? model.substr(0, end - 1) : model;
}

bool is_same_model(std::string_view one, std::string_view other) {
  return without_memory(one) == without_memory(other) || seems_same_device(one, other);
}

bool has_products_in_16_bits(const Efficiency& efficiency) {
  return efficiency.product.contains("bf16") || efficiency.product.contains("fp16");
}

/// How far a table is from a device: first whether it is of its generation, then by what each needs for a byte.
std::optional<std::pair<bool, double>> distance(const Efficiency& efficiency, const Device& device) {
  const std::optional<double> own = intensity(device), its = intensity(efficiency);
  if (!own || !its || !has_products_in_16_bits(efficiency)) return std::nullopt;
  const Generation generation = generation_of(device.model);
  const bool is_other = generation == Generation::unknown || generation != generation_of(efficiency.model);
  return std::pair(is_other, std::abs(*own - *its));
}

}  // namespace

std::shared_ptr<const Efficiency> nearest_efficiency(const Device& device) {
  std::shared_ptr<const Efficiency> nearest;
  std::optional<std::pair<bool, double>> least;
  for (const std::string& name : shipped_efficiencies()) {
    auto candidate = std::make_shared<const Efficiency>(load_efficiency(name));
    if (device.memory_bandwidth && is_same_model(candidate->model, device.model)) return candidate;
    const std::optional<std::pair<bool, double>> here = distance(*candidate, device);
    if (!here || (least && *least <= *here)) continue;
    least = here;
    nearest = std::move(candidate);
  }
  return nearest;
}

}  // namespace plimsoll
