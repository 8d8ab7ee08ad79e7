#pragma once
// What the time of an op consists of, as its device's rates explain it.

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "sim/model/problem.h"
#include "sim/model/stage_exchanges.h"

namespace plimsoll {

/// Of one run; what is left of its time is that its kernels are slower than the device's peak.
struct OpParts {
  Seconds ideal;     ///< its operations at the peak of the trace's dtype; 0 where the trace or the platform has none
  Seconds launches;  ///< of its kernels, where its time is that of a roofline
  Seconds again;     ///< ops of a stage that run a second time (recompute_ops)
};

/// Of all ops of a problem. Those of a chain that was made of a graph consist of that graph's.
class PartsOfOps {
 public:
  explicit PartsOfOps(const Problem&);

  /// Until the op is asked for again.
  const OpParts& of(OpId, std::uint32_t implementation, DeviceId);

  /// What it exchanges with other ranks within its time, by axis.
  const std::vector<ExchangeShare>& exchanges(OpId);

 private:
  /// One pass of a stage, or its part for inputs or for weights, is `share` of these ops.
  struct OfStage {
    std::vector<OpId> ops;
    double share = 1;
  };

  OpParts of_stage(const OfStage&, const Device&) const;
  void find_stages();

  const Problem& problem_;
  std::map<OpId, OfStage> stages_;
  /// As the op was last asked for.
  struct Known {
    std::uint32_t implementation = 0;
    DeviceId on;
    OpParts parts;
  };
  std::vector<std::optional<Known>> known_;                           // by op
  std::vector<std::optional<std::vector<ExchangeShare>>> exchanges_;  // by op
};

/// Whether a step of the op keeps what only its backward needs.
bool saves_for_backward(const Schedule&, const Step&, const Op&);

}  // namespace plimsoll
