#include "experiments/published/differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "experiments/study/csv.h"
#include "experiments/study/percent.h"
#include "sim/core/expects.h"
#include "sim/core/tolerance.h"

namespace plimsoll {
namespace {

/// Results of a point by budget, from the least on; those without a budget last.
using ByBudget = std::vector<std::pair<std::optional<std::int64_t>, const Json*>>;

/// The results of a sweep by point.
class Results {
 public:
  explicit Results(const SweepContents& contents) {
    for (const auto& [point, line] : contents.records) records_.push_back(Json::parse(line));
    for (const Json& record : records_) {
      const Json& budget = record.at("memory_budget_bytes");
      ByBudget& at = points_[combination_of(record)];
      at.emplace_back(budget.is_null() ? std::nullopt : std::optional(budget.get<std::int64_t>()), &record);
    }
    for (auto& [combination, at] : points_) std::ranges::sort(at, is_less);
  }

  const ByBudget& of(const Combination& combination) const {
    static const ByBudget none;
    const auto found = points_.find(combination);
    return found == points_.end() ? none : found->second;
  }

  const std::map<Combination, ByBudget>& points() const { return points_; }

 private:
  static Combination combination_of(const Json& record) {
    return {record.at("trace").get<std::string>(), record.at("platform").get<std::string>(),
            std::to_string(record.at("micro_batches").get<std::uint32_t>()), record.at("optimizer").get<std::string>(),
            record.at("strategy").get<std::string>()};
  }

  static bool is_less(const ByBudget::value_type& a, const ByBudget::value_type& b) {
    if (a.first.has_value() != b.first.has_value()) return a.first.has_value();
    return a.first < b.first;
  }

  std::vector<Json> records_;
  std::map<Combination, ByBudget> points_;
};

/// The result at a budget; null: there is none, or there are several and none is chosen.
const Json* at_budget(const ByBudget& results, const std::optional<BudgetChoice>& choice) {
  if (results.empty()) return nullptr;
  if (!choice) return results.size() == 1 ? results.front().second : nullptr;
  if (std::holds_alternative<LastBudget>(*choice)) return results.back().second;
  if (const std::uint32_t* place = std::get_if<std::uint32_t>(&*choice)) {
    return *place <= results.size() ? results[*place - 1].second : nullptr;
  }
  const std::optional<std::int64_t> bytes = std::get<Bytes>(*choice).count;
  const auto found = std::ranges::find(results, bytes, &ByBudget::value_type::first);
  return found == results.end() ? nullptr : found->second;
}

std::optional<double> number_in(const Json* record, const std::string& field) {
  if (!record) return std::nullopt;
  const std::size_t dot = field.find('.');
  const auto found = record->find(field.substr(0, dot));
  if (found == record->end()) return std::nullopt;
  if (dot != std::string::npos) return found->is_object() ? number_in(&*found, field.substr(dot + 1)) : std::nullopt;
  if (found->is_boolean()) return found->get<bool>() ? 1 : 0;
  return found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::optional<double> ours_of(const ExpectedRow& row, const Results& results) {
  if (!row.ours) return std::nullopt;
  const ByBudget& own = results.of(row.at.of);
  const auto number = [&](const NamedNumber& name, std::optional<std::size_t> budget) -> std::optional<double> {
    const auto named = row.points.find(name.point);
    if (named == row.points.end()) {
      const Json* const record = budget ? own[*budget].second : at_budget(own, row.at.budget);
      return number_in(record, name.point.empty() ? name.field : name.point + "." + name.field);
    }
    const ExpectedPoint& point = named->second;
    const ByBudget& others = results.of(point.of);
    if (!budget || point.has_own_budget) return number_in(at_budget(others, point.budget), name.field);
    const auto same = std::ranges::find(others, own[*budget].first, &ByBudget::value_type::first);
    return number_in(same == others.end() ? nullptr : same->second, name.field);
  };
  return value_of(*row.ours, number, own.size());
}

/// `expected` comes from a text, so that its last digit is no sharper than a number with a text between.
bool is_within(double ours, double expected, AllowedDifference allowed) {
  const double most = allowed.is_share ? allowed.amount * std::abs(expected) : allowed.amount;
  return std::abs(ours - expected) <= most + model_tolerance * std::abs(expected);
}

Agreement agreement_of(const ExpectedRow& row, std::optional<double> ours) {
  if (!row.ours) return Agreement::not_here;
  if (!ours) return Agreement::missing;
  if (row.recorded && !is_within(*ours, *row.recorded, row.recorded_within)) return Agreement::off;
  if (!row.published) return Agreement::as_recorded;
  if (!row.why_not.empty()) return Agreement::differs;
  return is_within(*ours, *row.published, row.within) ? Agreement::agrees : Agreement::off;
}

std::string number_text(double number, const ExpectedRow& row) {
  std::string text = row.decimals ? fmt::format("{:.{}f}", number, *row.decimals) : fmt::format("{:.4g}", number);
  if (text.starts_with('-') && text.find_first_of("123456789") == std::string::npos) text.erase(0, 1);
  return row.unit.empty() ? text : text + " " + row.unit;
}

std::string number_text(std::optional<double> number, const ExpectedRow& row, std::string_view none) {
  return number ? number_text(*number, row) : std::string(none);
}

std::string allowed_text(const AllowedDifference& allowed, const ExpectedRow& row) {
  if (allowed.is_share) return fmt::format("{:g} %", 100 * allowed.amount);
  return fmt::format("{:g}{}{}", allowed.amount, row.unit.empty() ? "" : " ", row.unit);
}

std::string share_text(const Difference& difference) {
  if (const std::optional<double> share = difference.share()) return fmt::format("{:+.2f} %", in_percent(*share, 2));
  return "";
}

std::string allowed_of(const ExpectedRow& row) {
  if (row.published && row.why_not.empty()) return allowed_text(row.within, row);
  return row.recorded ? allowed_text(row.recorded_within, row) + " of ours" : "";
}

std::string cell_of(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

/// Names of strategies as code.
std::string name_cell(const ExpectedRow& row) {
  return row.name == row.at.of.back() ? "`" + cell_of(row.name) + "`" : cell_of(row.name);
}

Json or_null_number(std::optional<double> number) {
  return number ? Json(*number) : Json(nullptr);
}

Json panels_of_rows(const ExpectedNumbers& expected, std::span<const Difference> differences) {
  Json panels = Json::array();
  for (const ExpectedGroup& group : expected.groups) {
    Json rows = Json::array();
    for (const Difference& each : differences) {
      if (each.group != &group || !each.row->ours) continue;
      rows.push_back({{"name", each.row->name},
                      {"series", each.row->series},
                      {"x", or_null_number(each.row->x)},
                      {"ours", or_null_number(each.ours)},
                      {"published", or_null_number(each.row->published)}});
    }
    const std::string& y =
        expected.figure.y.empty() && !group.rows.empty() ? group.rows.front().unit : expected.figure.y;
    if (!rows.empty()) panels.push_back({{"title", group.title}, {"y", y}, {"rows", std::move(rows)}});
  }
  return panels;
}

/// Of each strategy its slow-down by budget, both relative to the peak and the time of store_all.
Json panels_of_budgets(const SweepContents& contents, const Results& results, const std::string& y) {
  Json panels = Json::array();
  std::map<std::vector<std::string>, std::size_t> places;
  std::vector<std::string> strategies;
  for (const Json& each : contents.identity.at("experiment").at("strategies")) strategies.push_back(each);
  for (const auto& [number, facts] : contents.cases) {
    if (!facts.impossible.empty()) continue;
    const Combination plain_of{facts.trace, facts.platform, std::to_string(facts.micro_batches), facts.optimizer,
                               "store_all"};
    const Json* const plain = at_budget(results.of(plain_of), LastBudget::is);
    const std::optional<double> peak = number_in(plain, "peak_bytes"), time = number_in(plain, "makespan_s");
    if (!peak || !time) continue;
    Json series = Json::array();
    for (const std::string& strategy : strategies) {
      Combination of = plain_of;
      of.back() = strategy;
      Json points = Json::array();
      for (const auto& [budget, record] : results.of(of)) {
        const std::optional<double> slow = number_in(record, "makespan_s");
        if (!slow || !budget || !record->at("feasible").get<bool>()) continue;
        points.push_back({static_cast<double>(*budget) / *peak, *slow / *time});
      }
      series.push_back({{"name", strategy}, {"points", std::move(points)}});
    }
    panels.push_back(
        {{"title", fmt::format("{} on {}", facts.model, facts.machine)}, {"y", y}, {"series", std::move(series)}});
  }
  return panels;
}

}  // namespace

std::optional<double> Difference::share() const {
  const std::optional<double> expected = row->published ? row->published : row->recorded;
  if (!ours || !expected || *expected == 0) return std::nullopt;
  return (*ours - *expected) / std::abs(*expected);
}

std::vector<Difference> differences_of(const ExpectedNumbers& expected, const SweepContents& contents) {
  const Results results(contents);
  std::vector<Difference> differences;
  for (const ExpectedGroup& group : expected.groups) {
    for (const ExpectedRow& row : group.rows) {
      const std::optional<double> ours = ours_of(row, results);
      differences.push_back({.group = &group, .row = &row, .ours = ours, .verdict = agreement_of(row, ours)});
    }
  }
  return differences;
}

std::string differences_table(std::span<const Difference> differences) {
  std::string text =
      "| | | published | ours | difference | allowed | verdict | published where "
      "|\n|---|---|--:|--:|--:|--:|---|---|\n";
  const ExpectedGroup* before = nullptr;
  for (const Difference& each : differences) {
    const ExpectedRow& row = *each.row;
    const std::string verdict(written(each.verdict));
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {} |\n", each.group == before ? "" : cell_of(each.group->title),
        name_cell(row), number_text(row.published, row, ""), number_text(each.ours, row, "-"), share_text(each),
        allowed_of(row), row.why_not.empty() ? verdict : cell_of(fmt::format("{}: {}", verdict, row.why_not)),
        cell_of(row.where));
    before = each.group;
  }
  return text;
}

std::string differences_csv(std::span<const Difference> differences) {
  std::string text = "group,name,unit,published,recorded,ours,difference,verdict,why_not,where\n";
  const auto number = [](std::optional<double> of) { return of ? fmt::format("{}", *of) : std::string(); };
  for (const Difference& each : differences) {
    const ExpectedRow& row = *each.row;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", csv_field(each.group->title), csv_field(row.name),
                        csv_field(row.unit), number(row.published), number(row.recorded), number(each.ours),
                        number(each.share()), written(each.verdict), csv_field(row.why_not), csv_field(row.where));
  }
  return text;
}

Json differences_json(const ExpectedNumbers& expected, std::span<const Difference> differences) {
  Json rows = Json::array();
  for (const Difference& each : differences) {
    const ExpectedRow& row = *each.row;
    rows.push_back({{"group", each.group->title},
                    {"name", row.name},
                    {"unit", row.unit},
                    {"published", or_null_number(row.published)},
                    {"recorded", or_null_number(row.recorded)},
                    {"ours", or_null_number(each.ours)},
                    {"difference", or_null_number(each.share())},
                    {"verdict", written(each.verdict)},
                    {"why_not", row.why_not.empty() ? Json(nullptr) : Json(row.why_not)},
                    {"where", row.where}});
  }
  return {{"paper", expected.paper}, {"rows", std::move(rows)}};
}

Json figure_json(const ExpectedNumbers& expected, std::span<const Difference> differences,
                 const SweepContents& contents) {
  const PaperFigure& figure = expected.figure;
  return {{"kind", written(figure.kind)},
          {"x", figure.x},
          {"most", or_null_number(figure.most)},
          {"panels", figure.kind == FigureKind::budgets ? panels_of_budgets(contents, Results(contents), figure.y)
                                                        : panels_of_rows(expected, differences)}};
}

}  // namespace plimsoll
