#include "strategies/hybrid/data_axis.h"

namespace plimsoll {
namespace {

struct Zero3Options : DataOptions {
  std::uint32_t prefetch = 1;
};

constexpr auto zero3_options = options_of<Zero3Options>(replicas_option,
                                                        option_of<&Zero3Options::prefetch>({
                                                            .name = "prefetch",
                                                            .least = 0,
                                                            .most = 1000,
                                                            .help = "how many stages ahead parameters are gathered",
                                                        }),
                                                        collectives_option);

std::variant<Problem, std::string> zero3_ranks(const Problem& problem, const Zero3Options& options) {
  return on_data_axis(problem, options, {.sharded = Sharded::parameters, .prefetch = options.prefetch});
}

}  // namespace

extern constinit const StrategyInfo zero3_strategy{
    .name = "zero3",
    .family = Family::hybrid,
    .summary =
        "As zero2; of the parameters, too, every replica keeps its share, and a stage gathers them to run (FSDP).",
    .source = "Rajbhandari et al., SC 2020; Zhao et al., PyTorch FSDP, VLDB 2023",
    .options = zero3_options,
    .kind =
        SplitStrategy{
            .transform = by_options<zero3_ranks>,
            .ranks = by_options<replicas>,
            .shares_micro_batches = true,
        },
};

}  // namespace plimsoll
