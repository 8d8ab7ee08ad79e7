#pragma once
// Replicas that each train on their own micro-batches: data parallelism, whole or with shares of what it keeps (ZeRO).

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "sim/mesh/gradient_reduction.h"
#include "sim/model/problem.h"
#include "strategies/api/strategy.h"
#include "strategies/hybrid/on_mesh.h"

namespace plimsoll {

/// What the option of buckets is by default, as PyTorch's DistributedDataParallel has it.
inline constexpr Bytes usual_bucket{25'000'000};

/// Whether gradients lie in their buckets instead of being copied into them; automatic: as frameworks do.
enum class BucketView : std::uint8_t { automatic, yes, no };

/// Options of replicas with micro-batches of their own: each strategy has the rows of those that it heeds in its table.
struct DataOptions : MeshOptions {
  std::optional<std::uint32_t> ranks;           ///< unset: as many as there are devices for
  std::optional<Bytes> buckets = usual_bucket;  ///< unset: each gradient alone
  bool overlap = true;                          ///< gradients are summed while the backward runs
  BucketView bucket_view = BucketView::automatic;
};

inline constexpr auto replicas_option = option_of<&DataOptions::ranks>({
    .name = "ranks",
    .least = 1,
    .most = 65'536,
    .none = "all",
    .help = "replicas of the model; all: as many as there are devices for",
});

inline constexpr auto gradient_buckets_option = option_of<&DataOptions::buckets>({
    .name = "buckets",
    .none = "off",
    .help =
        "gradients of a stage that become complete one after the other are summed together as soon as they have this "
        "many bytes; off: each alone",
});

/// Megatron's `--overlap-grad-reduce` and DistributedDataParallel's hooks are yes; Megatron without it is no.
inline constexpr auto gradient_overlap_option = option_of<&DataOptions::overlap>({
    .name = "overlap",
    .words = "no yes",
    .values = "yes or no",
    .help = "no: gradients are summed when the whole backward is over, and the device computes nothing meanwhile",
});

inline std::uint32_t replicas(const DataOptions& options, std::uint32_t devices) {
  return options.ranks.value_or(devices);
}

/// The problem of one rank of an axis around the mesh, whose ranks have their own micro-batches. Or in one sentence why
/// not.
std::variant<Problem, std::string> on_axis(const Problem&, const Axis&, Together);

/// The same for the axis `data` that the options ask for.
std::variant<Problem, std::string> on_data_axis(const Problem&, const DataOptions&, Together);

}  // namespace plimsoll
