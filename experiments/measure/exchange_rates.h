#pragma once
// What ranks of this machine exchange, measured, and as the model has it on a platform.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "validate/backend.h"

namespace plimsoll {

struct MeasuredExchange {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::uint32_t ranks = 2;
  Bytes bytes;           ///< of the whole value
  MeasuredRate seconds;  ///< on this machine
  Seconds modelled;      ///< on the platform: by its times of NCCL, or as a ring
};

/// all_reduce, reduce_scatter and all_gather of values of these sizes (multiples of 4 bytes for each of the platform's
/// devices) between 2, 4, ... ranks, as many as the platform has devices. Nothing where `proceed` said no. Throws
/// InputError for a platform whose devices no ranks can exchange between.
std::optional<std::vector<MeasuredExchange>> measured_exchanges(Backend&, const Platform&, std::span<const Bytes> sizes,
                                                                std::size_t repetitions, const Proceed&);

/// As `calibrate table` reads it: operation,ranks,bytes,time_us.
std::string exchanges_csv(std::span<const MeasuredExchange>);

/// A line an exchange.
std::string exchanges_text(std::span<const MeasuredExchange>);

}  // namespace plimsoll
