#include "experiments/merge/results_database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <new>
#include <stdexcept>
#include <vector>

#include "experiments/study/result_fields.h"

namespace plimsoll {
namespace {

std::string_view sql_type(FieldUnit unit) {
  switch (unit) {
    case FieldUnit::flag:
    case FieldUnit::index:
    case FieldUnit::count:
    case FieldUnit::bytes:
      return "INTEGER";
    case FieldUnit::text:
      return "TEXT";
    case FieldUnit::ratio:
    case FieldUnit::seconds:
    case FieldUnit::list:
    case FieldUnit::object:  // its one number
      return "REAL";
  }
  return "";
}

class SqlDatabase {
 public:
  SqlDatabase() { check(sqlite3_open(":memory:", &made_)); }
  ~SqlDatabase() { sqlite3_close(made_); }
  SqlDatabase(const SqlDatabase&) = delete;
  SqlDatabase& operator=(const SqlDatabase&) = delete;

  void run(const std::string& sql) { check(sqlite3_exec(made_, sql.c_str(), nullptr, nullptr, nullptr)); }

  void check(int result) const {
    if (result == SQLITE_NOMEM) throw std::bad_alloc();
    if (result != SQLITE_OK) throw std::runtime_error(fmt::format("SQLite: {}", sqlite3_errmsg(made_)));
  }

  std::string bytes() const {
    sqlite3_int64 size = 0;
    unsigned char* const copy = sqlite3_serialize(made_, "main", &size, 0);
    if (copy == nullptr) throw std::bad_alloc();
    std::string text(reinterpret_cast<const char*>(copy), static_cast<std::size_t>(size));
    sqlite3_free(copy);
    return text;
  }

  sqlite3* get() const { return made_; }

 private:
  sqlite3* made_ = nullptr;
};

/// A table that rows are added to.
class SqlTable {
 public:
  /// `columns`: each with its type, the first one the key.
  SqlTable(SqlDatabase& database, const std::string& name,
           const std::vector<std::pair<std::string, std::string_view>>& columns)
      : database_(database) {
    std::vector<std::string> all, places;
    for (const auto& [column, type] : columns) {
      all.push_back(fmt::format("\"{}\" {}{}", column, type, all.empty() ? " PRIMARY KEY" : ""));
      places.emplace_back("?");
    }
    database.run(fmt::format("CREATE TABLE {} ({})", name, fmt::join(all, ", ")));
    const std::string sql = fmt::format("INSERT INTO {} VALUES ({})", name, fmt::join(places, ", "));
    database.check(sqlite3_prepare_v2(database.get(), sql.c_str(), -1, &insert_, nullptr));
  }
  ~SqlTable() { sqlite3_finalize(insert_); }
  SqlTable(const SqlTable&) = delete;
  SqlTable& operator=(const SqlTable&) = delete;

  void add(const std::vector<Json>& row) {
    for (std::size_t place = 0; place < row.size(); ++place) bind(static_cast<int>(place) + 1, row[place]);
    if (sqlite3_step(insert_) != SQLITE_DONE) database_.check(sqlite3_errcode(database_.get()));
    database_.check(sqlite3_reset(insert_));
  }

 private:
  void bind(int place, const Json& value) {
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      database_.check(sqlite3_bind_text(insert_, place, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT));
    } else if (value.is_boolean()) {
      database_.check(sqlite3_bind_int(insert_, place, value.get<bool>() ? 1 : 0));
    } else if (value.is_number_integer()) {
      database_.check(sqlite3_bind_int64(insert_, place, value.get<std::int64_t>()));
    } else if (value.is_number()) {
      database_.check(sqlite3_bind_double(insert_, place, value.get<double>()));
    } else {
      database_.check(sqlite3_bind_null(insert_, place));
    }
  }

  SqlDatabase& database_;
  sqlite3_stmt* insert_ = nullptr;
};

Json sql_cell(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? Json(nullptr) : *found;
}

void add_results(SqlDatabase& database, const Records& records) {
  std::vector<std::pair<std::string, std::string_view>> columns;
  for (const char* key : record_columns) {
    const bool is_number = key == std::string_view("point") || key == std::string_view("case");
    columns.emplace_back(key, is_number ? "INTEGER" : "TEXT");
  }
  for (const ResultField& field : result_fields()) {
    if (is_in_tables(field)) columns.emplace_back(field.name, sql_type(field.unit));
  }
  SqlTable table(database, "results", columns);
  for (const auto& [unused, text] : records) {
    const Json record = Json::parse(text);
    std::vector<Json> row;
    for (const char* key : record_columns) row.push_back(sql_cell(record, key));
    for (const ResultField& field : result_fields()) {
      if (is_in_tables(field)) row.push_back(in_tables(field, record));
    }
    table.add(row);
  }
}

void add_cases(SqlDatabase& database, const std::map<std::size_t, CaseFacts>& cases) {
  constexpr std::pair<const char*, const char*> columns[] = {{"case", "INTEGER"},
                                                             {"trace", "TEXT"},
                                                             {"platform", "TEXT"},
                                                             {"model", "TEXT"},
                                                             {"machine", "TEXT"},
                                                             {"micro_batches", "INTEGER"},
                                                             {"optimizer", "TEXT"},
                                                             {"times_rescaled", "INTEGER"},
                                                             {"capacity_bytes", "INTEGER"},
                                                             {"store_all_bytes", "INTEGER"},
                                                             {"lower_bound_bytes", "INTEGER"},
                                                             {"lower_bound_s", "REAL"},
                                                             {"impossible", "TEXT"}};
  SqlTable table(database, "cases", {std::begin(columns), std::end(columns)});
  for (const auto& [number, facts] : cases) {
    Json one = to_json(facts);
    one["case"] = number;
    std::vector<Json> row;
    for (const auto& [name, unused] : columns) row.push_back(sql_cell(one, name));
    table.add(row);
  }
}

}  // namespace

std::string results_database(const SweepContents& contents) {
  SqlDatabase database;
  database.run("BEGIN");
  add_results(database, contents.records);
  add_cases(database, contents.cases);
  database.run("COMMIT");
  return database.bytes();
}

}  // namespace plimsoll
