#include "strategies/api/option_rules.h"
#include "strategies/hybrid/data_axis.h"

namespace plimsoll {
namespace {

constexpr OptionInfo zero3_options[] = {
    replicas_option,
    text_option("prefetch", "1", "a whole number from 0 to 1000", "how many stages ahead parameters are gathered",
                integer_between<0, 1000>),
    collectives_option};

std::variant<Problem, std::string> zero3_ranks(const Problem& problem, const Options& options) {
  const auto prefetch = static_cast<std::uint32_t>(options.integer("prefetch"));
  return on_data_axis(problem, options, {.sharded = Sharded::parameters, .prefetch = prefetch});
}

}  // namespace

extern constinit const StrategyInfo zero3_strategy{
    .name = "zero3",
    .family = Family::hybrid,
    .summary =
        "As zero2; of the parameters, too, every replica keeps its share, and a stage gathers them to run (FSDP).",
    .source = "Rajbhandari et al., SC 2020; Zhao et al., PyTorch FSDP, VLDB 2023",
    .chains_only = false,
    .options = zero3_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .shares_micro_batches = true,
    .transform = zero3_ranks,
    .ranks = replicas,
};

}  // namespace plimsoll
