#pragma once
// Shares of whole sorts of kernels from measured times: of the memory's bandwidth, and of the roofline for
// convolutions.

#include <span>
#include <string>
#include <string_view>

#include "platforms/efficiency_fit.h"
#include "platforms/measured_csv.h"

namespace plimsoll {

/// Sorts of which one share is made, by the keys of efficiency files.
std::span<const std::string_view> measured_sorts();

/// Of a sort in `measured_sorts`; of convolutions that of the dtype.
void set_share(Efficiency&, std::string_view sort, const std::string& dtype, double share);

/// Columns `sort,bytes` and a time, with `flops` where a row is a convolution. The share of a sort is the one with
/// which its kernels together take as long as they did. Throws InputError, with the place, where they are faster than
/// efficiency files may say.
FittedTable fitted_sorts(const MeasuredCsv&, const std::string& file, const Device&, const FitOptions&);

}  // namespace plimsoll
