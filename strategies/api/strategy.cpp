#include "strategies/api/strategy.h"

#include <algorithm>
#include <charconv>

#include "sim/core/expects.h"

namespace plimsoll {

Options::Options(std::span<const OptionInfo> known, std::map<std::string, std::string, std::less<>> given)
    : values_(std::move(given)) {
  for (const auto& [name, value] : values_) {
    const auto is_it = [&name = name, &value = value](const OptionInfo& o) {
      return o.name == name && o.allowed(value);
    };
    EXPECTS(std::ranges::any_of(known, is_it));
  }
  for (const OptionInfo& option : known) values_.try_emplace(std::string(option.name), option.default_value);
}

Options Options::with(std::string_view name, std::string value) const {
  Options changed = *this;
  const auto found = changed.values_.find(name);
  EXPECTS(found != changed.values_.end());
  found->second = std::move(value);
  return changed;
}

std::string_view Options::text(std::string_view name) const {
  const auto found = values_.find(name);
  EXPECTS(found != values_.end());
  return found->second;
}

std::int64_t Options::integer(std::string_view name) const {
  const std::string_view digits = text(name);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  EXPECTS(error == std::errc{} && end == digits.data() + digits.size());
  return value;
}

double Options::number(std::string_view name) const {
  const std::string_view digits = text(name);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  EXPECTS(error == std::errc{} && end == digits.data() + digits.size());
  return value;
}

bool has_option(const StrategyInfo& strategy, std::string_view name) {
  return std::ranges::find(strategy.options, name, &OptionInfo::name) != strategy.options.end();
}

std::string_view name_of(Family family) {
  switch (family) {
    case Family::transform:
      return "transform";
    case Family::hybrid:
      return "hybrid";
    case Family::placement:
      return "placement";
    case Family::pipelining:
      return "pipelining";
    case Family::baseline:
      return "baseline";
    case Family::rematerialization:
      return "rematerialization";
    case Family::compression:
      return "compression";
    case Family::offloading:
      return "offloading";
  }
  return "unknown";
}

}  // namespace plimsoll
