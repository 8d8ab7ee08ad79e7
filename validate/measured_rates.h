#pragma once
// Rates of a device with a host behind a link, as measured for a platform file: the same for every backend.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/codec.h"
#include "sim/core/units.h"

namespace plimsoll {

/// The median of repeated measurements, and where half of them lie.
struct MeasuredRate {
  double median = 0, lower_quartile = 0, upper_quartile = 0;
};

/// What products of square matrices reach, by what their numbers are: as in a platform's `peak`.
struct MeasuredPeak {
  std::string dtype;
  std::int64_t rows = 0;
  MeasuredRate flops;
};

/// Bytes of tensors a second that a codec packs and restores; no rate of restoring where it restores nothing.
struct MeasuredCodec {
  Codec codec;
  MeasuredRate pack;
  std::optional<MeasuredRate> unpack;
};

struct MachineRates {
  Bytes copied;                                     ///< by each of the large copies
  MeasuredRate to_host, to_device, both_ways;       ///< bytes a second of large copies; of one direction while both run
  MeasuredRate to_host_latency, to_device_latency;  ///< seconds of a copy of 64 bytes
  std::vector<MeasuredRate> slowdown;               ///< of kernels while 0, 1, 2 copies run; the first is 1
  std::vector<MeasuredPeak> peaks;                  ///< in what the backend's kernels can compute, fp32 first
  std::optional<MeasuredRate> one_block_to_host;    ///< as to_host into one block over and over, which a cache may hold
  std::optional<MeasuredRate> host_copies;          ///< bytes a second of both directions together; unset: not measured
  std::optional<Bytes> device_memory;               ///< what the device has; unset: what the platform's file says
  MeasuredRate plain_traffic;                       ///< bytes a second that a sum of two tensors moves
  MeasuredRate update_traffic;                      ///< bytes a second that Adam's update moves, seven a parameter byte
  std::optional<MeasuredRate> host_update_traffic;  ///< the same of the host; unset: it is the device
  MeasuredRate launch;                              ///< seconds that a kernel of next to no work takes
  std::vector<MeasuredCodec> codecs;                ///< empty where the backend has no packed forms
  MeasuredRate allocation;                          ///< seconds to take a block of the replay's pool and give it back
};

inline MeasuredRate rate_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  const auto at = [&](std::size_t quarter) { return samples[(samples.size() - 1) * quarter / 4]; };
  return {at(2), at(1), at(3)};
}

/// Samples after one run to warm up.
template <class Sample>
MeasuredRate repeated(std::size_t repetitions, Sample sample) {
  std::vector<double> samples;
  sample();
  for (std::size_t r = 0; r < repetitions; ++r) samples.push_back(sample());
  return rate_of(std::move(samples));
}

/// `work` operations in the seconds measured, as a rate.
inline MeasuredRate per_second(double work, const MeasuredRate& seconds) {
  return {work / seconds.median, work / seconds.upper_quartile, work / seconds.lower_quartile};
}

}  // namespace plimsoll
