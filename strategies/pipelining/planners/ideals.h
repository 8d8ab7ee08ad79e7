#pragma once
// The partition of a graph among accelerators and hosts whose fullest one has least to do, as Tarnawski et al. find it:
// a dynamic program over downsets ("ideals") of the forward layers. What each device gets is the difference of two of
// them, with the backward layers that belong to it.
// Source: Tarnawski, Phanishayee, Devanur, Mahajan, Nina Paravecino, "Efficient Algorithms for Device Placement of DNN
// Graph Operators", NeurIPS 2020, section 5.1.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strategies/pipelining/planners/range_fits.h"

namespace plimsoll {

struct IdealsProblem {
  struct Node {
    std::optional<double> device, host;  ///< seconds; unset: it cannot run there
    double bytes = 0;                    ///< of a device's memory
    double sent = 0;                     ///< seconds to send its output, or to receive it, once a device
    bool backward = false;
    std::optional<std::uint32_t> together;  ///< nodes of one number share a device
  };
  std::vector<Node> nodes;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  std::uint32_t devices = 1, hosts = 0;
  std::optional<double> device_bytes;
  RangeFits fits = {};       ///< of a chain of which every device has a part
  bool all_devices = false;  ///< each of them has something to do; else some may be left out
};

struct IdealsPlan {
  struct Set {
    std::vector<std::uint32_t> nodes;
    bool host = false;
    double seconds = 0, bytes = 0;
  };
  double seconds = 0;                 ///< of the fullest device or host
  std::size_t ideals = 0, pairs = 0;  ///< pairs of them that were priced
  std::vector<Set> sets;              ///< in the order of the forward; devices with nothing to do are left out
};

struct IdealsOutcome {
  std::optional<IdealsPlan> plan;
  std::string reason;  ///< why there is none
};

IdealsOutcome plan_ideals(const IdealsProblem&);

}  // namespace plimsoll
