#include "platforms/nearest_efficiency.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "platforms/efficiency_file.h"
#include "sim/core/device_name.h"
#include "sim/io/shipped.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

enum class Generation : std::uint8_t { unknown, volta, turing, ampere, ada, hopper, blackwell };

/// Words that a GPU's name has, one behind the other, and the first decides. Where the name of a generation is among
/// them, it counts. An RTX 4000 or 5000 without it may be of any: so many are named alike.
constexpr std::pair<std::string_view, Generation> names[] = {{"Volta", Generation::volta},
                                                             {"Turing", Generation::turing},
                                                             {"Ampere", Generation::ampere},
                                                             {"Ada", Generation::ada},
                                                             {"Hopper", Generation::hopper},
                                                             {"Blackwell", Generation::blackwell},
                                                             {"V100", Generation::volta},
                                                             {"V100S", Generation::volta},
                                                             {"TITAN V", Generation::volta},
                                                             {"GV100", Generation::volta},
                                                             {"T4", Generation::turing},
                                                             {"T4G", Generation::turing},
                                                             {"TITAN RTX", Generation::turing},
                                                             {"Quadro RTX", Generation::turing},
                                                             {"A100", Generation::ampere},
                                                             {"A100X", Generation::ampere},
                                                             {"A800", Generation::ampere},
                                                             {"A2", Generation::ampere},
                                                             {"A10", Generation::ampere},
                                                             {"A10G", Generation::ampere},
                                                             {"A16", Generation::ampere},
                                                             {"A30", Generation::ampere},
                                                             {"A40", Generation::ampere},
                                                             {"A2000", Generation::ampere},
                                                             {"A4000", Generation::ampere},
                                                             {"A4500", Generation::ampere},
                                                             {"A5000", Generation::ampere},
                                                             {"A5500", Generation::ampere},
                                                             {"A6000", Generation::ampere},
                                                             {"L2", Generation::ada},
                                                             {"L4", Generation::ada},
                                                             {"L20", Generation::ada},
                                                             {"L40", Generation::ada},
                                                             {"L40S", Generation::ada},
                                                             {"L40G", Generation::ada},
                                                             {"H100", Generation::hopper},
                                                             {"H200", Generation::hopper},
                                                             {"H800", Generation::hopper},
                                                             {"H20", Generation::hopper},
                                                             {"GH200", Generation::hopper},
                                                             {"B100", Generation::blackwell},
                                                             {"B200", Generation::blackwell},
                                                             {"B300", Generation::blackwell},
                                                             {"GB10", Generation::blackwell},
                                                             {"GB200", Generation::blackwell},
                                                             {"GB300", Generation::blackwell},
                                                             {"RTX PRO", Generation::blackwell},
                                                             {"RTX 2050", Generation::ampere},
                                                             {"RTX 2060", Generation::turing},
                                                             {"RTX 2070", Generation::turing},
                                                             {"RTX 2080", Generation::turing},
                                                             {"RTX 3050", Generation::ampere},
                                                             {"RTX 3060", Generation::ampere},
                                                             {"RTX 3070", Generation::ampere},
                                                             {"RTX 3080", Generation::ampere},
                                                             {"RTX 3090", Generation::ampere},
                                                             {"RTX 4050", Generation::ada},
                                                             {"RTX 4060", Generation::ada},
                                                             {"RTX 4070", Generation::ada},
                                                             {"RTX 4080", Generation::ada},
                                                             {"RTX 4090", Generation::ada},
                                                             {"RTX 5050", Generation::blackwell},
                                                             {"RTX 5060", Generation::blackwell},
                                                             {"RTX 5070", Generation::blackwell},
                                                             {"RTX 5080", Generation::blackwell},
                                                             {"RTX 5090", Generation::blackwell}};

bool ends_word(std::string_view model, std::size_t at) {
  return at >= model.size() || model[at] == ' ' || model[at] == '-';
}

bool has_words(std::string_view model, std::string_view words) {
  for (std::size_t at = model.find(words); at != std::string_view::npos; at = model.find(words, at + 1)) {
    if ((at == 0 || ends_word(model, at - 1)) && ends_word(model, at + words.size())) return true;
  }
  return false;
}

Generation generation_of(std::string_view model) {
  const auto* const found = std::ranges::find_if(names, [&](const auto& of) { return has_words(model, of.first); });
  return found == std::end(names) ? Generation::unknown : found->second;
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

constexpr ShippedFiles borrowed_files{"file of spreads", "platforms/borrowed", ".yaml"};

Efficiency load_borrowed() {
  const std::filesystem::path path = find_file("spreads", borrowed_files);
  return parse_efficiency(read_text_file(path), path.string());
}

/// No GPU here has so many times another one's flops for a byte; a processor's core has a 25th.
constexpr double farthest = 8;

/// How far a table is from a device: first whether it is of its generation, then by what each needs for a byte.
std::optional<std::pair<bool, double>> distance(const Efficiency& efficiency, const Device& device) {
  const std::optional<double> own = intensity(device), its = intensity(efficiency);
  if (!own || !its || !has_products_in_16_bits(efficiency)) return std::nullopt;
  if (std::abs(*own - *its) > std::log(farthest)) return std::nullopt;
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

std::shared_ptr<const Efficiency> lent_to(const Device& device, std::shared_ptr<const Efficiency> efficiency) {
  if (!efficiency || is_same_model(efficiency->model, device.model)) return efficiency;
  auto lent = std::make_shared<Efficiency>(*efficiency);
  for (const auto& [sort, wide] : load_borrowed().spread) {
    Spread& own = lent->spread.try_emplace(sort, wide).first->second;
    own = {std::min(own.low, wide.low), std::max(own.high, wide.high)};
  }
  return lent;
}

}  // namespace plimsoll
