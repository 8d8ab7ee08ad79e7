#pragma once
// The transform `sparse_update`: only chosen parameters are trained. The others are frozen: they have no gradients, no
// optimizer states and no updates, and what comes before the first trained stage needs no backward.
// Source: Lin, Zhu, Chen, Wang, Gan, Han, "On-device training under 256 KB memory", NeurIPS 2022 (biases of the last
// convolutions and the weights of chosen ones).

#include <array>
#include <string>
#include <variant>

#include "strategies/strategy.h"

namespace plimsoll {

std::variant<Problem, std::string> sparse_update(const Problem&, const Options&);

/// Terms joined by '+': all, last:N, biases, biases:N, or a pattern.
bool is_choice_of_parameters(std::string_view);

inline constexpr std::array sparse_update_options{OptionInfo{
    .name = "train",
    .default_value = "last:1",
    .values = "all, last:N, biases, biases:N or patterns such as head.*, joined by '+'",
    .help = "what is trained: the parameters of the last N stages that have any; biases (of the last N such stages); "
            "parameters or stages of a chain whose name, or a part of it between dots, matches the pattern",
    .allowed = is_choice_of_parameters,
}};

inline constexpr StrategyInfo sparse_update_strategy{
    .name = "sparse_update",
    .family = Family::transform,
    .summary = "trains chosen parameters only: the others have no gradients, states and updates",
    .source = "Lin et al., 'On-device training under 256 KB memory', NeurIPS 2022",
    .chains_only = false,
    .options = sparse_update_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .transform = sparse_update,
};

}  // namespace plimsoll
