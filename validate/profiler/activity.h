#pragma once
// What the time of a timeline is spent on: the kinds of steps of ours, and what only a profiler's trace tells apart.

#include "sim/core/names.h"

namespace plimsoll {

enum class Activity : std::uint8_t {
  forward,
  backward,
  update,
  recompute,
  offload,   ///< copies from device to host
  prefetch,  ///< copies from host to device
  send,      ///< copies between devices, and point-to-point communication
  collective,
  pack,
  unpack,
  zero_grad,
  device_copy,  ///< within a device
  memset,
  unmatched,  ///< kernels of which nobody knows who launched them, or what for
};

template <>
struct Names<Activity> {
  static constexpr std::array all{
      std::pair{Activity::forward, "forward"},     std::pair{Activity::backward, "backward"},
      std::pair{Activity::update, "update"},       std::pair{Activity::recompute, "recompute"},
      std::pair{Activity::offload, "offload"},     std::pair{Activity::prefetch, "prefetch"},
      std::pair{Activity::send, "send"},           std::pair{Activity::collective, "collective"},
      std::pair{Activity::pack, "pack"},           std::pair{Activity::unpack, "unpack"},
      std::pair{Activity::zero_grad, "zero_grad"}, std::pair{Activity::device_copy, "device_copy"},
      std::pair{Activity::memset, "memset"},       std::pair{Activity::unmatched, "unmatched"}};
};

}  // namespace plimsoll
