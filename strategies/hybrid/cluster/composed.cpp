// What points choose among, and the pass pipeline that one of them is.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "strategies/hybrid/cluster/space.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

/// Adds a pass to both.
void add(ComposedPoint& made, const StrategyInfo& strategy, std::map<std::string, std::string, std::less<>> given) {
  std::string options;
  for (const auto& [name, value] : given) options += fmt::format("{}{}={}", options.empty() ? "" : ",", name, value);
  if (!options.empty()) options = "(" + options + ")";
  made.text += fmt::format("{}{}{}", made.text.empty() ? "" : "|", strategy.name, options);
  made.passes.push_back(pass_of(strategy, std::move(given)));
}

}  // namespace

std::span<const ClusterSchedule> cluster_schedules() {
  using enum PipelineShape;
  static const std::array all{
      ClusterSchedule{.name = "none", .strategy = nullptr},
      ClusterSchedule{.name = "1f1b", .strategy = &one_forward_one_backward_strategy},
      ClusterSchedule{.name = "gpipe", .strategy = &gpipe_strategy, .is_usual = false},
      ClusterSchedule{.name = "interleaved", .strategy = &interleaved_strategy, .shape = turns},
      ClusterSchedule{.name = "zb_h1", .strategy = &zb_h1_strategy, .splits_backward = true},
      ClusterSchedule{.name = "zb_v", .strategy = &zb_v_strategy, .shape = v, .splits_backward = true},
      ClusterSchedule{.name = "v_half", .strategy = &v_half_strategy, .shape = v, .splits_backward = true},
      ClusterSchedule{.name = "dualpipe_v", .strategy = &dualpipe_v_strategy, .shape = v, .splits_backward = true},
  };
  return all;
}

std::span<const ClusterSaver> cluster_savers() {
  static const std::array all{
      ClusterSaver{"none", nullptr, nullptr},
      ClusterSaver{"core", &recompute_ops_strategy, nullptr},
      ClusterSaver{"full", nullptr, &full_recompute_strategy},
      ClusterSaver{"rotor", nullptr, &rotor_strategy, false},
      ClusterSaver{"greedy_recompute", nullptr, &greedy_recompute_strategy, false},
  };
  return all;
}

std::span<const ClusterPass> cluster_compressions() {
  static const std::array all{ClusterPass{"none", nullptr}, ClusterPass{"quantize", &quantize_strategy},
                              ClusterPass{"gact", &gact_strategy}, ClusterPass{"lossless", &lossless_strategy}};
  return all;
}

std::span<const ClusterPass> cluster_offloads() {
  static const std::array all{ClusterPass{"none", nullptr}, ClusterPass{"offload_greedy", &offload_greedy_strategy},
                              ClusterPass{"offload_fractional", &offload_fractional_strategy},
                              ClusterPass{"pofo", &pofo_strategy, false}};
  return all;
}

std::span<const ClusterPass> cluster_updates() {
  static const std::array all{
      ClusterPass{"device", nullptr}, ClusterPass{"backward_updates", &backward_updates_strategy},
      ClusterPass{"zero_offload", &zero_offload_strategy}, ClusterPass{"twinflow", &twinflow_strategy},
      ClusterPass{"deep_optimizer_states", &deep_optimizer_states_strategy}};
  return all;
}

std::span<const ClusterPlanner> cluster_planners() {
  static const std::array all{
      ClusterPlanner{"none", nullptr},
      ClusterPlanner{.name = "hsm2dl", .strategy = &hsm2dl_strategy, .splits_ops = true},
      ClusterPlanner{.name = "alpa", .strategy = &alpa_strategy, .splits_ops = true},
      ClusterPlanner{"piper", &piper_strategy},
      ClusterPlanner{"placement", &auto_strategy},
  };
  return all;
}

bool ClusterPoint::runs_by_ops() const {
  return stages == 1 && saving().behind == nullptr && !offloads_by_stages();
}

bool ClusterPoint::has_fixed_saver() const {
  return saving().behind == nullptr || saving().behind == &full_recompute_strategy;
}

bool ClusterPoint::has_fixed_updates() const {
  const bool is_one_schedule = keeps_states() || updating().strategy == &zero_offload_strategy;
  return updates == 0 || (is_one_schedule && !way().splits_backward);
}

bool ClusterPoint::keeps_states() const {
  return updates == 0 || updating().strategy == &backward_updates_strategy;
}

ComposedPoint composed_rank(const ClusterPoint& point, bool sequence) {
  ComposedPoint made;
  if (point.saving().transform != nullptr) add(made, *point.saving().transform, {});
  if (point.context > 1) add(made, context_strategy, {{"ranks", std::to_string(point.context)}});
  if (point.tensor > 1) {
    add(made, megatron_strategy, {{"tensor", std::to_string(point.tensor)}, {"sequence", sequence ? "yes" : "no"}});
  }
  if (point.experts > 1) add(made, expert_strategy, {{"ranks", std::to_string(point.experts)}});
  return made;
}

std::optional<std::string> refused_option(const ClusterOptions& options, std::string_view why) {
  const std::array<std::pair<std::string_view, std::string>, 3> asked{
      std::pair(context_strategy.name, "context=" + options.context),
      std::pair(expert_strategy.name, "expert=" + options.experts),
      std::pair(megatron_strategy.name, "t=" + options.tensor)};
  const auto found =
      std::ranges::find_if(asked, [&](const auto& each) { return why.starts_with(std::string(each.first) + ": "); });
  return found == asked.end() ? std::nullopt : std::optional(found->second);
}

ComposedPoint composed_replica(const ClusterPoint& point, bool sequence) {
  ComposedPoint made = composed_rank(point, sequence);
  const std::array<const StrategyInfo*, 4> sharing{&data_parallel_strategy, &zero1_strategy, &zero2_strategy,
                                                   &zero3_strategy};
  if (point.copies > 1) add(made, data_parallel_strategy, {{"ranks", std::to_string(point.copies)}});
  if (point.sharers() > 1) add(made, *sharing[point.zero], {{"ranks", std::to_string(point.sharers())}});
  return made;
}

ComposedPoint composed_stages(const ClusterPoint& point, bool sequence) {
  ComposedPoint made = composed_replica(point, sequence);
  if (point.stages > 1) {
    std::map<std::string, std::string, std::less<>> given{{"stages", std::to_string(point.stages)}};
    if (point.way().shape == PipelineShape::turns) given.emplace("chunks", std::to_string(point.chunks));
    add(made, *point.way().strategy, std::move(given));
  }
  return made;
}

ComposedPoint composed(const ClusterPoint& point, bool sequence) {
  ComposedPoint made = composed_stages(point, sequence);
  if (point.planner > 0) add(made, *point.planning().strategy, {});
  for (const StrategyInfo* behind :
       {point.saving().behind, point.compressing().strategy, point.offloading().strategy, point.updating().strategy}) {
    if (behind != nullptr) add(made, *behind, {});
  }
  if (made.passes.empty()) add(made, store_all_strategy, {});
  return made;
}

}  // namespace plimsoll
