#pragma once
// Iterations that were measured, most of them by others, as questions: experiments/papers/measured_runs.yaml.
//   format: plimsoll.measured_runs.v1
//   groups:
//     - {name: sc21, title: "...", origin: "...", efficiency: a100_sxm, runs: [...]}
// A run has a trace, a platform, a strategy and the time of an iteration, perhaps its peak; or why it is no question.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/run.h"

namespace plimsoll {

struct MeasuredRun {
  std::string name;
  Question question;                ///< its platform without efficiencies; empty where it is not expressed
  std::string why_not;              ///< the run is not expressed
  std::optional<Seconds> measured;  ///< of an iteration; unset: only runs that are not expressed
  std::optional<Bytes> peak;        ///< allocated, of the fullest device
  std::optional<Bytes> reserved;    ///< of PyTorch's caching allocator there, which is then simulated
};

struct MeasuredGroup {
  std::string name, title, origin;
  std::string efficiency;  ///< by which kernels and collectives are timed
  std::vector<MeasuredRun> runs;
};

/// Throws InputError with everything that is wrong.
std::vector<MeasuredGroup> parse_measured_runs(const std::string& text, std::string file_name);

/// The pipeline in which devices do not wait for what they send.
Pipeline with_free_sends(const Pipeline&);

/// The file that comes with the program.
std::filesystem::path shipped_measured_runs();

}  // namespace plimsoll
