#pragma once
// What searches over splits have in common: the mesh that they cut for, and what they decide.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "sim/core/decisions.h"
#include "sim/io/quantity.h"
#include "strategies/api/option_rules.h"
#include "strategies/hybrid/bsp_model.h"
#include "strategies/hybrid/on_mesh.h"

namespace plimsoll {

inline constexpr OptionInfo split_devices_option{
    .name = "devices",
    .default_value = "auto",
    .values = "auto, all or a whole number from 1 to 65536",
    .help = "devices that share out the operators; auto: all, or as many as make the pipeline behind fastest",
    .allowed = [](std::string_view text) { return text == "auto" || is_all_or_count(text); },
};

inline constexpr OptionInfo work_model_option{
    .name = "model",
    .default_value = "symbolic",
    .values = "symbolic or simulated",
    .help = "what an op takes: the longer of computing and moving, or that and a launch, as it is simulated",
    .allowed = [](std::string_view text) { return text == "symbolic" || text == "simulated"; },
};

inline constexpr OptionInfo split_memory_option{
    .name = "memory",
    .default_value = "none",
    .values = "none, capacity or a size, such as 40GB",
    .help = "what a device may keep: splits are chosen that fit without a memory strategy; capacity: the device's",
    .allowed = [](std::string_view text) { return text == "none" || text == "capacity" || parse_bytes(text).fine(); },
};

inline bool is_auto_or_count(std::string_view text) {
  return text == "auto" || integer_between<1, 65'536>(text);
}

inline constexpr std::string_view replicas_values = "auto or a whole number from 1 to 65536";
inline constexpr std::string_view replicas_help =
    "among which the devices are shared out, each with its own micro-batches; auto: where these are all devices, "
    "whichever number is the fastest, else 1";

inline std::uint32_t split_ranks(const Options& options, std::uint32_t devices) {
  return asked_devices(options, "devices", devices);
}

/// What the option `memory` allows; unset: all.
std::optional<Bytes> memory_limit(const Problem&, const Options&);

/// Plain training by the problem of a rank, simulated.
struct PlainlyTrained {
  Bytes peak;
  Seconds makespan;
};
PlainlyTrained plain_training(const Problem& of_rank);

/// With sums of gradients counted by a weight, and within the table's limit, or as close to it as was found. Nothing
/// where the search would take too much memory.
using LevelSearch = std::function<std::optional<SplitChoices>(const BspModel&, const SplitTable&, double weight)>;

/// What was decided, or in one sentence why nothing can be.
using DecisionsOutcome = std::variant<Decisions, std::string>;

/// An axis of two ranks for each time that the devices can be halved, from the whole machine to pairs of neighbours;
/// the search cuts along one after the other. Or in one sentence why not: a number of devices that is no power of two.
DecisionsOutcome split_in_halves(const Problem&, std::uint32_t devices, const Options&, const LevelSearch&);

/// The same for sums of gradients that count, count half and do not count, what comes of it swept so often with all
/// axes in view, and the best of these, where sums hide beside the backward or do not.
DecisionsOutcome split_in_halves_and_swept(const Problem&, std::uint32_t devices, const Options&, const LevelSearch&,
                                           std::uint32_t sweeps, bool sums_hide);

struct SplitSearch {
  std::optional<SplitChoices> choices;
  std::string note;  ///< on how they were found
};

/// An axis `nodes` over the nodes of the machine and an axis `devices` within them; the search cuts along both at once.
DecisionsOutcome split_at_once(const Problem&, std::uint32_t devices, const Options&,
                               const std::function<SplitSearch(const BspModel&, const SplitTable&)>&);

/// The splits among so many devices.
using SplitOnDevices = std::function<DecisionsOutcome(const Problem&, std::uint32_t devices)>;

/// Splits of one rank where `replicas` copies, which sum their gradients as data_parallel does, each train their
/// micro-batches on an equal share of the devices, split as a search says. Where all devices are the searches' and
/// there are several micro-batches, what each search gives is simulated in plain training, with auto for 1, 2, 4, ...
/// copies that share the micro-batches out; the fastest is taken of those that keep the limit of memory, or fit the
/// device, if any do. Else it is the first search's, of one copy unless told otherwise; so it is of what was compared
/// until the deadline. Or in one sentence why there is none.
DecisionsOutcome in_replicas(const Problem&, const Options&, std::span<const SplitOnDevices>, const Deadline&);

}  // namespace plimsoll
