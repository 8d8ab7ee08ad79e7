#include "experiments/report/shown_load.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>

#include "sim/io/input_error.h"
#include "sim/io/json/parsed_json.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

bool are_load_texts(const Json& object, std::initializer_list<const char*> keys) {
  return std::ranges::all_of(keys, [&](const char* key) { return object.contains(key) && object[key].is_string(); });
}

bool are_load_numbers(const Json& object, std::initializer_list<const char*> keys) {
  return std::ranges::all_of(keys, [&](const char* key) { return object.contains(key) && object[key].is_number(); });
}

bool is_list_of(const Json& object, const char* key, bool (*is_element)(const Json&)) {
  return object.contains(key) && object[key].is_array() && std::ranges::all_of(object[key], is_element);
}

bool is_fitting(const Json& point) {
  return point.is_object() && are_load_numbers(point, {"value", "makespan_s", "peak_bytes"});
}

bool is_load_point(const Json& point) {
  if (!point.is_object() || !are_load_texts(point, {"outcome"})) return false;
  return point["outcome"] != "feasible" || is_fitting(point);
}

/// What fits has a `next`: null, or with what is known of it.
bool is_load_mark(const Json& line) {
  if (!line.contains("largest") || !line.contains("next")) return false;
  const Json& next = line["next"];
  if (line["largest"].is_null()) return next.is_null();
  if (!is_fitting(line["largest"]) || !next.is_object() || !are_load_texts(next, {"proof"})) return false;
  const auto is_there = [&](const char* key) { return next.contains(key); };
  return std::ranges::all_of(std::array{"value", "needs_bytes", "needs_is_proven", "bound_bytes", "reason"}, is_there);
}

bool is_load_line(const Json& line) {
  return line.is_object() && are_load_texts(line, {"strategy"}) && is_load_mark(line) &&
         is_list_of(line, "points", is_load_point);
}

bool is_load_bound(const Json& point) {
  return point.is_object() && are_load_numbers(point, {"value", "least_bytes"});
}

/// What the picture and the page take from it.
bool is_load(const Json& load) {
  if (!load.is_object() || load.value("format", Json()) != "plimsoll.load.v1") return false;
  if (!are_load_texts(load, {"trace", "platform", "vary", "optimizer"})) return false;
  if (!are_load_numbers(load, {"memory_budget_bytes", "micro_batches"})) return false;
  const auto is_count = [&](const char* key) {
    return load.contains(key) && (load[key].is_null() || load[key].is_number());
  };
  return is_count("batch") && is_count("sequence") && is_list_of(load, "lines", is_load_line) &&
         load.contains("bound") && load["bound"].is_object() && load["bound"].contains("largest") &&
         is_list_of(load["bound"], "points", is_load_bound);
}

}  // namespace

Json read_load(const fs::path& folder) {
  const fs::path file = folder / "load.json";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return nullptr;
  Json load = parsed_json(read_text_file(file));
  if (!is_load(load)) throw InputError(located(file.string(), {}, "", "is not what 'plimsoll load -o' writes"));
  return load;
}

bool has_load_picture(const Json& load) {
  return load.is_object() &&
         std::ranges::any_of(load["lines"], [](const Json& line) { return !line["largest"].is_null(); });
}

}  // namespace plimsoll
