#include "strategies/strategy.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "sim/core/expects.h"
#include "strategies/baseline/portfolio.h"
#include "strategies/baseline/store_all.h"
#include "strategies/offloading/capuchin.h"
#include "strategies/offloading/deep_optimizer_states.h"
#include "strategies/offloading/demand_layering.h"
#include "strategies/offloading/offload_dp.h"
#include "strategies/offloading/offload_exact.h"
#include "strategies/offloading/offload_fractional.h"
#include "strategies/offloading/offload_greedy.h"
#include "strategies/offloading/offmate.h"
#include "strategies/offloading/poet.h"
#include "strategies/offloading/pofo.h"
#include "strategies/offloading/save_on_cpu.h"
#include "strategies/offloading/sparse_update.h"
#include "strategies/offloading/superneurons.h"
#include "strategies/offloading/twinflow.h"
#include "strategies/offloading/vdnn.h"
#include "strategies/offloading/zero_infinity.h"
#include "strategies/offloading/zero_offload.h"
#include "strategies/rematerialization/ap_greedy.h"
#include "strategies/rematerialization/ap_sqrt.h"
#include "strategies/rematerialization/checkmate.h"
#include "strategies/rematerialization/checkmate_lp.h"
#include "strategies/rematerialization/chen_greedy.h"
#include "strategies/rematerialization/chen_sqrt.h"
#include "strategies/rematerialization/dtr.h"
#include "strategies/rematerialization/exact.h"
#include "strategies/rematerialization/full_recompute.h"
#include "strategies/rematerialization/greedy_recompute.h"
#include "strategies/rematerialization/knapsack.h"
#include "strategies/rematerialization/min_cut.h"
#include "strategies/rematerialization/monet.h"
#include "strategies/rematerialization/periodic.h"
#include "strategies/rematerialization/revolve.h"
#include "strategies/rematerialization/revolve_hetero.h"
#include "strategies/rematerialization/rockmate.h"
#include "strategies/rematerialization/rotor.h"
#include "strategies/rematerialization/rotor_floating.h"
#include "strategies/rematerialization/selective.h"

namespace plimsoll {
namespace {

// Explicit, since the linker drops self-registering statics from static libraries.
constexpr std::array all_strategies{store_all_strategy,
                                    portfolio_strategy,
                                    chen_sqrt_strategy,
                                    chen_greedy_strategy,
                                    periodic_strategy,
                                    full_recompute_strategy,
                                    selective_strategy,
                                    revolve_strategy,
                                    revolve_hetero_strategy,
                                    rotor_strategy,
                                    rotor_floating_strategy,
                                    rockmate_strategy,
                                    exact_strategy,
                                    ap_sqrt_strategy,
                                    ap_greedy_strategy,
                                    greedy_recompute_strategy,
                                    dtr_strategy,
                                    min_cut_strategy,
                                    knapsack_strategy,
                                    checkmate_strategy,
                                    checkmate_lp_strategy,
                                    monet_strategy,
                                    vdnn_strategy,
                                    superneurons_strategy,
                                    capuchin_strategy,
                                    save_on_cpu_strategy,
                                    offload_greedy_strategy,
                                    offload_fractional_strategy,
                                    offload_dp_strategy,
                                    offload_exact_strategy,
                                    pofo_strategy,
                                    poet_strategy,
                                    zero_offload_strategy,
                                    twinflow_strategy,
                                    zero_infinity_strategy,
                                    deep_optimizer_states_strategy,
                                    offmate_strategy,
                                    demand_layering_strategy,
                                    sparse_update_strategy};

}  // namespace

Options::Options(std::span<const OptionInfo> known, std::map<std::string, std::string, std::less<>> given)
    : values_(std::move(given)) {
  for (const OptionInfo& option : known) values_.try_emplace(std::string(option.name), option.default_value);
}

std::string_view Options::text(std::string_view name) const {
  const auto found = values_.find(name);
  EXPECTS(found != values_.end());
  return found->second;
}

std::int64_t Options::integer(std::string_view name) const {
  const std::string_view digits = text(name);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  EXPECTS(error == std::errc{} && end == digits.data() + digits.size());
  return value;
}

std::span<const StrategyInfo> strategies() {
  return all_strategies;
}

const StrategyInfo* find_strategy(std::string_view name) {
  const auto found = std::ranges::find(all_strategies, name, &StrategyInfo::name);
  return found == all_strategies.end() ? nullptr : &*found;
}

std::string_view name_of(Family family) {
  switch (family) {
    case Family::transform:
      return "transform";
    case Family::hybrid:
      return "hybrid";
    case Family::placement:
      return "placement";
    case Family::pipelining:
      return "pipelining";
    case Family::baseline:
      return "baseline";
    case Family::rematerialization:
      return "rematerialization";
    case Family::compression:
      return "compression";
    case Family::offloading:
      return "offloading";
  }
  return "unknown";
}

}  // namespace plimsoll
