#include "sim/judge/residency.h"

namespace plimsoll {

void ResidencyJudge::is_resident(BufferId b) {
  const TensorKind kind = graph_[schedule_[b].tensor].kind;
  if (holdings_.life_of(b) != Life::unborn) {
    report(Rule::malformed, std::nullopt, b, text(b) + " is resident twice");
    return;
  }
  if (kind == TensorKind::activation || kind == TensorKind::gradient) {
    report(Rule::wrong_value, std::nullopt, b, text(b) + " is resident from the start, but its value must be computed");
  }
  if (schedule_[b].is_packed()) {
    report(Rule::lossy, std::nullopt, b, text(b) + " is resident in a compressed form that no step has made");
  }
}

void ResidencyJudge::uses(StepId s, BufferId b, std::string_view verb) {
  const HeldValue& held = holdings_[b];
  if (held.life == Life::unborn) return report(Rule::not_resident, s, b, std::string(verb) + " before its allocation");
  if (held.life == Life::dead) return report(Rule::not_resident, s, b, std::string(verb) + " after its free");
  for (const StepId maker : held.makers) {
    if (walk_.same_collective(maker, s) || walk_.ordered(maker, s)) continue;
    report(Rule::not_ordered, s, b,
           std::string(verb) + ", without waiting for step " + std::to_string(maker.index) + " that makes it,");
  }
}

void ResidencyJudge::overwrites(StepId s, BufferId b) {
  for (const StepId reader : holdings_[b].readers) {
    if (walk_.same_collective(reader, s) || walk_.ordered(reader, s)) continue;
    report(Rule::not_ordered, s, b,
           "overwrites, without waiting for its reader step " + std::to_string(reader.index) + ",");
  }
}

void ResidencyJudge::allocates(StepId s, BufferId b) {
  if (holdings_.life_of(b) != Life::unborn) report(Rule::malformed, s, b, "allocates again");
}

void ResidencyJudge::frees(StepId s, BufferId b) {
  const HeldValue& held = holdings_[b];
  if (held.life == Life::dead) return report(Rule::freed_twice, s, b, "frees again");
  if (held.life == Life::unborn) return report(Rule::freed_twice, s, b, "frees, though it was never allocated,");
  for (const auto* users : {&held.makers, &held.readers}) {
    for (const StepId user : *users) {
      if (walk_.ordered(user, s)) continue;
      report(Rule::not_ordered, s, b, "frees, without waiting for its user step " + std::to_string(user.index) + ",");
    }
  }
}

}  // namespace plimsoll
