#include "experiments/load/load_mark.h"

#include <fmt/format.h>

#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

NextProof proof_of(const LoadPoint& next, Bytes memory) {
  if (next.outcome == Outcome::refused) return NextProof::refused;
  if (next.bound && *next.bound > memory) return NextProof::no_schedule;
  if (next.smallest && next.smallest_is_proven) return NextProof::strategy;
  return NextProof::not_found;
}

std::string why_not(const LoadQuestion& question, const LoadPoint& point) {
  if (proof_of(point, question.memory) == NextProof::no_schedule) {
    return fmt::format("{}: no schedule of its kind needs less than {}", point.value, format_bytes(*point.bound));
  }
  if (!point.smallest) return fmt::format("{}: {}", point.value, point.reason);
  const std::string_view at_most = point.smallest_is_proven ? "" : "at most ";
  return fmt::format("{} needs {}{}", point.value, at_most, format_bytes(*point.smallest));
}

}  // namespace

LoadMark mark_of(const LoadQuestion& question, const LoadLine& line) {
  LoadMark mark{.largest = line.largest()};
  if (mark.largest == nullptr) return mark;
  const std::uint32_t value = mark.largest->value;
  for (const LoadPoint& point : line.points) {
    if (point.outcome != Outcome::feasible) (point.value < value ? mark.holes : mark.beyond).push_back(point.value);
  }
  if (question.range.to - value < question.range.step) return mark;
  mark.next = line.at(value + question.range.step);
  mark.proof = mark.next == nullptr ? NextProof::not_found : proof_of(*mark.next, question.memory);
  return mark;
}

std::string sentence_on_next(const LoadQuestion& question, const LoadLine& line, const LoadMark& mark) {
  if (mark.largest == nullptr) return line.points.empty() ? "" : why_not(question, line.points.front());
  if (mark.proof == NextProof::range_ends) return fmt::format("{} is the last of the range", mark.largest->value);
  if (mark.next != nullptr) return why_not(question, *mark.next);
  return fmt::format("{} was not tried", mark.largest->value + question.range.step);
}

LeastLoad least_load(const LoadQuestion& question, const LoadAnswer& answer) {
  LeastLoad least;
  for (const LoadLine& line : answer.lines) {
    const LoadPoint* first = line.at(question.range.from);
    if (first == nullptr || !first->smallest) continue;
    if (least.point == nullptr || *first->smallest < *least.point->smallest) least = {&line, first};
  }
  return least;
}

}  // namespace plimsoll
