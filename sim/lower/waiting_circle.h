#pragma once
// Devices whose orders wait for each other, in words.

#include <functional>
#include <optional>
#include <string>

#include "sim/core/partition.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// What a device waits for: the turn that it is at, and the part that has not sent yet what that reads.
struct Blocked {
  Turn turn;
  PartId by;
};

/// Names two parts that wait for each other, or for others that do; `blocked` is asked of devices.
std::string waiting_circle(const Problem&, const Partition&,
                           const std::function<std::optional<Blocked>(std::size_t)>& blocked);

}  // namespace plimsoll
