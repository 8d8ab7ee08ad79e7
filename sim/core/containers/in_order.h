#pragma once
// What nearly always is in order already, such as the dates of steps that follow each other on one stream.

#include <algorithm>
#include <functional>
#include <utility>

namespace plimsoll {

/// Sorts; one look at each value where they are in order.
template <class Range, class Key = std::identity>
void put_in_order(Range& values, Key key = {}) {
  if (!std::ranges::is_sorted(values, {}, key)) std::ranges::sort(values, {}, std::move(key));
}

}  // namespace plimsoll
