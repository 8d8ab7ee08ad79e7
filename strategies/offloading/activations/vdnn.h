#pragma once
// The strategy `vdnn`: while a layer's forward runs, its input leaves for the host; the next layer waits for that.
// While a layer's backward runs, the input of the next layer to need one comes back. Source: Rhu, Gimelshein, Clemons,
// Zulfiqar, Keckler, "vDNN: virtualized deep neural networks for scalable, memory-efficient neural network design",
// MICRO 2016.

#include <array>

#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> vdnn_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                    const Tape* before);

std::vector<Bytes> vdnn_candidates(const PartTask&, const Options&);

inline constexpr std::array vdnn_options{OptionInfo{
    .name = "mode",
    .default_value = "dyn",
    .values = "dyn, all or conv",
    .help = "all: the inputs of all layers are offloaded; conv: of layers that convolve or multiply matrices; dyn: the "
            "fastest within the budget of nothing, conv and all",
    .allowed = [](std::string_view text) { return text == "dyn" || text == "all" || text == "conv"; },
}};

inline constexpr StrategyInfo vdnn_strategy{
    .name = "vdnn",
    .family = Family::offloading,
    .summary =
        "offloads layers' inputs during their forward and prefetches them one layer ahead, layer by layer in step",
    .source = "Rhu, Gimelshein, Clemons, Zulfiqar, Keckler, \"vDNN\", MICRO 2016",
    .chains_only = false,
    .options = vdnn_options,
    .tapes = vdnn_tapes,
    .candidates = vdnn_candidates,
};

}  // namespace plimsoll
