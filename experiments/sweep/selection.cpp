#include "experiments/sweep/selection.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

std::vector<std::string_view> names_of_lists() {
  return {combined_lists.begin(), combined_lists.end()};
}

/// Nothing where the word names no list, which is complained about.
std::vector<std::size_t> list_named(const YamlCursor& word) {
  const std::string name = word.string();
  const auto found = std::ranges::find(combined_lists, std::string_view(name));
  if (found != combined_lists.end()) return {static_cast<std::size_t>(found - combined_lists.begin())};
  word.complain("expected " + alternatives(names_of_lists()) + ", " + word.found() +
                suggestion(name, names_of_lists()));
  return {};
}

std::vector<std::size_t> zipped_lists(const YamlCursor& list) {
  std::vector<std::size_t> lists;
  for (const YamlCursor& word : list.elements()) {
    for (const std::size_t named : list_named(word)) lists.push_back(named);
  }
  if (list.is_list() && list.elements().size() < 2) list.complain("expected the names of two lists or more");
  return lists;
}

std::vector<std::string> patterns(const YamlCursor& value) {
  if (value.is_scalar()) return {value.string()};
  std::vector<std::string> words;
  for (const YamlCursor& element : value.elements()) words.push_back(element.string());
  if (value.is_list() && words.empty()) value.complain("is empty, expected at least one");
  return words;
}

CombinedValues exclusion(const YamlCursor& entry) {
  CombinedValues of;
  bool any = false;
  entry.object([&](std::string_view key, const YamlCursor& value) {
    const auto found = std::ranges::find(combined_lists, key);
    if (found == combined_lists.end()) return value.complain_unknown_key(names_of_lists());
    any = true;
    of[static_cast<std::size_t>(found - combined_lists.begin())] = patterns(value);
  });
  if (entry.is_object() && !any) entry.complain("is empty, and would leave out everything");
  return of;
}

bool matches(const std::string& pattern, const std::string& value) {
  return pattern == value || fnmatch(pattern.c_str(), value.c_str(), 0) == 0;
}

bool is_among(const std::vector<std::string>& patterns, const std::string& value) {
  return patterns.empty() ||
         std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(pattern, value); });
}

bool is_excluded(const CombinedValues& patterns, const Combination& of) {
  for (std::size_t list = 0; list < of.size(); ++list) {
    if (!is_among(patterns[list], of[list])) return false;
  }
  return true;
}

std::size_t place_of(const std::vector<std::string>& values, const std::string& value) {
  return static_cast<std::size_t>(std::ranges::find(values, value) - values.begin());
}

std::string written_value(const Json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

}  // namespace

std::vector<std::vector<std::size_t>> read_zip(const YamlCursor& value) {
  const std::vector<YamlCursor> elements = value.elements();
  if (elements.empty() || elements.front().is_scalar()) return {zipped_lists(value)};
  std::vector<std::vector<std::size_t>> zipped;
  for (const YamlCursor& element : elements) zipped.push_back(zipped_lists(element));
  return zipped;
}

std::vector<CombinedValues> read_exclusions(const YamlCursor& value) {
  if (value.is_object()) return {exclusion(value)};
  std::vector<CombinedValues> list;
  for (const YamlCursor& element : value.elements()) list.push_back(exclusion(element));
  return list;
}

std::string complaint_of_zip(const PointSelection& selection, const CombinedValues& values) {
  std::array<bool, combined_lists.size()> seen{};
  for (const std::vector<std::size_t>& lists : selection.zipped) {
    for (const std::size_t list : lists) {
      if (seen[list]) return fmt::format("names {} twice", combined_lists[list]);
      seen[list] = true;
      if (values[list].size() == values[lists.front()].size()) continue;
      return fmt::format("expected lists of one length, found {} of {} and {} of {}", combined_lists[lists.front()],
                         values[lists.front()].size(), combined_lists[list], values[list].size());
    }
  }
  return "";
}

std::string complaint_of_exclusion(const CombinedValues& patterns, const CombinedValues& values) {
  for (std::size_t list = 0; list < patterns.size(); ++list) {
    for (const std::string& pattern : patterns[list]) {
      const auto fits = [&](const std::string& value) { return matches(pattern, value); };
      if (std::ranges::any_of(values[list], fits)) continue;
      return fmt::format("'{}' is none of the {}{}", pattern, combined_lists[list], suggestion(pattern, values[list]));
    }
  }
  return "";
}

bool is_asked(const PointSelection& selection, const CombinedValues& values, const Combination& of) {
  const auto leaves_out = [&](const CombinedValues& patterns) { return is_excluded(patterns, of); };
  if (std::ranges::any_of(selection.excluded, leaves_out)) return false;
  return std::ranges::all_of(selection.zipped, [&](const std::vector<std::size_t>& lists) {
    const std::size_t first = lists.front();
    const std::size_t place = place_of(values[first], of[first]);
    return std::ranges::all_of(lists, [&](std::size_t list) { return place_of(values[list], of[list]) == place; });
  });
}

void write_selection(const PointSelection& selection, Json& experiment) {
  for (const std::vector<std::size_t>& lists : selection.zipped) {
    Json names = Json::array();
    for (const std::size_t list : lists) names.push_back(combined_lists[list]);
    experiment["zip"].push_back(std::move(names));
  }
  for (const CombinedValues& patterns : selection.excluded) {
    Json entry = Json::object();
    for (std::size_t list = 0; list < patterns.size(); ++list) {
      if (!patterns[list].empty()) entry[std::string(combined_lists[list])] = patterns[list];
    }
    experiment["exclude"].push_back(std::move(entry));
  }
}

PointSelection selection_of(const Json& experiment) {
  PointSelection selection;
  for (const Json& names : experiment.value("zip", Json::array())) {
    std::vector<std::size_t> lists;
    for (std::size_t list = 0; list < combined_lists.size(); ++list) {
      if (std::ranges::find(names, Json(combined_lists[list])) != names.end()) lists.push_back(list);
    }
    if (!lists.empty()) selection.zipped.push_back(std::move(lists));
  }
  for (const Json& entry : experiment.value("exclude", Json::array())) {
    CombinedValues& patterns = selection.excluded.emplace_back();
    for (std::size_t list = 0; list < combined_lists.size(); ++list) {
      patterns[list] = entry.value(std::string(combined_lists[list]), std::vector<std::string>{});
    }
  }
  return selection;
}

CombinedValues combined_values_of(const Json& experiment) {
  CombinedValues values;
  for (std::size_t list = 0; list < combined_lists.size(); ++list) {
    for (const Json& value : experiment.value(std::string(combined_lists[list]), Json::array())) {
      values[list].push_back(written_value(value));
    }
  }
  return values;
}

}  // namespace plimsoll
