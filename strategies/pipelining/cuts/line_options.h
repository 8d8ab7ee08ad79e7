#pragma once
// Options that pipelining strategies share: each has the rows of those that it heeds in its table.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "strategies/api/options.h"

namespace plimsoll {

struct LineOptions {
  std::optional<std::uint32_t> stages;
  std::string cut = "balanced";
  bool first_updates = false;  ///< as Partition::each_updates_shared
  bool work_conserving = false;
  bool splits_backward = false;
  bool sends_block = false;     ///< as Partition::sends_block
  std::optional<Bytes> bucket;  ///< unset: gradients of copies are all-reduced each alone
};

/// Of strategies that take one forward and one backward by turns.
struct TurnOptions : LineOptions {
  std::optional<std::string> in_flight;  ///< unset: as the strategy does, or as a planner chooses
};

/// Of strategies that find an order within a limit of memory.
struct LimitedOptions : LineOptions {
  double limit = 1;
  bool published = false;
};

/// Of `cut_option`.
bool is_cut(std::string_view text);

/// Of `joint_cut_option`.
bool is_cut_or_joint(std::string_view text);

/// Of `in_flight_option`.
bool is_in_flight(std::string_view text);

inline constexpr auto stages_option = option_of<&LineOptions::stages>({
    .name = "stages",
    .least = 1,
    .most = 4096,
    .help = "how many devices make the pipeline, the platform's first ones; auto: all of them, as far as the model has "
            "stages",
});

inline constexpr auto cut_option = option_of<&LineOptions::cut>({
    .name = "cut",
    .values =
        "uniform, balanced, pipedream, ideals, piper, alpa, madpipe, sapp or the first stage of each part, such as "
        "0:4:8",
    .help =
        "uniform: each part has as many stages of the model; balanced: the longest part is as short as can be; 0:4:8: "
        "parts begin with these stages of the model; the others are published planners, for one part a device (sapp: "
        "also for several, on the devices in turn)",
    .allowed = is_cut,
});

/// Of strategies that find an order quickly for any parts, one a device.
inline constexpr auto joint_cut_option = option_of<&LineOptions::cut>({
    .name = "cut",
    .values =
        "uniform, balanced, joint, pipedream, ideals, piper, alpa, madpipe, sapp or the first stage of each part, such "
        "as 0:4:8",
    .help =
        "uniform: each part has as many stages of the model; balanced: the longest part is as short as can be; joint: "
        "chosen together with the recomputation that follows, and micro-batches in flight where they are free; 0:4:8: "
        "parts begin with these stages of the model; the others are published planners",
    .allowed = is_cut_or_joint,
});

/// What Partition::each_updates_shared is about.
inline constexpr auto shared_updates_option = option_of<&LineOptions::first_updates>({
    .name = "shared_updates",
    .words = "each first",
    .help = "who updates a parameter that parts on several devices share, such as a tied embedding; each: all of them, "
            "with "
            "states of their own, as Megatron and DeepSpeed do; first: the first one, and hands it out",
});

inline constexpr auto backward_option = option_of<&LineOptions::splits_backward>({
    .name = "backward",
    .words = "whole split",
    .help = "split: the gradient of a stage's input is sent before the gradients of its weights are computed",
});

inline constexpr auto sends_option = option_of<&LineOptions::sends_block>({
    .name = "sends",
    .words = "buffered blocking",
    .help = "buffered: a device computes on while it sends; blocking: only when what it has sent has arrived, as "
            "Megatron-LM "
            "does where transfers are not overlapped",
});

/// Of strategies whose turns only wait for what they read, so that they may be taken in another order.
inline constexpr auto work_conserving_option = option_of<&LineOptions::work_conserving>({
    .name = "work_conserving",
    .words = "no yes",
    .help =
        "yes: a device that would wait takes the first later turn of its order that can begin, with no more in flight, "
        "and that becomes the order where it is faster and no device needs more memory",
});

/// Of strategies whose parts have copies on several devices.
inline constexpr auto buckets_option = option_of<&LineOptions::bucket>({
    .name = "buckets",
    .none = "off",
    .help = "gradients of a part's copies that become complete one after the other are all-reduced together as soon as "
            "they have this many bytes; off: each alone",
});

inline constexpr auto in_flight_option = option_of<&TurnOptions::in_flight>({
    .name = "in_flight",
    .values = "auto or a number from 1 on for each stage, such as 4:3:2:1",
    .help = "largest number of micro-batches in flight on a device of each stage; auto: the strategy's own",
    .allowed = is_in_flight,
});

inline constexpr auto limit_option = option_of<&LimitedOptions::limit>({
    .name = "limit",
    .least = 0.01,
    .most = 100,
    .help = "activations that a device may keep; 1: its activations of p micro-batches, on p devices",
});

inline constexpr auto orders_option = option_of<&LimitedOptions::published>({
    .name = "orders",
    .words = "best published",
    .help = "best: of the heuristic's orders for many transfer times the one of the fastest iteration, which a faster "
            "network never makes slower; published: the one for the network there is, whose longest device is shortest",
});

/// Of a struct that has this member.
template <class Struct>
inline constexpr auto chunks_option = option_of<&Struct::chunks>({
    .name = "chunks",
    .least = 1,
    .most = 64,
    .help = "how many parts of the model each device has",
});

}  // namespace plimsoll
