#pragma once
// What `cluster` may choose among: each option a value, several joined by '+', or auto.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct ClusterOptions {
  std::string tensor = "auto", context = "1", stages = "auto", replicas = "auto", zero = "auto";
  std::string experts = "1", copies = "1", compression = "none", offload = "none", updates = "device";
  std::string schedule = "auto", chunks = "auto", samples = "auto", saver = "auto";
  std::string planners = "auto", framework = "any";
  std::uint32_t limit = 400;
  bool prices = false;
};

/// Whole numbers and ranges joined by '+', such as 1+4-8, ascending; nothing where the text is something else. `auto`
/// is empty.
std::optional<std::vector<std::uint32_t>> read_choices(std::string_view);

/// Words joined by '+'; `auto` is empty.
std::vector<std::string_view> read_words(std::string_view);

}  // namespace plimsoll
