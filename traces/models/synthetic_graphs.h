#pragma once
// Synthetic graphs of training iterations with as many ops, as much parallelism and as much communication as the
// published ones have: `rnn`, `crn`, `wrn`, `trn`, `e3d`. How every number comes about: traces/synthetic.md.

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/graph.h"
#include "sim/io/reference_options.h"

namespace plimsoll {

/// Whether a trace reference means one of them.
bool is_synthetic_graph(std::string_view reference);

/// The graph of a reference such as `rnn:layers=8,seed=2`; throws where it is wrong.
Graph synthetic_graph(std::string_view reference);

/// The whole numbers of such a reference; throws where it is wrong. None of any other.
std::vector<ReferenceNumber> synthetic_graph_numbers(std::string_view reference);

/// One line of help a network: name, keys and defaults.
std::vector<std::string> synthetic_graph_help();

/// What references begin with.
std::vector<std::string> synthetic_graph_names();

}  // namespace plimsoll
