#include "experiments/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "experiments/merge/merge.h"
#include "experiments/merge/results_database.h"
#include "experiments/report/drawing.h"
#include "experiments/report/gantt.h"
#include "experiments/report/mesh_picture.h"
#include "experiments/report/shown_load.h"
#include "experiments/study/class_bound.h"
#include "experiments/study/csv.h"
#include "experiments/study/result_fields.h"
#include "experiments/sweep/record_check.h"
#include "experiments/sweep/selection.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/output_error.h"
#include "sim/io/quantity.h"
#include "sim/io/shipped.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

/// The smaller one; null is no number.
void keep_least(Json& least, const Json& candidate) {
  if (!candidate.is_number()) return;
  if (!least.is_number() || candidate < least) least = candidate;
}

Json value_or_null(const Json& record, const char* key) {
  return record.contains(key) ? record[key] : Json(nullptr);
}

/// What of a record figures, table and page show: fields with a label, where they are not null.
Json point_of(const Json& record) {
  Json point{{"point", value_or_null(record, "point")}};
  for (const char* key : {"memory_budget_bytes", "feasible", "peak_bytes", "makespan_s"}) {
    point[key] = value_or_null(record, key);
  }
  for (const ResultField& field : result_fields()) {
    if (field.label.empty()) continue;
    if (Json value = in_tables(field, record); !value.is_null()) point[std::string(field.name)] = std::move(value);
  }
  point["outcome"] = written(outcome_of(record));
  if (record.contains("peak") && record["peak"].contains("bytes_by_kind")) {
    point["kinds"] = Json::object();
    for (const auto& [kind, bytes] : record["peak"]["bytes_by_kind"].items()) {
      if (bytes > 0) point["kinds"][kind] = bytes;
    }
  }
  if (record.contains("time_parts")) {
    point["time_parts"] = Json::array();
    for (const Json& part : record["time_parts"]) {
      if (part["time_s"] > 0) point["time_parts"].push_back(part);
    }
  }
  return point;
}

/// What the page says of the fields that it shows, in their order.
Json shown_fields() {
  Json list = Json::array();
  for (const ResultField& field : result_fields()) {
    if (field.label.empty()) continue;
    list.push_back(
        {{"name", field.name}, {"label", field.label}, {"unit", word_of(field.unit)}, {"meaning", field.meaning}});
  }
  return list;
}

/// What legends say of a strategy beside its name: why it has no answers, or that some run out of memory or of time.
std::string without_answers(const Json& points, std::size_t budgets) {
  std::map<Outcome, std::size_t> counts;
  for (const Json& point : points) ++counts[*from_name<Outcome>(point["outcome"].get<std::string>())];
  const bool fits = counts.contains(Outcome::feasible);
  const auto words = [&](Outcome outcome) -> std::string {
    const bool is_everywhere = counts.size() == 1 && points.size() >= budgets;
    if (outcome == Outcome::infeasible) return is_everywhere ? "fits nowhere" : "does not fit";
    return outcome == Outcome::out_of_memory ? "out of memory" : std::string(written(outcome));
  };
  std::string text;
  for (const auto& [outcome, count] : counts) {
    if (outcome == Outcome::feasible || (fits && outcome == Outcome::infeasible)) continue;
    text += (text.empty() ? "" : ", ") + words(outcome);
    if (counts.size() > 1 || points.size() < budgets)
      text += fmt::format(" at {} of {} budgets", count, std::max(points.size(), budgets));
  }
  return text;
}

/// The same of one that has no points: it was refused, it broke, or nobody has asked it yet.
std::string without_points(const CaseFacts& facts, const Json& strategy, const std::vector<Json>& failures) {
  const Json* failure = failure_of(facts, strategy, failures);
  if (failure == nullptr) return "no results yet";
  return std::string(word_for(*failure));
}

/// Why a strategy was refused, stopped or broke, wherever it was; null: nothing of that.
Json reason_of(const CaseFacts& facts, const Json& strategy, const Json& points, const std::vector<Json>& failures) {
  for (const Json& point : points) {
    const Outcome outcome = *from_name<Outcome>(point["outcome"].get<std::string>());
    if (outcome == Outcome::refused || outcome == Outcome::stopped) return value_or_null(point, "reason");
  }
  const Json* failure = points.empty() ? failure_of(facts, strategy, failures) : nullptr;
  return failure == nullptr ? Json(nullptr) : failure->at("message");
}

/// A part of a file's name: of a name what every file system takes.
std::string in_file_names(std::string name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  std::ranges::replace_if(
      name, [&](char c) { return !allowed(c); }, '_');
  constexpr std::size_t longest = 120;
  if (name.size() > longest) name.resize(longest);
  return name;
}

/// With a number behind it where it is taken.
std::string taking(const std::string& stem, std::set<std::string>& taken) {
  std::string unique = stem;
  for (int n = 2; !taken.insert(unique).second; ++n) unique = fmt::format("{}-{}", stem, n);
  return unique;
}

/// A name for files that is unique in the report.
std::string file_stem(const Json& figure, std::set<std::string>& taken) {
  std::string stem =
      in_file_names(fmt::format("{}-{}", figure["model"].get<std::string>(), figure["machine"].get<std::string>()));
  if (figure["micro_batches"] != 1) stem += fmt::format("-m{}", figure["micro_batches"].get<std::uint32_t>());
  if (figure["optimizer"] != "none") stem += "-" + figure["optimizer"].get<std::string>();
  return taking(stem, taken);
}

/// For each strategy the timeline within the least budget for which there is one, in the order of the strategies: of
/// one device as `timelines`; of several as `gantts`, each drawn in a file of its own. Of ranks of a mesh also
/// `meshes`.
void add_timelines(Json& figure, const std::vector<Json>& records, const Json& strategies,
                   std::set<std::string>& taken) {
  for (const Json& strategy : strategies) {
    const Json* least = nullptr;
    for (const Json& record : records) {
      if (record.value("strategy", Json("")) != strategy || !record.contains("timeline")) continue;
      if (least == nullptr || record["peak_bytes"] < (*least)["peak_bytes"]) least = &record;
    }
    if (least == nullptr) continue;
    Json timeline = point_of(*least);
    timeline["strategy"] = strategy;
    if (least->contains("mesh")) {
      const std::string stem = figure["file"].get<std::string>() + "-" + in_file_names(strategy.get<std::string>());
      figure["meshes"].push_back(timeline);
      figure["meshes"].back()["file"] = taking(stem + "-mesh", taken);
    }
    if ((*least)["timeline"].contains("devices")) {
      const std::string stem = figure["file"].get<std::string>() + "-" + in_file_names(strategy.get<std::string>());
      timeline["file"] = taking(stem, taken);
      figure["gantts"].push_back(std::move(timeline));
    } else {
      timeline.update((*least)["timeline"]);
      figure["timelines"].push_back(std::move(timeline));
    }
  }
}

Json figure_of(const CaseFacts& facts, const std::vector<Json>& records, const Json& strategies,
               const std::vector<Json>& failures, std::set<std::string>& taken) {
  Json figure = to_json(facts);
  figure.erase("budgets_bytes");
  figure["file"] = file_stem(figure, taken);
  for (const Json& record : records) {
    if (record["feasible"]) keep_least(figure["lower_bound_s"], value_or_null(record, "lower_bound_s"));
    keep_least(figure["lower_bound_bytes"], value_or_null(record, "lower_bound_bytes"));
    keep_least(figure["smallest_feasible_bytes"], value_or_null(record, "smallest_feasible_bytes"));
    if (record["feasible"]) keep_least(figure["smallest_feasible_bytes"], value_or_null(record, "peak_bytes"));
  }
  const Json& bound = figure["lower_bound_s"];
  const auto shown_point = [&bound](const Json& record) {
    Json point = point_of(record);
    if (record["feasible"] && bound.is_number() && bound > 0) {
      point["above_bound"] = record["makespan_s"].get<double>() / bound.get<double>() - 1;
    }
    return point;
  };
  Json& series = figure["series"] = Json::array();
  for (const Json& strategy : strategies) {
    Json points = Json::array();
    for (const Json& record : records) {
      if (record.value("strategy", Json("")) == strategy) points.push_back(shown_point(record));
    }
    const std::string note =
        points.empty() ? without_points(facts, strategy, failures) : without_answers(points, facts.budgets.size());
    Json reason = reason_of(facts, strategy, points, failures);
    series.push_back({{"strategy", strategy},
                      {"note", note},
                      {"reason", std::move(reason)},
                      {"changes_problem", changes_its_problem(strategy.get<std::string>())},
                      {"points", std::move(points)}});
  }
  add_timelines(figure, records, strategies, taken);
  return figure;
}

/// The strategies that the experiment asks for a case.
Json strategies_of(const Json& experiment, const CaseFacts& facts) {
  const PointSelection selection = selection_of(experiment);
  if (selection.is_everything()) return experiment.at("strategies");
  const CombinedValues values = combined_values_of(experiment);
  Json asked = Json::array();
  for (const Json& strategy : experiment.at("strategies")) {
    const Combination of{facts.trace, facts.platform, std::to_string(facts.micro_batches), facts.optimizer,
                         strategy.get<std::string>()};
    if (is_asked(selection, values, of)) asked.push_back(strategy);
  }
  return asked;
}

std::vector<Json> parsed(const Records& records) {
  std::vector<Json> list;
  for (const auto& [point, record] : records) list.push_back(Json::parse(record));
  return list;
}

/// Whether there is a bound at two budgets or more: plot.py and the page draw it then.
bool has_prices(const Json& figure) {
  return std::ranges::any_of(figure.at("bound_curves"), [](const Json& curve) { return curve["points"].size() > 1; });
}

/// The experiment as the manifest has it.
const Json& experiment_of(const SweepContents& contents) {
  const Json& identity = contents.identity;
  const bool is_known = identity.is_object() && identity.contains("version") && identity.contains("experiment") &&
                        identity["experiment"].is_object() && identity["experiment"].contains("strategies");
  const Json strategies = is_known ? identity["experiment"]["strategies"] : Json();
  if (!strategies.is_array() || !std::ranges::all_of(strategies, &Json::is_string)) {
    throw InputError(
        "manifest.json: identity: expected the version and the experiment, with a list of the names of its strategies");
  }
  return identity["experiment"];
}

}  // namespace

SweepContents read_results(const std::vector<fs::path>& folders) {
  EXPECTS(!folders.empty());
  const fs::path& folder = folders.front();
  SweepContents contents = folders.size() == 1 ? read_sweep(folder) : merged(read_sweeps(folders));
  for (const auto& [point, text] : contents.records) {
    const std::optional<std::string> wrong = wrong_in_record(Json::parse(text));
    if (!wrong) continue;
    throw InputError(located(folder.string(), {}, "", fmt::format("results, point {}: {}", point, *wrong)));
  }
  return contents;
}

Json report_data(const SweepContents& contents, const std::string& made_by) {
  const Json& experiment = experiment_of(contents);
  std::map<std::size_t, std::vector<Json>> by_case;
  for (Json& record : parsed(contents.records)) {
    const std::size_t of = record.value("case", std::size_t{0});
    by_case[of].push_back(std::move(record));
  }
  Json figures = Json::array();
  std::set<std::string> taken;
  Json impossible = Json::array();
  for (const auto& [index, facts] : contents.cases) {
    if (!facts.impossible.empty()) {
      impossible.push_back({{"trace", facts.trace}, {"platform", facts.platform}, {"reason", facts.impossible}});
      continue;
    }
    if (by_case.contains(index))
      figures.push_back(figure_of(facts, by_case[index], strategies_of(experiment, facts), contents.failures, taken));
  }
  return {
      {"format", "plimsoll.report.v1"},     {"made_by", made_by},       {"results_by", contents.identity.at("version")},
      {"experiment", experiment},           {"fields", shown_fields()}, {"figures", std::move(figures)},
      {"impossible", std::move(impossible)}};
}

namespace {

/// A comment, and the columns behind those of a comparison.
std::string csv_head(std::span<const char* const> before, const std::string& made_by) {
  std::vector<std::string> columns(before.begin(), before.end());
  columns.insert(columns.end(), std::begin(record_columns), std::end(record_columns));
  for (const ResultField& field : result_fields()) {
    if (is_in_tables(field)) columns.emplace_back(field.name);
  }
  return "# " + made_by + "\n" + fmt::format("{}\n", fmt::join(columns, ","));
}

std::string csv_row(const std::vector<Json>& before, const Json& record) {
  std::vector<std::string> cells;
  const auto add = [&](const Json& value) {
    cells.emplace_back(value.is_null() ? "" : value.is_string() ? csv_field(value.get<std::string>()) : value.dump());
  };
  for (const Json& value : before) add(value);
  for (const char* key : record_columns) add(value_or_null(record, key));
  for (const ResultField& field : result_fields()) {
    if (is_in_tables(field)) add(in_tables(field, record));
  }
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace

std::string results_csv(const SweepContents& contents, const std::string& made_by) {
  std::string csv = csv_head({}, made_by);
  for (const Json& record : parsed(contents.records)) csv += csv_row({}, record);
  return csv;
}

std::string compared_csv(std::span<const ComparedFolder> folders, const std::string& made_by) {
  std::string csv = csv_head(compared_columns, made_by);
  for (const ComparedFolder& each : folders) {
    for (const Json& record : parsed(each.contents.records)) csv += csv_row(compared_cells(each, record), record);
  }
  return csv;
}

namespace {

/// A record's timeline with what else a chart needs.
Json with_numbers(const Json& record) {
  Json timeline = record["timeline"];
  timeline["makespan_s"] = record["makespan_s"];
  return timeline;
}

void draw_load(const fs::path& results, const fs::path& folder, std::vector<fs::path>& files) {
  draw_by_python("experiments/plot_load.py", {(results / "load.json").string(), folder.string()});
  for (const char* name : {"load.svg", "load.pdf", "load.png"}) files.push_back(folder / name);
}

void draw_gantts(const Json& figure, const SweepContents& contents, const fs::path& folder,
                 std::vector<fs::path>& files) {
  if (!figure.contains("gantts")) return;
  for (const Json& gantt : figure["gantts"]) {
    const Json record = Json::parse(contents.records.at(gantt["point"].get<std::size_t>()));
    const Json timeline = with_numbers(record);
    const std::string title =
        fmt::format("{}: {} on {}, {} micro-batches: {}, {:.1f} % idle", gantt["strategy"].get<std::string>(),
                    figure["model"].get<std::string>(), figure["machine"].get<std::string>(),
                    figure["micro_batches"].get<std::uint32_t>(),
                    format_seconds(Seconds{record["makespan_s"].get<double>()}), 100 * idle_share(timeline));
    files.push_back(folder / (gantt["file"].get<std::string>() + ".svg"));
    write_text_file(files.back(), gantt_svg(timeline, title));
  }
}

void draw_meshes(const Json& figure, const SweepContents& contents, const fs::path& folder,
                 std::vector<fs::path>& files) {
  if (!figure.contains("meshes")) return;
  for (const Json& each : figure["meshes"]) {
    const Json record = Json::parse(contents.records.at(each["point"].get<std::size_t>()));
    const std::string title = fmt::format("{}: {} on {}", each["strategy"].get<std::string>(),
                                          figure["model"].get<std::string>(), figure["machine"].get<std::string>());
    files.push_back(folder / (each["file"].get<std::string>() + ".svg"));
    write_text_file(files.back(), mesh_svg(record["mesh"], title));
  }
}

}  // namespace

std::string report_timelines(const SweepContents& contents) {
  constexpr std::size_t most = 64'000'000;  // bytes: a browser still opens the page
  std::string lines;
  for (const auto& [point, record] : contents.records) {
    if (record.find("\"timeline\"") == std::string::npos) continue;
    const Json parsed = parse_record(record, "results.jsonl", 0);
    if (!parsed.contains("timeline")) continue;
    Json timeline = parsed["timeline"];
    if (timeline.contains("devices")) {
      timeline = {{"svg", gantt_svg(with_numbers(parsed), "")}, {"idle", idle_share(with_numbers(parsed))}};
    }
    if (parsed.contains("mesh")) timeline["mesh_svg"] = mesh_svg(parsed["mesh"], "");
    const std::string line = fmt::format("{}\t{}\n", point, json_text(timeline));
    if (lines.size() + line.size() > most) break;
    lines += line;
  }
  return lines;
}

namespace {

/// What a page holds of a report: a browser opens 60,000 points, and a timeline is there once.
Json data_of_page(const Json& data, const std::string& timelines) {
  constexpr std::size_t most_points = 60'000;
  std::set<std::size_t> with_timeline;
  for (std::size_t at = 0; at < timelines.size(); at = timelines.find('\n', at) + 1) {
    with_timeline.insert(std::strtoull(timelines.c_str() + at, nullptr, 10));
  }
  Json page = data, figures = Json::array();
  std::size_t points = 0;
  for (Json& figure : page["figures"]) {
    for (const Json& series : figure["series"]) points += series["points"].size();
    if (points > most_points && !figures.empty()) break;
    Json none = Json::array(), &list = figure.contains("timelines") ? figure["timelines"] : none;
    for (Json& timeline : list) {
      if (!with_timeline.contains(timeline["point"].get<std::size_t>())) continue;
      for (const char* key : {"lanes", "memory_kinds", "memory"}) timeline.erase(key);
    }
    figures.push_back(std::move(figure));
  }
  const std::size_t cases = data["figures"].size();
  if (figures.size() < cases) page["cases_left_out"] = cases - figures.size();
  page["figures"] = std::move(figures);
  return page;
}

}  // namespace

std::string report_html(const Json& data, std::string timelines) {
  std::string page = read_text_file(shipped_file("experiments/report_page/page.html"));
  const auto put = [&page](std::string_view place, std::string_view text) {
    const std::size_t at = page.find(place);
    EXPECTS(at != std::string::npos);
    page.replace(at, place.size(), text);
  };
  const auto without_tags = [](std::string text) {
    for (std::size_t end = 0; (end = text.find('<', end)) != std::string::npos;) text.replace(end, 1, "\\u003c");
    return text;
  };
  for (const std::string name :
       {"page.css", "uplot.js", "values.js", "load.js", "figure.js", "prices.js", "labels.js", "timeline.js",
        "detail.js", "filter.js", "page.js", "table.js", "cases.js", "start.js"}) {
    put("@" + name + "@", read_text_file(shipped_file("experiments/report_page/" + name)));
  }
  const std::string shown = without_tags(json_text(data_of_page(data, timelines)));
  put("@TIMELINES@", without_tags(std::move(timelines)));
  put("\"@DATA@\"", shown);
  return page;
}

namespace {

/// A sweep of no points, with what the folder's load line says of itself.
SweepContents without_sweep(const Json& load) {
  const Json experiment{{"name", "the load line"}, {"strategies", Json::array()}};
  return {.identity = {{"version", load.value("made_by", "")}, {"experiment", experiment}}, .cases = {}, .records = {}};
}

}  // namespace

std::vector<fs::path> write_report(const std::vector<fs::path>& all_results, const fs::path& folder,
                                   const std::string& made_by, std::size_t most_pictures) {
  return write_report(all_results, read_results(all_results), folder, made_by, most_pictures);
}

std::vector<fs::path> write_report(const std::vector<fs::path>& all_results, SweepContents contents,
                                   const fs::path& folder, const std::string& made_by, std::size_t most_pictures) {
  std::error_code error;
  for (const fs::path& each : all_results) {
    if (!fs::is_directory(each, error)) throw InputError(located(each.string(), {}, "", "is not a folder"));
  }
  const fs::path& results = all_results.front();
  const Json load = read_load(results);
  if (contents.identity.is_null() && load.is_null()) {
    throw InputError(located(results.string(), {}, "", "holds no sweep (no manifest.json)"));
  }
  if (contents.identity.is_null()) {
    contents = without_sweep(load);
  } else if (contents.records.empty()) {
    throw InputError(located(results.string(), {}, "", "holds no results yet"));
  }
  fs::create_directories(folder, error);
  if (error) throw OutputError(located(folder.string(), {}, "", "cannot make the folder: " + error.message()));
  Json data = report_data(contents, made_by);
  if (!load.is_null()) data["load"] = load;
  std::vector<fs::path> files{folder / "results.csv", folder / "report.html", folder / "report.json",
                              folder / "results.sqlite"};
  write_text_file(files[0], results_csv(contents, made_by));
  write_text_file(files[1], report_html(data, report_timelines(contents)));
  write_json_file(files[2], data);
  write_text_file(files[3], results_database(contents));
  if (data.contains("load") && has_load_picture(data["load"])) {
    draw_load(results, folder, files);
    Json shown = data;
    shown["load"]["picture"] = read_text_file(folder / "load.svg");
    write_text_file(files[1], report_html(shown, report_timelines(contents)));
  }
  const std::size_t drawn = std::min(most_pictures, data["figures"].size());
  for (std::size_t i = 0; i < drawn; ++i) {
    draw_gantts(data["figures"][i], contents, folder, files);
    draw_meshes(data["figures"][i], contents, folder, files);
  }
  if (drawn > 0) draw_by_python("experiments/plot.py", {files[2].string(), folder.string(), std::to_string(drawn)});
  for (std::size_t i = 0; i < drawn; ++i) {
    const Json& figure = data["figures"][i];
    std::vector<std::string> stems{figure["file"].get<std::string>()};
    if (figure.contains("timelines")) stems.push_back(stems[0] + "-timelines");
    if (has_prices(figure)) stems.push_back(stems[0] + "-prices");
    for (const std::string& stem : stems) {
      for (const char* extension : {".svg", ".pdf", ".png"}) files.push_back(folder / (stem + extension));
    }
  }
  return files;
}

}  // namespace plimsoll
