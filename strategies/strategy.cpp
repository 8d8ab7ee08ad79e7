#include "strategies/strategy.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "sim/core/expects.h"
#include "strategies/baseline/store_all.h"
#include "strategies/offloading/activations/capuchin.h"
#include "strategies/offloading/activations/offload_dp.h"
#include "strategies/offloading/activations/offload_exact.h"
#include "strategies/offloading/activations/offload_fractional.h"
#include "strategies/offloading/activations/offload_greedy.h"
#include "strategies/offloading/activations/save_on_cpu.h"
#include "strategies/offloading/activations/superneurons.h"
#include "strategies/offloading/activations/vdnn.h"
#include "strategies/offloading/parameters/demand_layering.h"
#include "strategies/offloading/parameters/offmate.h"
#include "strategies/offloading/parameters/sparse_update.h"
#include "strategies/offloading/parameters/zero_infinity.h"
#include "strategies/offloading/poet/poet.h"
#include "strategies/offloading/pofo/pofo.h"
#include "strategies/offloading/updates/deep_optimizer_states.h"
#include "strategies/offloading/updates/twinflow.h"
#include "strategies/offloading/updates/zero_offload.h"
#include "strategies/portfolio/portfolio.h"
#include "strategies/rematerialization/cuts/ap_greedy.h"
#include "strategies/rematerialization/cuts/ap_sqrt.h"
#include "strategies/rematerialization/cuts/chen_greedy.h"
#include "strategies/rematerialization/cuts/chen_sqrt.h"
#include "strategies/rematerialization/dtr/dtr.h"
#include "strategies/rematerialization/exact/exact.h"
#include "strategies/rematerialization/policies/full_recompute.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"
#include "strategies/rematerialization/policies/periodic.h"
#include "strategies/rematerialization/policies/selective.h"
#include "strategies/rematerialization/programs/checkmate.h"
#include "strategies/rematerialization/programs/checkmate_lp.h"
#include "strategies/rematerialization/programs/monet.h"
#include "strategies/rematerialization/revolve/revolve.h"
#include "strategies/rematerialization/revolve/revolve_hetero.h"
#include "strategies/rematerialization/rockmate/rockmate.h"
#include "strategies/rematerialization/rotor/rotor.h"
#include "strategies/rematerialization/rotor/rotor_floating.h"
#include "strategies/rematerialization/saving/knapsack.h"
#include "strategies/rematerialization/saving/min_cut.h"

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
