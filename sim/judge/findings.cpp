#include "sim/judge/findings.h"

namespace plimsoll {

std::string Findings::text(StepId s) const {
  const Step& step = schedule_[s];
  std::string words = "step " + std::to_string(s.index);
  if (step.op != no_op) {
    const bool counts_updates = !schedule_.updates.are_synchronous() && graph_[step.op].phase == Phase::update;
    words += " ('" + graph_[step.op].name + (counts_updates ? "', update " : "', micro-batch ") +
             std::to_string(step.micro_batch) + ")";
  }
  return words;
}

std::string Findings::text(BufferId b) const {
  const Buffer& buffer = schedule_[b];
  return "buffer " + std::to_string(b.index) + " ('" + graph_[buffer.tensor].name + "', micro-batch " +
         std::to_string(buffer.micro_batch) + ")";
}

void Findings::report(Rule rule, std::optional<StepId> step, std::optional<BufferId> buffer, std::string what) {
  if (found_.size() < limit_) found_.push_back({rule, step, buffer, std::move(what)});
}

void Findings::report(Rule rule, StepId step, BufferId buffer, const std::string& what) {
  report(rule, std::optional(step), std::optional(buffer), text(step) + " " + what + " " + text(buffer));
}

void Findings::report(Rule rule, StepId step, const std::string& what) {
  report(rule, std::optional(step), std::nullopt, what);
}

std::string name_of(Rule rule) {
  switch (rule) {
    case Rule::malformed:
      return "malformed";
    case Rule::wrong_place:
      return "wrong_place";
    case Rule::not_resident:
      return "not_resident";
    case Rule::missing_input:
      return "missing_input";
    case Rule::wrong_value:
      return "wrong_value";
    case Rule::not_ordered:
      return "not_ordered";
    case Rule::wrong_output:
      return "wrong_output";
    case Rule::lossy:
      return "lossy";
    case Rule::incomplete:
      return "incomplete";
    case Rule::repeated:
      return "repeated";
    case Rule::freed_twice:
      return "freed_twice";
    case Rule::collective:
      return "collective";
    case Rule::wrong_cost:
      return "wrong_cost";
  }
  return "unknown";
}

}  // namespace plimsoll
