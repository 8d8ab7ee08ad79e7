#include "traces/imports/import_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "sim/io/input_error.h"

namespace plimsoll {

ImportNumbers::ImportNumbers(const std::vector<std::string>& assignments) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  for (const std::string& text : assignments) {
    const std::size_t sign = text.find('=');
    const std::string key = text.substr(0, sign);
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto read = sign == std::string::npos ? std::from_chars_result{end, std::errc::invalid_argument}
                                                : std::from_chars(text.data() + sign + 1, end, value);
    if (key.empty() || read.ec != std::errc() || read.ptr != end || value < 1 || value > most) {
      throw InputError(fmt::format("--set: expected KEY=N with N from 1 to {}, found '{}'", most, text));
    }
    if (std::ranges::count(given_, key, &Given::key) > 0) throw InputError(fmt::format("--set: {} twice", key));
    given_.push_back({key, value});
  }
}

std::optional<std::int64_t> ImportNumbers::asked(std::string_view key) {
  if (std::ranges::find(asked_, key) == asked_.end()) asked_.emplace_back(key);
  const auto place = std::ranges::find(given_, key, &Given::key);
  if (place == given_.end()) return std::nullopt;
  place->used = true;
  return place->value;
}

void ImportNumbers::refuse_unused() const {
  for (const Given& each : given_) {
    if (each.used) continue;
    const std::vector<std::string_view> known(asked_.begin(), asked_.end());
    throw InputError(known.empty() ? fmt::format("--set: {}: the file leaves no number open", each.key)
                                   : fmt::format("--set: {}: the file has no such number, expected {}{}", each.key,
                                                 alternatives(known), suggestion(each.key, known)));
  }
}

}  // namespace plimsoll
