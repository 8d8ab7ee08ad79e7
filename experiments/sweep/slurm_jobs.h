#pragma once
// A sweep as a job array of Slurm: each task answers a share, and a job that waits for all of them merges what they
// leave.

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>

#include "experiments/sweep/experiment_file.h"

namespace plimsoll {

struct SlurmArray {
  std::filesystem::path experiment, folder;  ///< `folder`/shards is the tasks', `folder`/merged the whole
  ExperimentChanges changes;
  std::filesystem::path cache;  ///< empty: none
  std::uint32_t tasks = 1;
  std::string options;  ///< of sbatch, for both jobs, as a shell reads them
};

/// The two scripts, as sbatch takes them. Paths in them are absolute.
std::string array_script(const SlurmArray&);
std::string merge_script(const SlurmArray&);

/// Writes both scripts into the folder and submits them; says on `out` which jobs these are. Throws InputError where
/// there is no sbatch or it refuses, OutputError where the folder cannot be written.
void submit_array(const SlurmArray&, std::ostream& out);

}  // namespace plimsoll
