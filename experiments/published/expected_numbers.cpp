#include "experiments/published/expected_numbers.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "experiments/study/result_fields.h"
#include "sim/io/fields.h"
#include "sim/io/one_of.h"
#include "sim/io/shipped.h"
#include "sim/io/yaml_document.h"

namespace plimsoll {
namespace {

using enum Need;

constexpr std::string_view expected_format = "plimsoll.expected.v1";
constexpr double largest_number = 1e30;

/// What a group says for all of its rows, and a row for itself.
struct RowWords {
  std::array<std::optional<YamlCursor>, combined_lists.size()> of;  ///< each with its place
  std::optional<YamlCursor> ours;
  std::optional<BudgetChoice> budget;
  std::optional<std::string> name, series, where, unit, why_not;
  std::optional<double> x, published, recorded;
  std::optional<AllowedDifference> within, recorded_within;
  std::optional<std::uint32_t> decimals;
};

using WordField = Field<RowWords, const YamlCursor&>;

void read_budget(RowWords& words, const YamlCursor& c) {
  if (c.is_scalar() && c.string() == "last") {
    words.budget = LastBudget::is;
  } else {
    words.budget = c.count();
  }
}

AllowedDifference read_allowed(const YamlCursor& c) {
  std::string text = c.string();
  AllowedDifference allowed{.amount = 0, .is_share = text.ends_with('%')};
  if (allowed.is_share) text.pop_back();
  while (text.ends_with(' ')) text.pop_back();
  const Parsed<double> number = parse_number(text);
  if (c.is_scalar() && !(number.fine() && number.value >= 0)) {
    c.complain("expected a number from 0 on, or a share such as '2 %', " + c.found());
  }
  allowed.amount = allowed.is_share ? number.value / 100 : number.value;
  return allowed;
}

double any_number(const YamlCursor& c) {
  return c.number(-largest_number, largest_number);
}

/// Which point of the sweep. Lists are in the order of combined_lists.
const WordField point_keys[] = {
    {"trace", optional, [](RowWords& w, const YamlCursor& c) { w.of[0] = c; }},
    {"platform", optional, [](RowWords& w, const YamlCursor& c) { w.of[1] = c; }},
    {"micro_batches", optional, [](RowWords& w, const YamlCursor& c) { w.of[2] = c; }},
    {"optimizer", optional, [](RowWords& w, const YamlCursor& c) { w.of[3] = c; }},
    {"strategy", optional, [](RowWords& w, const YamlCursor& c) { w.of[4] = c; }},
    {"memory", optional, [](RowWords& w, const YamlCursor& c) { w.budget = c.bytes(); }},
    {"budget", optional, read_budget},
};

/// What a group may say for its rows.
const WordField shared_keys[] = {
    {"ours", optional, [](RowWords& w, const YamlCursor& c) { w.ours = c; }},
    {"where", optional, [](RowWords& w, const YamlCursor& c) { w.where = c.string(); }},
    {"unit", optional, [](RowWords& w, const YamlCursor& c) { w.unit = c.string(); }},
    {"why_not", optional, [](RowWords& w, const YamlCursor& c) { w.why_not = c.string(); }},
    {"within", optional, [](RowWords& w, const YamlCursor& c) { w.within = read_allowed(c); }},
    {"recorded_within", optional, [](RowWords& w, const YamlCursor& c) { w.recorded_within = read_allowed(c); }},
    {"decimals", optional, [](RowWords& w, const YamlCursor& c) { w.decimals = c.index(); }},
    {"series", optional, [](RowWords& w, const YamlCursor& c) { w.series = c.string(); }},
};

const WordField row_keys[] = {
    {"name", optional, [](RowWords& w, const YamlCursor& c) { w.name = c.string(); }},
    {"x", optional, [](RowWords& w, const YamlCursor& c) { w.x = any_number(c); }},
    {"published", optional, [](RowWords& w, const YamlCursor& c) { w.published = any_number(c); }},
    {"recorded", optional, [](RowWords& w, const YamlCursor& c) { w.recorded = any_number(c); }},
};

std::vector<WordField> row_fields() {
  std::vector<WordField> fields(std::begin(row_keys), std::end(row_keys));
  fields.insert(fields.end(), std::begin(shared_keys), std::end(shared_keys));
  fields.insert(fields.end(), std::begin(point_keys), std::end(point_keys));
  return fields;
}

template <class Value>
void take_where_unset(std::optional<Value>& own, const std::optional<Value>& others) {
  if (!own) own = others;
}

/// Where a point says nothing, it is as the other.
void complete_point(RowWords& own, const RowWords& others) {
  for (std::size_t list = 0; list < own.of.size(); ++list) {
    if (!own.of[list]) own.of[list] = others.of[list];
  }
  take_where_unset(own.budget, others.budget);
}

void complete_row(RowWords& own, const RowWords& of_group) {
  complete_point(own, of_group);
  take_where_unset(own.ours, of_group.ours);
  take_where_unset(own.where, of_group.where);
  take_where_unset(own.unit, of_group.unit);
  take_where_unset(own.why_not, of_group.why_not);
  take_where_unset(own.within, of_group.within);
  take_where_unset(own.recorded_within, of_group.recorded_within);
  take_where_unset(own.decimals, of_group.decimals);
  take_where_unset(own.series, of_group.series);
}

using NamedPoints = std::map<std::string, RowWords, std::less<>>;

/// A file as it is read: the values of the experiment's lists, by which points are understood.
struct ExpectedDraft {
  CombinedValues values;
  std::vector<std::string_view> numbers, objects;  ///< fields of results
  std::optional<YamlCursor> groups;                ///< once the experiment is known
  ExpectedNumbers read;
};

bool is_of_pattern(const std::string& value, const std::string& pattern) {
  return fnmatch(pattern.c_str(), value.c_str(), 0) == 0 || fnmatch(("*/" + pattern).c_str(), value.c_str(), 0) == 0;
}

/// The one value of a list of the experiment that is meant.
std::string value_meant(const std::vector<std::string>& values, std::size_t list, const RowWords& words,
                        const YamlCursor& row) {
  if (!words.of[list]) {
    if (values.size() == 1) return values.front();
    row.complain(fmt::format("the experiment has {} {}: say which by '{}'", values.size(), combined_lists[list],
                             point_keys[list].name));
    return "";
  }
  const YamlCursor& said = *words.of[list];
  const std::string pattern = said.string();
  if (!said.is_scalar()) return "";
  if (std::ranges::find(values, pattern) != values.end()) return pattern;
  std::vector<std::string> found;
  for (const std::string& value : values) {
    if (is_of_pattern(value, pattern)) found.push_back(value);
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    said.complain(fmt::format("'{}' is none of the experiment's {}{}", pattern, combined_lists[list],
                              suggestion(pattern, values)));
  } else {
    said.complain(fmt::format("'{}' fits {} of the experiment's {}", pattern, found.size(), combined_lists[list]));
  }
  return "";
}

ExpectedPoint point_meant(const CombinedValues& values, const RowWords& words, const YamlCursor& row) {
  ExpectedPoint point;
  for (std::size_t list = 0; list < values.size(); ++list) {
    point.of[list] = value_meant(values[list], list, words, row);
  }
  point.budget = words.budget;
  return point;
}

/// What a row's `ours` says, with the points that it names.
void read_ours(const ExpectedDraft& draft, const RowWords& words, const NamedPoints& points, const YamlCursor& row,
               ExpectedRow& read) {
  const std::string text = words.ours->string();
  if (!words.ours->is_scalar()) return;
  Parsed<Expression> parsed = parse_expression(text);
  if (!parsed.fine()) return words.ours->complain(parsed.complaint);
  for (const auto& [point, field] : names_in(parsed.value)) {
    const auto found = points.find(point);
    if (found != points.end()) {
      RowWords other = found->second;
      complete_point(other, words);
      ExpectedPoint& meant = read.points.emplace(point, point_meant(draft.values, other, row)).first->second;
      meant.has_own_budget = found->second.budget.has_value();
    } else if (!point.empty()) {
      if (std::ranges::find(draft.objects, point) != draft.objects.end()) continue;
      words.ours->complain(fmt::format("'{}' is neither a point under 'points' nor an object of results", point));
      continue;
    }
    if (std::ranges::find(draft.numbers, field) != draft.numbers.end()) continue;
    if (std::ranges::find(draft.objects, field.substr(0, field.find('.'))) != draft.objects.end()) continue;
    words.ours->complain(fmt::format("results have no number '{}'{}", field, suggestion(field, draft.numbers)));
  }
  read.ours = std::move(parsed.value);
}

void complain_of_numbers(const ExpectedRow& row, const RowWords& words, const YamlCursor& c) {
  if (!row.published && !row.recorded) c.complain("expected 'published', 'recorded' or both");
  if (row.published && row.why_not.empty() && !words.within) c.complain_missing_key("within");
  if (row.published && row.where.empty()) c.complain_missing_key("where");
  if (!words.ours && (row.why_not.empty() || row.recorded)) c.complain_missing_key("ours");
}

ExpectedRow read_row(const ExpectedDraft& draft, const RowWords& of_group, const NamedPoints& points,
                     const YamlCursor& c) {
  static const std::vector<WordField> fields = row_fields();
  constexpr AllowedDifference as_recorded{.amount = 0.001, .is_share = true};
  RowWords words;
  read_fields(c, fields, words);
  ExpectedRow row;
  if (!c.is_object()) return row;
  const bool is_named = words.name || words.of[4];
  complete_row(words, of_group);
  if (!is_named) c.complain_missing_key("name");
  row.name = words.name ? *words.name : words.of[4] ? words.of[4]->string() : "";
  row.series = words.series.value_or(row.name);
  row.where = words.published ? words.where.value_or("") : "";
  row.unit = words.unit.value_or("");
  row.why_not = words.why_not.value_or("");
  row.x = words.x;
  row.published = words.published;
  row.recorded = words.recorded;
  row.within = words.within.value_or(AllowedDifference{});
  row.recorded_within = words.recorded_within.value_or(as_recorded);
  row.decimals = words.decimals;
  complain_of_numbers(row, words, c);
  if (!words.ours) return row;
  row.at = point_meant(draft.values, words, c);
  read_ours(draft, words, points, c, row);
  return row;
}

struct GroupDraft {
  std::string title;
  RowWords words;
  NamedPoints points;
  std::optional<YamlCursor> rows;
};

const Field<GroupDraft, const YamlCursor&> own_group_fields[] = {
    {"title", required, [](GroupDraft& g, const YamlCursor& c) { g.title = c.string(); }},
    {"rows", required, [](GroupDraft& g, const YamlCursor& c) { g.rows = c; }},
    {"points", optional,
     [](GroupDraft& g, const YamlCursor& c) {
       c.object([&](std::string_view name, const YamlCursor& value) {
         read_fields(value, point_keys, g.points[std::string(name)]);
       });
     }},
};

/// Shared keys and those of points are read into the group's words.
template <std::size_t which>
void read_into_words(GroupDraft& group, const YamlCursor& c) {
  constexpr std::size_t of_shared = std::size(shared_keys);
  const WordField& field = which < of_shared ? shared_keys[which] : point_keys[which - of_shared];
  field.read(group.words, c);
}

template <std::size_t... which>
std::vector<Field<GroupDraft, const YamlCursor&>> group_fields(std::index_sequence<which...> /*all*/) {
  std::vector<Field<GroupDraft, const YamlCursor&>> fields(std::begin(own_group_fields), std::end(own_group_fields));
  constexpr std::size_t of_shared = std::size(shared_keys);
  (fields.push_back({which < of_shared ? shared_keys[which].name : point_keys[which - of_shared].name, optional,
                     read_into_words<which>}),
   ...);
  return fields;
}

ExpectedGroup read_group(const ExpectedDraft& draft, const YamlCursor& c) {
  static const auto fields = group_fields(std::make_index_sequence<std::size(shared_keys) + std::size(point_keys)>());
  GroupDraft group;
  read_fields(c, fields, group);
  ExpectedGroup read{group.title, {}};
  if (!group.rows) return read;
  std::set<std::string> names;
  for (const YamlCursor& row : group.rows->elements()) {
    read.rows.push_back(read_row(draft, group.words, group.points, row));
    if (!names.insert(read.rows.back().name).second) {
      row.complain(fmt::format("a second row '{}' in this group", read.rows.back().name));
    }
  }
  return read;
}

const Field<PaperFigure, const YamlCursor&> figure_fields[] = {
    {"kind", required, [](PaperFigure& f, const YamlCursor& c) { f.kind = one_of<FigureKind>(c); }},
    {"x", optional, [](PaperFigure& f, const YamlCursor& c) { f.x = c.string(); }},
    {"y", optional, [](PaperFigure& f, const YamlCursor& c) { f.y = c.string(); }},
    {"most", optional, [](PaperFigure& f, const YamlCursor& c) { f.most = any_number(c); }},
};

const Field<ExpectedDraft, const YamlCursor&> expected_fields[] = {
    {"format", required,
     [](ExpectedDraft&, const YamlCursor& c) {
       if (const std::string format = c.string(); c.is_scalar() && format != expected_format) {
         c.complain(fmt::format("expected {}, found {}", expected_format, format));
       }
     }},
    {"paper", required, [](ExpectedDraft& d, const YamlCursor& c) { d.read.paper = c.string(); }},
    {"figure", required, [](ExpectedDraft& d, const YamlCursor& c) { read_fields(c, figure_fields, d.read.figure); }},
    {"preset", optional, [](ExpectedDraft& d, const YamlCursor& c) { d.read.preset = c.string(); }},
    {"groups", required, [](ExpectedDraft& d, const YamlCursor& c) { d.groups = c; }},
};

/// Fields of results whose units are these.
std::vector<std::string_view> fields_of(std::initializer_list<FieldUnit> units) {
  std::vector<std::string_view> names;
  for (const ResultField& field : result_fields()) {
    if (std::ranges::find(units, field.unit) != units.end()) names.push_back(field.name);
  }
  return names;
}

}  // namespace

ExpectedNumbers parse_expected_numbers(const std::string& text, const std::string& file,
                                       const std::filesystem::path& experiment) {
  YamlDocument document(text, file);
  using enum FieldUnit;
  ExpectedDraft draft{.values = {},
                      .numbers = fields_of({flag, ratio, index, count, bytes, seconds}),
                      .objects = fields_of({object}),
                      .groups = {},
                      .read = {}};
  read_fields(document.root(), expected_fields, draft);
  document.throw_if_any();
  draft.values = values_of(read_experiment(experiment, {.settings = {}, .preset = draft.read.preset}).experiment);
  for (const YamlCursor& group : draft.groups->elements()) draft.read.groups.push_back(read_group(draft, group));
  document.throw_if_any();
  return std::move(draft.read);
}

std::vector<std::string> paper_names() {
  std::vector<std::string> names =
      shipped_names({.noun = "paper", .folder = "experiments/papers", .extension = ".yaml"});
  std::erase(names, "measured_runs");  // those of `reproduce truth`
  return names;
}

}  // namespace plimsoll
