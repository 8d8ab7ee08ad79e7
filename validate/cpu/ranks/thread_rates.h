#pragma once
// How long what ranks exchange takes where they are threads.

#include "sim/core/schedule.h"
#include "validate/measured_rates.h"

namespace plimsoll {

/// Seconds of an all_reduce, reduce_scatter or all_gather of a value of so many bytes, a multiple of 4 bytes a rank.
MeasuredRate thread_exchange_seconds(CollectiveKind, std::uint32_t ranks, Bytes, std::size_t repetitions);

}  // namespace plimsoll
