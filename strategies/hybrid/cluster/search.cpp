#include "strategies/hybrid/cluster/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "sim/mesh/collective_times.h"
#include "sim/model/stage_chain.h"
#include "strategies/hybrid/cluster/rank_costs.h"

namespace plimsoll {
namespace {

/// What points share, worked out once: costs of ranks, of the devices of a pipeline, times of exchanges.
class SharedCosts {
 public:
  explicit SharedCosts(const ClusterQuestion& question) : question_(question) {}

  struct OfRank {
    RankCosts costs;
    bool sequence = false;
  };
  using Rank = std::variant<OfRank, std::string>;

  const Rank& rank(const ClusterPoint& point) {
    const StrategyInfo* transform = point.saving().transform;
    const auto [found, is_new] =
        ranks_.try_emplace({point.tensor, point.context, point.experts, point.samples, transform});
    if (is_new) found->second = std::make_unique<Rank>(made(point));
    return *found->second;
  }

  const std::vector<DeviceCosts>& devices(const ClusterPoint& point, const RankCosts& costs) {
    const auto [found, is_new] = devices_.try_emplace({&costs, point.stages, point.chunks, point.way().shape});
    if (is_new) found->second = device_costs(costs, costs.chain, point.stages, point.chunks, point.way().shape);
    return found->second;
  }

  /// Where replicas that share out gradients cut a pipeline: the times of their stages are others, as these wait for
  /// exchanges. Nothing where there is no such chain.
  std::optional<std::vector<DeviceCosts>> devices_as_cut(const ClusterPoint& point, const OfRank& rank) {
    ClusterPoint one = point;  // what the chain depends on
    one.stages = one.chunks = 1;
    one.schedule = point.way().splits_backward ? 1 : 0;
    if (point.saving().transform == nullptr) one.saver = 0;
    one.compression = one.offload = one.updates = 0;
    const auto [found, is_new] = chains_.try_emplace(one);
    if (is_new) found->second = replica_chain(point, rank.sequence);
    if (!found->second) return std::nullopt;
    return device_costs(rank.costs, *found->second, point.stages, point.chunks, point.way().shape);
  }

  const std::vector<std::uint32_t>& parts_kept(const ClusterPoint& point, std::uint32_t micro_batches) {
    const auto [found, is_new] = kept_.try_emplace({point.schedule, point.stages, micro_batches});
    if (is_new) found->second = forwards_kept(point, micro_batches);
    return found->second;
  }

  /// Or in one sentence why the replicas cannot exchange anything.
  std::variant<std::vector<ReplicaExchange>, std::string> exchanges(const ClusterPoint& point,
                                                                    const std::vector<DeviceCosts>& devices) {
    std::vector<ReplicaExchange> made(devices.size());
    if (point.alike() == 1 && point.context == 1) return made;
    const auto [found, is_new] =
        times_.try_emplace({point.tensor, point.context, point.experts, point.copies, point.replicas});
    if (is_new) found->second = times_of(point);
    if (const std::string* why = std::get_if<std::string>(&*found->second)) return *why;
    CollectiveTimes& times = std::get<CollectiveTimes>(*found->second);
    for (std::size_t r = 0; r < devices.size(); ++r) made[r] = exchange_of(point, devices[r], times);
    return made;
  }

 private:
  using Times = std::variant<CollectiveTimes, std::string>;

  Rank made(const ClusterPoint& point) const {
    std::string why;
    for (const bool sequence : {true, false}) {
      if (sequence && point.tensor == 1) continue;
      std::variant<Problem, std::string> problem =
          question_.rank_problem(point.samples, composed_rank(point, sequence));
      if (std::string* no = std::get_if<std::string>(&problem)) {
        why = std::move(*no);
        continue;
      }
      std::variant<RankCosts, std::string> costs = rank_costs(std::get<Problem>(std::move(problem)));
      if (std::string* no = std::get_if<std::string>(&costs)) return std::move(*no);
      return OfRank{std::get<RankCosts>(std::move(costs)), sequence};
    }
    return why;
  }

  std::optional<Chain> replica_chain(const ClusterPoint& point, bool sequence) const {
    std::variant<Problem, std::string> made = question_.rank_problem(point.samples, composed_replica(point, sequence));
    Problem* problem = std::get_if<Problem>(&made);
    if (problem == nullptr) return std::nullopt;
    if (problem->chain && !point.way().splits_backward) return std::move(problem->chain);
    made = as_chain(std::move(*problem), point.way().splits_backward ? Backward::split : Backward::whole);
    problem = std::get_if<Problem>(&made);
    if (problem == nullptr) return std::nullopt;
    return std::move(problem->chain);
  }

  std::unique_ptr<Times> times_of(const ClusterPoint& point) const {
    Mesh mesh{{{"groups", point.copies, true, CollectiveWay::nccl},
               {"data", point.sharers(), true, CollectiveWay::nccl},
               {"expert", point.experts, true, CollectiveWay::nccl},
               {"context", point.context, false, CollectiveWay::nccl}}};
    if (point.tensor > 1) mesh.axes.push_back({"tensor", point.tensor, false, CollectiveWay::nccl});
    return std::make_unique<Times>(CollectiveTimes::on(question_.platform, std::move(mesh)));
  }

  static ReplicaExchange exchange_of(const ClusterPoint& point, const DeviceCosts& device, CollectiveTimes& times) {
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

  const ClusterQuestion& question_;
  using Number = std::uint32_t;
  std::map<std::tuple<Number, Number, Number, Number, const StrategyInfo*>, std::unique_ptr<Rank>> ranks_;
  std::map<std::tuple<const RankCosts*, std::uint32_t, std::uint32_t, PipelineShape>, std::vector<DeviceCosts>>
      devices_;
  std::map<std::tuple<std::uint8_t, std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> kept_;
  std::map<ClusterPoint, std::optional<Chain>> chains_;
  std::map<std::tuple<Number, Number, Number, Number, Number>, std::unique_ptr<Times>> times_;
};

class ClusterSearch {
 public:
  ClusterSearch(const ClusterQuestion& question, const ClusterOptions& options)
      : question_(question), limit_(options.limit), shared_(std::make_shared<SharedCosts>(question)) {
    ClusterSpace space = cluster_space(question.extent, options);
    if (space.points.empty()) throw InputError("cluster: " + space.empty_because);
    answer_.points = space.points.size();
    for (const ClusterPoint& point : space.points) add(point);
    refuse_what_no_rank_can(options);
    std::ranges::stable_sort(answer_.rows, {}, &ClusterRow::bound);
  }

  ClusterAnswer bounded() && {
    for (ClusterRow& row : answer_.rows) tighten(row);
    std::ranges::stable_sort(answer_.rows, {}, &ClusterRow::bound);
    return std::move(answer_);
  }

  Bytes least_bound() const { return answer_.least.value_or(Bytes{std::numeric_limits<std::int64_t>::max()}); }

  ClusterAnswer run() && {
    const auto is_too_large = [&](const ClusterRow& row) {
      return question_.budget && row.memory.total() > *question_.budget;
    };
    std::vector<ClusterRow> large;
    std::ranges::copy_if(answer_.rows, std::back_inserter(large), is_too_large);
    answer_.too_large = std::erase_if(answer_.rows, is_too_large);
    for (ClusterRow& row : large) row.is_too_large = true;
    for (const std::size_t r : seeds()) simulate(r);
    for (std::size_t r = 0; r < answer_.rows.size(); ++r) simulate(r);
    conclude();
    if (!answer_.best && question_.asks_least) find_least(std::move(large));
    return std::move(answer_);
  }

 private:
  void add(const ClusterPoint& point) {
    const SharedCosts::Rank& rank = shared_->rank(point);
    if (const std::string* why = std::get_if<std::string>(&rank)) return refuse(*why);
    const auto& of_rank = std::get<SharedCosts::OfRank>(rank);
    if (std::size_t{point.stages} * point.chunks > of_rank.costs.stages.size()) {
      return refuse("the model has fewer stages than the pipeline has parts");
    }
    const std::vector<DeviceCosts>& devices = shared_->devices(point, of_rank.costs);
    const auto exchanges = shared_->exchanges(point, devices);
    if (const std::string* why = std::get_if<std::string>(&exchanges)) return refuse(*why);
    ClusterRow row{.point = point,
                   .sequence = of_rank.sequence,
                   .bound = {},
                   .memory = {},
                   .is_cut_known = point.stages == 1 || point.zero < 2};
    bound(row, of_rank.costs, devices, std::get<std::vector<ReplicaExchange>>(exchanges));
    if (!answer_.least || row.memory.total() < *answer_.least) {
      answer_.least = row.memory.total();
      answer_.least_parts = row.memory;
    }
    answer_.rows.push_back(std::move(row));
  }

  void bound(ClusterRow& row, const RankCosts& costs, const std::vector<DeviceCosts>& devices,
             const std::vector<ReplicaExchange>& exchanges) {
    const std::uint32_t micro_batches = question_.extent.micro_batches(row.point);
    const BoundedPoint of{row.point,       costs,         devices,
                          exchanges,       micro_batches, shared_->parts_kept(row.point, micro_batches),
                          row.is_cut_known};
    row.bound = std::max({row.bound, computation_bound(of), exchange_bound(of)});
    const MemoryBound memory = memory_bound(of);
    if (memory.total() > row.memory.total()) row.memory = memory;
  }

  /// Bounds of the point's own cut, where they are not known yet.
  void tighten(ClusterRow& row) {
    if (std::exchange(row.is_cut_known, true)) return;
    const auto& rank = std::get<SharedCosts::OfRank>(shared_->rank(row.point));
    const auto devices = shared_->devices_as_cut(row.point, rank);
    if (!devices) return;
    const auto exchanges = shared_->exchanges(row.point, *devices);
    bound(row, rank.costs, *devices, std::get<std::vector<ReplicaExchange>>(exchanges));
    if (row.is_too_large || !question_.budget || row.memory.total() <= *question_.budget) return;
    row.is_too_large = true;
    ++answer_.too_large;
  }

  /// Where an option asks only for what the model's operators or the links do not allow.
  void refuse_what_no_rank_can(const ClusterOptions& options) const {
    if (!answer_.rows.empty()) return;
    const std::optional<std::string> option = refused_option(options, answer_.refused_because);
    if (option) throw InputError(fmt::format("cluster: {} leaves no point: {}", *option, answer_.refused_because));
  }

  /// The question's own, and of each number of stages the first that leaves room for what the bound on memory does not
  /// see.
  std::vector<std::size_t> seeds() const {
    constexpr double full = 0.8;
    std::map<std::uint32_t, std::size_t> found;
    for (std::size_t r = 0; r < answer_.rows.size(); ++r) {
      const auto needs = static_cast<double>(answer_.rows[r].memory.total().count);
      const bool has_room = !question_.budget || needs <= full * static_cast<double>(question_.budget->count);
      if (has_room) found.try_emplace(answer_.rows[r].point.stages, r);
    }
    std::vector<std::size_t> rows;
    const auto first = std::ranges::find_if(
        answer_.rows, [&](const ClusterRow& row) { return question_.first && row.point == *question_.first; });
    if (first != answer_.rows.end()) rows.push_back(static_cast<std::size_t>(first - answer_.rows.begin()));
    for (const auto& [stages, r] : found) rows.push_back(r);
    return rows;
  }

  /// Nothing fits: the least that a point needs, those with the least bounds on memory first.
  void find_least(std::vector<ClusterRow> large) {
    std::vector<ClusterRow>& rows = answer_.rows;
    rows.insert(rows.end(), std::move_iterator(large.begin()), std::move_iterator(large.end()));
    std::ranges::stable_sort(rows, {}, [](const ClusterRow& row) { return row.memory.total(); });
    const auto may_need_less = [&](const ClusterRow& row) {
      return !row.outcome && (!answer_.is_least_simulated || row.memory.total() < *answer_.least);
    };
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (!may_need_less(rows[r])) continue;
      tighten(rows[r]);
      if (!may_need_less(rows[r])) continue;
      if (answer_.simulated >= limit_) return;
      simulate_whole(r);
    }
    answer_.is_least_proven = answer_.is_least_simulated;
  }

  void refuse(const std::string& why) {
    if (answer_.refused++ == 0) answer_.refused_because = why;
  }

  bool may_be_faster(std::size_t r) const {
    if (answer_.simulated >= limit_ || answer_.rows[r].is_too_large) return false;
    return !answer_.best || answer_.rows[r].bound < *answer_.rows[*answer_.best].outcome->makespan;
  }

  void simulate(std::size_t r) {
    if (answer_.rows[r].outcome || !may_be_faster(r)) return;
    tighten(answer_.rows[r]);
    if (may_be_faster(r)) simulate_whole(r);
  }

  void simulate_whole(std::size_t r) {
    ClusterRow& row = answer_.rows[r];
    row.outcome = question_.outcome(row.point, row.as());
    ++answer_.simulated;
    if (row.outcome->smallest && (!answer_.is_least_simulated || *row.outcome->smallest < *answer_.least)) {
      answer_.least = row.outcome->smallest;
      answer_.is_least_simulated = true;
    }
    if (!row.outcome->makespan) return;
    const auto is_better = [&](const ClusterRow& best) {
      return std::pair(*row.outcome->makespan, r) < std::pair(*best.outcome->makespan, *answer_.best);
    };
    if (!answer_.best || is_better(answer_.rows[*answer_.best])) answer_.best = r;
  }

  void conclude() {
    std::optional<Seconds> open;
    for (const ClusterRow& row : answer_.rows) {
      if (!row.outcome && !row.is_too_large) open = std::min(open.value_or(row.bound), row.bound);
    }
    answer_.is_proven = !open;
    if (!answer_.best) return;
    const Seconds best = *answer_.rows[*answer_.best].outcome->makespan;
    answer_.bound = std::min(best, open.value_or(best));
    answer_.is_proven = answer_.bound == best;
  }

  const ClusterQuestion& question_;
  std::size_t limit_;
  std::shared_ptr<SharedCosts> shared_;
  ClusterAnswer answer_;
};

/// Whether a simulation within more memory gives the same within this: what was planned fits, or nothing did.
bool holds_within(const ClusterOutcome& outcome, Bytes budget) {
  if (outcome.makespan) return outcome.peak <= budget;
  return !outcome.smallest || *outcome.smallest > budget;
}

}  // namespace

double ClusterAnswer::gap() const {
  EXPECTS(best && rows[*best].outcome);
  return *rows[*best].outcome->makespan / bound - 1;
}

ClusterAnswer cluster_search(const ClusterQuestion& question, const ClusterOptions& options) {
  return ClusterSearch(question, options).run();
}

void cluster_front(ClusterQuestion question, const ClusterOptions& options, Bytes budget,
                   const std::function<void(Bytes)>& limit, const std::function<void(const ClusterAnswer&)>& take) {
  std::map<ClusterPoint, ClusterOutcome> known;
  const OutcomeOf simulated = std::move(question.outcome);
  question.outcome = [&](const ClusterPoint& point, const ComposedPoint& as) {
    const auto found = known.find(point);
    if (found != known.end() && holds_within(found->second, budget)) return found->second;
    return known.insert_or_assign(point, simulated(point, as)).first->second;
  };
  question.asks_least = false;
  const ClusterSearch bounded(question, options);
  while (bounded.least_bound() <= budget) {
    limit(budget);
    question.budget = budget;
    const ClusterAnswer answer = ClusterSearch(bounded).run();
    if (!answer.best) return;
    take(answer);
    const Bytes peak = answer.rows[*answer.best].outcome->peak;
    EXPECTS(peak <= budget);  // the front would never end
    budget = peak - Bytes{1};
  }
}

ClusterAnswer cluster_bounds(const ClusterQuestion& question, const ClusterOptions& options) {
  return ClusterSearch(question, options).bounded();
}

}  // namespace plimsoll
