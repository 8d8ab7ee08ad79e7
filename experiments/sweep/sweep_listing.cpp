#include "experiments/sweep/sweep_listing.h"

#include <fmt/format.h>

#include <ostream>

#include "sim/core/names.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

std::string in_words(const BudgetEnd& end) {
  if (const Bytes* bytes = std::get_if<Bytes>(&end)) return format_bytes(*bytes);
  return to_json(end).get<std::string>();
}

std::string budgets_in_words(const Experiment& e) {
  if (const BudgetRange* range = std::get_if<BudgetRange>(&e.memory)) {
    return fmt::format("{} budgets from {} to {}", range->count, in_words(range->from), in_words(range->to));
  }
  std::string words;
  for (const BudgetList::value_type& budget : std::get<BudgetList>(e.memory)) {
    words += words.empty() ? "" : ", ";
    words += budget ? std::visit([](auto end) { return in_words(end); }, *budget) : "capacity";
  }
  return words;
}

}  // namespace

void list_points(const Experiment& e, Shard shard, std::ostream& out) {
  const std::vector<std::size_t> mine = groups_of(e, shard);
  const std::size_t each = budgets(e);
  const std::string memory = budgets_in_words(e);
  for (const std::size_t group : mine) {
    const Question q = question_of(e, group);
    out << fmt::format("{:>8} to {:<8}  {} on {}", group * each, (group + 1) * each - 1, q.trace, q.platform);
    if (q.micro_batches > 1) out << fmt::format(", {} micro-batches", q.micro_batches);
    if (q.optimizer != Optimizer::none) out << fmt::format(", {}", written(q.optimizer));
    out << fmt::format("  {}  {}\n", q.strategy.text, memory);
  }
  out << fmt::format("{}: {} points in {} groups\n", e.name, mine.size() * each, mine.size());
}

}  // namespace plimsoll
