#pragma once
// Budgets relative to the peak of store_all, which needs no more: `50 %`.

#include <compare>
#include <string>
#include <string_view>

#include "sim/core/units.h"
#include "sim/io/quantity.h"

namespace plimsoll {

struct Share {
  double percent = 0;

  friend constexpr auto operator<=>(Share, Share) = default;
};

/// Whether a text means to be a share, well written or not.
bool is_share(std::string_view text);

Parsed<Share> parse_share(std::string_view);

/// To the nearest byte.
Bytes of(Share, Bytes whole);

/// `50 %`
std::string written(Share);

}  // namespace plimsoll
