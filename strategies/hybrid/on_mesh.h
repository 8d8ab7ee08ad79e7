#pragma once
// Problems of one rank of a mesh, and of replicas that each train on their own micro-batches.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "sim/core/names.h"
#include "sim/mesh/gradient_reduction.h"
#include "sim/mesh/layout.h"
#include "sim/model/problem.h"
#include "strategies/api/strategy.h"

namespace plimsoll {

/// With an axis around those that the mesh has, or right within another one of it. Of an axis whose ranks each have
/// their own micro-batches a rank has its share of them. Or in one sentence why not.
std::variant<Problem, std::string> with_outer_axis(Problem, const Axis&, std::optional<std::string_view> within = {});

/// Why what cuts operators may not follow another hybrid strategy.
inline constexpr std::string_view cuts_first =
    "it cuts operators, and stands before what trains several replicas of them";

/// The problem of one rank where ops are cut so; the plan's mesh becomes the problem's. Or in one sentence why not.
std::variant<Problem, std::string> on_mesh(Problem, SplitPlan);

/// Of strategies whose ranks exchange something.
struct MeshOptions {
  CollectiveWay collectives = CollectiveWay::nccl;
};

inline constexpr auto collectives_option = option_of<&MeshOptions::collectives>({
    .name = "collectives",
    .words = "nccl ring halving trees levels fastest",
    .help =
        "the way in which these ranks exchange, where it applies; nccl: NCCL's by measured times where the platform "
        "has efficiencies, else ring",
});

/// Of the platform's devices, for each rank of the problem's mesh.
std::uint32_t devices_left(const Problem&);

/// What planners see: one device of the platform stands for all ranks of the mesh, collectives have their times and,
/// where a strategy plans by stages, the graph is a chain of its stages. Throws InputError where that cannot be.
Problem for_planners(Problem, bool plans_stages, Backward, std::string_view strategy, Inner = Inner::together);

// Replicas that each train on their own micro-batches: data parallelism, whole or with shares of what it keeps (ZeRO).

/// What the option of buckets is by default, as PyTorch's DistributedDataParallel has it.
inline constexpr Bytes usual_bucket{25'000'000};

/// Whether gradients lie in their buckets instead of being copied into them; automatic: as frameworks do.
enum class BucketView : std::uint8_t { automatic, yes, no };

/// What runs beside the computation: yes or no, or as a framework has it.
enum class ExchangeOverlap : std::uint8_t { no, yes, none, ddp, fsdp2, megatron };

/// Options of replicas with micro-batches of their own: each strategy has the rows of those that it heeds in its table.
struct DataOptions : MeshOptions {
  std::optional<std::uint32_t> ranks;           ///< unset: as many as there are devices for
  std::optional<Bytes> buckets = usual_bucket;  ///< unset: each gradient alone
  ExchangeOverlap overlap = ExchangeOverlap::yes;
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

/// Megatron with `--overlap-grad-reduce` is yes.
inline constexpr auto gradient_overlap_option = option_of<&DataOptions::overlap>({
    .name = "overlap",
    .words = "no yes none ddp fsdp2 megatron",
    .help = "no, none: replicas exchange while nothing computes, gradients after the whole backward; ddp: gradients "
            "during the backward; megatron: after it; fsdp2: parameters and gradients during the computation",
});

/// Whether what replicas that share out so much exchange runs beside the computation. Or in one sentence why a
/// framework does not do that.
std::variant<bool, std::string> overlaps(const DataOptions&, Sharded);

inline std::uint32_t replicas(const DataOptions& options, std::uint32_t devices) {
  return options.ranks.value_or(devices);
}

/// The problem of one rank of an axis around the mesh, whose ranks have their own micro-batches. Or in one sentence why
/// not.
std::variant<Problem, std::string> on_axis(const Problem&, const Axis&, Together);

/// The same for the axis `data` that the options ask for.
std::variant<Problem, std::string> on_data_axis(const Problem&, const DataOptions&, Together);

}  // namespace plimsoll
