#pragma once
// What paths exchange with processors, as ParDNN weighs it: in mean transfers.

#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// What a set of nodes exchanges with each processor; a value counts once for each that it goes to.
class Exchanged {
 public:
  /// `on` is by node: processor, or no_node; it may change between calls.
  Exchanged(const OpDag&, const Machine&, std::span<const std::uint32_t> on);

  /// By processor; behind them, with nodes that are nowhere yet. Until the next call.
  std::span<const Nanoseconds> by(std::span<const std::uint32_t> nodes);

 private:
  std::size_t slot(std::uint32_t v) const { return on_[v] == no_node ? with_.size() - 1 : on_[v]; }

  const OpDag& dag_;
  const Machine& machine_;
  const std::span<const std::uint32_t> on_;
  std::vector<Nanoseconds> with_, sent_;
  std::vector<bool> is_in_;
  std::vector<Nanoseconds> received_;  // by maker; less than 0: nothing
  std::vector<std::uint32_t> makers_;
};

}  // namespace plimsoll
