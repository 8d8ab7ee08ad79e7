#include "strategies/portfolio/portfolio_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "strategies/portfolio/portfolio.h"

namespace plimsoll {
namespace {

constexpr std::size_t any_member_size = std::numeric_limits<std::size_t>::max();

/// Those that are not listed answer at any size that they accept.
struct SizeLimit {
  std::string_view strategy;
  std::size_t stages, ops;
};
constexpr std::array size_limits{
    SizeLimit{"rotor_floating", 25, 0},
    SizeLimit{"revolve_hetero", 250, 0},
    SizeLimit{"rotor", 1000, 0},
    SizeLimit{"exact", 40, 80},
    SizeLimit{"checkmate", 4, 12},
    SizeLimit{"checkmate_lp", 20, 60},
    SizeLimit{"monet", 4, 12},
    SizeLimit{"poet", 3, 9},
    SizeLimit{"offload_exact", 20, 40},
    SizeLimit{"pofo", 40, 0},
    SizeLimit{"knapsack", 100, 1000},
    SizeLimit{"rockmate", 250, 5000},
    SizeLimit{"dtr", 300, 5000},
    SizeLimit{"capuchin", 300, 5000},
    SizeLimit{"offload_fractional", 300, 5000},
    SizeLimit{"offload_dp", 300, 5000},
    SizeLimit{"revolve", 1000, 0},
};

constexpr std::array compositions{
    "rotor|offload_greedy",        "rockmate|offload_greedy", "greedy_recompute|offload_greedy",
    "offload_greedy|zero_offload", "rotor|zero_offload",      "greedy_recompute|zero_offload",
};

/// Where the strategy would stop by the clock, it stops by its count of nodes or states.
std::string limits_of(const StrategyInfo& strategy, std::int64_t effort) {
  std::vector<std::string> given;
  for (const OptionInfo& option : strategy.options) {
    if (option.name == "time_limit") given.emplace_back("time_limit=86400");
    if (option.name == "nodes") given.push_back(fmt::format("nodes={}", 20 * effort));
    if (option.name == "states") given.push_back(fmt::format("states={}", 100'000 * effort));
  }
  return given.empty() ? std::string(strategy.name) : fmt::format("{}({})", strategy.name, fmt::join(given, ", "));
}

std::size_t limit_of(const StrategyInfo& strategy, bool chain, std::int64_t effort) {
  const auto* const found = std::ranges::find(size_limits, strategy.name, &SizeLimit::strategy);
  if (found == size_limits.end()) return any_member_size;
  return (chain ? found->stages : found->ops) * static_cast<std::size_t>(effort);
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

std::vector<Member> portfolio_members(bool chain, std::size_t size, std::int64_t effort) {
  std::vector<Member> members;
  const auto add = [&](std::string spec, std::string_view text) {
    members.push_back({std::move(spec), parse_spec(text, "portfolio"), ""});
    leave_out_above(members.back(), chain, size, effort);
  };
  for (const StrategyInfo& strategy : strategies()) {
    if (strategy.family == Family::transform || strategy.transform != nullptr) continue;
    if (strategy.name == portfolio_strategy.name) continue;
    add(std::string(strategy.name), limits_of(strategy, std::max<std::int64_t>(effort, 1)));
  }
  for (const char* spec : compositions) add(spec, spec);
  return members;
}

}  // namespace plimsoll
