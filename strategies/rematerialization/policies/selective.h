#pragma once
// The strategy `selective`: a policy for each layer says whether it is recomputed or kept, as PyTorch and Megatron
// users write them: by name, every k-th recomputed, or every k-th kept.

#include <array>
#include <string>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

/// Whether a stage's name, or one of its parts between dots, matches one of the patterns, which are joined by '+' and
/// may contain `*` (any text) and `?` (any character).
bool matches(std::string_view patterns, std::string_view name);

/// One policy; unset: of no effect.
struct SelectivePolicy {
  std::optional<std::size_t> recompute_every, keep_every;
};

/// Which stages are recomputed, one by one. The last stage, the loss, never is.
std::vector<bool> selected(const std::vector<std::string>& names, std::string_view patterns, const SelectivePolicy&);

std::vector<TapeOutcome> selective_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                         const Tape* before);

std::vector<Bytes> selective_candidates(const PartTask&, const Options&);

inline constexpr std::array selective_options{
    OptionInfo{
        .name = "stages",
        .default_value = "*",
        .values = "patterns joined by '+', such as attention or block1?.*+stem",
        .help = "which stages may be recomputed: a pattern matches a stage's name or a part of it between dots",
        .allowed = [](std::string_view text) { return !text.empty() && text.front() != '+' && text.back() != '+'; },
    },
    OptionInfo{
        .name = "every",
        .default_value = "auto",
        .values = "auto or a whole number from 1",
        .help = "every k-th of these stages is recomputed (torchtitan's selective option); auto: the k that is the "
                "fastest within the budget, or none of them",
        .allowed = [](std::string_view text) { return text == "auto" || integer_between<1, 1'000'000>(text); },
    },
    OptionInfo{
        .name = "keep_every",
        .default_value = "none",
        .values = "none, auto or a whole number from 1",
        .help = "every k-th of the stages that `every` selects is kept all the same; auto: the k that is the fastest "
                "within the budget",
        .allowed =
            [](std::string_view text) {
              return text == "none" || text == "auto" || integer_between<1, 1'000'000>(text);
            },
    }};

inline constexpr StrategyInfo selective_strategy{
    .name = "selective",
    .family = Family::rematerialization,
    .summary = "recomputes the stages that a per-layer policy names, each from its input, and keeps the others",
    .source =
        "PyTorch's and torchtitan's selective activation checkpointing; Megatron-LM, --recompute-granularity "
        "selective",
    .chains_only = true,
    .options = selective_options,
    .tapes = selective_tapes,
    .candidates = selective_candidates,
};

}  // namespace plimsoll
