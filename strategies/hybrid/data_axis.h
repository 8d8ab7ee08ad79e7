#pragma once
// Replicas that each train on their own micro-batches: data parallelism, whole or with shares of what it keeps (ZeRO).

#include <string>
#include <variant>

#include "sim/io/quantity.h"
#include "sim/mesh/gradient_reduction.h"
#include "sim/model/problem.h"
#include "strategies/api/strategy.h"
#include "strategies/hybrid/on_mesh.h"

namespace plimsoll {

inline constexpr OptionInfo replicas_option =
    text_option("ranks", "all", "all or a whole number from 1 to 65536",
                "replicas of the model; all: as many as there are devices for", is_all_or_count);

/// As PyTorch's DistributedDataParallel, whose buckets are 25 MB.
inline constexpr OptionInfo gradient_buckets_option{
    .name = "buckets",
    .default_value = "25MB",
    .values = "off or a size, such as 25MB",
    .help =
        "gradients of a stage that become complete one after the other are summed together as soon as they have this "
        "many bytes; off: each alone",
    .allowed = [](std::string_view text) { return text == "off" || parse_bytes(text).fine(); },
};

/// Megatron's `--overlap-grad-reduce` and DistributedDataParallel's hooks are yes; Megatron without it is no.
inline constexpr OptionInfo gradient_overlap_option{
    .name = "overlap",
    .default_value = "yes",
    .values = "yes or no",
    .help = "no: gradients are summed when the whole backward is over, and the device computes nothing meanwhile",
    .allowed = [](std::string_view text) { return text == "yes" || text == "no"; },
};

inline bool overlaps(const Options& options) {
  return options.text("overlap") == "yes";
}

/// What the option of buckets is by default.
inline constexpr Bytes usual_bucket{25'000'000};

/// 0: off.
inline Bytes bucket_of(const Options& options) {
  const std::string_view asked = options.text("buckets");
  return asked == "off" ? Bytes{} : parse_bytes(asked).value;
}

inline std::uint32_t replicas(const Options& options, std::uint32_t devices) {
  return asked_devices(options, "ranks", devices);
}

/// The problem of one rank of an axis around the mesh, whose ranks have their own micro-batches. Or in one sentence why
/// not.
std::variant<Problem, std::string> on_axis(const Problem&, const Axis&, Together);

/// The same for the axis `data` that the options ask for.
std::variant<Problem, std::string> on_data_axis(const Problem&, const Options&, Together);

}  // namespace plimsoll
