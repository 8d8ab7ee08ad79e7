#pragma once
// The traces and platforms that an experiment names, read and understood once, before anything runs: what workers use
// is what the manifest's digests are of, whatever happens to the files meanwhile.

#include <map>
#include <string>
#include <vector>

#include "experiments/study/run.h"
#include "experiments/sweep/experiment_file.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// Why there is no answer; empty: there may be one. What is wrong is an error; trace and platform that do not go
/// together are a result.
struct GroupRefusal {
  std::string why;
  bool is_error = false;
};

/// What an experiment asks in every question, without what it combines: trace, platform, micro-batches, optimizer and
/// strategy.
Question asked_of_all(const Experiment&);

class SweepInputs {
 public:
  /// Throws InputError with everything that is wrong: names of the experiment that are neither files nor shipped, with
  /// their places in it, files that cannot be read, and strategies that no trace of the experiment is for.
  explicit SweepInputs(const ExperimentFile&);

  /// The problem behind a question of the experiment.
  ProblemOutcome problem(const Question&) const;

  /// Networks, too, which are else the workers' to make: by whom starts none, since their libraries start threads.
  void read_networks();

  /// Whether a question may have an answer, as far as that shows without a plan or a search.
  GroupRefusal refusal(const Question&) const;

  /// The trace and the platform that a question of the experiment names.
  Trace trace(const Question&) const;
  const Platform& platform(const Question& question) const { return platforms_.at(question.platform); }

  /// How many stages or ops a trace has; 1 of a network, whose libraries are the workers' to start.
  std::size_t size_of(const std::string& trace) const;

  /// A digest of each file's bytes, by the reference in the experiment; of files that a strategy names, by the
  /// strategy.
  const Json& digests() const { return digests_; }

 private:
  void read_trace(const ExperimentFile&, std::size_t);
  void read_platform(const ExperimentFile&, std::size_t);
  void read_files_of(const Pipeline&);
  void judge_strategy(const ExperimentFile&, std::size_t) const;

  /// By the model and the strategy alone.
  GroupRefusal refusal_of_model(const Question&) const;

  /// The problem that the last question was about, which the next one may be about too: a copy of a large graph takes
  /// longer than to judge it.
  struct JudgedProblem {
    Question question;  ///< without its strategy
    Backward backward;
    Inner inner;
    bool is_changed;  ///< by the strategy
    ProblemOutcome made;
  };
  const ProblemOutcome& problem_to_judge(const Question&) const;

  /// By whom judges the problem.
  template <class Judge>
  GroupRefusal refused(const Question&, Judge) const;

  std::map<std::string, Trace> traces_;  // by reference; not of networks, whose libraries are the workers' to start
  std::vector<std::string> networks_;    // by reference
  std::map<std::string, Platform> platforms_;
  Json digests_ = Json::object();
  mutable std::unique_ptr<JudgedProblem> judged_;
};

}  // namespace plimsoll
