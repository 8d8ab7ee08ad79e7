#include "strategies/rematerialization/policies/selective.h"

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

}  // namespace

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

namespace {

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

std::vector<TapeOutcome> selective_tapes(const PartTask& task, const SelectiveOptions& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return best_of_sequences(task, selective_family(task, options), budgets);
}

std::vector<Bytes> selective_candidates(const PartTask& task, const SelectiveOptions& options) {
  return budgets_of_sequences(task, selective_family(task, options));
}

}  // namespace

extern constinit const StrategyInfo selective_strategy{
    .name = "selective",
    .family = Family::rematerialization,
    .summary = "recomputes the stages that a policy selects, each from its input, and keeps the others",
    .source =
        "PyTorch's and torchtitan's selective activation checkpointing; Megatron-LM, --recompute-granularity "
        "selective",
    .chains_only = true,
    .options = selective_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<selective_tapes>,
            .candidates = by_options<selective_candidates>,
            .plans_parts = true,
        },
};

}  // namespace plimsoll
