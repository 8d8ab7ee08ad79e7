#pragma once
// A placement's order and times without contention: an op starts when its processor is free and what it reads is
// there; values are sent to each processor that reads them as soon as they are made, those for one reader in one
// transfer, and transfers do not wait for each other.

#include <optional>
#include <string_view>
#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// In which order ops that are ready are taken by a processor that is free.
enum class QueueOrder : std::uint8_t {
  fifo,     ///< as they become ready; of one instant by number
  b_level,  ///< the one with the longest path to the end first, with transfers; of equals the smallest number
  number,   ///< in the order of numbers, whatever is ready
};

struct Emulation {
  std::vector<Nanoseconds> start, finish;         ///< by node
  std::vector<std::vector<std::uint32_t>> order;  ///< by processor
  Nanoseconds makespan = 0;
};

/// The nodes where `on` puts them, by list scheduling or by number. At one instant all finishes and arrivals come
/// first, then processors take ops; what ops of no time make possible is taken after that.
Emulation emulate(const OpDag&, const Machine&, std::span<const std::uint32_t> on, QueueOrder);

/// In the placement's own orders, which must not wait for each other in a circle.
Emulation emulate_in_order(const OpDag&, const Machine&, const Placement&);

/// Bytes on each processor, at most, in those times. Residents are there throughout, or from the start of their first
/// user there to the end of all (`appears`). A value is on its maker's
/// processor from the maker's start until its last reader there and all transfers of it have ended, and on each other
/// processor that reads it from the maker's finish until its last reader there has ended. A network's input is on each
/// processor that reads it from the first to the last of its readers there.
std::vector<std::int64_t> memory_of(const OpDag&, const Machine&, std::span<const std::uint32_t> on, const Emulation&);

}  // namespace plimsoll
