#pragma once
// A chain seen as a graph: one forward and one backward op a stage, and an update op a parameter where there is an
// optimizer. Ops 0..n-1 are the forwards, then come the backwards from the last stage to the first, then the updates.

#include <cstdint>
#include <vector>

#include "sim/core/chain.h"
#include "sim/core/graph.h"
#include "sim/core/optimizer.h"
#include "sim/core/schedule.h"

namespace plimsoll {

enum class Backward : std::uint8_t { whole, split };  ///< split: an input-gradient op, then a weight-gradient op

/// What a stage saves beside its output: one tensor, or, where compression is to choose among them, those that the
/// stage lists, and one for the rest.
enum class Inner : std::uint8_t { together, apart };

struct ChainGraph {
  Graph graph;
  std::vector<OpId> forward;   ///< by stage
  std::vector<OpId> backward;  ///< by stage; the input-gradient part where split; no_op for a stage without a backward
  std::vector<OpId> weight;    ///< by stage; empty unless split; no_op for a stage that is not trained
  std::vector<OpId> updates;
};

/// Memory and time of every op follow the stage's fields (traces/chain.md): forward i reads x_i and makes x_{i+1} and,
/// unless nothing is to be kept, the inner tensors that are only saved; backward i reads the gradients of what the
/// stage made, the inner tensors, and what the stage keeps of x_i and x_{i+1}. What passes a stage by is made and
/// counted once, and so is its gradient. The network's input stays until the first stage's backward. Splitting needs
/// `backward_weight` of every stage. What is saved is then two tensors, of which only the one that `weight_saved` names
/// stays for the weight-gradient op, beside what the input-gradient op makes for it. Tensors apart have shapes, those
/// of boundaries too, and backwards say how they use them; a chain that lists none has none apart. Backwards are whole
/// then.
ChainGraph chain_graph(const Chain&, const Optimizers&, Backward = Backward::whole, States = States::by_dtype,
                       Inner = Inner::together);

/// The chain with a last stage that is a loss (output of 0 bytes): itself, or with a loss of no time and no memory
/// beside its gradient appended, which hands the network's output gradient back.
Chain with_loss(Chain);

}  // namespace plimsoll
