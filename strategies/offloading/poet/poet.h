#pragma once
// The strategy `poet`: recomputation and paging of a graph's values chosen together, by integer programming on small
// graphs (strategies/rematerialization/programs/checkmate_paging.cpp) and by heuristics on large ones.
// Source: Patil et al., "POET: Training Neural Networks on Tiny Devices with Integrated Rematerialization and Paging",
// ICML 2022.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/common/solver_options.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> poet_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                    const Tape* before);

inline constexpr std::array poet_options{
    OptionInfo{
        .name = "objective",
        .default_value = "time",
        .values = "time or energy",
        .help = "what is least; energy needs `power`",
        .allowed = [](std::string_view text) { return text == "time" || text == "energy"; },
    },
    OptionInfo{"power", "0", "a whole number of watts from 0 to 100000", "of the device while it computes; 0: unknown",
               integer_between<0, 100'000>},
    OptionInfo{"transfer_energy", "0", "a whole number of picojoules a byte from 0 to 1000000000",
               "of what moves between device and host", integer_between<0, 1'000'000'000>},
    OptionInfo{"deadline", "0", "a whole number of percent from 0 to 100000",
               "of plain training's time, copies included, that an iteration may take; 0: any",
               integer_between<0, 100'000>},
    OptionInfo{"ops", "24", "a whole number from 0 to 1000",
               "up to how many ops the integer program is asked; beyond, heuristics alone", integer_between<0, 1000>},
    OptionInfo{"chunks", "4", "a whole number from 1 to 64",
               "into how many parts a value is cut, each freed on its own", integer_between<1, 64>},
    time_limit_option,
    nodes_option,
};

inline constexpr StrategyInfo poet_strategy{
    .name = "poet",
    .family = Family::offloading,
    .summary = "recomputes and pages values of a graph, chosen together by integer programming, for time or energy",
    .source =
        "Patil et al., \"POET: Training Neural Networks on Tiny Devices with Integrated Rematerialization and "
        "Paging\", ICML 2022",
    .chains_only = false,
    .options = poet_options,
    .tapes = poet_tapes,
    .candidates = nullptr,
};

}  // namespace plimsoll
