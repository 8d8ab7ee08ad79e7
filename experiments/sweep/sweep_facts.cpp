#include "experiments/sweep/sweep_facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// What tells cases apart.
Json name_of_case(const Json& facts) {
  return {facts.at("trace"), facts.at("platform"), facts.at("micro_batches"), facts.at("optimizer")};
}

Json name_of_case(const Experiment& e, std::size_t index) {
  const Question question = question_of(e, index * e.strategies.size());
  return {question.trace, question.platform, question.micro_batches, written(question.optimizer)};
}

}  // namespace

SweepFacts::SweepFacts(const Experiment& experiment, const std::vector<std::size_t>& groups) : experiment_(experiment) {
  for (const std::size_t g : groups) wanted_.insert(g / experiment.strategies.size());
}

void SweepFacts::reuse(const Json& manifest) {
  std::map<std::string, std::size_t> by_name;
  for (const std::size_t c : wanted_) by_name[json_text(name_of_case(experiment_, c))] = c;
  const bool limits_hold =
      same_limits(manifest.at("identity").value("experiment", Json::object()), to_json(experiment_));
  for (const Json& one : manifest.at("cases")) {
    const auto found = by_name.find(json_text(name_of_case(one)));
    if (found == by_name.end()) continue;
    CaseFacts facts = case_facts(one);
    if (!facts.impossible.empty() && !limits_hold) continue;
    facts.budgets.clear();
    facts.smallest.reset();
    cases_[found->second] = std::move(facts);
  }
  for (const Json& one : manifest.value("smallest", Json::array())) {
    const auto found = by_name.find(json_text(name_of_case(one)));
    const bool stopped = one.at("stopped");
    if (found == by_name.end() || (stopped && !limits_hold)) continue;
    smallest_[{found->second, one.at("strategy")}] = {maybe_bytes(one.at("smallest_feasible_bytes")), stopped};
  }
}

std::vector<Json> SweepFacts::missing_cases() const {
  std::vector<Json> tasks;
  for (const std::size_t c : wanted_) {
    if (!cases_.contains(c)) tasks.push_back({{"case", c}});
  }
  return tasks;
}

std::vector<Json> SweepFacts::missing_smallest() const {
  std::vector<Json> tasks;
  if (!begins_at_smallest(experiment_)) return tasks;
  for (const auto& [index, facts] : cases_) {
    if (!facts.impossible.empty()) continue;
    for (const Pipeline& strategy : experiment_.strategies) {
      if (!smallest_.contains({index, strategy.text}))
        tasks.push_back({{"case", index}, {"smallest_of", strategy.text}});
    }
  }
  return tasks;
}

Json SweepFacts::plan(const Experiment& e, const SweepInputs& inputs, const Json& task) {
  const std::size_t index = task.at("case");
  if (!task.contains("smallest_of")) return to_json(facts_of(e, inputs, index));
  const auto found = std::ranges::find(e.strategies, task.at("smallest_of").get<std::string>(), &Pipeline::text);
  EXPECTS(found != e.strategies.end());
  return or_null(smallest_of(e, inputs, index, static_cast<std::size_t>(found - e.strategies.begin())));
}

void SweepFacts::take(const Json& task, const Json& fact) {
  const std::size_t index = task.at("case");
  if (task.contains("smallest_of")) {
    smallest_[{index, task["smallest_of"]}] = {maybe_bytes(fact), false};
  } else {
    cases_[index] = case_facts(fact);
  }
}

void SweepFacts::take_beyond_limits(const Json& task, const std::string& reason) {
  const std::size_t index = task.at("case");
  if (task.contains("smallest_of")) {
    smallest_[{index, task["smallest_of"]}] = {std::nullopt, true};
  } else {
    cases_[index] = impossible_case(experiment_, index, reason);
  }
}

std::string SweepFacts::name_of(const Json& task) const {
  const Question q = question_of(experiment_, task.at("case").get<std::size_t>() * experiment_.strategies.size());
  return fmt::format("trace {} on {}", q.trace, q.platform);
}

void SweepFacts::complete(std::size_t index, CaseFacts& facts) const {
  if (!facts.budgets.empty()) return;
  if (!facts.impossible.empty()) {
    facts.budgets = impossible_case(experiment_, index, facts.impossible).budgets;
    return;
  }
  if (begins_at_smallest(experiment_)) {
    for (const Pipeline& strategy : experiment_.strategies) {
      const auto found = smallest_.find({index, strategy.text});
      if (found == smallest_.end()) return;
      const std::optional<Bytes>& least = found->second.bytes;
      if (least && (!facts.smallest || *least < *facts.smallest)) facts.smallest = least;
    }
  }
  facts.budgets = budgets_of(experiment_, facts);
}

Json SweepFacts::cases_json() const {
  Json list = Json::array();
  for (const auto& [index, facts] : cases_) {
    Json one{{"case", index}};
    one.update(to_json(facts));
    list.push_back(std::move(one));
  }
  return list;
}

Json SweepFacts::smallest_json() const {
  Json list = Json::array();
  for (const auto& [place, least] : smallest_) {
    const Question q = question_of(experiment_, place.first * experiment_.strategies.size());
    list.push_back({{"trace", q.trace},
                    {"platform", q.platform},
                    {"micro_batches", q.micro_batches},
                    {"optimizer", written(q.optimizer)},
                    {"strategy", place.second},
                    {"smallest_feasible_bytes", or_null(least.bytes)},
                    {"stopped", least.stopped}});
  }
  return list;
}

}  // namespace plimsoll
