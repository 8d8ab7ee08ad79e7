#pragma once
// A policy by ops, as frameworks have them: of each op of the forward whether what it makes stays on the device for the
// backward, is made again there, or waits on the host.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strategies/models/op_model.h"
#include "strategies/offloading/activations/offload_moves.h"

namespace plimsoll {

enum class OpChoice : std::uint8_t { save, recompute, offload };

/// By op of the graph; of others than forwards without effect.
using OpPolicy = std::vector<OpChoice>;

/// The schedules of a policy. What is made again is made right before what first needs it. What waits on the host
/// leaves after its last reader of the forward, and comes back as late as copies that queue behind each other allow
/// without a stall, later only where the budget asks for it. What would have to come back before it has left stays.
class PolicyTapes {
 public:
  /// The task and the model must outlive it.
  PolicyTapes(const PartTask&, const OpModel&, const OpPolicy&);

  /// With as little waiting for copies as the budget allows (unset: unlimited).
  TapeOutcome within(std::optional<Bytes> budget) const;
  /// The least budget found to fit, and the one from which on nothing waits; none where there is no schedule.
  std::vector<Bytes> budgets() const;

 private:
  std::optional<PlannedTape> placed(Bytes budget) const;
  Bytes floor() const;
  Bytes least() const;

  const PartTask& task_;
  std::string why_none_;  ///< empty: there is a schedule
  PlannedTape plan_;      ///< without a limit
  std::optional<OffloadModel> copies_;
  std::vector<OffloadItem> items_;
};

}  // namespace plimsoll
