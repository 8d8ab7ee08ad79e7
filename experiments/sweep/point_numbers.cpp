#include "experiments/sweep/point_numbers.h"

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

/// What tells cases apart: a key of records, and the list of the experiment that has its values.
struct Named {
  const char *key, *list;
};
constexpr std::array case_parts{Named{"trace", "traces"}, Named{"platform", "platforms"},
                                Named{"micro_batches", "micro_batches"}, Named{"optimizer", "optimizer"}};
constexpr Named strategy_part{"strategy", "strategies"};

std::string case_name(const Json& record) {
  Json name = Json::array();
  for (const Named& part : case_parts) name.push_back(record.value(part.key, Json(nullptr)));
  return json_text(name);
}

/// What a record says of each list that is combined.
Combination combination_of(const Json& record) {
  Combination of;
  for (std::size_t part = 0; part < case_parts.size(); ++part) {
    const Json value = record.value(case_parts[part].key, Json(nullptr));
    of[part] = value.is_string() ? value.get<std::string>() : json_text(value);
  }
  of.back() = record.value(strategy_part.key, "");
  return of;
}

bool is_listed(const Json& experiment, const Json& record, const Named& part) {
  const Json list = experiment.value(part.list, Json::array());
  return record.contains(part.key) && std::ranges::find(list, record[part.key]) != list.end();
}

}  // namespace

PointNumbers::PointNumbers(const Json& experiment, const std::map<std::size_t, CaseFacts>& cases)
    : selection_(selection_of(experiment)), values_(combined_values_of(experiment)) {
  for (const Json& strategy : experiment.value("strategies", Json::array())) {
    strategies_.emplace(strategy.get<std::string>(), strategies_.size());
  }
  for (const auto& [index, facts] : cases) {
    Case& of = cases_[case_name(to_json(facts))];
    of.index = index;
    of.budgets = facts.budgets.size();
    per_case_ = std::max(per_case_, strategies_.size() * of.budgets);
    for (std::size_t b = 0; b < of.budgets; ++b) {
      of.places[facts.budgets[b]].push_back(b);
      // The capacity, as a record that has an answer says it.
      if (!facts.budgets[b] && facts.capacity) of.places[facts.capacity].push_back(b);
    }
  }
}

std::vector<std::size_t> PointNumbers::of(const Json& record) const {
  const auto in_case = cases_.find(case_name(record));
  const auto strategy = strategies_.find(record.value("strategy", ""));
  if (in_case == cases_.end() || strategy == strategies_.end()) return {};
  if (!selection_.is_everything() && !is_asked(selection_, values_, combination_of(record))) return {};
  const Case& of = in_case->second;
  const auto found = of.places.find(maybe_bytes(record.value("memory_budget_bytes", Json(nullptr))));
  if (found == of.places.end()) return {};
  std::vector<std::size_t> points;
  for (const std::size_t place : found->second) {
    points.push_back((of.index * strategies_.size() + strategy->second) * of.budgets + place);
  }
  std::ranges::sort(points);
  return points;
}

std::string PointNumbers::numbered(Json record, std::size_t point) const {
  record["point"] = point;
  record["case"] = point / per_case_;
  return json_text(record);
}

std::string PointNumbers::as(std::size_t point, const Json& record, const std::string& text) const {
  const bool is_it = record.value("point", Json()) == point && record.value("case", Json()) == point / per_case_;
  return is_it ? text : numbered(record, point);
}

bool has_group_of(const Json& experiment, const Json& record) {
  return is_listed(experiment, record, strategy_part) &&
         std::ranges::all_of(case_parts, [&](const Named& part) { return is_listed(experiment, record, part); });
}

}  // namespace plimsoll
