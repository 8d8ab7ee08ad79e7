#include "experiments/sweep/record_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>
#include <string_view>

#include "experiments/study/memory_by_kind.h"
#include "experiments/study/result_fields.h"
#include "experiments/sweep/sweep_points.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/io/key_path.h"

namespace plimsoll {
namespace {

/// What is allowed as a value, in words and as a rule.
struct RecordType {
  std::string_view words;
  bool (*fits)(const Json&);
};

bool is_record_amount(const Json& value) {
  return value.is_number() && value.get<double>() >= 0;
}
bool is_record_count(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= std::numeric_limits<std::int64_t>::max();
}

constexpr RecordType a_text{"a text", [](const Json& v) { return v.is_string(); }};
constexpr RecordType a_flag{"true or false", [](const Json& v) { return v.is_boolean(); }};
constexpr RecordType a_count{"a whole number from 1 to 1000000",
                             [](const Json& v) { return is_record_count(v) && v >= 1 && v <= 1'000'000; }};
constexpr RecordType an_index{"a whole number of at least 0", is_record_count};
constexpr RecordType some_seconds{"a number of at least 0", is_record_amount};
constexpr RecordType bytes_or_null{"a whole number of at least 0, or null",
                                   [](const Json& v) { return v.is_null() || is_record_count(v); }};
constexpr RecordType an_outcome{"feasible, infeasible, out_of_memory, refused or stopped", [](const Json& v) {
                                  return v.is_string() && from_name<Outcome>(v.get<std::string>()).has_value();
                                }};

struct RecordKey {
  std::string_view name;
  RecordType type;
};

/// Of records alone, or narrower than a result's field.
constexpr RecordKey of_records[] = {
    {"point", an_index}, {"case", an_index}, {"build", a_text}, {"key", a_text}, {"outcome", an_outcome}};

/// What reports take from every record, and from those that are feasible.
constexpr const char* in_every_record[] = {"point",          "trace",     "platform",
                                           "strategy",       "optimizer", "micro_batches",
                                           "times_rescaled", "feasible",  "memory_budget_bytes"};
constexpr const char* in_answered_records[] = {"makespan_s", "peak_bytes", "lower_bound_s"};

std::optional<std::string> wrong_in_key(const Json& value, const RecordKey& key) {
  if (key.type.fits(value)) return std::nullopt;
  return fmt::format("{}: expected {}, found {}", key.name, key.type.words, value.type_name());
}

bool is_record_span(const Json& span) {
  return span.is_array() && span.size() == 3 && is_record_amount(span[0]) && is_record_amount(span[1]) &&
         span[0] <= span[1] && span[2].is_string();
}
bool is_record_lane(const Json& lane) {
  return lane.is_object() && lane.contains("name") && lane["name"].is_string() && lane.contains("spans") &&
         lane["spans"].is_array() && std::ranges::all_of(lane["spans"], is_record_span);
}
bool is_record_kind(const Json& kind) {
  return kind.is_string() &&
         std::ranges::find(memory_kind_names, kind.get_ref<const std::string&>()) != memory_kind_names.end();
}

/// A list of this name whose elements all are as they should be.
template <class IsElement>
bool is_record_list(const Json& object, const char* name, IsElement is_element) {
  return object.contains(name) && object[name].is_array() && std::ranges::all_of(object[name], is_element);
}

bool is_gantt_span(const Json& span) {
  return span.is_array() && span.size() == 5 && is_record_span({span[0], span[1], span[2]}) &&
         is_record_count(span[3]) && is_record_count(span[4]);
}
bool is_gantt_lane(const Json& lane) {
  return lane.is_object() && lane.contains("name") && lane["name"].is_string() &&
         is_record_list(lane, "spans", is_gantt_span);
}
bool is_gantt_device(const Json& device) {
  return device.is_object() && device.contains("name") && device["name"].is_string() &&
         is_record_list(device, "lanes", is_gantt_lane) && is_record_list(device, "memory", [](const Json& row) {
           return row.is_array() && row.size() == 2 && is_record_amount(row[0]) && row[1].is_number();
         });
}

bool is_record_timeline(const Json& timeline) {
  if (timeline.is_object() && timeline.contains("devices")) return is_record_list(timeline, "devices", is_gantt_device);
  if (!timeline.is_object() || !is_record_list(timeline, "lanes", is_record_lane) ||
      !is_record_list(timeline, "memory_kinds", is_record_kind)) {
    return false;
  }
  const std::size_t columns = timeline["memory_kinds"].size() + 1;
  return is_record_list(timeline, "memory", [&](const Json& row) {
    const auto is_number = [](const Json& value) { return value.is_number(); };  // a workspace may be below 0
    return row.is_array() && row.size() == columns && is_record_amount(row[0]) && std::ranges::all_of(row, is_number);
  });
}

bool is_text_in(const Json& object, const char* name) {
  return object.contains(name) && object[name].is_string();
}
bool is_amount_in(const Json& object, const char* name) {
  return object.contains(name) && is_record_amount(object[name]);
}
bool is_flag_in(const Json& object, const char* name) {
  return object.contains(name) && object[name].is_boolean();
}

bool is_mesh_axis(const Json& axis) {
  return axis.is_object() && is_text_in(axis, "name") && axis.contains("ranks") && a_count.fits(axis["ranks"]) &&
         is_flag_in(axis, "own_micro_batches");
}
bool is_mesh_exchange(const Json& each) {
  return each.is_object() && is_text_in(each, "kind") && is_text_in(each, "axes") && is_text_in(each, "phase") &&
         is_flag_in(each, "beside") && each.contains("count") && is_record_count(each["count"]) &&
         each.contains("bytes") && is_record_count(each["bytes"]) && is_amount_in(each, "seconds");
}
bool is_record_mesh(const Json& mesh) {
  if (!mesh.is_object() || !is_record_list(mesh, "axes", is_mesh_axis)) return false;
  const std::size_t axes = mesh["axes"].size();
  const auto is_operator = [axes](const Json& op) {
    return op.is_object() && is_text_in(op, "name") && is_text_in(op, "kind") && op.contains("count") &&
           is_record_count(op["count"]) &&
           is_record_list(op, "cuts", [](const Json& cut) { return cut.is_null() || cut.is_string(); }) &&
           is_record_list(op, "results", [](const Json& result) { return result.is_null() || result.is_string(); }) &&
           op["cuts"].size() == axes && op["results"].size() == axes;
  };
  return axes > 0 && is_record_list(mesh, "operators", is_operator) &&
         is_record_list(mesh, "exchanges", is_mesh_exchange);
}

constexpr RecordType budgets_list{"a list of whole numbers of at least 0, or null", [](const Json& v) {
                                    return v.is_array() && std::ranges::all_of(v, bytes_or_null.fits);
                                  }};

bool is_curve_point(const Json& v) {
  return v.is_object() && v.contains("budget_bytes") && is_record_count(v["budget_bytes"]) &&
         v.contains("lower_bound_s") && is_record_amount(v["lower_bound_s"]) && v.contains("price_s_per_gb") &&
         is_record_amount(v["price_s_per_gb"]) && v.contains("bends") && v["bends"].is_boolean();
}

bool is_curve(const Json& v) {
  return v.is_object() && v.contains("plans") && (v["plans"] == "recompute" || v["plans"] == "offload") &&
         v.contains("points") && v["points"].is_array() && std::ranges::all_of(v["points"], is_curve_point);
}

constexpr RecordType curves_or_null{"a list of curves of bounds, or null", [](const Json& v) {
                                      return v.is_null() || (v.is_array() && std::ranges::all_of(v, is_curve));
                                    }};
constexpr RecordKey in_every_case[] = {
    {"case", an_index},
    {"trace", a_text},
    {"platform", a_text},
    {"model", a_text},
    {"machine", a_text},
    {"micro_batches", a_count},
    {"optimizer", a_text},
    {"times_rescaled", a_flag},
    {"capacity_bytes", bytes_or_null},
    {"store_all_bytes", bytes_or_null},
    {"smallest_feasible_bytes", bytes_or_null},
    {"lower_bound_bytes", an_index},
    {"lower_bound_s", some_seconds},
    {"budgets_bytes", budgets_list},
    {"bound_curves", curves_or_null},
};
constexpr RecordKey in_every_smallest[] = {
    {"trace", a_text},     {"platform", a_text}, {"micro_batches", a_count},
    {"optimizer", a_text}, {"strategy", a_text}, {"smallest_feasible_bytes", bytes_or_null},
    {"stopped", a_flag},
};

bool is_list_of_texts(const Json& value) {
  return value.is_array() && std::ranges::all_of(value, &Json::is_string);
}

/// Of an experiment's `zip` and `exclude`, and of the lists that they are about.
std::optional<WrongInManifest> wrong_in_selection(const Json& experiment) {
  const auto wrong = [](const char* key, const char* what) {
    return WrongInManifest{std::string("identity.experiment.") + key, what};
  };
  const Json zip = experiment.value("zip", Json::array()), exclude = experiment.value("exclude", Json::array());
  const auto names_lists = [](const Json& names) { return is_list_of_texts(names) && !names.empty(); };
  const auto has_patterns = [](const Json& entry) {
    return entry.is_object() && std::ranges::all_of(entry, is_list_of_texts);
  };
  if (!zip.is_array() || !std::ranges::all_of(zip, names_lists)) return wrong("zip", "expected lists of names");
  if (!exclude.is_array() || !std::ranges::all_of(exclude, has_patterns)) {
    return wrong("exclude", "expected objects of lists of texts");
  }
  return std::nullopt;
}

std::optional<WrongInManifest> wrong_in_identity(const Json& manifest) {
  const Json& identity = manifest["identity"];
  if (!identity.is_object()) return WrongInManifest{"identity", "expected an object"};
  if (!identity.contains("version")) return WrongInManifest{"identity", "missing key 'version'"};
  if (!identity["version"].is_string()) return WrongInManifest{"identity.version", "expected a text"};
  if (!identity.contains("experiment")) return WrongInManifest{"identity", "missing key 'experiment'"};
  const Json& experiment = identity["experiment"];
  if (!experiment.is_object()) return WrongInManifest{"identity.experiment", "expected an object"};
  if (!experiment.contains("strategies")) return WrongInManifest{"identity.experiment", "missing key 'strategies'"};
  if (!is_list_of_texts(experiment["strategies"])) {
    return WrongInManifest{"identity.experiment.strategies", "expected a list of texts"};
  }
  return wrong_in_selection(experiment);
}

/// Of the objects in a list of this name.
std::optional<WrongInManifest> wrong_in_list(const Json& manifest, const char* list, std::span<const RecordKey> keys) {
  if (!manifest[list].is_array()) return WrongInManifest{list, "expected a list"};
  for (std::size_t k = 0; k < manifest[list].size(); ++k) {
    const Json& one = manifest[list][k];
    if (!one.is_object()) return WrongInManifest{below(list, k), "expected an object"};
    for (const RecordKey& key : keys) {
      if (!one.contains(key.name)) return WrongInManifest{below(list, k), fmt::format("missing key '{}'", key.name)};
      if (key.type.fits(one[key.name])) continue;
      return WrongInManifest{below(list, k, key.name), fmt::format("expected {}", key.type.words)};
    }
  }
  return std::nullopt;
}

}  // namespace

Outcome outcome_of(const Json& record) {
  if (record.contains("outcome")) return *from_name<Outcome>(record["outcome"].get<std::string>());
  if (record.at("feasible").get<bool>()) return Outcome::feasible;
  return is_of_limits(record.value("reason", "")) ? Outcome::stopped : Outcome::infeasible;
}

std::optional<WrongInManifest> wrong_in_manifest(const Json& manifest) {
  for (const char* key : {"identity", "cases"}) {
    if (!manifest.contains(key)) return WrongInManifest{"", fmt::format("missing key '{}'", key)};
  }
  if (const auto wrong = wrong_in_identity(manifest)) return wrong;
  if (const auto wrong = wrong_in_list(manifest, "cases", in_every_case)) return wrong;
  return manifest.contains("smallest") ? wrong_in_list(manifest, "smallest", in_every_smallest) : std::nullopt;
}

std::optional<std::string> wrong_type_in_record(const Json& record) {
  for (const RecordKey& key : of_records) {
    if (!record.contains(key.name)) continue;
    if (const auto wrong = wrong_in_key(record[key.name], key)) return wrong;
  }
  for (const ResultField& field : result_fields()) {
    if (!record.contains(field.name)) continue;
    if (const auto wrong = wrong_in_field(field, record[field.name])) return wrong;
  }
  if (record.contains("mesh") && !is_record_mesh(record["mesh"])) {
    return "mesh: expected axes with names and ranks, operators with a cut and a result for each of them, and "
           "exchanges";
  }
  if (!record.contains("timeline") || is_record_timeline(record["timeline"])) return std::nullopt;
  return "timeline: expected lanes with spans, the kinds of memory, and a row of as many numbers a date; or such "
         "devices";
}

std::optional<std::string> wrong_in_record(const Json& record) {
  for (const char* key : in_every_record) {
    if (!record.contains(key)) return fmt::format("missing key '{}'", key);
  }
  if (const auto wrong = wrong_type_in_record(record)) return wrong;
  if (!record["feasible"].get<bool>()) return std::nullopt;
  for (const char* key : in_answered_records) {
    if (!record.contains(key)) return fmt::format("missing key '{}'", key);
    if (record[key].is_null()) return fmt::format("{}: expected a number of at least 0, found null", key);
  }
  return std::nullopt;
}

namespace {

/// The place behind the string that begins here.
std::size_t behind_string(std::string_view text, std::size_t begin) {
  for (std::size_t i = begin + 1;; ++i) {
    i = text.find_first_of("\"\\", i);
    EXPECTS(i != std::string_view::npos);
    if (text[i] == '"') return i + 1;
    ++i;  // what a backslash stands before
  }
}

template <class Number>
Number number_at(std::string_view text) {
  Number number{};
  std::from_chars(text.data(), text.data() + text.size(), number);  // null is none
  return number;
}

}  // namespace

RecordHead head_of_record(std::string_view record) {
  RecordHead head;
  int depth = 0;
  for (std::size_t i = 0; i < record.size();) {
    const char c = record[i];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') {
      ++i;
      continue;
    }
    const std::size_t end = behind_string(record, i);
    const std::string_view key = record.substr(i + 1, end - i - 2);
    i = end;
    if (depth != 1 || end >= record.size() || record[end] != ':') continue;
    const std::string_view value = record.substr(end + 1);
    if (key == "point") head.point = number_at<std::size_t>(value);
    if (key == "key") head.key = value.substr(1, behind_string(value, 0) - 2);
    if (key == "feasible") head.feasible = value.starts_with("true");
    if (key == "solve_s" || key == "simulate_s") head.taken += Seconds{number_at<double>(value)};
  }
  return head;
}

}  // namespace plimsoll
