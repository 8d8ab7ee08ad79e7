#include "experiments/merge/results_database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <map>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>
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
  /// `columns`: each with its type. The key is the first one, or a column within its folder.
  SqlTable(SqlDatabase& database, const std::string& name,
           const std::vector<std::pair<std::string, std::string_view>>& columns, std::string_view key_in_folder = "")
      : database_(database) {
    std::vector<std::string> all, places;
    for (const auto& [column, type] : columns) {
      const bool is_key = all.empty() && key_in_folder.empty();
      all.push_back(fmt::format("\"{}\" {}{}", column, type, is_key ? " PRIMARY KEY" : ""));
      places.emplace_back("?");
    }
    if (!key_in_folder.empty()) all.push_back(fmt::format("PRIMARY KEY (\"folder\", \"{}\")", key_in_folder));
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

using SqlColumns = std::vector<std::pair<std::string, std::string_view>>;

SqlColumns result_columns() {
  SqlColumns columns;
  for (const char* key : record_columns) {
    const bool is_number = key == std::string_view("point") || key == std::string_view("case");
    columns.emplace_back(key, is_number ? "INTEGER" : "TEXT");
  }
  for (const ResultField& field : result_fields()) {
    if (is_in_tables(field)) columns.emplace_back(field.name, sql_type(field.unit));
  }
  return columns;
}

/// `before`: the cells of a record before those of its own.
template <class Before>
void add_results(SqlTable& table, const Records& records, Before before) {
  for (const auto& [unused, text] : records) {
    const Json record = Json::parse(text);
    std::vector<Json> row = before(record);
    for (const char* key : record_columns) row.push_back(sql_cell(record, key));
    for (const ResultField& field : result_fields()) {
      if (is_in_tables(field)) row.push_back(in_tables(field, record));
    }
    table.add(row);
  }
}

constexpr std::pair<const char*, std::string_view> case_columns[] = {{"case", "INTEGER"},
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

void add_cases(SqlTable& table, const std::map<std::size_t, CaseFacts>& cases, const std::vector<Json>& before) {
  for (const auto& [number, facts] : cases) {
    Json one = to_json(facts);
    one["case"] = number;
    std::vector<Json> row = before;
    for (const auto& [name, unused] : case_columns) row.push_back(sql_cell(one, name));
    table.add(row);
  }
}

/// With columns of text before them.
SqlColumns behind(std::span<const char* const> names, const SqlColumns& columns) {
  SqlColumns all;
  for (const char* name : names) all.emplace_back(name, "TEXT");
  all.insert(all.end(), columns.begin(), columns.end());
  return all;
}

}  // namespace

std::string results_database(const SweepContents& contents) {
  SqlDatabase database;
  database.run("BEGIN");
  {
    SqlTable results(database, "results", result_columns());
    add_results(results, contents.records, [](const Json&) { return std::vector<Json>(); });
    SqlTable cases(database, "cases", {std::begin(case_columns), std::end(case_columns)});
    add_cases(cases, contents.cases, {});
  }
  database.run("COMMIT");
  return database.bytes();
}

std::vector<Json> compared_cells(const ComparedFolder& folder, const Json& record) {
  const auto facts = folder.contents.cases.find(record.value("case", std::size_t{0}));
  if (facts == folder.contents.cases.end()) return {folder.name, nullptr, nullptr};
  return {folder.name, facts->second.model, facts->second.machine};
}

std::string compared_database(std::span<const ComparedFolder> folders) {
  SqlDatabase database;
  database.run("BEGIN");
  {
    SqlTable results(database, "results", behind(compared_columns, result_columns()), "point");
    SqlTable cases(database, "cases",
                   behind(std::span(compared_columns, 1), {std::begin(case_columns), std::end(case_columns)}), "case");
    for (const ComparedFolder& each : folders) {
      add_results(results, each.contents.records, [&](const Json& record) { return compared_cells(each, record); });
      add_cases(cases, each.contents.cases, {each.name});
    }
  }
  database.run("COMMIT");
  return database.bytes();
}

}  // namespace plimsoll
