#pragma once
// The answer of `plimsoll fits` as text and as JSON.

#include <optional>
#include <string>
#include <vector>

#include "experiments/fits/changes.h"
#include "experiments/fits/stored_tensors.h"
#include "sim/io/json/json.h"

namespace plimsoll {

struct FitsAnswer {
  AskedTraining training;
  Reserves reserves;
  std::string device;  ///< of the platform
  TrainingNeeds needs;
  std::optional<Bytes> by_foreach{};      ///< needed with updates by lists of torch.optim's default, where that is more
  std::optional<StoredTensors> stored{};  ///< beside the configuration file
  bool has_changes = false;               ///< whether they were asked for
  std::vector<ChangedTraining> changes{};  ///< empty where it fits
};

/// Whether it fits, and what it needs: known before changes are looked for.
std::string needs_table(const FitsAnswer&);
/// What makes it fit; nothing where it does or nobody asked.
std::string changes_table(const FitsAnswer&);
Json fits_json(const FitsAnswer&, const std::string& made_by);

}  // namespace plimsoll
