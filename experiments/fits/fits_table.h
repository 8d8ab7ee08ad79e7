#pragma once
// The answer of `plimsoll fits` as text and as JSON.

#include <string>
#include <vector>

#include "experiments/fits/changes.h"
#include "sim/io/json/json.h"

namespace plimsoll {

struct FitsAnswer {
  AskedTraining training;
  Reserves reserves;
  std::string device;  ///< of the platform
  TrainingNeeds needs;
  bool has_changes = false;                ///< whether they were asked for
  std::vector<ChangedTraining> changes{};  ///< empty where it fits
};

std::string fits_table(const FitsAnswer&);
Json fits_json(const FitsAnswer&, const std::string& made_by);

}  // namespace plimsoll
