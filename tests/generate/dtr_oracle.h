#pragma once
// Dynamic tensor rematerialization once more, slowly and by the letter of its rules: sets are sets, nothing is kept up
// to date that can be looked up, a quotient is rounded by comparing whole numbers. Shares only the log with the real
// one.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/op_log.h"

namespace plimsoll {

struct OracleRun {
  std::string end;  ///< finished, out of memory, thrashing
  std::int64_t clock = 1, rematerialization_time = 0, evictions = 0, eager_evictions = 0, rematerializations = 0,
               peak = 0;
  std::vector<std::uint32_t> calls;
};

/// heuristic: dtr, dtr_eq, local, lru, size, msps; of which local, lru and size with banishing instead of eager
/// eviction.
OracleRun oracle_dtr(const OpLog&, std::optional<std::int64_t> budget, const std::string& heuristic,
                     std::optional<std::int64_t> rematerialization_limit, bool banishing = false);

/// The peak of the runtime with banishing and infinite memory.
std::int64_t oracle_banishing_peak(const OpLog&);

/// weight / (bytes * staleness), correctly rounded.
double oracle_quotient(std::int64_t weight, std::int64_t bytes, std::int64_t staleness);

}  // namespace plimsoll
