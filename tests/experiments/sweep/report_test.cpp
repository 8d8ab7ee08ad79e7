// Reports: their data, table, page and figures.

#include "experiments/report/report.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "experiments/report/compared.h"
#include "experiments/report/report_table.h"
#include "experiments/report/shown_load.h"
#include "experiments/study/csv.h"
#include "experiments/study/memory_by_kind.h"
#include "experiments/study/result_fields.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

std::string record(std::size_t point, std::string_view strategy, std::int64_t budget, const Json& makespan,
                   const Json& peak) {
  Json json{{"point", point},
            {"case", 0},
            {"strategy", strategy},
            {"memory_budget_bytes", budget},
            {"feasible", !peak.is_null()}};
  json["makespan_s"] = makespan;
  json["peak_bytes"] = peak;
  json["lower_bound_s"] = 7.0;
  json["lower_bound_bytes"] = 18;
  json["recompute_s"] = peak.is_null() ? Json() : Json(0.0);
  json["bytes_moved"] = peak.is_null() ? Json() : Json(0);
  json["gap"] = nullptr;
  json["devices"] = Json::array({{{"name", "gpu"}}});
  json["peak"] = nullptr;
  if (peak.is_null()) {
    json["reason"] = "too, \"small\"";
    json["smallest_feasible_bytes"] = 20;
  }
  return json.dump();
}

/// The worked example's points, with a strategy of which nothing fits.
SweepContents contents() {
  SweepContents made;
  made.identity = {
      {"version", "plimsoll 0"},
      {"experiment", {{"name", "worked </script> example"}, {"strategies", {"store_all", "rotor", "none"}}}}};
  made.cases[0] = {.trace = "t",
                   .platform = "p",
                   .model = "worked/example",
                   .machine = "ideal",
                   .micro_batches = 1,
                   .optimizer = "none",
                   .times_rescaled = false,
                   .capacity = {},
                   .store_all = Bytes{22},
                   .smallest = {},
                   .lower_bound_bytes = {19},
                   .lower_bound = {7},
                   .budgets = {}};
  made.records = {{0, record(0, "store_all", 19, nullptr, nullptr)},
                  {1, record(1, "store_all", 22, 7.0, 22)},
                  {2, record(2, "rotor", 20, 8.0, 20)},
                  {3, record(3, "rotor", 22, 7.0, 22)},
                  {4, record(4, "none", 22, nullptr, nullptr)}};
  return made;
}

TEST_CASE("a report's data holds a figure a case, with bounds and least budgets over all points", "[report]") {
  const Json data = report_data(contents(), "test");
  REQUIRE(data["figures"].size() == 1);
  const Json& figure = data["figures"][0];
  CHECK(figure["file"] == "worked_example-ideal");
  CHECK(figure["lower_bound_bytes"] == 18);
  CHECK(figure["smallest_feasible_bytes"] == 20);
  CHECK(figure["store_all_bytes"] == 22);
  REQUIRE(figure["series"].size() == 3);
  CHECK(figure["series"][1]["strategy"] == "rotor");
  CHECK(figure["series"][1]["points"].size() == 2);
}

/// A row of results.csv that says this of some columns, and nothing of the others.
std::string csv_row(const std::map<std::string, std::string>& cells) {
  std::string row;
  std::size_t said = 0;
  const auto add = [&](const std::string& column) {
    if (!row.empty()) row += ',';
    const auto cell = cells.find(column);
    if (cell == cells.end()) return;
    row += cell->second;
    ++said;
  };
  for (const char* column : {"point", "case", "build", "key"}) add(column);
  for (const ResultField& field : result_fields()) {
    if (is_in_tables(field)) add(std::string(field.name));
  }
  CHECK(said == cells.size());
  return row;
}

TEST_CASE("the table of results has a row a point, the same columns always, and no nested values", "[report]") {
  std::istringstream csv(results_csv(contents(), "test"));
  std::string line;
  std::getline(csv, line);
  CHECK(line == "# test");
  std::getline(csv, line);
  CHECK(line.starts_with("point,case,build,key,trace,platform,strategy,micro_batches,"));
  CHECK(line.ends_with(",solve_s,simulate_s"));
  CHECK(line.find("devices") == std::string::npos);
  std::getline(csv, line);
  CHECK(line == csv_row({{"point", "0"},
                         {"case", "0"},
                         {"strategy", "store_all"},
                         {"memory_budget_bytes", "19"},
                         {"feasible", "false"},
                         {"lower_bound_s", "7.0"},
                         {"lower_bound_bytes", "18"},
                         {"reason", "\"too, \"\"small\"\"\""},
                         {"smallest_feasible_bytes", "20"}}));
  std::getline(csv, line);
  CHECK(line == csv_row({{"point", "1"},
                         {"case", "0"},
                         {"strategy", "store_all"},
                         {"memory_budget_bytes", "22"},
                         {"feasible", "true"},
                         {"makespan_s", "7.0"},
                         {"peak_bytes", "22"},
                         {"lower_bound_s", "7.0"},
                         {"lower_bound_bytes", "18"},
                         {"recompute_s", "0.0"},
                         {"bytes_moved", "0"}}));
  CHECK(csv_field("plain") == "plain");
  CHECK(csv_field("=1+1") == "'=1+1");
  CHECK(csv_field("-1+1") == "'-1+1");
  CHECK(csv_field("+1") == "'+1");
  CHECK(csv_field("@a,b") == "\"'@a,b\"");
}

TEST_CASE("a report shows every field with a label, where it is not null", "[report]") {
  SweepContents with_more = contents();
  Json record = Json::parse(with_more.records[3]);
  record["peak_reserved_bytes"] = 50;
  record["cutting_s"] = 0.25;
  with_more.records[3] = record.dump();
  const Json data = report_data(with_more, "test");
  const Json& points = data["figures"][0]["series"][1]["points"];
  CHECK(points[1]["peak_reserved_bytes"] == 50);
  CHECK(points[1]["cutting_s"] == 0.25);
  CHECK_FALSE(points[0].contains("peak_reserved_bytes"));
  std::vector<std::string> labels;
  for (const Json& field : data["fields"]) labels.push_back(field["label"]);
  CHECK(std::ranges::count(labels, "reserved") == 1);
  CHECK(std::ranges::count(labels, "cutting") == 1);
  CHECK(std::ranges::count(labels, "") == 0);
  std::istringstream csv(results_csv(with_more, "test"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(csv, line);) lines.push_back(line);
  REQUIRE(lines.size() == 7);
  CHECK(lines[5].find(",50,") != std::string::npos);
  CHECK(lines[5].find(",0.25,") != std::string::npos);
}

TEST_CASE("a report says what the host holds, in table, page and CSV", "[report]") {
  SweepContents made = contents();
  for (auto& [point, text] : made.records) {
    Json record = Json::parse(text);
    record.update({{"trace", "t"}, {"platform", "p"}, {"micro_batches", 1}, {"optimizer", "none"}});
    record["times_rescaled"] = false;
    record["host_peak_bytes"] = record["peak_bytes"].is_null() ? Json() : Json(point == 3 ? 92'600'000'000 : 0);
    text = record.dump();
  }
  const Json series = report_data(made, "test")["figures"][0]["series"];
  CHECK(series[1]["points"][1]["host_peak_bytes"] == 92'600'000'000);
  CHECK(results_csv(made, "test").find(",host_peak_bytes") != std::string::npos);
  const std::string table = report_table(made), said = ", host 92.60 GB";
  const std::size_t place = table.find(said);
  REQUIRE(place != std::string::npos);
  CHECK(table.find(", host", place + said.size()) == std::string::npos);
}

TEST_CASE("a report names what runs out of memory, is refused or stopped, and says 'fits nowhere' of nothing else",
          "[report]") {
  SweepContents made = contents();
  const auto say = [&](std::size_t point, const char* outcome) {
    Json record = Json::parse(made.records[point]);
    record.update({{"feasible", false}, {"outcome", outcome}, {"reason", "because"}});
    made.records[point] = record.dump();
  };
  const auto note = [&](std::size_t strategy) {
    return report_data(made, "test")["figures"][0]["series"][strategy]["note"].get<std::string>();
  };
  CHECK(note(0).empty());  // fits one of its budgets
  CHECK(note(2) == "fits nowhere");
  made.cases[0].budgets = {Bytes{19}, Bytes{20}, Bytes{22}};
  CHECK(note(2) == "does not fit at 1 of 3 budgets");  // nobody has asked it at the others yet
  made.cases[0].budgets = {};
  say(4, "refused");
  CHECK(note(2) == "refused");
  say(4, "stopped");
  CHECK(note(2) == "stopped");
  say(4, "out_of_memory");
  CHECK(note(2) == "out of memory");
  say(3, "out_of_memory");
  CHECK(note(1) == "out of memory at 1 of 2 budgets");
  say(2, "infeasible");
  CHECK(note(1) == "does not fit at 1 of 2 budgets, out of memory at 1 of 2 budgets");
  say(1, "out_of_memory");
  const Json figure = report_data(made, "test")["figures"][0];
  CHECK(figure["series"][1]["points"][1]["outcome"] == "out_of_memory");
  CHECK(figure["series"][1]["points"][1]["reason"] == "because");
  CHECK(figure["smallest_feasible_bytes"] == 20);  // as the records say, not the peak of what runs out of memory
  CHECK(results_csv(made, "test").find(",out_of_memory,because,") != std::string::npos);
}

TEST_CASE("a report says what codecs do to gradients, of all as one vector", "[report]") {
  SweepContents with_errors = contents();
  Json lossy = Json::parse(with_errors.records[3]), exact = Json::parse(with_errors.records[1]);
  lossy["gradient_error"] = {{"whole", {{"relative", 0.25}}}, {"approximate", {{"dw", {{"relative", 0.5}}}}}};
  exact["gradient_error"] = nullptr;
  with_errors.records[3] = lossy.dump();
  with_errors.records[1] = exact.dump();
  const Json series = report_data(with_errors, "test")["figures"][0]["series"];
  CHECK(series[1]["points"][1]["gradient_error"] == 0.25);
  CHECK_FALSE(series[0]["points"][1].contains("gradient_error"));
  std::istringstream csv(results_csv(with_errors, "test"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(csv, line);) lines.push_back(line);
  REQUIRE(lines.size() == 7);
  const auto cells = [](const std::string& line) {
    std::vector<std::string> list;
    std::istringstream stream(line + ",");
    for (std::string cell; std::getline(stream, cell, ',');) list.push_back(cell);
    return list;
  };
  const std::vector<std::string> columns = cells(lines[1]);
  const auto place = static_cast<std::size_t>(std::ranges::find(columns, "gradient_error") - columns.begin());
  REQUIRE(place < columns.size());
  CHECK(cells(lines[3])[place].empty());
  CHECK(cells(lines[5])[place] == "0.25");
}

bool matplotlib_is_here() {
  if (std::system("/usr/bin/python3 -c 'import matplotlib' 2>/dev/null") == 0) return true;
  WARN("python3-matplotlib is not here");
  return false;
}

TEST_CASE("a report has one distance from one bound, in table, data and page", "[report]") {
  SweepContents made = contents();
  made.cases[0].lower_bound = Seconds{6.5};  // below those of the answers
  for (auto& [point, text] : made.records) {
    Json record = Json::parse(text);
    record.update({{"trace", "t"}, {"platform", "p"}, {"micro_batches", 1}, {"optimizer", "none"}});
    record["times_rescaled"] = false;
    if (point == 4) record["lower_bound_s"] = 4;  // does not fit: a bound of schedules that leave more
    text = record.dump();
  }
  const Json figure = report_data(made, "test")["figures"][0];
  CHECK(figure["lower_bound_s"] == 6.5);
  CHECK(figure["series"][1]["points"][0]["above_bound"].get<double>() == Approx(8.0 / 6.5 - 1));
  CHECK_FALSE(figure["series"][2]["points"][0].contains("above_bound"));  // does not fit
  const std::string table = report_table(made);
  for (const char* cell : {"7.00 s   +7.7 %", "8.00 s  +23.1 %"}) CHECK(table.find(cell) != std::string::npos);
}

TEST_CASE("a report keeps of a point only kinds of memory and parts of time that are there", "[report]") {
  SweepContents made = contents();
  Json record = Json::parse(made.records[3]);
  record["peak"] = {{"bytes_by_kind", {{"activation", 22}, {"gradient", 0}}}};
  record["time_parts"] = {{{"part", "kernels"}, {"axis", nullptr}, {"time_s", 7.0}},
                          {{"part", "waits"}, {"axis", nullptr}, {"time_s", 0.0}}};
  made.records[3] = record.dump();
  const Json point = report_data(made, "test")["figures"][0]["series"][1]["points"][1];
  CHECK(point["kinds"] == Json{{"activation", 22}});
  CHECK(point["time_parts"].size() == 1);
}

/// What a page holds as its data.
Json data_in(const std::string& page) {
  const std::string opening = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(opening) + opening.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST_CASE("a page has a timeline once, and at most 60,000 points", "[report]") {
  Json data = report_data(contents(), "test");
  Json& figure = data["figures"][0];
  for (const int point : {1, 3}) {
    figure["timelines"].push_back({{"point", point}, {"lanes", {1}}, {"memory_kinds", {1}}, {"memory", {1}}});
  }
  const Json shown = data_in(report_html(data, "3\t{}\n"))["figures"][0]["timelines"];
  CHECK(shown[0].contains("lanes"));  // the page has it nowhere else
  CHECK(shown[1] == Json{{"point", 3}});
  Json many = figure;
  const Json point = many["series"][0]["points"][0];
  while (many["series"][0]["points"].size() < 29'990) many["series"][0]["points"].push_back(point);
  for (int i = 0; i < 3; ++i) data["figures"].push_back(many);
  const Json bounded = data_in(report_html(data));
  CHECK(bounded["figures"].size() == 3);
  CHECK(bounded["cases_left_out"] == 1);
}

TEST_CASE("figures that differ in nothing else are put together", "[report]") {
  Json data{{"figures", Json::array()}};
  const auto add = [&](const char* model, const char* machine, int micro_batches) {
    data["figures"].push_back({{"model", model}, {"machine", machine}, {"micro_batches", micro_batches}});
    data["figures"].back()["optimizer"] = "none";
  };
  add("a", "h200", 1);
  add("b", "h200", 1);
  add("a", "t4", 1);
  add("b", "t4", 2);
  add("b", "l4", 1);
  put_together(data, {"platforms"});
  REQUIRE(data["together"].size() == 2);
  CHECK(data["together"][0]["figures"] == Json{0, 2});
  CHECK(data["together"][1]["figures"] == Json{1, 4});
  CHECK(data["together"][0]["file"] == "together-1");
  CHECK(data["figures"][4]["together"] == 1);
  CHECK_FALSE(data["figures"][3].contains("together"));
  put_together(data, {"platforms", "models", "micro-batches"});
  CHECK(data["together"][0]["figures"].size() == 5);
  put_together(data, {"optimizers"});
  CHECK(data["together"].empty());
}

TEST_CASE("folders that are compared keep their points apart, whatever their builds", "[report]") {
  SweepContents other = contents();
  other.identity["version"] = "plimsoll 1";
  other.identity["experiment"]["engine"] = "event";
  const Json data = compared_data({{"out/monday", contents()}, {"out/tuesday/", other}}, "test");
  REQUIRE(data["figures"].size() == 2);
  CHECK(data["figures"][1]["folder"] == "tuesday");
  std::set<std::size_t> points;
  for (const Json& figure : data["figures"]) {
    for (const Json& series : figure["series"]) {
      for (const Json& point : series["points"]) points.insert(point["point"].get<std::size_t>());
    }
  }
  CHECK(points.size() == 10);
  CHECK(data["folders"][1]["first_point"] == 5);
  CHECK(data["folders"][1]["experiment"]["engine"] == "event");
  CHECK(data["experiment"] == contents().identity["experiment"]);
  const Json alike = compared_data({{"monday/out", contents()}, {"tuesday/out", other}}, "test");
  CHECK(alike["figures"][1]["folder"] == "tuesday/out");
}

TEST_CASE("a comparison has one picture of folders, and refuses what it cannot compare", "[report][eleventh-6]") {
  const TemporaryFolder folder;
  const std::filesystem::path out = folder.path / "out";
  const auto refusal = [&](const std::vector<NamedContents>& all) {
    try {
      write_comparison(all, out, "test", {"folders"}, 0);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  SweepContents none = contents();
  none.records.clear();
  CHECK(refusal({{"monday", contents()}, {"tuesday", none}}) == "tuesday: holds no results yet");
  CHECK(refusal({{"monday", contents()}, {"./monday", contents()}}) == "./monday: is there twice");
  CHECK(refusal({{"monday", {}}}) == "monday: holds no sweep (no manifest.json)");
  CHECK_FALSE(std::filesystem::exists(out));
  const std::vector<NamedContents> two{{"monday", contents()}, {"tuesday", contents()}};
  CHECK(write_comparison(two, out, "test", {"folders"}, 0).size() == 4);
  if (!matplotlib_is_here()) return;
  const std::vector<std::filesystem::path> files = write_comparison(two, out, "test", {"folders"}, 9);
  REQUIRE(files.size() == 7);
  for (const std::filesystem::path& file : files) CHECK(std::filesystem::file_size(file) > 100);
}

/// The lines of a CSV file behind its comment.
std::vector<std::string> csv_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  lines.erase(lines.begin());
  return lines;
}

TEST_CASE("the table of a comparison has the rows of each folder's own behind its name", "[report]") {
  SweepContents other = contents();
  other.cases.at(0).machine = "another, machine";
  const SweepContents first = contents();
  const std::vector<ComparedFolder> named{{"monday", first}, {"tues,day", other}};
  const std::vector<std::string> all = csv_lines(compared_csv(named, "test"));
  const std::vector<std::string> own = csv_lines(results_csv(first, "test"));
  const CaseFacts& facts = first.cases.at(0);
  std::vector<std::string> expected{"folder,model,machine," + own.front()};
  for (const std::string& before : {"monday," + facts.model + "," + facts.machine + ",",
                                    "\"tues,day\"," + facts.model + ",\"another, machine\","}) {
    for (const std::string& line : std::span(own).subspan(1)) expected.push_back(before + line);
  }
  CHECK(all == expected);
  // SQLite's own shell as the second reader, where it is there.
  const TemporaryFolder folder;
  write_text_file(folder.path / "r.sqlite", compared_database(named));
  const std::string ask = "sqlite3 " + (folder.path / "r.sqlite").string();
  if (std::system("command -v sqlite3 >/dev/null") != 0) return;
  const std::string to = " > " + (folder.path / "said").string();
  CHECK(std::system((ask + " \"select folder, count(*), min(point), max(machine) from results group by folder\"" + to)
                        .c_str()) == 0);
  const std::string each = "|" + std::to_string(own.size() - 1) + "|" + std::to_string(first.records.begin()->first);
  CHECK(read_text_file(folder.path / "said") ==
        "monday" + each + "|" + facts.machine + "\ntues,day" + each + "|another, machine\n");
  CHECK(std::system((ask + " 'select folder, model from cases'" + to).c_str()) == 0);
  CHECK(read_text_file(folder.path / "said") == "monday|" + facts.model + "\ntues,day|" + facts.model + "\n");
}

TEST_CASE("the page holds its data, whatever the names, and asks for nothing else", "[report]") {
  const Json data = report_data(contents(), "test");
  const std::string page = report_html(data);
  CHECK(data_in(page) == data);
  for (const char* needs_network : {"<link", "src=", "@import", "url("}) {
    CHECK(page.find(needs_network) == std::string::npos);
  }
}

/// The results of a sweep with timelines, as a folder has them.
void write_sweep_to(const TemporaryFolder& folder) {
  SweepContents made = contents();
  made.cases.at(0).budgets = {Bytes{19}, Bytes{20}, Bytes{22}};
  Json manifest{{"format", "plimsoll.sweep.v1"}, {"identity", made.identity}, {"cases", Json::array()}};
  manifest["cases"].push_back({{"case", 0}});
  manifest["cases"][0].update(to_json(made.cases.at(0)));
  write_json_file(folder.path / "manifest.json", manifest);
  std::string lines;
  constexpr std::array points{0, 2, 4, 5, 8};  // of three strategies at three budgets
  for (const auto& [place, text] : made.records) {
    Json record = Json::parse(text);
    record.update({{"point", points.at(place)},
                   {"trace", "t"},
                   {"platform", "p"},
                   {"micro_batches", 1},
                   {"times_rescaled", false},
                   {"optimizer", "none"}});
    if (record["feasible"]) {
      record["timeline"] = {
          {"lanes", {{{"name", "compute"}, {"spans", {{0.0, 3.0, "forward"}, {3.0, 7.0, "backward"}}}}}},
          {"memory_kinds", memory_kind_names},
          {"memory", {{0.0, 4, 0, 0, 0, 0, 0, 0, 0}, {3.0, 4, 9, 0, 0, 0, 0, 7, 2}}}};
    }
    lines += record.dump() + "\n";
  }
  write_text_file(folder.path / "results.jsonl", lines);
}

TEST_CASE("a report draws the same figures every time", "[report][eleventh-4]") {
  if (!matplotlib_is_here()) return;
  const TemporaryFolder folder;
  write_sweep_to(folder);
  for (const char* where : {"first", "second"}) {
    const std::vector<std::filesystem::path> files = write_report({folder.path}, folder.path / where, "test");
    CHECK(files.size() == 10);
    for (const std::filesystem::path& file : files) CHECK(std::filesystem::file_size(file) > 100);
  }
  for (const char* name : {"worked_example-ideal.svg", "worked_example-ideal.pdf", "worked_example-ideal-timelines.svg",
                           "report.html", "results.csv", "results.sqlite"}) {
    INFO(name);
    CHECK(read_text_file(folder.path / "first" / name) == read_text_file(folder.path / "second" / name));
  }
}

/// A load line of one value that fits.
Json load_of_one() {
  const Json point{{"value", 3}, {"outcome", "feasible"}, {"makespan_s", 0.5}, {"peak_bytes", 20}};
  const Json next{{"value", 4},
                  {"proof", "strategy"},
                  {"needs_bytes", 30},
                  {"needs_is_proven", true},
                  {"bound_bytes", nullptr},
                  {"reason", "too large"}};
  return {{"format", "plimsoll.load.v1"},
          {"trace", "mlp:layers=2"},
          {"platform", "ideal"},
          {"vary", "batch"},
          {"memory_budget_bytes", 22},
          {"micro_batches", 1},
          {"optimizer", "none"},
          {"batch", 1},
          {"sequence", nullptr},
          {"lines", {{{"strategy", "store_all"}, {"largest", point}, {"next", next}, {"points", {point}}}}},
          {"bound", {{"largest", nullptr}, {"points", Json::array()}}}};
}

TEST_CASE("a report has pictures of as many cases as are asked for", "[report]") {
  const TemporaryFolder folder;
  write_sweep_to(folder);
  CHECK(write_report({folder.path}, folder.path / "none", "test", 0).size() == 4);  // without matplotlib, too
}

TEST_CASE("a report shows the load line of its folder before all figures", "[report][load][eleventh-9]") {
  if (!matplotlib_is_here()) return;
  const TemporaryFolder folder;
  write_sweep_to(folder);
  write_json_file(folder.path / "load.json", load_of_one());
  const std::vector<std::filesystem::path> files = write_report({folder.path}, folder.path / "out", "test");
  REQUIRE(files.size() == 13);
  CHECK(files[4] == folder.path / "out" / "load.svg");
  for (const std::filesystem::path& file : files) CHECK(std::filesystem::file_size(file) > 100);
  const Json data = Json::parse(read_text_file(folder.path / "out" / "report.json"));
  CHECK(data["load"] == load_of_one());
  std::string picture = Json(read_text_file(folder.path / "out" / "load.svg")).dump();
  for (std::size_t at = 0; (at = picture.find('<', at)) != std::string::npos;) picture.replace(at, 1, "\\u003c");
  CHECK(read_text_file(folder.path / "out" / "report.html").find("\"picture\":" + picture) != std::string::npos);
  SECTION("where no value fits there is no picture") {
    Json none = load_of_one();
    none["lines"][0].update({{"largest", nullptr}, {"next", nullptr}, {"points", Json::array()}});
    write_json_file(folder.path / "load.json", none);
    CHECK(write_report({folder.path}, folder.path / "none", "test").size() == 10);
    CHECK(Json::parse(read_text_file(folder.path / "none" / "report.json"))["load"] == none);
  }
}

TEST_CASE("a report of a folder that has a load line alone shows that", "[report][load][eleventh-1]") {
  if (!matplotlib_is_here()) return;
  const TemporaryFolder folder;
  write_json_file(folder.path / "load.json", load_of_one());
  CHECK(write_report({folder.path}, folder.path / "out", "test").size() == 7);
  const Json data = Json::parse(read_text_file(folder.path / "out" / "report.json"));
  CHECK(data["load"] == load_of_one());
  CHECK(data["figures"].empty());
  CHECK(std::filesystem::file_size(folder.path / "out" / "load.png") > 100);
  CHECK(read_text_file(folder.path / "out" / "report.html").find("\"picture\":") != std::string::npos);
}

TEST_CASE("a report refuses a load line that is not whole", "[report][load]") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "load.json";
  const auto refusal = [&](const std::string& text) {
    write_text_file(file, text);
    try {
      read_load(folder.path);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(read_load(folder.path).is_null());
  CHECK(refusal(load_of_one().dump()).empty());
  const std::string what = file.string() + ": is not what 'plimsoll load -o' writes";
  for (const char* text : {"", "{", "[]", "{}", "{\"format\":\"plimsoll.sweep.v1\"}"}) CHECK(refusal(text) == what);
  const Json whole = load_of_one();
  for (const auto& [key, value] : whole.items()) {
    Json lacking = whole;
    lacking.erase(key);
    CAPTURE(key);
    CHECK(refusal(lacking.dump()) == what);
  }
  const std::array changed{"/lines/0/strategy",
                           "/lines/0/largest/value",
                           "/lines/0/largest/peak_bytes",
                           "/lines/0/next",
                           "/lines/0/next/proof",
                           "/lines/0/points/0/makespan_s",
                           "/lines/0/points",
                           "/lines/0",
                           "/bound/points",
                           "/bound/points/0",
                           "/batch"};
  for (const char* path : changed) {
    Json other = load_of_one();
    other[Json::json_pointer(path)] = Json::object();
    CAPTURE(path);
    CHECK(refusal(other.dump()) == what);
  }
}

TEST_CASE("a report of what is no sweep is refused", "[report]") {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::filesystem::path& path) {
    try {
      write_report({path}, path, "test");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal(folder.path) == folder.path.string() + ": holds no sweep (no manifest.json)");
  CHECK(refusal(folder.path / "none") == (folder.path / "none").string() + ": is not a folder");
  write_text_file(folder.path / "manifest.json", "{}\n");
  CHECK(refusal(folder.path) == (folder.path / "manifest.json").string() + ": is not the manifest of a sweep");
}

}  // namespace
}  // namespace plimsoll
