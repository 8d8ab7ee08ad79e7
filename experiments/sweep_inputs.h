#pragma once
// The files that an experiment names, read once, before anything runs: what workers use is what the manifest's digests
// are of, whatever happens to the files meanwhile.

#include <map>
#include <string>

#include "experiments/experiment_file.h"
#include "experiments/run.h"
#include "sim/io/json.h"

namespace plimsoll {

class SweepInputs {
 public:
  /// Throws InputError where a trace or platform of the experiment is neither a file nor a shipped name, or a file
  /// cannot be read.
  explicit SweepInputs(const Experiment&);

  /// The problem behind a question of the experiment; throws InputError where a file is wrong.
  ProblemOutcome problem(const Question&) const;

  /// A digest (FNV-1a) of each file's bytes, by the reference in the experiment.
  Json digests() const;

 private:
  struct ReadFile {
    std::string path, text;
  };
  std::map<std::string, ReadFile> traces_, platforms_;  // by reference; not those that are made by rule
};

}  // namespace plimsoll
