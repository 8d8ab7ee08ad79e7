// The table of a result's fields: what is written of any question has all of them, and documents say what it says.

#include <catch2/catch.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "experiments/report/report.h"
#include "experiments/study/result_fields.h"
#include "experiments/sweep/record_check.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

std::vector<std::string> result_keys(const Json& result) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : result.items()) keys.push_back(key);
  return keys;
}

/// The one answer of a strategy on the ideal machine.
struct AskedForFields {
  Question question;
  Problem problem = problem_of(question);
  Answer made;

  AskedForFields(const char* strategy, std::optional<Bytes> budget, const AllocatorChoice& allocator = {})
      : question{.trace = "uniform:9",
                 .platform = "ideal",
                 .strategy = parse_pipeline(strategy, "test"),
                 .engine = Engine::event,
                 .allocator = allocator},
        made(answer(question, problem, std::span(&budget, 1)).front()) {}
  Json json() const { return to_json(result_of(question, problem, made)); }
};

TEST_CASE("a result has the same fields in the same order, whatever became of its question", "[result]") {
  std::vector<std::string> names;
  for (const ResultField& field : result_fields()) names.emplace_back(field.name);
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());

  const AskedForFields feasible("rotor", std::nullopt, usual(AllocatorKind::cuda)), infeasible("rotor", Bytes{1});
  const Json refused =
      to_json({.question = feasible.question, .budget = {}, .outcome = Outcome::refused, .reason = "w"});
  for (const Json& result : {feasible.json(), infeasible.json(), refused}) {
    CHECK(result_keys(result) == names);
    for (const ResultField& field : result_fields()) {
      const Json& value = result[std::string(field.name)];
      INFO(field.name << " " << value.dump());
      CHECK(wrong_in_field(field, value) == std::nullopt);
      if (field.is == FieldIs::stated) CHECK_FALSE(value.is_null());
      if (field.is == FieldIs::measured) CHECK(value.is_null() == !result["feasible"].get<bool>());
    }
  }
  CHECK(feasible.json()["outcome"] == "feasible");
  CHECK(feasible.json()["reason"].is_null());
  CHECK(infeasible.json()["smallest_feasible_bytes"].is_number());
  CHECK(refused["reason"] == "w");
}

TEST_CASE("what an allocator reserves is of the device for which it reserves most", "[result]") {
  AskedForFields asked("rotor", std::nullopt, usual(AllocatorKind::cuda));
  ReservedPeak more = asked.made.reserved.front();
  more.reserved = more.reserved + Bytes{5'000'000};
  asked.made.reserved.push_back(more);
  CHECK(asked.json()["peak_reserved_bytes"] == more.reserved.count);
  CHECK(AskedForFields("rotor", std::nullopt).json()["peak_reserved_bytes"].is_null());
}

TEST_CASE("a field takes values of its unit, and null where it may be null", "[result]") {
  const Json values[] = {"words", true, -1, 0, 2, 0.5, Json::array(), Json::object()};
  for (const ResultField& field : result_fields()) {
    INFO(field.name);
    CHECK(wrong_in_field(field, nullptr).has_value() == (field.is == FieldIs::stated));
    std::size_t taken = 0;
    for (const Json& value : values) taken += wrong_in_field(field, value) ? 0 : 1;
    const bool is_amount = field.unit == FieldUnit::ratio || field.unit == FieldUnit::seconds;
    const bool is_whole = field.unit == FieldUnit::index || field.unit == FieldUnit::bytes;
    CHECK(taken == (is_amount ? 3 : is_whole ? 2 : 1));
  }
  Json record = AskedForFields("rotor", std::nullopt).json();
  record["point"] = record["case"] = 0;
  CHECK(wrong_in_record(record) == std::nullopt);
  record["bubble_fraction"] = "none";
  CHECK(wrong_in_record(record) == "bubble_fraction: expected a number of at least 0, or null, found string");
}

TEST_CASE("the table of fields is experiments/README.md's", "[result]") {
  const std::string table = result_fields_table();
  INFO("experiments/README.md should have:\n" << table);
  CHECK(read_text_file("experiments/README.md").find(table) != std::string::npos);
}

}  // namespace
}  // namespace plimsoll
