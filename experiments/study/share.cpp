#include "experiments/study/share.h"

#include <fmt/format.h>

#include <cmath>

namespace plimsoll {

bool is_share(std::string_view text) {
  return text.ends_with('%');
}

Parsed<Share> parse_share(std::string_view text) {
  constexpr double most = 1000;
  std::string_view digits = text.substr(0, text.size() - (is_share(text) ? 1 : 0));
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  const Parsed<double> number = parse_number(digits);
  if (!is_share(text) || !number.fine() || !(number.value > 0 && number.value <= most)) {
    return {{number.value},
            fmt::format("expected a share of the peak of store_all, above 0 % to {} %, such as 50 %, found '{}'", most,
                        text)};
  }
  return {{number.value}, {}};
}

Bytes of(Share share, Bytes whole) {
  return Bytes{std::llround(share.percent / 100 * static_cast<double>(whole.count))};
}

std::string written(Share share) {
  return fmt::format("{} %", share.percent);
}

}  // namespace plimsoll
