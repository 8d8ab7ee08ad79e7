#include "strategies/hybrid/cluster/framework.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>

namespace plimsoll {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

std::uint32_t divided_up(std::uint32_t a, std::uint32_t b) {
  return (a + b - 1) / b;
}

/// Refuses what all of them refuse.
std::optional<std::string> why_not_launched(const ClusterExtent& extent, const ClusterPoint& point) {
  if (cluster_processes(extent, point)) return std::nullopt;
  return fmt::format("it starts as many processes on each node, and {} devices are not whole nodes of {}",
                     point.devices(), extent.in_node);
}

/// Of those that share out positions: a piece from either end of the sequence for each rank.
std::optional<std::string> why_not_in_pieces(const ClusterExtent& extent, const ClusterPoint& point) {
  if (point.context == 1 || extent.positions % (2 * point.context) == 0) return std::nullopt;
  return fmt::format("context={} takes {} pieces of a sequence, which do not divide {} positions", point.context,
                     2 * point.context, extent.positions);
}

/// Refuses what follows the saver, but for updates of this name.
std::optional<std::string> why_not_behind(const ClusterPoint& point, std::string_view updates = "") {
  if (point.compression > 0) return fmt::format("it has no compression {}", point.compressing().name);
  if (point.offload > 0) return fmt::format("it does not choose what to offload as {} does", point.offloading().name);
  if (point.updates == 0 || point.updating().name == updates) return std::nullopt;
  return fmt::format("it has no updates {}", point.updating().name);
}

std::optional<std::string> not_megatron(const ClusterExtent& extent, const ClusterPoint& point) {
  const ClusterSchedule& way = point.way();
  if (!is_one_of(way.name, {"none", "1f1b", "interleaved"})) return fmt::format("it has no schedule {}", way.name);
  if (!is_one_of(point.saving().name, {"none", "core", "full"})) {
    return fmt::format("it has no saver {}", point.saving().name);
  }
  if (point.zero > 1 && point.stages > 1) return "it shares gradients out (z=2, z=3) without pipelines only";
  if (way.name == "interleaved" && extent.micro_batches(point) % point.stages != 0) {
    return fmt::format("it interleaves micro-batches whose number p={} divides", point.stages);
  }
  if (const auto why = why_not_behind(point, point.zero == 1 ? "zero_offload" : "")) return why;
  const std::uint32_t parts = point.stages * point.chunks;
  if (extent.layers % parts != 0) return fmt::format("{} parts do not divide {} layers", parts, extent.layers);
  if (const auto why = why_not_in_pieces(extent, point)) return why;
  return why_not_launched(extent, point);
}

struct ScheduleName {
  std::string_view ours, theirs;
};
/// Of torch.distributed.pipelining: torchtitan names them so, classes have `Schedule` in front.
constexpr std::array pytorch_schedules{ScheduleName{"1f1b", "1F1B"}, ScheduleName{"gpipe", "GPipe"},
                                       ScheduleName{"interleaved", "Interleaved1F1B"},
                                       ScheduleName{"zb_v", "ZBVZeroBubble"}, ScheduleName{"dualpipe_v", "DualPipeV"}};

std::optional<std::string> not_pipelining(const ClusterExtent& extent, const ClusterPoint& point) {
  const std::string_view name = point.way().name;
  if (point.stages == 1) return std::nullopt;
  if (std::ranges::find(pytorch_schedules, name, &ScheduleName::ours) == pytorch_schedules.end()) {
    return fmt::format("it has no schedule {}", name);
  }
  const std::uint32_t m = extent.micro_batches(point), rounds = std::max(1U, m / point.stages);
  if (name == "interleaved" && m % rounds != 0) {
    return fmt::format("it interleaves {} micro-batches in {} rounds, which do not divide them", m, rounds);
  }
  return std::nullopt;
}

std::optional<std::string> not_torchtitan(const ClusterExtent& extent, const ClusterPoint& point) {
  if (const auto why = not_pipelining(extent, point)) return why;
  if (!is_one_of(point.saving().name, {"none", "full"})) return fmt::format("it has no saver {}", point.saving().name);
  if (const auto why = why_not_behind(point)) return why;
  if (point.replicas > 1 && point.zero == 1) return "it shares out states only with gradients (z=2, z=3)";
  if (point.experts > 1 && point.zero < 2) return "it shares out experts among replicas that share all out (z=2, z=3)";
  if (point.replicas > 1 && point.zero == 0 && point.width() * point.stages > 1) {
    return "it replicates (z=0) without tensor, context and pipeline parallelism only";
  }
  if (const auto why = why_not_in_pieces(extent, point)) return why;
  if (!torchtitan_layers(extent, point).is_possible) {
    return fmt::format("no number of layers a part makes {} parts of {} layers", point.stages * point.chunks,
                       extent.layers);
  }
  return why_not_launched(extent, point);
}

std::optional<std::string> not_deepspeed(const ClusterExtent& extent, const ClusterPoint& point) {
  if (point.tensor > 1) return "it leaves tensor parallelism to the model";
  if (point.context > 1) return "it exchanges heads where it shares out positions, and leaves that to the model";
  if (point.experts > 1) return "it leaves experts to the model's own layers";
  if (point.copies > 1 && point.zero == 2) return "it shares out within groups of replicas with z=3 only (MiCS)";
  if (!is_one_of(point.way().name, {"none", "1f1b"})) return fmt::format("it has no schedule {}", point.way().name);
  if (!is_one_of(point.saving().name, {"none", "full"})) return fmt::format("it has no saver {}", point.saving().name);
  if (const auto why = why_not_behind(point, point.zero > 0 ? "zero_offload" : "")) return why;
  if (point.zero > 1 && point.stages > 1) return "it shares gradients out (z=2, z=3) without pipelines only";
  return why_not_launched(extent, point);
}

std::optional<std::string> not_pytorch(const ClusterExtent& extent, const ClusterPoint& point) {
  if (const auto why = not_pipelining(extent, point)) return why;
  if (!is_one_of(point.saving().name, {"none", "core", "full"})) {
    return fmt::format("it has no saver {}", point.saving().name);
  }
  if (const auto why = why_not_behind(point)) return why;
  if (point.context > 1) return "its replicas do not sum gradients over the ranks of a sequence";
  if (point.experts > 1) return "it leaves experts to the model";
  if (point.replicas > 1 && point.zero < 2 && point.tensor > 1) {
    return "it replicates whole parameters (z=0, z=1) without tensor parallelism only";
  }
  return why_not_launched(extent, point);
}

}  // namespace

std::optional<Processes> cluster_processes(const ClusterExtent& extent, const ClusterPoint& point) {
  if (point.devices() <= extent.in_node) return Processes{1, point.devices()};
  if (point.devices() % extent.in_node != 0) return std::nullopt;
  return Processes{point.devices() / extent.in_node, extent.in_node};
}

std::string_view pytorch_schedule(const ClusterPoint& point) {
  return std::ranges::find(pytorch_schedules, point.way().name, &ScheduleName::ours)->theirs;
}

LayersPerStage torchtitan_layers(const ClusterExtent& extent, const ClusterPoint& point) {
  if (point.chunks <= 2) return {};
  constexpr std::uint32_t ends = 2;  // it counts the embedding and the head as a layer each
  const std::uint32_t parts = point.stages * point.chunks, layers = divided_up(extent.layers + ends, parts);
  const bool is_possible = extent.layers > 0 && divided_up(extent.layers + ends, layers) == parts;
  return {is_possible, layers};
}

std::span<const ClusterFramework> cluster_frameworks() {
  static constexpr std::array all{ClusterFramework{"megatron", "Megatron-LM", not_megatron},
                                  ClusterFramework{"torchtitan", "torchtitan", not_torchtitan},
                                  ClusterFramework{"deepspeed", "DeepSpeed", not_deepspeed},
                                  ClusterFramework{"pytorch", "PyTorch", not_pytorch}};
  return all;
}

const ClusterFramework* cluster_framework(std::string_view name) {
  const auto found = std::ranges::find(cluster_frameworks(), name, &ClusterFramework::name);
  return found == cluster_frameworks().end() ? nullptr : &*found;
}

}  // namespace plimsoll
