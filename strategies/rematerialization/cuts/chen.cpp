#include "strategies/rematerialization/cuts/chen.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "sim/core/expects.h"
#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/models/chain_pass.h"

namespace plimsoll {
namespace {

void append(ChainSequence& sequence, ChainStep::Kind kind, std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) sequence.push_back({kind, i});
}

void append_backwards(ChainSequence& sequence, std::size_t first, std::size_t end) {
  for (std::size_t i = end; i-- > first;) sequence.push_back({ChainStep::Kind::backward, i});
}

struct ChenSqrtOptions {
  std::optional<std::size_t> segments;
};

constexpr auto chen_sqrt_options = options_of<ChenSqrtOptions>(option_of<&ChenSqrtOptions::segments>({
    .name = "segments",
    .least = 1,
    .most = 1'000'000,
    .none = "sqrt",
    .values = "sqrt or a whole number from 1",
    .help = "number of segments of the chain; sqrt: the square root of the number of stages, rounded",
}));

std::vector<TapeOutcome> chen_sqrt_tapes(const PartTask& task, const ChenSqrtOptions& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  const ChainModel model = chain_model(task.problem, chain_part(task.problem, task.part()));
  const std::size_t segments = options.segments ? *options.segments : chen_segments(model.stages());
  const ChainSequence sequence = without_forbidden_repeats(model, chen_sequence(model.stages(), segments));
  return fixed_sequence(task, sequence, "chen_sqrt", budgets);
}

struct ChenGreedyOptions {
  std::optional<Bytes> size;
};

constexpr std::size_t most_parameters = 1000;

struct ChenGreedy {
  ChainModel model;
  std::vector<Bytes> parameters;
};

SequenceFamily chen_greedy_family(const PartTask& task, const ChenGreedyOptions& options) {
  const ChainPart part = chain_part(task.problem, task.part());
  ChenGreedy planner{chain_model(task.problem, part), {}};
  planner.parameters = !options.size ? greedy_parameters(planner.model) : std::vector{*options.size};
  const auto shared = std::make_shared<const ChenGreedy>(std::move(planner));
  return {.name = "chen_greedy", .count = shared->parameters.size(), .sequence = [shared](std::size_t k) {
            return segments_sequence(greedy_segments(shared->model, shared->parameters[k]).segments);
          }};
}

constexpr auto chen_greedy_options = options_of<ChenGreedyOptions>(option_of<&ChenGreedyOptions::size>({
    .name = "b",
    .values = "auto or a size, such as 300MB",
    .help = "size of its activations above which a segment is closed; auto: the size whose schedule is the fastest "
            "within the budget",
}));

}  // namespace

std::size_t chen_segments(std::size_t stages) {
  EXPECTS(stages > 0);
  return std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(stages - 1)))));
}

ChainSequence chen_sequence(std::size_t stages, std::size_t segments) {
  EXPECTS(stages > 0 && segments > 0);
  const std::size_t before_loss = stages - 1;
  const std::size_t count = std::max<std::size_t>(1, std::min(segments, before_loss));
  const std::size_t size = before_loss / count;
  const std::size_t last = (count - 1) * size;

  ChainSequence sequence;
  append(sequence, ChainStep::Kind::forward, 0, last);
  append(sequence, ChainStep::Kind::forward_saving, last, stages);
  append_backwards(sequence, last, stages);
  for (std::size_t first = last; first > 0;) {
    first -= size;
    append(sequence, ChainStep::Kind::forward_saving, first, first + size);
    append_backwards(sequence, first, first + size);
  }
  return sequence;
}

// The strategy `chen_sqrt`: Chen's segments (chen.h) as a tape.
extern constinit const StrategyInfo chen_sqrt_strategy{
    .name = "chen_sqrt",
    .family = Family::rematerialization,
    .summary = "keeps the input of each of sqrt(n) segments and recomputes the rest, one segment at a time",
    .source = "Chen, Xu, Zhang, Guestrin, 'Training Deep Nets with Sublinear Memory Cost', 2016, section 4",
    .chains_only = true,
    .options = chen_sqrt_options,
    .kind = TapeStrategy{.tapes = by_options<chen_sqrt_tapes>, .plans_parts = true},
};

GreedySegments greedy_segments(const ChainModel& model, Bytes b) {
  GreedySegments result;
  std::size_t first = 0;
  Bytes inside;
  for (std::size_t i = 0; i + 1 < model.stages(); ++i) {
    inside += model.saved[i];
    if (inside <= b || i + 2 == model.stages()) continue;
    result.segments.push_back({first, i + 1, true});
    result.next = std::min(result.next.value_or(inside), inside);
    first = i + 1;
    inside = {};
  }
  result.segments.push_back({first, model.stages(), false});
  return result;
}

std::vector<Bytes> greedy_parameters(const ChainModel& model) {
  std::vector<Bytes> all;
  for (std::optional<Bytes> b = Bytes{0}; b; b = greedy_segments(model, *b).next) all.push_back(*b);
  if (all.size() <= most_parameters) return all;
  std::vector<Bytes> some;
  for (std::size_t k = 0; k < most_parameters; ++k) {
    some.push_back(all[k * (all.size() - 1) / (most_parameters - 1)]);
  }
  return some;
}

extern constinit const StrategyInfo chen_greedy_strategy{
    .name = "chen_greedy",
    .family = Family::rematerialization,
    .summary = "cuts the chain wherever a segment's activations exceed a size, and recomputes one segment at a time",
    .source = "Chen, Xu, Zhang, Guestrin, 'Training Deep Nets with Sublinear Memory Cost', 2016, algorithm 3",
    .chains_only = true,
    .options = chen_greedy_options,
    .kind = best_of_family<ChenGreedyOptions, chen_greedy_family>(),
};

}  // namespace plimsoll
