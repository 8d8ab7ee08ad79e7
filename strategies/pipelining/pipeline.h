#pragma once
// What pipelining strategies share: options, and the partition of a chain that follows from an order and a cut.

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "strategies/api/option_rules.h"
#include "strategies/api/strategy.h"
#include "strategies/pipelining/cuts/asked_cut.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/orders/orders.h"
#include "strategies/pipelining/stage_parts.h"

namespace plimsoll {

inline constexpr OptionInfo stages_option{
    .name = "stages",
    .default_value = "auto",
    .values = "auto or a whole number from 1 to 4096",
    .help =
        "how many devices make the pipeline, the platform's first ones; auto: all of them, as far as the model has "
        "stages",
    .allowed = [](std::string_view text) { return text == "auto" || integer_between<1, 4096>(text); },
};

/// Of `cut_option`.
bool is_cut(std::string_view text);

inline constexpr OptionInfo cut_option{
    .name = "cut",
    .default_value = "balanced",
    .values =
        "uniform, balanced, pipedream, ideals, piper, alpa, madpipe, sapp or the first stage of each part, such as "
        "0:4:8",
    .help =
        "uniform: each part has as many stages of the model; balanced: the longest part is as short as can be; 0:4:8: "
        "parts begin with these stages of the model; the others are published planners, for one part a device (sapp: "
        "also for several, on the devices in turn)",
    .allowed = is_cut,
};

/// Of strategies that find an order quickly for any parts, one a device.
inline constexpr OptionInfo joint_cut_option{
    .name = "cut",
    .default_value = "balanced",
    .values =
        "uniform, balanced, joint, pipedream, ideals, piper, alpa, madpipe, sapp or the first stage of each part, such "
        "as 0:4:8",
    .help =
        "uniform: each part has as many stages of the model; balanced: the longest part is as short as can be; joint: "
        "chosen together with the recomputation that follows, and micro-batches in flight where they are free; 0:4:8: "
        "parts begin with these stages of the model; the others are published planners",
    .allowed = [](std::string_view text) { return text == joint_cut || is_cut(text); },
};

/// What Partition::each_updates_shared is about.
inline constexpr OptionInfo shared_updates_option{
    .name = "shared_updates",
    .default_value = "each",
    .values = "each or first",
    .help =
        "who updates a parameter that parts on several devices share, such as a tied embedding; each: all of them, "
        "with "
        "states of their own, as Megatron and DeepSpeed do; first: the first one, and hands it out",
    .allowed = [](std::string_view text) { return text == "each" || text == "first"; },
};

inline constexpr OptionInfo backward_option{
    .name = "backward",
    .default_value = "whole",
    .values = "whole or split",
    .help = "split: the gradient of a stage's input is sent before the gradients of its weights are made",
    .allowed = [](std::string_view text) { return text == "whole" || text == "split"; },
};

inline constexpr OptionInfo chunks_option{
    .name = "chunks",
    .default_value = "2",
    .values = "a whole number from 1 to 64",
    .help = "how many parts of the model each device has",
    .allowed = integer_between<1, 64>,
};

/// Of strategies whose turns only wait for what they read, so that they may be taken in another order.
inline constexpr OptionInfo work_conserving_option{
    .name = "work_conserving",
    .default_value = "no",
    .values = "no or yes",
    .help =
        "yes: a device that would wait takes the first later turn of its order that can begin, with no more in flight, "
        "and that becomes the order where it is faster and no device needs more memory",
    .allowed = [](std::string_view text) { return text == "no" || text == "yes"; },
};

inline constexpr OptionInfo limit_option{
    .name = "limit",
    .default_value = "1",
    .values = "a number from 0.01 to 100",
    .help = "activations that a device may keep, in multiples of those of as many micro-batches as there are devices",
    .allowed = number_between<1, 10'000, 100>,
};

inline constexpr OptionInfo orders_option{
    .name = "orders",
    .default_value = "best",
    .values = "best or published",
    .help =
        "best: of the heuristic's orders for many transfer times the one of the fastest iteration, which a faster "
        "network never makes slower; published: the one for the network there is, whose longest device is shortest",
    .allowed = [](std::string_view text) { return text == "best" || text == "published"; },
};

/// Of `orders_option`: what the heuristic makes of the costs, if it finds anything.
std::optional<PipelineOrder> asked_order(const Options&, const PartCosts&, std::uint32_t micro_batches,
                                         const OrderHeuristic& heuristic);

/// Of `backward_option`.
bool is_backward_split(const Options&);

/// The chain cut as the option `cut` says, part g on device rank_of[g]; `weights_apart` as of PipelineOrder.
Partition cut_for(const Problem&, const Options&, std::string_view strategy, std::span<const std::uint32_t> rank_of,
                  bool weights_apart, const std::optional<Bytes>& budget = {});

/// Whether parts of the same ops on the same devices take the same turns.
bool same_turns(const Partition&, const Partition&);

/// What `one` makes for each budget, asked once where the cut does not depend on it; what is the same is shared.
std::vector<PartitionOutcome> for_budgets(const Options&, std::span<const std::optional<Bytes>> budgets,
                                          const std::function<Partition(const std::optional<Bytes>&)>& one);

/// The same with each partition changed; what is shared is changed once.
std::vector<PartitionOutcome> each_changed(std::vector<PartitionOutcome>, const std::function<void(Partition&)>&);

/// The order on the platform's first devices, the chain cut as the option `cut` says; `updates` as of Partition. Throws
/// InputError where a part has nothing to train.
std::vector<PartitionOutcome> pipeline(const Problem&, const Options&, std::string_view strategy, const PipelineOrder&,
                                       std::span<const std::optional<Bytes>> budgets, Updates updates = {});

}  // namespace plimsoll
