#include "strategies/rematerialization/policies/policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sim/io/input_error.h"
#include "strategies/api/option_rules.h"
#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/models/checkpoint_segments.h"

namespace plimsoll {
namespace {

struct FullRecomputeOptions {
  RecomputeMethod method = RecomputeMethod::uniform;
  std::optional<std::size_t> layers = 1;
};

SequenceFamily full_recompute_family(const PartTask& task, const FullRecomputeOptions& options) {
  const std::size_t stages = chain_part(task.problem, task.part()).chain.stages.size();
  const RecomputeMethod method = options.method;
  const bool any = !options.layers;
  const std::size_t least = any ? (method == RecomputeMethod::block ? 0 : 1) : *options.layers;
  return {.name = "full_recompute",
          .count = any ? std::max<std::size_t>(1, stages - least) : 1,
          .sequence = [stages, method, least](std::size_t k) {
            return segments_sequence(full_recompute_segments(stages, method, least + k));
          }};
}

constexpr auto full_recompute_options = options_of<FullRecomputeOptions>(
    option_of<&FullRecomputeOptions::method>({
        .name = "method",
        .words = "uniform block",
        .help = "uniform: recompute all layers, in groups of `layers`; block: recompute the first `layers` layers "
                "only, one by one",
    }),
    option_of<&FullRecomputeOptions::layers>({
        .name = "layers",
        .least = 1,
        .most = 1'000'000,
        .values = "auto or a whole number from 1",
        .help = "Megatron-LM's --recompute-num-layers: layers in a group (uniform), or layers that are recomputed "
                "(block); auto: the number that is the fastest within the budget",
    }));

struct PeriodicOptions {
  std::optional<std::size_t> every;
};

SequenceFamily periodic_family(const PartTask& task, const PeriodicOptions& options) {
  const std::size_t stages = chain_part(task.problem, task.part()).chain.stages.size();
  const auto sequence_of = [stages](std::size_t every) { return segments_sequence(segments_of(stages, every)); };
  if (!options.every) {
    return {.name = "periodic",
            .count = std::max<std::size_t>(1, stages - 1),
            .sequence = [sequence_of](std::size_t k) { return sequence_of(k + 1); }};
  }
  const std::size_t every = *options.every;
  return {.name = "periodic", .count = 1, .sequence = [sequence_of, every](std::size_t) { return sequence_of(every); }};
}

constexpr auto periodic_options = options_of<PeriodicOptions>(option_of<&PeriodicOptions::every>({
    .name = "every",
    .least = 1,
    .most = 1'000'000,
    .values = "auto or a whole number from 1",
    .help = "number of stages that are recomputed together (the last ones are kept); auto: the number that is the "
            "fastest within the budget",
}));

struct SelectiveOptions {
  std::string patterns = "*";
  std::optional<std::size_t> every;
  std::string keep_every = "none";  ///< none, auto or a number
};

// More combinations of two free numbers than this are not tried.
constexpr std::size_t most_policies = 2000;

// After a mismatch the last `*` takes one character more.
bool matches_whole(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, after_star = std::string_view::npos, star_end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      star_end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (after_star != std::string_view::npos) {
      p = after_star;
      n = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool matches_part(std::string_view pattern, std::string_view name) {
  if (matches_whole(pattern, name)) return true;
  while (true) {
    const std::size_t dot = name.find('.');
    if (matches_whole(pattern, name.substr(0, dot))) return true;
    if (dot == std::string_view::npos) return false;
    name.remove_prefix(dot + 1);
  }
}

std::vector<std::string> names_of(const std::vector<Stage>& stages) {
  std::vector<std::string> names;
  names.reserve(stages.size());
  for (const Stage& stage : stages) names.push_back(stage.name);
  return names;
}

/// Of an option that is not given: all up to the most.
std::vector<std::optional<std::size_t>> values_of(const std::optional<std::size_t>& asked, std::size_t most) {
  if (asked) return {*asked};
  std::vector<std::optional<std::size_t>> values;
  for (std::size_t k = 1; k <= most; ++k) values.emplace_back(k);
  return values;
}

std::vector<std::optional<std::size_t>> kept_values(const std::string& asked, std::size_t most) {
  if (asked == "none") return {std::nullopt};
  return values_of(asked == "auto" ? std::nullopt : std::optional<std::size_t>(std::stoul(asked)), most);
}

std::vector<SelectivePolicy> policies(const SelectiveOptions& options, std::size_t layers) {
  // One more than there are layers: none of them.
  const auto every = values_of(options.every, layers + 1);
  const auto keep = kept_values(options.keep_every, layers + 1);
  std::vector<SelectivePolicy> list;
  for (const auto& k : keep) {
    for (const auto& e : every) {
      if (e == every.front() || k == keep.back() || every.size() * keep.size() <= most_policies) list.push_back({e, k});
    }
  }
  return list;
}

SequenceFamily selective_family(const PartTask& task, const SelectiveOptions& options) {
  const std::string patterns(options.patterns);
  const Chain& whole = *task.problem.chain;
  if (std::ranges::none_of(whole.stages, [&](const Stage& stage) { return matches(patterns, stage.name); })) {
    throw InputError(fmt::format("selective.stages: no stage of '{}' matches '{}'; its first stage is '{}'", whole.name,
                                 patterns, whole.stages.front().name));
  }
  const ChainPart part = chain_part(task.problem, task.part());
  const std::vector<std::string> names = names_of(part.chain.stages);
  const auto list = std::make_shared<const std::vector<SelectivePolicy>>(policies(options, names.size() - 1));
  return {.name = "selective", .count = list->size(), .sequence = [=](std::size_t k) {
            return segments_sequence(segment_each(selected(names, patterns, (*list)[k])));
          }};
}

constexpr auto selective_options = options_of<SelectiveOptions>(
    option_of<&SelectiveOptions::patterns>({
        .name = "stages",
        .values = "patterns joined by '+', such as attention or block1?.*+stem",
        .help =
            "stages that may be recomputed; a pattern matches the name of a stage or a part of the name between dots",
        .allowed = [](std::string_view text) { return !text.empty() && text.front() != '+' && text.back() != '+'; },
    }),
    option_of<&SelectiveOptions::every>({
        .name = "every",
        .least = 1,
        .most = 1'000'000,
        .values = "auto or a whole number from 1",
        .help = "recompute every k-th of these stages (torchtitan's selective_ac_option); auto: the k that is the "
                "fastest within the budget, or no recomputation",
    }),
    option_of<&SelectiveOptions::keep_every>({
        .name = "keep_every",
        .values = "none, auto or a whole number from 1",
        .help = "keep every k-th of the stages that `every` selects; none: keep none of them; auto: the k that is the "
                "fastest within the budget",
        .allowed =
            [](std::string_view text) {
              return text == "none" || text == "auto" || integer_between<1, 1'000'000>(text);
            },
    }));

}  // namespace

std::vector<Segment> full_recompute_segments(std::size_t stages, RecomputeMethod method, std::size_t layers) {
  const std::size_t all = stages - 1;
  const std::size_t recomputed = method == RecomputeMethod::block ? std::min(layers, all) : all;
  const std::size_t size = method == RecomputeMethod::block ? 1 : layers;
  std::vector<Segment> segments;
  for (std::size_t first = 0; first < recomputed; first += size) {
    segments.push_back({first, std::min(first + size, recomputed), true});
  }
  segments.push_back({recomputed, stages, false});
  return segments;
}

extern constinit const StrategyInfo full_recompute_strategy{
    .name = "full_recompute",
    .family = Family::rematerialization,
    .summary = "recomputes every layer from its input, as Megatron-LM's full activation recomputation does",
    .source =
        "Megatron-LM, --recompute-granularity full; Korthikanti et al., 'Reducing Activation Recomputation in "
        "Large Transformer Models', 2022",
    .chains_only = true,
    .options = full_recompute_options,
    .kind = best_of_family<FullRecomputeOptions, full_recompute_family>(),
};

// The strategy `periodic`: the input of every k-th stage is kept, what is between is recomputed.
extern constinit const StrategyInfo periodic_strategy{
    .name = "periodic",
    .family = Family::rematerialization,
    .summary = "keeps the input of every k-th stage and recomputes k stages at a time",
    .source = "torch.utils.checkpoint around every k stages in a row",
    .chains_only = true,
    .options = periodic_options,
    .kind = best_of_family<PeriodicOptions, periodic_family>(),
};

bool matches(std::string_view patterns, std::string_view name) {
  while (true) {
    const std::size_t plus = patterns.find('+');
    if (matches_part(patterns.substr(0, plus), name)) return true;
    if (plus == std::string_view::npos) return false;
    patterns.remove_prefix(plus + 1);
  }
}

std::vector<bool> selected(const std::vector<std::string>& names, std::string_view patterns,
                           const SelectivePolicy& policy) {
  std::vector<bool> recomputed(names.size(), false);
  std::size_t matched = 0, chosen = 0;
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    if (!matches(patterns, names[i])) continue;
    if (policy.recompute_every && ++matched % *policy.recompute_every != 0) continue;
    recomputed[i] = !policy.keep_every || ++chosen % *policy.keep_every != 0;
  }
  return recomputed;
}

extern constinit const StrategyInfo selective_strategy{
    .name = "selective",
    .family = Family::rematerialization,
    .summary = "recomputes the stages that a policy selects, each from its input, and keeps the others",
    .source =
        "PyTorch's and torchtitan's selective activation checkpointing; Megatron-LM, --recompute-granularity "
        "selective",
    .chains_only = true,
    .options = selective_options,
    .kind = best_of_family<SelectiveOptions, selective_family>(),
};

}  // namespace plimsoll
