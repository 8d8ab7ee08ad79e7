#pragma once
// Runs a schedule with real tensors and kernels on the CPU: every stream a thread, every wait an event, devices' and
// hosts' memories apart, copies between them at the pace of the platform's links.

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/problem.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "validate/cpu/block_pool.h"
#include "validate/cpu/cpu_network.h"
#include "validate/replay_plan.h"

namespace plimsoll {

enum class Pace : std::uint8_t { links, memcpy };  ///< copies take at least their time on the links, or what they take

struct CpuReplayOptions {
  Pace pace = Pace::links;
  bool poisons = false;       ///< fills what is new or freed with a pattern that spoils every result made of it
  bool keeps_values = false;  ///< hands back what is in memory at the end
};

/// What was measured: dates from the start of the first step, and the peaks that the ledger saw.
struct Replayed {
  Timeline timeline;
  /// Parameters, their gradients and states by name, as they are at the end, wherever that is.
  std::map<std::string, std::vector<std::byte>> values;
};

/// `plan` is that of the schedule and of the network of `cpu`.
std::variant<Replayed, ReplayFailure> replay_on_cpu(const Problem&, const Schedule&, const ReplayPlan& plan,
                                                    const CpuNetwork& cpu, BlockPool&, const CpuReplayOptions&);

}  // namespace plimsoll
