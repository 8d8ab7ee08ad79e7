#include "strategies/hybrid/split_search.h"

namespace plimsoll {
namespace {

constexpr OptionInfo optcnn_options[] = {split_devices_option, work_model_option};

std::variant<Problem, std::string> optcnn_ranks(const Problem& problem, const Options& options) {
  return split_at_once(problem, options, [](const BspModel&, const SplitTable& table) {
    return SplitSearch{eliminated(table), {}};
  });
}

}  // namespace

extern constinit const StrategyInfo optcnn_strategy{
    .name = "optcnn",
    .family = Family::hybrid,
    .summary =
        "Operators are cut over nodes and devices of a node at once, at the least cost by node and edge elimination.",
    .source = "Jia et al., Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks, ICML 2018",
    .chains_only = false,
    .options = optcnn_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .transform = optcnn_ranks,
    .ranks = split_ranks,
};

}  // namespace plimsoll
