#pragma once
// A network as it is used after training: forward alone, batch norms by their running statistics.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "validate/cpu/cpu_network.h"
#include "validate/labelled_rows.h"

namespace plimsoll {

/// The loss and how many rows are right, over all rows. `values`: parameters and running statistics by name. The
/// network reads numbers, and its loss has a row for each of its input.
Score infer(const CpuNetwork&, const std::map<std::string, std::vector<std::byte>>& values, const LabelledRows&);

}  // namespace plimsoll
