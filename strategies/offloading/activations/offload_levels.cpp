#include "strategies/offloading/activations/offload_levels.h"

#include <algorithm>
#include <charconv>

#include "sim/core/tape.h"
#include "strategies/api/option_rules.h"

namespace plimsoll {

std::vector<Bytes> memory_levels(Bytes least, Bytes most, std::string_view option, std::size_t positions,
                                 std::size_t fewest) {
  std::int64_t wanted = 0;
  if (option == "auto") {
    constexpr std::size_t effort = 24'000;
    wanted =
        static_cast<std::int64_t>(std::clamp<std::size_t>(effort / std::max<std::size_t>(positions, 1), fewest, 40));
  } else {
    std::from_chars(option.data(), option.data() + option.size(), wanted);
  }
  const auto count = static_cast<std::uint32_t>(std::min(wanted, (most - least).count));
  std::vector<Bytes> levels;
  for (std::uint32_t level = 0; level < count; ++level) {
    levels.push_back(least + range_of(most - least, {level, count}).offset);
  }
  return levels;
}

bool is_auto_or_level_count(std::string_view text) {
  return text == "auto" || integer_between<1, 1000>(text);
}

}  // namespace plimsoll
