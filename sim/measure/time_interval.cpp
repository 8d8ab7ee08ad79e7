#include "sim/measure/time_interval.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/core/scaling.h"
#include "sim/ops/efficiency.h"

namespace plimsoll {
namespace {

constexpr const char* roofline_sort = "rooflines";
constexpr const char* collective_sort = "collectives";

/// Of rooflines: 46,778 products in bf16 of 0.1 ms and more on A100, H100, H200, B200 and L40S, as others measured them
/// (ai-dynamo/aiconfigurator 095f58a, Apache-2.0), over max(flops / peak, bytes / bandwidth) + 3 us: a tenth of them is
/// below the first, a tenth above the second.
constexpr Spread roofline_spread{1.18, 1.73};

struct SpreadOfSort {
  std::string sort;
  std::optional<Spread> spread;  ///< unset: the efficiencies state none
};

SpreadOfSort spread_of_collectives(const Efficiency* efficiency) {
  if (efficiency == nullptr) return {roofline_sort, roofline_spread};
  const auto found = efficiency->spread.find(collective_sort);
  return {collective_sort, found == efficiency->spread.end() ? std::nullopt : std::optional(found->second)};
}

SpreadOfSort spread_of_kernel(const GpuKernel& kernel, TimedBy by, const Efficiency* efficiency) {
  if (efficiency == nullptr || by == TimedBy::roofline) return {roofline_sort, roofline_spread};
  const std::string sort(sort_name(*efficiency, kernel));
  const auto found = efficiency->spread.find(sort);
  return {sort, found == efficiency->spread.end() ? std::nullopt : std::optional(found->second)};
}

/// A sort of kernels that an op is made of, and how much of its time they take.
struct PartOfOp {
  SpreadOfSort spread;
  double share = 1;
};

std::vector<PartOfOp> parts_of(const Graph& graph, const Op& op, const Device& device, const Efficiency* efficiency) {
  if (collective_of(op)) return {{spread_of_collectives(efficiency)}};
  const auto whole = efficiency == nullptr ? std::nullopt : device.efficiency->time(op.made_of, graph.source, device);
  if (!whole || !(whole->time > Seconds{0})) {
    const TimedBy by = timed_by(graph, op, device).value_or(TimedBy::table);
    return {{spread_of_kernel(gpu_kernel(graph, op), by, efficiency)}};
  }
  std::vector<PartOfOp> parts;
  for (const StageKernel& each : op.made_of) {
    const KernelTime time = *device.efficiency->time(each, graph.source, device);
    parts.push_back({spread_of_kernel(each.kernel, time.by, efficiency), time.time / whole->time});
  }
  return parts;
}

/// Seconds by sort, or why there is no interval.
class SharesOfSorts {
 public:
  SharesOfSorts(const Graph& graph, const Device& device)
      : graph_(graph),
        device_(device),
        efficiency_(dynamic_cast<const Efficiency*>(device.efficiency.get())),
        of_op_(graph.ops.size()) {}

  void add(OpId id, Seconds time) {
    std::vector<PartOfShare>& parts = of_op_[id.index];
    if (parts.empty()) {
      for (const PartOfOp& part : parts_of(graph_, graph_[id], device_, efficiency_)) {
        TimeShare* const share = share_of(part.spread);
        if (share == nullptr) return;
        parts.push_back({share, part.share});
      }
    }
    for (const PartOfShare& part : parts) part.of->time += part.share * time;
    whole_ += time;
  }

  std::variant<TimeInterval, std::string> of(Seconds makespan) const {
    if (!why_not_.empty()) return why_not_;
    if (!(whole_ > Seconds{0})) return "no kernel takes time";
    TimeInterval interval{};
    for (auto [sort, share] : shares_) {
      share.time = (makespan / whole_) * share.time;
      interval.low += share.low * share.time;
      interval.high += share.high * share.time;
      interval.shares.push_back(share);
    }
    return interval;
  }

 private:
  struct PartOfShare {
    TimeShare* of;
    double share;  ///< of an op's time
  };

  /// Null, and why there is no interval, where the sort has no spread.
  TimeShare* share_of(const SpreadOfSort& of) {
    if (!of.spread) {
      why_not_ = "the efficiencies '" + efficiency_->name + "' state no spread of '" + of.sort + "'";
      return nullptr;
    }
    return &shares_.try_emplace(of.sort, TimeShare{of.sort, Seconds{0}, of.spread->low, of.spread->high}).first->second;
  }

  const Graph& graph_;
  const Device& device_;
  const Efficiency* efficiency_;
  std::vector<std::vector<PartOfShare>> of_op_;
  std::map<std::string, TimeShare> shares_;
  Seconds whole_;
  std::string why_not_;
};

/// Of stages that were made of ops: the mix of the model's ops in an iteration, without what runs again.
std::variant<TimeInterval, std::string> interval_of_ops(const Problem& problem, const Graph& graph, Seconds makespan) {
  const Device& device = problem.platform.devices.front();
  SharesOfSorts shares(graph, device);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const auto id = id_at<OpId>(o);
    const std::optional<Seconds> time = duration(graph, graph[id], device, Saving::keep);
    const double runs = graph[id].phase == Phase::update ? 1 : problem.micro_batches;
    if (time) shares.add(id, runs * *time);
  }
  return shares.of(makespan);
}

}  // namespace

std::variant<TimeInterval, std::string> time_interval(const Problem& problem, const Schedule& schedule,
                                                      const Timeline& timeline) {
  const Graph& timed = problem.of_ops ? *problem.of_ops : problem.graph;
  for (const Device& device : problem.platform.devices) {
    if (times_hold(timed.source, device)) return "times are the trace's own, measured on such a device";
  }
  if (problem.of_ops) return interval_of_ops(problem, timed, timeline.makespan);
  std::vector<Seconds> busy(problem.platform.devices.size());
  const auto length = [&](std::size_t step) { return timeline.steps[step].finish - timeline.steps[step].start; };
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    if (step.op != no_op) busy[schedule[step.stream].device.index] += length(s);
  }
  const auto busiest = static_cast<std::size_t>(std::ranges::max_element(busy) - busy.begin());
  SharesOfSorts shares(timed, problem.platform.devices[busiest]);
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    if (step.op != no_op && schedule[step.stream].device.index == busiest) shares.add(step.op, length(s));
  }
  return shares.of(timeline.makespan);
}

bool told_apart(const std::vector<TimeShare>& a, const std::vector<TimeShare>& b) {
  std::map<std::string, TimeShare> more;  // of the first than of the second
  for (const TimeShare& share : a) more.emplace(share.sort, share);
  for (const TimeShare& share : b) {
    TimeShare& of = more.emplace(share.sort, TimeShare{share.sort, Seconds{0}, share.low, share.high}).first->second;
    of.time = of.time - share.time;
  }
  Seconds least, most;
  for (const auto& [sort, share] : more) {
    const bool is_more = share.time > Seconds{0};
    least += (is_more ? share.low : share.high) * share.time;
    most += (is_more ? share.high : share.low) * share.time;
  }
  return least > Seconds{0} || most < Seconds{0};
}

}  // namespace plimsoll
