#include "strategies/pipelining/both_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "strategies/pipelining/orders/v_shape_search.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

class DualPipeRank {
 public:
  explicit DualPipeRank(const MeetingWays& ways) : ways_(ways) {}

  std::vector<Turn> turns(std::uint32_t ranks, std::uint32_t before, std::uint32_t m) {
    const std::uint32_t after = ranks - before - 1;
    for (std::uint32_t i = 0; i < 2 * after; ++i) forward(0);
    for (std::uint32_t i = 0; i <= before; ++i) {
      forward(0);
      forward(1);
    }
    for (std::uint32_t i = 0; i < after; ++i) {
      input_gradient(1);
      weights();
      forward(1);
    }
    for (std::uint32_t i = 0; i < m - 2 * ranks + before + 1; ++i) {
      forward(0);
      backward(1);
      forward(1);
      backward(0);
    }
    for (std::uint32_t i = 0; i < after; ++i) {
      backward(1);
      forward(1);
      backward(0);
    }
    for (std::uint32_t k = 0; k < 2 * (before + 1); ++k) {  // later ones leave their weight gradients for the end
      k < before + 1 ? backward(1 - k % 2) : input_gradient(1 - k % 2);
    }
    for (std::uint32_t i = 0; i < after; ++i) {
      weights();
      input_gradient(0);
    }
    for (std::uint32_t i = 0; i <= before; ++i) weights();
    EXPECTS(waiting_.empty());
    return std::move(turns_);
  }

 private:
  Turn next(std::array<std::uint32_t, 2>& done, std::size_t way, std::uint32_t which) {
    return {ways_.parts[way], ways_.first[way] + ways_.step * done[way]++, which};
  }
  void forward(std::size_t way) { turns_.push_back(next(forwards_, way, piece::forward)); }
  void input_gradient(std::size_t way) {
    turns_.push_back(next(backwards_, way, piece::backward));
    waiting_.push_back(turns_.back());
  }
  void backward(std::size_t way) {
    turns_.push_back(next(backwards_, way, piece::backward));
    turns_.push_back({turns_.back().part, turns_.back().micro_batch, piece::weights});
  }
  void weights() {
    turns_.push_back({waiting_.front().part, waiting_.front().micro_batch, piece::weights});
    waiting_.pop_front();
  }

  const MeetingWays& ways_;
  std::array<std::uint32_t, 2> forwards_{}, backwards_{};
  std::deque<Turn> waiting_;
  std::vector<Turn> turns_;
};

struct ChimeraOptions : LineOptions {
  std::uint32_t pairs = 1;
};

std::vector<PartitionOutcome> chimera_partition(const Problem& problem, const ChimeraOptions& options,
                                                std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t pairs = options.pairs;
  const std::uint32_t ranks = ranks_of(problem, options, "chimera");
  if (ranks % (2 * pairs) != 0) {
    throw InputError(fmt::format("chimera: {} stages, and pairs={} needs a multiple of {}", ranks, pairs, 2 * pairs));
  }
  if (problem.micro_batches < 2 * pairs) {
    throw InputError(fmt::format("chimera: {} micro-batch{}, and {} pipelines need at least {}", problem.micro_batches,
                                 problem.micro_batches == 1 ? "" : "es", 2 * pairs, 2 * pairs));
  }
  return in_buckets(pipeline(problem, options, "chimera", chimera_order(ranks, problem.micro_batches, pairs), budgets),
                    options);
}

constexpr auto chimera_options = options_of<ChimeraOptions>(
    stages_option, cut_option, shared_updates_option, work_conserving_option, backward_option, buckets_option,
    option_of<&ChimeraOptions::pairs>({
        .name = "pairs",
        .least = 1,
        .most = 32,
        .help = "pipelines each way; twice as many copies of the model's weights. stages must be a multiple of 2 pairs",
    }));

std::vector<PartitionOutcome> dualpipe_partition(const Problem& problem, const LineOptions& options,
                                                 std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "dualpipe"), m = problem.micro_batches;
  if (ranks % 2 != 0) throw InputError(fmt::format("dualpipe: {} stages, and the two ways need an even number", ranks));
  if (m % 2 != 0 || m < 2 * ranks) {
    throw InputError(fmt::format("dualpipe: {} micro-batch{}, and {} stages need an even number of at least {}", m,
                                 m == 1 ? "" : "es", ranks, 2 * ranks));
  }
  return in_buckets(pipeline(problem, options, "dualpipe", dualpipe_order(ranks, m), budgets), options);
}

constexpr auto dualpipe_options =
    options_of<LineOptions>(stages_option, cut_option, shared_updates_option, work_conserving_option, buckets_option);

std::vector<PartitionOutcome> dualpipe_v_partition(const Problem& problem, const LineOptions& options,
                                                   std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t p = ranks_of(problem, options, "dualpipe_v", 2), m = problem.micro_batches;
  if (m < 2 * p) {
    throw InputError(
        fmt::format("dualpipe_v: {} micro-batch{} on {} devices; the least is {}", m, m == 1 ? "" : "es", p, 2 * p));
  }
  return pipeline(problem, options, "dualpipe_v", dualpipe_v_order(p, m), budgets);
}

constexpr auto dualpipe_v_options =
    options_of<LineOptions>(stages_option, cut_option, shared_updates_option, work_conserving_option);

}  // namespace

/// With F = B = 1 micro-batch i of a unit enters each pipeline at slot 2i and takes a slot a stage. Forwards of the
/// ways down and up a rank have slots of different parity, as have backwards, and no two passes of a rank have the same
/// slot modulo 2p: the next unit begins 2p slots later.
PipelineOrder chimera_order(std::uint32_t p, std::uint32_t m, std::uint32_t pairs) {
  EXPECTS(pairs > 0 && p % (2 * pairs) == 0 && m >= 2 * pairs);
  PipelineOrder order;
  const std::uint32_t ways = 2 * pairs;
  for (std::uint32_t way = 0; way < ways; ++way) {
    for (std::uint32_t s = 0; s < p; ++s) {
      const std::uint32_t moved = (s + way / 2 * (p / pairs)) % p;
      order.rank_of.push_back(way % 2 == 0 ? moved : p - 1 - moved);
      order.stage_of.push_back(s);
    }
  }
  std::vector<std::map<std::uint32_t, Turn>> slots(p);  // by rank
  for (std::uint32_t i = 0; i < m; ++i) {
    const std::uint32_t way = i % ways, begins = i / p * 2 * p + i % p / ways * 2;
    for (std::uint32_t s = 0; s < p; ++s) {
      const PartId part{way * p + s};
      std::map<std::uint32_t, Turn>& of_rank = slots[order.rank_of[part.index]];
      const bool free = of_rank.try_emplace(begins + s, Turn{part, i, piece::forward}).second &&
                        of_rank.try_emplace(begins + 2 * p - 1 - s, Turn{part, i, piece::backward}).second;
      EXPECTS(free);
    }
  }
  for (const std::map<std::uint32_t, Turn>& of_rank : slots) {
    std::vector<Turn>& turns = order.turns.emplace_back();
    for (const auto& [slot, turn] : of_rank) turns.push_back(turn);
  }
  return order;
}

std::vector<Turn> dualpipe_turns(const MeetingWays& ways, std::uint32_t ranks, std::uint32_t before, std::uint32_t m) {
  EXPECTS(before < ranks && m + before + 1 >= 2 * ranks);
  return DualPipeRank(ways).turns(ranks, before, m);
}

/// Micro-batches of the way down are even, of the way up odd. The way that begins nearer to a rank comes first.
PipelineOrder dualpipe_order(std::uint32_t p, std::uint32_t m) {
  EXPECTS(p % 2 == 0 && m % 2 == 0 && m >= 2 * p);
  PipelineOrder order;
  order.weights_apart = true;
  for (std::uint32_t part = 0; part < 2 * p; ++part) {
    order.rank_of.push_back(part < p ? part : 2 * p - 1 - part);
    order.stage_of.push_back(part % p);
  }
  for (std::uint32_t rank = 0; rank < p; ++rank) {
    const PartId down{rank}, up{2 * p - 1 - rank};
    const bool down_first = rank < p / 2;
    const MeetingWays ways = down_first ? MeetingWays{{down, up}, {0, 1}, 2} : MeetingWays{{up, down}, {1, 0}, 2};
    order.turns.push_back(dualpipe_turns(ways, p / 2, down_first ? rank : p - 1 - rank, m / 2));
  }
  return order;
}

// The strategy `chimera`: pipelines down and up the same devices, which fill each other's idle time; every device has a
// part of the model for each, and the gradients of the copies are summed.
// Equation: with F = B, free transfers and m a multiple of p the makespan is (2m + p / pairs - 2) F.
extern constinit const StrategyInfo chimera_strategy{
    .name = "chimera",
    .family = Family::pipelining,
    .summary = "pipelines both ways over the same devices: half the idle time, twice the weights",
    .source =
        "Li, Hoefler, 'Chimera: efficiently training large-scale neural networks with bidirectional pipelines', SC "
        "2021",
    .chains_only = true,
    .options = chimera_options,
    .kind =
        PartitionStrategy{.partition = by_options<chimera_partition>, .splits_backward = by_options<is_backward_split>},
};

// The strategy `dualpipe`: a pipeline each way over the same devices, with split backwards.
// Equation: with W half of the whole backward, free transfers and a forward and a backward of the two ways that take as
// long together as one after the other, the bubble is (p / 2 - 1)(F + 2 (B + W) - 3 W).
extern constinit const StrategyInfo dualpipe_strategy{
    .name = "dualpipe",
    .family = Family::pipelining,
    .summary = "a pipeline each way with split backwards: little idle time, twice the weights, one micro-batch more",
    .source = "DeepSeek-AI, 'DeepSeek-V3 technical report', 2024",
    .chains_only = true,
    .options = dualpipe_options,
    .kind = PartitionStrategy{.partition = by_options<dualpipe_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

PipelineOrder dualpipe_v_order(std::uint32_t p, std::uint32_t m) {
  PipelineOrder order{v_shape(p), {}, true};
  for (std::uint32_t r = 0; r < p; ++r) {
    order.turns.push_back(dualpipe_turns({{PartId{r}, PartId{2 * p - 1 - r}}, {0, 0}}, p, r, m));
  }
  return order;
}

// The strategy `dualpipe_v`: DualPipe cut in half: two parts of the model a device, placed as a V, so that the two
// directions of DualPipe are the two halves of one pipeline and no device has parameters twice.
// Equation: with equal parts and free transfers the bubble is (p - 1)(F + 2B - W) at most, and no device keeps more
// than 2p + 1 of its parts' micro-batches.
extern constinit const StrategyInfo dualpipe_v_strategy{
    .name = "dualpipe_v",
    .family = Family::pipelining,
    .summary = "two parts a device, down and up the devices as a V, alternating forwards and backwards of both",
    .source = "DeepSeek-AI, DualPipe, 2025; cut in half: Qi, 'DualPipe could be better without the Dual', 2025",
    .chains_only = true,
    .options = dualpipe_v_options,
    .kind = PartitionStrategy{.partition = by_options<dualpipe_v_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
