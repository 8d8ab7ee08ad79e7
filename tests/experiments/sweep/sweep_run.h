#pragma once
// A sweep as a test runs it, and what it leaves.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "experiments/sweep/sweep.h"
#include "experiments/sweep/worker_pool.h"
#include "sim/io/text_file.h"

namespace plimsoll {

/// What is written to stderr goes to a file while this lives.
class StderrTo {
 public:
  explicit StderrTo(const std::filesystem::path& path) : before_(dup(STDERR_FILENO)) {
    std::fflush(stderr);
    const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666));
    dup2(file.fd(), STDERR_FILENO);
  }
  ~StderrTo() {
    std::fflush(stderr);
    dup2(before_.fd(), STDERR_FILENO);
  }
  StderrTo(const StderrTo&) = delete;
  StderrTo& operator=(const StderrTo&) = delete;

 private:
  Descriptor before_;
};

struct HowToRun {
  bool resume = false;
  Shard shard = {};
  std::size_t jobs = 1;
  StoreDisk* disk = nullptr;
};

inline int run_sweep(const std::filesystem::path& experiment, const std::filesystem::path& folder, HowToRun how = {},
                     const std::filesystem::path& messages = "/dev/null") {
  const StderrTo elsewhere(messages);
  return sweep({.experiment = experiment,
                .folder = folder,
                .jobs = how.jobs,
                .resume = how.resume,
                .shard = how.shard,
                .command_line = "plimsoll sweep",
                .disk = how.disk});
}

struct SweepRun {
  int exit_code = 0;
  std::string messages;
};

/// The same with what it says on stderr.
inline SweepRun run_sweep_aloud(const std::filesystem::path& experiment, const std::filesystem::path& folder,
                                HowToRun how = {}) {
  const std::filesystem::path messages = folder.string() + ".messages";
  const int exit_code = run_sweep(experiment, folder, how, messages);
  return {exit_code, read_text_file(messages)};
}

/// The results of a folder without the two keys that are measured.
inline std::string results_of(const std::filesystem::path& folder, const std::string& name = "results.jsonl") {
  const std::regex measured("\"solve_s\":[^,}]*,\"simulate_s\":[^,}]*");
  return std::regex_replace(read_text_file(folder / name), measured, "");
}

}  // namespace plimsoll
