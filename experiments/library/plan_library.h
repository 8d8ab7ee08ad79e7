#pragma once
// The library of memory planning, experiments/memplanlib: instances, budgets, and for each the best plan that is known
// and a bound that no plan beats. Its index is described in the README there.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/names.h"
#include "sim/core/schedule.h"
#include "sim/core/units.h"

namespace plimsoll {

/// What plans of an instance may do. All of them run on one device, pack nothing, and keep parameters, gradients and
/// states there.
enum class PlanClass : std::uint8_t {
  recompute,  ///< run ops again
  offload,    ///< also copy values to the host and the disk
};
template <>
struct Names<PlanClass> {
  static constexpr std::array all{std::pair{PlanClass::recompute, "recompute"},
                                  std::pair{PlanClass::offload, "offload"}};
};

/// Who found it, with which version of what, and when.
struct FoundBy {
  std::string by, version, date;
};

struct KnownPlan {
  Seconds time;
  Bytes peak;
  FoundBy found;
  std::string plan;  ///< a file in the library's folder; empty: `by` is a strategy that plans it again
};

struct KnownBound {
  Seconds time;
  FoundBy found;
};

struct LibraryBudget {
  Bytes budget;
  std::optional<KnownPlan> best;
  std::optional<KnownBound> bound;
};

struct LibraryInstance {
  std::string name, trace, platform, origin;
  PlanClass plans = PlanClass::recompute;
  Bytes store_all;                     ///< peak of plain training
  std::vector<LibraryBudget> budgets;  ///< ascending
};

/// Throws InputError with the place of what is wrong. A trace that begins with a dot is a path from the index.
std::vector<LibraryInstance> read_plan_library(const std::filesystem::path& index);

/// The index that comes with the program.
std::filesystem::path shipped_plan_library();

}  // namespace plimsoll
