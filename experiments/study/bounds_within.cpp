// What plimsoll bounds prints of a budget.

#include "experiments/study/bounds_within.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "sim/bound/bound_prices.h"
#include "sim/io/quantity.h"
#include "sim/measure/lower_bounds.h"
#include "sim/model/evaluation_forward.h"

namespace plimsoll {
namespace {

/// Schedules on one device that pack nothing, within a budget.
struct BoundedWithin {
  std::string_view key, words;
  bool copies;
};
constexpr std::array bounded_within{BoundedWithin{"recomputing", "ops run again", false},
                                    BoundedWithin{"offloading", "also copies to the host and the disk", true}};

constexpr DeviceId bounded_device{0};

BoundRules rules_of(const Problem& problem, const BoundedWithin& kind) {
  return {.out = kind.copies ? ways_out(problem.platform, bounded_device) : BytesPerSecond{}};
}

IterationBound bound_within(const Problem& problem, Bytes budget, const BoundedWithin& kind) {
  IterationBound bound = IterationBounds(problem, bounded_device, rules_of(problem, kind)).within_whole_values(budget);
  if (problem.evaluation) bound.time += evaluation_share(problem, bounded_device);
  const LowerBounds any = lower_bounds(problem, 1);
  if (any.memory > std::max(budget, bound.needs.value_or(budget))) {
    bound.needs = any.memory;
    bound.at = any.memory_by;
  }
  return bound;
}

constexpr double gigabyte = 1e9;

/// Of the ops that run again from a bend downwards, the one that takes the longest.
std::optional<OpId> longest_of(const Problem& problem, const BoundBend& bend) {
  const auto duration = [&](OpId op) { return problem.graph[op].duration; };
  const auto longest = std::ranges::max_element(bend.ops, {}, duration);
  return longest == bend.ops.end() ? std::nullopt : std::optional(*longest);
}

std::string_view key_of(Flip flip) {
  switch (flip) {
    case Flip::repeats:
      return "repeats";
    case Flip::waits:
      return "waits";
    case Flip::many_calls:
      return "many_calls";
    case Flip::nothing:
      return "nothing";
  }
  return {};
}

Json bend_json(const Problem& problem, const std::optional<BoundBend>& bend) {
  if (!bend) return nullptr;
  const std::optional<OpId> longest = longest_of(problem, *bend);
  return {{"budget_bytes", bend->budget.count},
          {"instant", bend->at ? Json(problem.graph[*bend->at].name) : Json(nullptr)},
          {"below", key_of(bend->flip)},
          {"ops", bend->ops.size()},
          {"longest_op", longest ? Json(problem.graph[*longest].name) : Json(nullptr)},
          {"again_s", bend->time.value},
          {"bytes", bend->bytes.count}};
}

Json prices_json(const Problem& problem, Bytes budget, const BoundedWithin& kind) {
  const BoundRules rules = rules_of(problem, kind);
  const BoundPrices prices = bound_prices(problem, bounded_device, rules, budget);
  const BoundBends bends = IterationBounds(problem, bounded_device, rules).bends(budget);
  return {{"memory_1_gb_saves_s", prices.memory.value},
          {"links_10_gb_per_s_save_s", prices.links ? Json(prices.links->value) : Json(nullptr)},
          {"host_memory_twice_as_fast_saves_s", prices.host ? Json(prices.host->value) : Json(nullptr)},
          {"flip_below", bend_json(problem, bends.below)},
          {"flip_above", bend_json(problem, bends.above)}};
}

/// Whether the budget falls below the bend, or rises to it.
std::string bend_text(const Problem& problem, const BoundBend& bend, bool falls) {
  if (bend.flip == Flip::nothing) return falls ? "nothing fits" : "something fits";
  if (bend.flip == Flip::many_calls) return "the backward is not one call of autograd";
  if (bend.flip == Flip::waits) return falls ? "ops wait for more copies" : "ops wait for no more copies";
  const std::optional<OpId> longest = longest_of(problem, bend);
  if (!longest) return "other ops run later";
  return fmt::format("{} {} {} again, '{}' the longest: {} for {}", bend.ops.size(),
                     bend.ops.size() == 1 ? "op" : "ops", falls ? "run" : "no longer run", problem.graph[*longest].name,
                     format_seconds(bend.time), format_bytes(bend.bytes));
}

std::string prices_table(const Problem& problem, Bytes budget, const BoundedWithin& kind) {
  const BoundRules rules = rules_of(problem, kind);
  const BoundPrices prices = bound_prices(problem, bounded_device, rules, budget);
  const BoundBends bends = IterationBounds(problem, bounded_device, rules).bends(budget);
  const auto line = [](std::string_view what, std::string_view worth) {
    return fmt::format("    {:<38}  {}\n", what, worth);
  };
  std::string text = line("1 GB more memory saves", format_seconds(prices.memory));
  if (kind.copies) {
    text += line("10 GB/s more of the links to the host save",
                 prices.links ? format_seconds(*prices.links) : "nothing: no link leads there");
    text += line("a host's memory twice as fast saves",
                 prices.host ? format_seconds(*prices.host) : "nothing: it does not limit the copies");
  }
  if (bends.above) {
    text += line(fmt::format("from {} on", format_bytes(bends.above->budget)), bend_text(problem, *bends.above, false));
  }
  if (bends.below) {
    text += line(fmt::format("below {}", format_bytes(bends.below->budget)), bend_text(problem, *bends.below, true));
  }
  return text;
}

}  // namespace

Json within_json(const Problem& problem, Bytes budget, Prices prices) {
  Json object{{"budget_bytes", budget.count}};
  for (const BoundedWithin& kind : bounded_within) {
    const IterationBound bound = bound_within(problem, budget, kind);
    object[std::string(kind.key)] = {
        {"lower_bound_s", bound.needs ? Json(nullptr) : Json(bound.time.value)},
        {"instant", bound.at ? Json(problem.graph[*bound.at].name) : Json(nullptr)},
        {"price_s_per_gb", bound.price * gigabyte},
        {"needs_bytes", bound.needs ? Json(bound.needs->count) : Json(nullptr)},
        {"prices", prices == Prices::shown && !bound.needs ? prices_json(problem, budget, kind) : Json(nullptr)}};
  }
  return object;
}

std::string within_table(const Problem& problem, Bytes budget, Prices prices) {
  std::string text = fmt::format("within {}, where all of these stay on the device\n", format_bytes(budget));
  for (const BoundedWithin& kind : bounded_within) {
    const IterationBound bound = bound_within(problem, budget, kind);
    const std::string at = bound.at ? fmt::format("when '{}' begins", problem.graph[*bound.at].name) : "";
    if (bound.needs) {
      text += fmt::format("  {:<40}  {:>13}   {} at least {} are live\n", kind.words, "nothing fits", at,
                          format_bytes(*bound.needs));
    } else {
      text += fmt::format("  {:<40}  {:>13}   {} a GB is worth {}\n", kind.words, format_seconds(bound.time), at,
                          format_seconds(Seconds{bound.price * gigabyte}));
      if (prices == Prices::shown) text += prices_table(problem, budget, kind);
    }
  }
  return text;
}

}  // namespace plimsoll
