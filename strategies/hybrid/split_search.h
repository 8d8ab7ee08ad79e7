#pragma once
// What searches over splits have in common: the mesh that they cut for, and what they decide.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "sim/core/decisions.h"
#include "strategies/hybrid/bsp_model.h"
#include "strategies/hybrid/on_mesh.h"

namespace plimsoll {

/// Of searches that price what ops take.
struct ModelOptions : MeshOptions {
  bool simulated = false;  ///< an op takes as long as it is simulated, not as its numbers say
  bool is_judged = false;  ///< nothing is cut: only what is refused for any cuts is asked
};

/// Of searches for splits.
struct SplitOptions : ModelOptions {
  std::string devices = "auto";               ///< auto, all or a number
  std::string memory = "none";                ///< none, capacity or a size
  std::optional<std::uint32_t> replicas = 1;  ///< unset: whichever number is the fastest
};

bool is_split_devices(std::string_view);
bool is_split_memory(std::string_view);

inline constexpr auto split_devices_option = option_of<&SplitOptions::devices>({
    .name = "devices",
    .values = "auto, all or a whole number from 1 to 65536",
    .help = "devices that share out the operators; auto: all, or as many as make the pipeline behind fastest",
    .allowed = is_split_devices,
});

inline constexpr auto work_model_option = option_of<&ModelOptions::simulated>({
    .name = "model",
    .words = "symbolic simulated",
    .help = "time of an op: the longer of computing and moving, or that and a launch, as in the simulation",
});

inline constexpr auto split_memory_option = option_of<&SplitOptions::memory>({
    .name = "memory",
    .values = "none, capacity or a size, such as 40GB",
    .help =
        "memory of a device, within which splits must fit without a memory strategy; capacity: the device's capacity",
    .allowed = is_split_memory,
});

inline constexpr auto split_replicas_option = option_of<&SplitOptions::replicas>({
    .name = "replicas",
    .least = 1,
    .most = 65'536,
    .help = "replicas among which the devices are divided, each with its own micro-batches; auto: the fastest number "
            "where all devices are used, else 1",
});

/// On so many devices.
std::uint32_t split_ranks(const SplitOptions&, std::uint32_t devices);

/// What the option `memory` allows; unset: all.
std::optional<Bytes> memory_limit(const Problem&, const SplitOptions&);

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
DecisionsOutcome split_in_halves(const Problem&, std::uint32_t devices, const SplitOptions&, const LevelSearch&);

/// The same for sums of gradients that count, count half and do not count, what comes of it swept so often with all
/// axes in view, and the best of these, where sums hide beside the backward or do not.
DecisionsOutcome split_in_halves_and_swept(const Problem&, std::uint32_t devices, const SplitOptions&,
                                           const LevelSearch&, std::uint32_t sweeps, bool sums_hide);

struct SplitSearch {
  std::optional<SplitChoices> choices;
  std::string note;  ///< on how they were found
};

/// An axis `nodes` over the nodes of the machine and an axis `devices` within them; the search cuts along both at once.
DecisionsOutcome split_at_once(const Problem&, std::uint32_t devices, const SplitOptions&,
                               const std::function<SplitSearch(const BspModel&, const SplitTable&)>&);

/// The splits among so many devices.
using SplitOnDevices = std::function<DecisionsOutcome(const Problem&, std::uint32_t devices)>;

/// Splits of one rank where `replicas` copies, which sum their gradients as data_parallel does, each train their
/// micro-batches on an equal share of the devices, split as a search says. Where all devices are the searches' and
/// there are several micro-batches, what each search gives is simulated in plain training, with auto for 1, 2, 4, ...
/// copies that share the micro-batches out; the fastest is taken of those that keep the limit of memory, or fit the
/// device, if any do. Else it is the first search's, of one copy unless told otherwise; so it is of what was compared
/// until the deadline. Or in one sentence why there is none.
DecisionsOutcome in_replicas(const Problem&, const SplitOptions&, std::span<const SplitOnDevices>, const Deadline&);

}  // namespace plimsoll
