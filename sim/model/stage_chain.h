#pragma once
// A graph whose ops are of stages in a row, seen as a chain: for strategies that plan by stages.

#include <string>
#include <variant>

#include "sim/model/chain_graph.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Whether parameters that no stage reads, and all inputs but the first, stay on the device beside the chain.
enum class Unread : bool { left_out, stay };

/// The problem with a chain of one stage for each of the graph's stages, and the chain's graph; updates are the
/// graph's, with all that they sum and hand out. Times are those on the platform's first device.
///  - A stage's forward and backward are its ops one after the other, collectives within them too. Those beside them
///    run beside the neighbours (core/stage_exchanges.h), those of the updates beside the backward.
///  - What its backward reads is kept whole until the backward ends; what else its ops make is workspace.
///  - Where compression is to choose (Inner::apart), each tensor that a backward reads is one of its own, with the
///    layers that use it.
///  - Where several tensors go on between two stages, those that pass a stage by are there once (Chain::boundaries).
///    Their gradients are one tensor for each boundary: what passes by counts twice while a backward runs.
/// Or in one sentence why there is none: ops of a stage that are apart, a value that an earlier stage reads, devices
/// that are not alike, tensors apart and split backwards.
std::variant<Problem, std::string> as_chain(Problem, Backward, Inner = Inner::together, Unread = Unread::left_out);

}  // namespace plimsoll
