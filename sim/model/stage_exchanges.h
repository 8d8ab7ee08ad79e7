#pragma once
// What stages of a chain exchange with the other ranks of their mesh beside their computation: parameters that are
// gathered before they run, gradients that are summed after.

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sim/model/problem.h"

namespace plimsoll {

/// Of one stage; times are those of the links.
struct StageExchanges {
  Seconds forward_gather, backward_gather;               ///< of parameters, before it runs
  Seconds sum;                                           ///< of gradients, after its backward
  Bytes gathered_forward, gathered_backward, gradients;  ///< there while they are exchanged
};

/// Of a stage with these ops of the problem's graph: of those that run beside the others, but for blocks that go round.
StageExchanges exchanges_beside(const Problem&, std::span<const std::size_t> forward,
                                std::span<const std::size_t> backward);

/// Whether it hands on what it gets, block by block, while its stage computes with what is there: a shift beside.
bool goes_round(const Op&);

/// Of ops of the problem's graph on the device's own stream, one after the other.
struct PassTime {
  Seconds seconds;                       ///< in all
  std::map<std::string, Seconds> waits;  ///< of these, by axis: for blocks that are still on their way
};

/// A block leaves when the ops before it in the list have run, its link is free and what it hands on is there.
PassTime pass_time(const Problem&, std::span<const std::size_t> ops, Saving);

/// To all kinds of the stage's backward.
void add_backward_workspace(Stage&, Bytes more);

/// Adds to the stages, which have room for what they exchange themselves, the time for which they wait for links, and
/// room for what their neighbours exchange meanwhile. One exchange goes at a time. While a stage's forward runs, what
/// the next one needs is gathered (behind the last one's, what its backward needs); while its backward runs, what the
/// one before needs, and then the gradients of the one behind are summed. What takes longer than that is waited for by
/// the stage whose parameters or gradients these are, so that none waits longer than without overlap, on whatever
/// device it runs. What the first stage's forward needs, and the sum of its gradients, are waited for whole. Tapes run
/// stages in other orders, too: their times are the same. `gathers_ahead`: else every stage waits for all that it
/// gathers.
void add_exchanges(Chain&, std::span<const StageExchanges>, bool gathers_ahead);

/// Likewise where nothing is exchanged while a device computes: each stage waits for all that it exchanges itself.
void add_exposed_exchanges(Chain&, std::span<const StageExchanges>);

/// What an op of a stage exchanges along one axis of the mesh.
struct ExchangeShare {
  std::string axis;
  Seconds total;
  Seconds exposed, exposed_unsaved;  ///< of it within the op's time; of a forward that keeps nothing
};

/// Kept in an attribute of the op, so that a written trace has them.
std::vector<ExchangeShare> exchanges_within(const Op&);
void state_exchanges(Op&, const std::vector<ExchangeShare>&);

/// What the ops of a pass of a stage exchange along one axis: within its time, and beside it.
struct AxisExchange {
  std::string axis;
  Seconds within, beside;
  Seconds hidden = {};  ///< of blocks that go round, what the pass does not wait for
};
struct PassExchanges {
  std::vector<AxisExchange> forward, backward;
  std::vector<AxisExchange> weight;  ///< of the backward, in the part for parameters

  static AxisExchange& add(std::vector<AxisExchange>&, std::string_view axis, Seconds, bool is_beside);
};

/// Of a stage with these ops of the problem's graph, `weight` some of `backward`.
PassExchanges exchanges_by_axis(const Problem&, std::span<const std::size_t> forward,
                                std::span<const std::size_t> backward, std::span<const std::size_t> weight);

/// States them on the ops of a chain's graph, whose stages wait for what others than their own ops exchange as long as
/// `with` takes longer than `without`.
void state_exchanges(Graph&, const ChainGraph& index, const Chain& without, const Chain& with,
                     std::span<const PassExchanges>);

}  // namespace plimsoll
