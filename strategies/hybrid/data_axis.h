#pragma once
// Replicas that each train on their own micro-batches: data parallelism, whole or with shares of what it keeps (ZeRO).

#include <string>
#include <variant>

#include "sim/core/gradient_reduction.h"
#include "sim/core/problem.h"
#include "strategies/hybrid/on_mesh.h"
#include "strategies/strategy.h"

namespace plimsoll {

inline constexpr OptionInfo replicas_option{"ranks", "all", "all or a whole number from 1 to 65536",
                                            "replicas of the model; all: as many as there are devices for",
                                            is_all_or_count};

inline std::uint32_t replicas(const Options& options, std::uint32_t devices) {
  return asked_devices(options, "ranks", devices);
}

/// The problem of one rank of an axis `data` around the mesh. Or in one sentence why not.
std::variant<Problem, std::string> on_data_axis(const Problem&, const Options&, Sharded, std::uint32_t prefetch = 1);

}  // namespace plimsoll
