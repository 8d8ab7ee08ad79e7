#include "strategies/portfolio/portfolio_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "strategies/api/solver_options.h"
#include "strategies/list.h"
#include "strategies/offloading/activations/offload_options.h"

namespace plimsoll {
namespace {

std::vector<std::vector<Pass>> compositions() {
  const Pass rotor = pass_of(rotor_strategy), rockmate = pass_of(rockmate_strategy),
             recompute = pass_of(greedy_recompute_strategy), offload = pass_of(offload_greedy_strategy),
             chunks = pass_of(offload_fractional_strategy), updates = pass_of(zero_offload_strategy),
             parameters = pass_of(offmate_strategy), chen = pass_of(chen_sqrt_strategy),
             snapshot = pass_of(snapshot_strategy);
  return {{rotor, offload},    {rotor, chunks},     {rockmate, offload},    {recompute, offload},
          {snapshot, offload}, {offload, updates},  {rotor, updates},       {recompute, updates},
          {chen, parameters},  {rotor, parameters}, {recompute, parameters}};
}

std::string names_of(std::span<const Pass> passes) {
  std::vector<std::string_view> names;
  for (const Pass& pass : passes) names.push_back(pass.strategy->name);
  return fmt::format("{}", fmt::join(names, "|"));
}

/// Where the strategy would stop by the clock, it stops by its count of nodes or states.
Pass limited(const StrategyInfo& strategy, std::int64_t effort) {
  Pass pass = pass_of(strategy);
  if (pass.options.get_if<LimitOptions>() == nullptr) return pass;
  pass.options.change<LimitOptions>() = {.time_limit = 86'400,
                                         .nodes = static_cast<int>(20 * effort),
                                         .states = static_cast<std::size_t>(100'000 * effort)};
  return pass;
}

std::size_t limit_of(const StrategyInfo& strategy, bool chain, std::int64_t effort) {
  const std::size_t limit = chain ? strategy.effort.stages : strategy.effort.ops;
  return limit == no_size_limit ? limit : limit * static_cast<std::size_t>(effort);
}

void leave_out_above(Member& member, bool chain, std::size_t size, std::int64_t effort) {
  for (const Pass& pass : member.passes) {
    if (pass.strategy->chains_only && !chain) {
      member.reason = "works on chains only";
    } else if (const std::size_t limit = limit_of(*pass.strategy, chain, effort); size > limit) {
      member.reason = fmt::format("left out above {} {} at effort {}", limit, chain ? "stages" : "ops", effort);
    }
  }
  if (!member.reason.empty()) member.passes.clear();
}

}  // namespace

bool is_large_graph(bool chain, std::size_t size, std::int64_t effort) {
  constexpr std::size_t large = 4'000;  // ops at effort 1: one plan of a composition then takes ten seconds
  return !chain && size > large * static_cast<std::size_t>(std::max<std::int64_t>(effort, 1));
}

std::vector<Member> portfolio_members(bool chain, std::size_t size, std::int64_t effort, MembersFor target) {
  std::vector<Member> members;
  const auto add = [&](std::vector<Pass> passes) {
    if (target == MembersFor::pytorch) {
      if (std::ranges::any_of(passes, [](const Pass& pass) { return pass.strategy->moves_parameters(); })) return;
      for (Pass& pass : passes) {
        if (pass.options.get_if<ChunkOptions>() != nullptr) pass.options.change<ChunkOptions>().chunks = 1;
      }
    }
    std::string spec = names_of(passes);
    const bool is_slow = passes.size() > 1 || passes.front().strategy == &rockmate_strategy;
    members.push_back({std::move(spec), std::move(passes), "", is_slow && is_large_graph(chain, size, effort)});
    leave_out_above(members.back(), chain, size, effort);
  };
  add({pass_of(snapshot_strategy)});  // first: it may prove that no other need be asked
  for (const StrategyInfo* strategy : strategies()) {
    const bool trains_exactly = strategy->family != Family::compression;  // what is lossless rests on a promise
    if (!strategy->makes_tapes() || strategy == &portfolio_strategy || strategy == &snapshot_strategy ||
        !trains_exactly)
      continue;
    add({limited(*strategy, std::max<std::int64_t>(effort, 1))});
  }
  for (std::vector<Pass>& passes : compositions()) add(std::move(passes));
  return members;
}

}  // namespace plimsoll
