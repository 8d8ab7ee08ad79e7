#include "strategies/pipelining/cuts/asked_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "strategies/models/chain_pass.h"
#include "strategies/pipelining/cuts/line_options.h"
#include "strategies/pipelining/cuts/planner_cuts.h"
#include "strategies/pipelining/cuts/sapp_cut.h"
#include "strategies/pipelining/cuts/stage_parts.h"

namespace plimsoll {
namespace {

/// What fits a device in plain training, as RangeFits asks.
class PlainFits {
 public:
  PlainFits(const Problem& problem, Bytes budget, bool weights_apart, std::vector<Waiting> waiting)
      : problem_(problem), budget_(budget), weights_apart_(weights_apart), waiting_(std::move(waiting)) {}

  bool operator()(std::uint32_t first, std::uint32_t last, std::uint32_t in_flight) {
    const Waiting waiting = waiting_[std::min<std::size_t>(in_flight, waiting_.size()) - 1];
    const auto [found, is_new] = fits_.try_emplace(std::tuple(first, last, waiting));
    if (is_new) found->second = asks(first, last, waiting);
    return found->second;
  }

 private:
  bool asks(std::uint32_t first, std::uint32_t last, const Waiting& waiting) const {
    if (!is_trained(problem_, first, last)) return true;
    const RangePart range(problem_, first, last, DeviceId{0}, weights_apart_);
    return plain_training_peak({problem_, range.partition, range.id, waiting.in_flight, waiting.weights}) <= budget_;
  }

  const Problem& problem_;
  Bytes budget_;
  bool weights_apart_;
  std::vector<Waiting> waiting_;  // by in_flight - 1
  std::map<std::tuple<std::uint32_t, std::uint32_t, Waiting>, bool> fits_;
};

/// The partition's parts with nothing in them, to count what waits.
std::vector<Waiting> waiting_in(const PipelineOrder& order) {
  Partition partition;
  partition.parts.resize(order.rank_of.size());
  for (Part& part : partition.parts) part.cut_before_weights = order.weights_apart;
  partition.order = order.turns;
  return plimsoll::waiting_in(partition);
}

/// By devices behind; where the order follows from the cut, as ZB-H1's.
std::vector<Waiting> waiting_behind(const Problem& problem, const PipelineOrder& placed) {
  const auto p = static_cast<std::uint32_t>(placed.rank_of.size());
  std::vector<Waiting> waiting =
      waiting_in(placed.turns.empty() ? zero_bubble_order(p, problem.micro_batches, 1) : placed);
  std::ranges::reverse(waiting);
  return waiting;
}

bool has_one_part_a_rank(const PipelineOrder& placed) {
  for (std::size_t g = 0; g < placed.rank_of.size(); ++g) {
    if (placed.rank_of[g] != g) return false;
  }
  return placed.stage_of.empty();
}

/// The cut that the option gives, if it does.
std::optional<StageCut> given_cut(const Problem& problem, const LineOptions& options, std::string_view strategy) {
  std::optional<StageCut> given = read_cut(options.cut);
  const std::size_t stages = problem.chain->stages.size();
  if (given && given->first.back() >= stages) {
    throw InputError(fmt::format("{}: cut={} begins a part with stage {}, and '{}' has {} stages, counted from 0",
                                 strategy, options.cut, given->first.back(), problem.graph.name, stages));
  }
  return given;
}

StageCut planned_cut(const Problem& problem, const CutQuestion& question, std::string_view strategy) {
  std::variant<StageCut, std::string> cut = planner_cut(problem, question);
  if (const std::string* why = std::get_if<std::string>(&cut)) throw InputError(fmt::format("{}: {}", strategy, *why));
  return std::get<StageCut>(std::move(cut));
}

/// Of parts in their order, part g on rank g mod p.
StageCut sapp_cut_of(const Problem& problem, std::string_view strategy, std::uint32_t ranks,
                     std::span<const Waiting> waiting, bool weights_apart, const std::optional<Bytes>& budget) {
  std::variant<StageCut, std::string> cut = cut_by_sapp(problem, ranks, waiting, weights_apart, budget);
  if (const std::string* why = std::get_if<std::string>(&cut)) throw InputError(fmt::format("{}: {}", strategy, *why));
  return std::get<StageCut>(std::move(cut));
}

StageCut sapp_cut_of(const Problem& problem, std::string_view strategy, const PipelineOrder& placed,
                     const std::optional<Bytes>& budget) {
  const std::uint32_t ranks = std::ranges::max(placed.rank_of) + 1;
  bool in_turn = placed.stage_of.empty();
  for (std::size_t g = 0; g < placed.rank_of.size(); ++g) in_turn = in_turn && placed.rank_of[g] == g % ranks;
  if (!in_turn) {
    throw InputError(fmt::format(
        "{}: cut=sapp is for pipelines whose parts are on the devices in turn, one or several on each", strategy));
  }
  std::vector<Waiting> waiting = waiting_in(placed);
  if (placed.turns.empty()) {
    waiting = waiting_behind(problem, placed);
    std::ranges::reverse(waiting);
  }
  return sapp_cut_of(problem, strategy, ranks, waiting, placed.weights_apart, budget);
}

StageCut ruled_cut(const Problem& problem, const LineOptions& options, std::size_t parts) {
  const CutRule rule = options.cut == "uniform" ? CutRule::uniform : CutRule::balanced;
  return without_copies(cut_stages(*problem.chain, parts, rule));
}

}  // namespace

RangeFits plain_fits(const Problem& problem, Bytes budget, bool weights_apart, std::vector<Waiting> waiting) {
  return PlainFits(problem, budget, weights_apart, std::move(waiting));
}

RangeBytes plain_bytes(const Problem& problem) {
  using Range = std::pair<std::uint32_t, std::uint32_t>;
  return [&problem, known = std::map<Range, TapeCost>()](std::uint32_t first, std::uint32_t last,
                                                         std::uint32_t in_flight) mutable {
    if (!is_trained(problem, first, last)) return 0.0;
    const auto [found, is_new] = known.try_emplace({first, last});
    TapeCost& cost = found->second;
    if (is_new) {
      const RangePart range(problem, first, last, DeviceId{0}, false);
      const PartTask task{problem, range.partition, range.id};
      cost = tape_cost(problem, task.part(), plain_tape(task));
    }
    return static_cast<double>((cost.peak + (in_flight - 1) * cost.kept).count);
  };
}

namespace {

/// Of too few stages: what makes more of the ops of a graph whose stages they are.
std::string more_by_ops(const Problem& problem, std::string_view strategy) {
  if (!problem.of_ops) return {};
  std::size_t own = 0;
  for (const Op& op : problem.of_ops->ops) own = std::max(own, std::size_t{op.stage} + 1);
  const bool are_own = problem.chain->stages.size() <= own + 1;  // with a loss
  return are_own ? fmt::format("; 'chain|{}' cuts its ops into more", strategy) : "";
}

}  // namespace

std::uint32_t ranks_of(const Problem& problem, const LineOptions& options, std::string_view strategy,
                       std::uint32_t parts_a_rank) {
  const std::size_t devices = problem.platform.devices.size(), stages = problem.chain->stages.size();
  if (stages < parts_a_rank) {
    throw InputError(fmt::format("{}: {} parts a device, and '{}' has {} stages{}", strategy, parts_a_rank,
                                 problem.graph.name, stages, more_by_ops(problem, strategy)));
  }
  const std::optional<StageCut> given = read_cut(options.cut);
  if (!options.stages && !given) {
    return static_cast<std::uint32_t>(std::min(devices, stages / parts_a_rank));
  }
  const std::uint32_t asked = options.stages.value_or(given ? (given->devices() + parts_a_rank - 1) / parts_a_rank : 0);
  if (asked > devices) {
    throw InputError(fmt::format("{}: stages={}, and platform '{}' has {} device{}", strategy, asked,
                                 problem.platform.name, devices, devices == 1 ? "" : "s"));
  }
  const bool has_copies = given && given->has_copies();
  if (!has_copies && std::size_t{asked} * parts_a_rank > stages) {
    throw InputError(fmt::format("{}: {} parts of at least one stage each, and '{}' has {} stages{}", strategy,
                                 std::size_t{asked} * parts_a_rank, problem.graph.name, stages,
                                 more_by_ops(problem, strategy)));
  }
  return asked;
}

StageCut asked_cut(const Problem& problem, const LineOptions& options, std::string_view strategy,
                   const PipelineOrder& placed, const std::optional<Bytes>& budget) {
  const std::string_view cut = options.cut;
  const std::size_t parts =
      placed.stage_of.empty() ? placed.rank_of.size() : std::ranges::max(placed.stage_of) + std::size_t{1};
  EXPECTS(cut != joint_cut);
  if (cut == sapp_cut) return sapp_cut_of(problem, strategy, placed, budget);
  if (is_planner_cut(cut)) {
    if (!has_one_part_a_rank(placed)) {
      throw InputError(
          fmt::format("{}: cut={} is for pipelines with one part a device, in their order", strategy, cut));
    }
    CutQuestion question{.planner = cut, .devices = static_cast<std::uint32_t>(parts)};
    if (budget) question.fits = plain_fits(problem, *budget, placed.weights_apart, waiting_behind(problem, placed));
    return planned_cut(problem, question, strategy);
  }
  std::optional<StageCut> given = given_cut(problem, options, strategy);
  if (!given) return ruled_cut(problem, options, parts);
  if (given->has_copies()) {
    throw InputError(
        fmt::format("{}: cut={} has a part on several devices, which {} has no order for", strategy, cut, strategy));
  }
  if (given->first.size() != parts) {
    throw InputError(fmt::format("{}: cut={} has {} part{}, and the pipeline {}", strategy, cut, given->first.size(),
                                 given->first.size() == 1 ? "" : "s", parts));
  }
  return *std::move(given);
}

StageCut asked_cut_with_copies(const Problem& problem, const LineOptions& options, std::string_view strategy,
                               std::uint32_t ranks, std::vector<Waiting> waiting, const std::optional<Bytes>& budget) {
  const std::string_view cut = options.cut;
  EXPECTS(cut != joint_cut);
  StageCut made;
  if (cut == sapp_cut) {
    std::ranges::reverse(waiting);
    made = sapp_cut_of(problem, strategy, ranks, waiting, false, budget);
  } else if (is_planner_cut(cut)) {
    CutQuestion question{.planner = cut, .devices = ranks, .copies = true};
    if (budget) question.fits = plain_fits(problem, *budget, false, std::move(waiting));
    made = planned_cut(problem, question, strategy);
  } else if (std::optional<StageCut> given = given_cut(problem, options, strategy)) {
    if (given->devices() != ranks) {
      throw InputError(fmt::format("{}: cut={} is for {} device{}, and stages={}", strategy, cut, given->devices(),
                                   given->devices() == 1 ? "" : "s", ranks));
    }
    made = *std::move(given);
  } else {
    made = ruled_cut(problem, options, ranks);
  }
  const std::uint32_t most = std::ranges::max(made.copies);
  if (problem.micro_batches < most) {
    throw InputError(fmt::format("{}: cut={} has a part on {} devices, which need at least {} micro-batches", strategy,
                                 cut, most, most));
  }
  return made;
}

}  // namespace plimsoll
