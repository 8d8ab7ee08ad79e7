#pragma once
// What a result is, field by field, in one table: the JSON of `simulate`, the records of a sweep and their check,
// results.csv, the report's page and the table of experiments/README.md are made from it.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "experiments/study/run.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// A question and as much of its answer as there is.
struct Result {
  const Question& question;
  std::optional<Bytes> budget;
  Outcome outcome;
  std::string_view reason;           ///< empty where feasible
  const Problem* problem = nullptr;  ///< null: refused or stopped before there was one
  const Answer* answer = nullptr;    ///< null: likewise

  /// Those of a schedule; null where there is none.
  const Metrics* metrics() const { return answer && answer->metrics ? &*answer->metrics : nullptr; }
  const Schedule* schedule() const { return answer && answer->schedule ? &*answer->schedule : nullptr; }
};

/// The result that an answer is.
Result result_of(const Question&, const Problem&, const Answer&);

/// What a field's value is: an `index` counts from 0, a `count` from 1.
enum class FieldUnit { text, flag, ratio, index, count, bytes, seconds, list, object };

/// When a field is null.
enum class FieldIs {
  stated,     ///< never
  measured,   ///< where there is no schedule
  sometimes,  ///< where `null_when` says
};

struct ResultField {
  std::string_view name;  ///< key in JSON, column in results.csv (lists and objects have none)
  FieldUnit unit;
  FieldIs is;
  std::string_view null_when;  ///< in words, of a field that `sometimes` is null
  std::string_view label;      ///< on the report's page; empty: not shown there
  std::string_view meaning;
  Json (*value)(const Result&);
  Json (*in_tables)(const Json&) = nullptr;  ///< of an object its one number for tables
};

/// All fields in the order in which they are written.
std::span<const ResultField> result_fields();

/// A result as an object with all fields, in their order.
Json to_json(const Result&);

/// What is wrong with a value as that of a field, in words: what is expected; nothing where it is right. Null is right
/// but for fields that are always stated.
std::optional<std::string> wrong_in_field(const ResultField&, const Json& value);

/// A unit as tables of fields and the page name it.
std::string_view word_of(FieldUnit);

/// Whether tables have a column for it: lists have none, and objects only where one number says them.
bool is_in_tables(const ResultField&);

/// The field's value in a record as tables show it; null where the record has none.
Json in_tables(const ResultField&, const Json& record);

/// The table of fields, as experiments/README.md shows it.
std::string result_fields_table();

}  // namespace plimsoll
