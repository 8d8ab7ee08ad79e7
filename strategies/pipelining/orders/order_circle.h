#pragma once
// Whether the ranks of an order wait for each other.

#include <string>

#include "strategies/pipelining/orders/order_file.h"

namespace plimsoll {

/// In one sentence that names two of them; empty: all turns and exchanges come to their end.
std::string circle_in(const OrderFile&);

}  // namespace plimsoll
