#pragma once
// One iteration of one micro-batch as planners of placements see it: ops in a graph without circles, with
// times in whole nanoseconds on each processor and values with bytes that are sent once to each processor
// that reads them; and its longest paths.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace plimsoll {

using Nanoseconds = std::int64_t;

/// The time of an op on a processor that cannot run it.
inline constexpr Nanoseconds cannot_run = std::numeric_limits<Nanoseconds>::max();
inline constexpr std::int64_t unlimited_bytes = std::numeric_limits<std::int64_t>::max();
inline constexpr std::uint32_t no_node = std::numeric_limits<std::uint32_t>::max();

/// Lists by node, one behind the other.
template <class Item>
struct Rows {
  std::vector<std::uint32_t> first{0};  ///< by row: where it begins; and the end of the last one
  std::vector<Item> items;

  std::size_t size() const { return first.size() - 1; }
  std::span<const Item> operator[](std::size_t row) const {
    return std::span(items).subspan(first[row], first[row + 1] - first[row]);
  }
  void end_row() { first.push_back(static_cast<std::uint32_t>(items.size())); }
};

/// From a node to one that reads what it makes, or that must come after it. One for each pair of nodes.
struct DagEdge {
  std::uint32_t node = 0;  ///< the other end
  std::int64_t bytes = 0;  ///< of all values that go this way
  bool sends = true;       ///< false: only an order; the other end may start when this one has ended
};

/// What a node makes and who reads it.
struct DagValue {
  std::uint32_t maker = no_node;  ///< no_node: it is there from the start, where it is read (the network's input)
  std::int64_t bytes = 0;
  std::vector<std::uint32_t> readers;  ///< nodes, ascending
};

/// What is resident during the whole iteration on each processor that has one of its users.
struct DagResident {
  std::int64_t bytes = 0;
  std::vector<std::uint32_t> users;  ///< nodes, ascending
  bool appears = false;              ///< with its first user there, and stays to the end; else there from the start
};

/// Nodes are in a valid order: no edge leads from a node to one of a smaller or equal number. Where one of a group
/// cannot run, all of the group have the time `cannot_run`.
struct OpDag {
  std::uint32_t size = 0;
  std::vector<std::vector<Nanoseconds>> time;  ///< by class of processors, by node
  Rows<DagEdge> out, in;                       ///< by node, ascending by the other end
  std::vector<DagValue> values;
  std::vector<std::vector<std::uint32_t>> makes;     ///< by node: values
  std::vector<std::vector<std::uint32_t>> reads;     ///< by node: values
  std::vector<std::int64_t> workspace;               ///< by node: bytes while it runs
  std::vector<DagResident> residents;                ///< parameters, their gradients and states
  std::vector<std::vector<std::uint32_t>> together;  ///< groups of nodes that share a processor; no node is in two
  std::vector<std::uint32_t> group;                  ///< by node: of `together`; no_node: of none
  std::vector<bool> backward;                        ///< by node; empty: none of them
};

/// The processors that a placement may use: devices and, where ops are pinned to it, a host as the last one.
struct Machine {
  std::vector<std::uint32_t> class_of;       ///< by processor: a row of OpDag::time
  std::vector<std::int64_t> memory;          ///< by processor: bytes that may be used; unlimited_bytes
  std::vector<Nanoseconds> latency;          ///< from processor p to q at p * size() + q
  std::vector<double> nanoseconds_per_byte;  ///< as latency
  bool has_host = false;                     ///< the last processor is a host, for what is pinned to it alone

  std::size_t size() const { return class_of.size(); }
  /// To send so many bytes from p to q, alone; 0 where they are one.
  Nanoseconds transfer(std::size_t p, std::size_t q, std::int64_t bytes) const;
  /// The mean over all pairs of different processors; 0 where there is only one.
  Nanoseconds mean_transfer(std::int64_t bytes) const;

  Nanoseconds mean_latency = 0;
  double mean_nanoseconds_per_byte = 0;
};

/// Fills the means from the pairs.
void find_means(Machine&);

Nanoseconds time_on(const OpDag&, const Machine&, std::uint32_t node, std::size_t processor);
/// Over the processors that can run it.
Nanoseconds mean_time(const OpDag&, const Machine&, std::uint32_t node);

/// Which processor runs which node, and in which order.
struct Placement {
  std::vector<std::uint32_t> on;                  ///< by node: processor
  std::vector<std::vector<std::uint32_t>> order;  ///< by processor: nodes; empty: not decided (emulation.h does)
};

// Longest paths of a graph of ops.

struct Levels {
  std::vector<Nanoseconds> top;     ///< by node: the longest path to it, without it
  std::vector<Nanoseconds> bottom;  ///< by node: the longest path from it, with it
};

/// With these times by node, and these of transfers by edge in the order of OpDag::out.
Levels levels(const OpDag&, std::span<const Nanoseconds> time, std::span<const Nanoseconds> transfer);

/// With mean times and mean transfers on every edge that sends.
Levels mean_levels(const OpDag&, const Machine&);

std::vector<Nanoseconds> mean_times(const OpDag&, const Machine&);
/// By edge in the order of OpDag::out; 0 for those that send nothing.
std::vector<Nanoseconds> mean_transfers(const OpDag&, const Machine&);

}  // namespace plimsoll
