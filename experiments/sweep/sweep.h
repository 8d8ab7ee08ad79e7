#pragma once
// A sweep: every point of an experiment, answered by worker processes, in a folder that survives interruptions.

#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <string>

#include "experiments/sweep/store_disk.h"
#include "experiments/sweep/sweep_points.h"

namespace plimsoll {

struct SweepOptions {
  std::filesystem::path experiment, folder;
  ExperimentChanges changes;
  std::size_t jobs = 1;
  bool resume = false, quiet = false;  ///< quiet: no progress, and no word of what ends well
  Shard shard;
  std::string command_line;
  std::filesystem::path cache = {};  ///< a folder of answers that sweeps share; empty: none
  StoreDisk* disk = nullptr;         ///< by which the folder is written; null: as usual
};

/// The exit code: 0 all points are there, 2 or 3 some could not be had (all others are), 130 interrupted. Infeasible
/// points are results, and so are those beyond the experiment's limits and those whose trace and platform do not go
/// together. Throws InputError where the experiment or the folder is wrong, OutputError where the folder cannot be
/// written: what is there by then stays.
int sweep(const SweepOptions&);

/// Looks at every name and file of an experiment, as a sweep does before anything else, and lists its points, with
/// those that a strategy or an efficiency refuses without a plan. The exit code: 2 where there are such.
int list_sweep(const SweepOptions&, std::ostream&);

}  // namespace plimsoll
