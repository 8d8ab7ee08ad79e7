#pragma once
// Platforms, chains and graphs for tests: small ones written out, random ones from a seed, the same everywhere.

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/core/partition.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct Gpus {
  std::uint32_t count = 1;
  std::optional<Bytes> memory;                    ///< of each; unset: unlimited
  BytesPerSecond to_host = unlimited_bandwidth;   ///< each GPU's own link
  std::optional<BytesPerSecond> uplink;           ///< one link that all share on their way to the host
  BytesPerSecond to_peers = unlimited_bandwidth;  ///< each GPU's link to a switch
  Seconds peer_latency;                           ///< of a way between two GPUs
  std::optional<BytesPerSecond> adam;             ///< bytes of parameters that the host updates a second
  std::optional<BytesPerSecond> to_disk;          ///< the link of a disk behind the host
};

/// Devices gpu0.. that take a trace's times, memories 0..count-1 theirs, memory `count` the host's, the next
/// one the disk's where there is one.
Platform gpus(const Gpus&);

/// Ops o0 -> o1 -> ... in a row, each reading what the one before made; 1 s and 4 bytes each.
Graph row_of_ops(std::size_t count);

/// The worked example of the architecture page: two stages and a loss.
Chain worked_example();

/// `stages` equal stages and a loss of no time: forward 1 s, backward 2 s, outputs and inner tensors of 10 and 5 bytes.
Chain even_chain(std::size_t stages);

/// Small whole numbers everywhere: times, sizes, workspaces, parameters (some shared), flags.
/// Some backwards let go of inner tensors before they make gradients, unless `dies_early` says that none does.
Chain random_small_chain(std::uint64_t seed, std::size_t stages, bool dies_early = true);

/// The chain with 240 times as many bytes of everything, shapes of its boundaries (bytes x 2 x 6 x 5 numbers in fp32),
/// and lists of most of what its stages save: pictures, now and then places (int64), each with one or two uses.
Chain with_saved_tensors(Chain, std::uint64_t seed);

/// The chain without such lists.
Chain without_saved_tensors(Chain);

/// The chain with times of weight gradients, half of each stage's backward, rounded down, and bytes of the two parts:
/// of what stays for the weights, some is saved and some is made by the other part.
Chain with_weight_times(Chain);

/// A random forward graph with its backward; every forward op has a parameter now and then, and a single loss.
Graph random_graph(std::uint64_t seed, std::size_t forward_ops);

/// The graph with up to two other implementations of every op. Times and workspaces of all of them, the op's own
/// included, are drawn anew.
Graph with_alternatives(Graph, std::uint64_t seed);

/// A random graph whose values are pictures of `bytes` x 2 x 6 x 5 numbers in fp32, and whose ops are of kinds that
/// real traces have: convolutions, normalizations, ReLUs (whose gradients read what they made alone), GELUs.
Graph as_pictures(Graph, std::uint64_t seed);

/// The problem of a chain or graph; it must exist.
Problem problem_of(std::variant<Chain, Graph>, Platform, ProblemOptions = {});

/// The chain cut into parts of consecutive stages that begin at `cuts` (the first is 0), part p on device p, each
/// device taking its forwards and backwards in the order of 1F1B.
Partition one_forward_one_backward(const Problem&, const std::vector<std::size_t>& cuts);

}  // namespace plimsoll
