#pragma once
// Tapes of a part of a pipeline by memory strategies of which some plan whole models only: those are asked about the
// part alone.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "strategies/api/front.h"
#include "strategies/api/pass.h"

namespace plimsoll {

/// Tapes of a part with the memory they need with its micro-batches in flight. Times are those of the part alone, good
/// for comparing them.
struct PartTapes {
  explicit PartTapes(PlannedTape all) : unlimited(std::move(all)) {}

  bool has_updates = false;  ///< of parameters that no other part uses
  PlannedTape unlimited;     ///< with all the memory that it wants
  Front fastest;

  /// One a budget.
  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets) const;

 private:
  TapeOutcome within(std::optional<Bytes> budget) const;
};

/// Or why there are none.
std::variant<PartTapes, std::string> tapes_of_part(const PartTask&, std::span<const Pass>);

/// The same, made once for parts of any partitions of one problem that have the same stages between the same parts on
/// the same device, with the same in flight.
class KnownPartTapes {
 public:
  explicit KnownPartTapes(std::span<const Pass> passes) : passes_(passes) {}

  const std::variant<PartTapes, std::string>& of(const PartTask&);

 private:
  std::span<const Pass> passes_;
  std::map<std::vector<std::uint32_t>, std::variant<PartTapes, std::string>> kept_;
};

}  // namespace plimsoll
