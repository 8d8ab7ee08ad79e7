// The strategy `dualpipe_v`: DualPipe cut in half: two parts of the model a device, placed as a V, so that the two
// directions of DualPipe are the two halves of one pipeline and no device has parameters twice.
// Equation: with equal parts and free transfers the bubble is (p - 1)(F + 2B - W) at most, and no device keeps more
// than 2p + 1 of its parts' micro-batches.

#include <fmt/format.h>

#include <array>
#include <deque>

#include "sim/io/input_error.h"
#include "strategies/pipelining/pipeline.h"
#include "strategies/pipelining/v_shape_search.h"

namespace plimsoll {
namespace {

/// The turns of one rank, in DualPipe's words: a phase is one of the rank's two parts.
class DualPipeRank {
 public:
  DualPipeRank(std::uint32_t first_part, std::uint32_t second_part) : parts_{first_part, second_part} {}

  void forward(std::size_t phase) { turns_.push_back({PartId{parts_[phase]}, forwards_[phase]++, piece::forward}); }

  /// W at once.
  void backward(std::size_t phase) {
    backward_of_input(phase);
    turns_.push_back(waiting_.back());
    waiting_.pop_back();
  }

  void backward_of_input(std::size_t phase) {
    const Turn turn{PartId{parts_[phase]}, backwards_[phase]++, piece::backward};
    turns_.push_back(turn);
    waiting_.push_back({turn.part, turn.micro_batch, piece::weights});
  }

  void weights() {
    turns_.push_back(waiting_.front());
    waiting_.pop_front();
  }

  bool has_weights() const { return !waiting_.empty(); }
  std::vector<Turn> turns() { return std::move(turns_); }

 private:
  std::array<std::uint32_t, 2> parts_, forwards_{0, 0}, backwards_{0, 0};
  std::deque<Turn> waiting_;  // weight gradients
  std::vector<Turn> turns_;
};

std::vector<Turn> dualpipe_v_turns(std::uint32_t r, std::uint32_t p, std::uint32_t m) {
  DualPipeRank rank(r, 2 * p - 1 - r);
  const std::uint32_t after = p - r - 1;  // ranks
  for (std::uint32_t i = 0; i < 2 * after; ++i) rank.forward(0);
  for (std::uint32_t i = 0; i <= r; ++i) {
    rank.forward(0);
    rank.forward(1);
  }
  for (std::uint32_t i = 0; i < after; ++i) {
    rank.backward_of_input(1);
    rank.weights();
    rank.forward(1);
  }
  for (std::uint32_t i = 0; i < m - 2 * p + r + 1; ++i) {
    rank.forward(0);
    rank.backward(1);
    rank.forward(1);
    rank.backward(0);
  }
  for (std::uint32_t i = 0; i < after; ++i) {
    rank.backward(1);
    rank.forward(1);
    rank.backward(0);
  }
  for (std::uint32_t i = 0; i < 2 * (r + 1); ++i) {  // the second half leaves W for later
    const std::size_t phase = i % 2 == 0 ? 1 : 0;
    if (i < r + 1) {
      rank.backward(phase);
    } else {
      rank.backward_of_input(phase);
    }
  }
  for (std::uint32_t i = 0; i < after; ++i) {
    rank.weights();
    rank.backward_of_input(0);
  }
  while (rank.has_weights()) rank.weights();
  return rank.turns();
}

std::vector<PartitionOutcome> dualpipe_v_partition(const Problem& problem, const Options& options,
                                                   std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t p = ranks_of(problem, options, "dualpipe_v", 2), m = problem.micro_batches;
  if (m < 2 * p) {
    throw InputError(
        fmt::format("dualpipe_v: {} micro-batch{} on {} devices; the least is {}", m, m == 1 ? "" : "es", p, 2 * p));
  }
  return pipeline(problem, options, "dualpipe_v", dualpipe_v_order(p, m), budgets);
}

constexpr std::array dualpipe_v_options{stages_option, cut_option};

}  // namespace

PipelineOrder dualpipe_v_order(std::uint32_t p, std::uint32_t m) {
  PipelineOrder order{v_shape(p), {}, true};
  for (std::uint32_t r = 0; r < p; ++r) order.turns.push_back(dualpipe_v_turns(r, p, m));
  return order;
}

extern constinit const StrategyInfo dualpipe_v_strategy{
    .name = "dualpipe_v",
    .family = Family::pipelining,
    .summary = "two parts a device, down and up the devices as a V, forwards and backwards of both by turns",
    .source = "DeepSeek-AI, DualPipe, 2025; cut in half: Qi, 'DualPipe could be better without the Dual', 2025",
    .chains_only = true,
    .options = dualpipe_v_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .partition = dualpipe_v_partition,
    .splits_backward = [](const Options&) { return true; },
};

}  // namespace plimsoll
