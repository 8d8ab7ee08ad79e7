#pragma once
// Ops with times and the edges between them, as other planners' files list them, and the graph that they are.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/graph.h"
#include "sim/io/input_error.h"

namespace plimsoll {

/// The attribute of an op that belongs on the host, where its time was measured: `"attributes": {"device": "host"}`.
inline constexpr std::string_view device_attribute = "device";
inline constexpr std::string_view host_device = "host";

struct ListedOp {
  std::string name;
  Phase phase = Phase::forward;
  Seconds time;
  std::optional<Bytes> output;            ///< of what all read whose edge says nothing else
  Bytes parameters;                       ///< resident for this op alone
  std::optional<std::uint32_t> together;  ///< ops of one number share a device
  std::vector<std::pair<std::string, std::string>> attributes;
};

struct ListedEdge {
  std::uint32_t from = 0, to = 0;  ///< ops
  std::optional<Bytes> bytes;      ///< that go this way; unset: the op's output
  Position place;                  ///< in the file
};

struct EdgeList {
  std::string name;
  std::vector<std::pair<std::string, std::string>> notes;  ///< of the source
  std::vector<ListedOp> ops;
  std::vector<ListedEdge> edges;
};

/// Ops in an order in which every one comes after those whose values it reads, else in that of the list. An op makes a
/// tensor for each size among the edges that leave it, or one of its output where none does. Complains about two edges
/// between the same ops and about circles, and throws.
Graph graph_of(EdgeList, Complaints&);

}  // namespace plimsoll
