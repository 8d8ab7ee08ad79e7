#include "strategies/hybrid/cluster/shared_costs.h"

#include <algorithm>
#include <span>
#include <utility>

#include "sim/io/input_error.h"
#include "sim/mesh/folded.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

ReplicaExchange exchange_of(const ClusterPoint& point, const DeviceCosts& device, CollectiveTimes& times) {
  const auto along = [&](std::uint32_t axis, CollectiveKind kind, Bytes bytes) {
    return bytes > Bytes{} ? times.seconds(kind, bytes, std::span(&axis, 1)) : Seconds{};
  };
  const auto seconds = [&](CollectiveKind kind, Bytes bytes) { return along(1, kind, bytes); };
  const bool is_one_part = point.chunks == 1;
  const Bytes gradients = is_one_part ? device.gradients : device.least_gradients,
              trained = is_one_part ? device.trained : device.least_trained;
  using enum CollectiveKind;
  const Seconds over_positions = point.zero < 2 ? along(3, all_reduce, gradients) : Seconds{};
  switch (point.zero) {
    case 0:
      return {.once = std::max(over_positions, seconds(all_reduce, gradients)), .each_time = {}};
    case 1:
      return {.once = std::max(over_positions, seconds(reduce_scatter, gradients) + seconds(all_gather, trained)),
              .each_time = {}};
    case 2:
      return {.once = {}, .each_time = seconds(reduce_scatter, device.gradients)};
    default:
      return {.once = {},
              .each_time = seconds(reduce_scatter, device.gradients) + seconds(all_gather, device.trained) +
                           seconds(all_gather, device.read_again)};
  }
}

void raise(ClusterRow& row, Seconds time, const MemoryBound& memory) {
  row.bound = std::max(row.bound, time);
  if (memory.total() > row.memory.total()) row.memory = memory;
}

std::vector<DeviceCosts> devices_as_cut(const ClusterPoint& point, const RankCosts& costs) {
  return device_costs(costs, costs.chain, point.stages, point.chunks, point.way().shape);
}

}  // namespace

std::variant<ClusterRow, std::string> ClusterCosts::bounded_whole(const ClusterPoint& point) const {
  const std::variant<WholeBound, std::string> made =
      question_.whole_bound(point.samples, composed_rank(point, false), point.planning().splits_ops);
  if (const std::string* why = std::get_if<std::string>(&made)) return *why;
  const WholeBound& whole = std::get<WholeBound>(made);
  return ClusterRow{.point = point, .bound = whole.time, .memory = whole.memory, .known = ClusterRow::Known::order};
}

std::variant<ClusterRow, std::string> ClusterCosts::bounded(const ClusterPoint& point) {
  if (point.planner > 0) return bounded_whole(point);
  const Rank& made = rank(point);
  if (const std::string* why = std::get_if<std::string>(&made)) return *why;
  const OfRank& of_rank = std::get<OfRank>(made);
  if (std::size_t{point.stages} * point.chunks > of_rank.costs.stages.size()) {
    return "the model has fewer stages than the pipeline has parts";
  }
  const std::vector<DeviceCosts>& of_devices = devices(point, of_rank.costs);
  const std::variant<Exchanges, std::string> exchanged = exchanges(point, of_devices);
  if (const std::string* why = std::get_if<std::string>(&exchanged)) return *why;
  ClusterRow row{.point = point,
                 .sequence = of_rank.sequence,
                 .bound = {},
                 .memory = {},
                 .known = point.stages == 1 ? ClusterRow::Known::order : ClusterRow::Known::rank};
  bound(row, of_rank.costs, of_devices, std::get<Exchanges>(exchanged));
  if (question_.extent.has_alike_devices) return row;
  WholeBound whole = std::get<WholeBound>(question_.whole_bound(point.samples, {}, true));
  if (!point.keeps_states()) whole.memory.states = {};
  if (point.updates > 0) whole.memory.gradients = {};
  row.guess = {question_.budget && row.memory.total() > *question_.budget, row.bound};
  row.bound = whole.time;
  row.memory = whole.memory;
  row.known = ClusterRow::Known::order;
  return row;
}

bool ClusterCosts::tighten(ClusterRow& row) {
  using Known = ClusterRow::Known;
  if (row.known == Known::order) return false;
  const OfRank& of_rank = std::get<OfRank>(rank(row.point));
  const OfStages* of = stages(row.point, of_rank);
  const bool has_times = row.known == Known::stages;
  row.known = has_times || of == nullptr ? Known::order : Known::stages;
  if (has_times) {
    const std::optional<OrderBound>& known = by_order(row.point, of_rank);
    if (known) raise(row, known->time, known->memory);
  } else if (of != nullptr) {
    const std::vector<DeviceCosts> of_devices = devices_as_cut(row.point, of->costs);
    bound(row, of->costs, of_devices, std::get<Exchanges>(exchanges(row.point, of_devices)));
  }
  return true;
}

void ClusterCosts::bound(ClusterRow& row, const RankCosts& costs, const std::vector<DeviceCosts>& of_devices,
                         const Exchanges& exchanged) {
  const BoundedPoint of{.point = row.point,
                        .costs = costs,
                        .devices = of_devices,
                        .shared = exchanged,
                        .micro_batches = question_.extent.micro_batches(row.point),
                        .hosts = hosts(row.point),
                        .budget = question_.budget,
                        .is_cut_known = row.known != ClusterRow::Known::rank || row.point.zero < 2,
                        .has_device_twin = row.has_device_twin};
  raise(row, std::max({computation_bound(of), exchange_bound(of), copies_bound(of)}), memory_bound(of));
}

void ClusterCosts::raise_within_budget(ClusterRow& row) {
  if (!question_.budget || !question_.extent.has_alike_devices) return;
  if (row.point.offload == 0 && row.point.keeps_states() && row.point.has_fixed_saver()) return;
  const RankCosts& costs = std::get<OfRank>(rank(row.point)).costs;
  const std::vector<DeviceCosts>& of_devices = devices(row.point, costs);
  bound(row, costs, of_devices, std::get<Exchanges>(exchanges(row.point, of_devices)));
}

const ClusterCosts::Rank& ClusterCosts::rank(const ClusterPoint& point) {
  const StrategyInfo* transform = point.saving().transform;
  const auto [found, is_new] =
      ranks_.try_emplace({point.tensor, point.context, point.experts, point.samples, transform});
  if (is_new) found->second = std::make_unique<Rank>(rank_made(point));
  return *found->second;
}

ClusterCosts::Rank ClusterCosts::rank_made(const ClusterPoint& point) const {
  std::string why;
  for (const bool sequence : {true, false}) {
    if (sequence && point.tensor == 1) continue;
    std::variant<RankCosts, std::string> costs = question_.rank_costs(point.samples, composed_rank(point, sequence));
    if (RankCosts* known = std::get_if<RankCosts>(&costs)) return OfRank{std::move(*known), sequence};
    why = std::get<std::string>(std::move(costs));
  }
  return why;
}

const std::vector<DeviceCosts>& ClusterCosts::devices(const ClusterPoint& point, const RankCosts& costs) {
  const auto [found, is_new] = devices_.try_emplace({&costs, point.stages, point.chunks, point.way().shape});
  if (is_new) found->second = devices_as_cut(point, costs);
  return found->second;
}

const ClusterCosts::OfStages* ClusterCosts::stages(const ClusterPoint& point, const OfRank& rank) {
  constexpr std::size_t most = 128;  // in memory at once
  ClusterPoint one = point;          // what the chain depends on
  one.stages = one.chunks = 1;
  one.schedule = point.way().splits_backward ? 1 : 0;
  if (point.saving().transform == nullptr) one.saver = 0;
  one.compression = one.offload = one.updates = 0;
  if (stages_.size() > most) stages_.clear();
  const auto [found, is_new] = stages_.try_emplace(one);
  if (is_new) found->second = stages_made(point, rank);
  return found->second.get();
}

std::unique_ptr<ClusterCosts::OfStages> ClusterCosts::stages_made(const ClusterPoint& point, const OfRank& rank) const {
  const std::uint32_t micro_batches = question_.extent.micro_batches(point) * point.replicas;
  std::optional<Problem> problem =
      question_.stage_problem(point.samples, micro_batches, composed_stages(point, rank.sequence));
  if (!problem || problem->chain->stages.size() != rank.costs.stages.size()) return nullptr;
  RankCosts costs = rank.costs.timed_as(*problem->chain);
  return std::make_unique<OfStages>(OfStages{*std::move(problem), std::move(costs)});
}

const std::optional<OrderBound>& ClusterCosts::by_order(const ClusterPoint& point, const OfRank& rank) {
  const Bytes within = point.offload > 0 ? question_.budget.value_or(Bytes{}) : Bytes{};
  const auto [found, is_new] = by_order_.try_emplace(std::pair(point, within));
  if (is_new) found->second = by_order_made(point, rank);
  return found->second;
}

std::optional<OrderBound> ClusterCosts::by_order_made(const ClusterPoint& point, const OfRank& rank) {
  const OfStages* of = stages(point, rank);
  if (of == nullptr || !point.has_fixed_saver() || point.offloads_by_stages()) return std::nullopt;
  const Pass pipeline = composed_stages(point, rank.sequence).passes.back();
  const std::optional<Bytes> unlimited;
  try {
    const PartitionOutcome made =
        pipeline.strategy->partition(of->problem, pipeline.options, std::span(&unlimited, 1)).front();
    const auto* partition = std::get_if<std::shared_ptr<const Partition>>(&made);
    if (partition == nullptr) return std::nullopt;
    const std::vector<DeviceCosts> of_devices = devices_as_cut(point, of->costs);
    const std::variant<Exchanges, std::string> exchanged = exchanges(point, of_devices);
    const std::uint32_t m = question_.extent.micro_batches(point);
    return order_bound({.point = point,
                        .costs = of->costs,
                        .devices = of_devices,
                        .shared = std::get<Exchanges>(exchanged),
                        .micro_batches = m,
                        .hosts = hosts(point),
                        .budget = question_.budget},
                       of->problem, **partition);
  } catch (const InputError&) {  // the schedule refuses the point: its simulation says why
    return std::nullopt;
  }
}

std::variant<ClusterCosts::Exchanges, std::string> ClusterCosts::exchanges(const ClusterPoint& point,
                                                                           const std::vector<DeviceCosts>& of_devices) {
  Exchanges made(of_devices.size());
  if (point.alike() == 1 && point.context == 1) return made;
  const auto [found, is_new] =
      times_.try_emplace({point.tensor, point.context, point.experts, point.copies, point.replicas});
  if (is_new) found->second = times_of(point);
  if (const std::string* why = std::get_if<std::string>(&*found->second)) return *why;
  CollectiveTimes& times = std::get<CollectiveTimes>(*found->second);
  for (std::size_t r = 0; r < of_devices.size(); ++r) made[r] = exchange_of(point, of_devices[r], times);
  return made;
}

const ClusterCosts::Hosts& ClusterCosts::hosts(const ClusterPoint& point) {
  static const Hosts none;
  if (point.offload == 0 && point.updates == 0) return none;
  const std::uint32_t ranks = point.width() * point.replicas;
  const auto [found, is_new] = hosts_.try_emplace(ranks);
  if (is_new) found->second = hosts_of(ranks);
  return found->second;
}

ClusterCosts::Hosts ClusterCosts::hosts_of(std::uint32_t ranks) const {
  const std::variant<Platform, std::string> made =
      folded(question_.platform, Mesh{{{.name = "ranks", .ranks = ranks}}});
  if (std::holds_alternative<std::string>(made)) return {};
  const Platform& platform = std::get<Platform>(made);
  RouteFinder finder(platform);
  Hosts hosts;
  for (std::size_t r = 0; r < platform.devices.size(); ++r) {
    const std::optional<MemoryId> host = finder.memory_at(id_at<DeviceId>(r), place::host);
    if (!host) return {};
    const MemoryId own = platform.devices[r].memory;
    const std::optional<Route> out = finder.between(own, *host), in = finder.between(*host, own);
    hosts.push_back({.host = host->index,
                     .updates = update_traffic(platform[*host]).value_or(BytesPerSecond{0}),
                     .out = out ? out->bandwidth : unlimited_bandwidth,
                     .in = in ? in->bandwidth : unlimited_bandwidth});
  }
  return hosts;
}

std::unique_ptr<ClusterCosts::Times> ClusterCosts::times_of(const ClusterPoint& point) const {
  Mesh mesh{{{"groups", point.copies, true, CollectiveWay::nccl},
             {"data", point.sharers(), true, CollectiveWay::nccl},
             {"expert", point.experts, true, CollectiveWay::nccl},
             {"context", point.context, false, CollectiveWay::nccl}}};
  if (point.tensor > 1) mesh.axes.push_back({"tensor", point.tensor, false, CollectiveWay::nccl});
  return std::make_unique<Times>(CollectiveTimes::on(question_.platform, std::move(mesh)));
}

}  // namespace plimsoll
