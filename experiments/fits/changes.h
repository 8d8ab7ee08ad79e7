#pragma once
// What makes a training fit that does not: changes of it, alone and together, each simulated.

#include <string>
#include <vector>

#include "experiments/fits/needs.h"

namespace plimsoll {

/// One thing done otherwise.
struct TrainingChange {
  std::string what;       ///< `recompute every block`
  std::string framework;  ///< how frameworks are told: `Hugging Face: gradient_checkpointing=True`
  bool is_same = true;    ///< the same updates come out of it; else the user decides whether that will do
};

struct ChangedTraining {
  std::vector<TrainingChange> changes;
  AskedTraining training;
  TrainingNeeds needs;
  double samples = 1;  ///< of an iteration, all devices together
  double tokens = 0;   ///< of an iteration; 0: the model has no sequence

  bool is_same() const;
  /// Of a token, or of a sample of a model without a sequence.
  Seconds time_of_one() const;
};

/// Those that fit: those with the same updates first, the fastest first. `asked` is plain training, `plain` what it
/// needs. Where fewer than three single changes fit, two together are tried; where none of these fits, three. What fits
/// is not tried with more. Empty: nothing fits.
std::vector<ChangedTraining> changes_that_fit(const AskedTraining& asked, const TrainingNeeds& plain, const Reserves&);

}  // namespace plimsoll
