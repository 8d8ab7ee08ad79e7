#pragma once
// References to networks, such as `mlp:layers=8,width=512` or `resnet:blocks=4,view=graph`: usable as traces.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/optimizer.h"
#include "sim/core/schedule.h"
#include "sim/io/reference_options.h"
#include "validate/networks/network.h"

namespace plimsoll {

/// As which kind of trace a network is seen.
enum class View : std::uint8_t { chain, graph };

/// Whose kernels a network's workspaces are for; only those of the CPU are on every machine.
enum class KernelSet : std::uint8_t { cpu, cuda, cuda_tf32 };

struct NamedNetwork {
  Network network;
  View view = View::chain;
  KernelSet kernels = KernelSet::cpu;
};

/// What references begin with.
const std::vector<std::string>& network_names();

/// Whether a trace reference means a network.
bool is_network(std::string_view reference);

/// The network of a reference, its graph named after it. `updates`: those of the schedule that will run it, in place of
/// the reference's own. Throws where the reference is wrong.
NamedNetwork named_network(std::string_view reference, std::optional<Optimizers> updates = {});

/// The network as it runs on each of so many equal slices of its sequences, by slice. Throws where it has no sequence
/// in its tensors, or where that does not divide so.
std::vector<std::shared_ptr<const Network>> network_in_slices(std::string_view reference,
                                                              std::optional<Optimizers> updates, std::uint32_t slices);

/// Whose kernels a reference asks for. Throws where it is wrong.
KernelSet kernels_of(std::string_view reference);

/// The reference that a trace's source names, if it is a network's.
std::optional<std::string> network_reference(const Source&);

/// The whole numbers of a reference; throws where it is wrong. None where it means no network.
std::vector<ReferenceNumber> network_numbers(std::string_view reference);

/// One line of help a network: name, keys and defaults.
std::vector<std::string> network_help();

}  // namespace plimsoll
