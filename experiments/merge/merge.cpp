#include "experiments/merge/merge.h"

#include <fmt/format.h>

#include <algorithm>

#include "experiments/merge/results_database.h"
#include "experiments/study/build_name.h"
#include "experiments/sweep/selection.h"
#include "sim/io/input_error.h"
#include "sim/io/output_error.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_merging(const NamedContents& of, const std::string& what) {
  throw InputError(located(of.folder.string(), {}, "", what));
}

bool is_combined(const std::string& key) {
  return std::ranges::find(combined_lists, key) != combined_lists.end();
}

/// Adds what the list has not yet.
void join(Json& list, const Json& more) {
  for (const Json& value : more) {
    if (std::ranges::find(list, value) == list.end()) list.push_back(value);
  }
}

/// The experiment of all, as the manifests have them.
Json joined_experiment(const std::vector<NamedContents>& all) {
  Json joint = all.front().contents.identity.at("experiment");
  for (const NamedContents& each : all) {
    const Json& experiment = each.contents.identity.at("experiment");
    if (experiment == joint) continue;
    for (const char* key : {"zip", "exclude"}) {
      if (experiment.contains(key) || joint.contains(key)) {
        refuse_merging(each, fmt::format("is of another experiment, and '{}' holds for one only", key));
      }
    }
    Json keys = experiment;
    keys.update(joint);
    for (const auto& [key, unused] : keys.items()) {
      const Json here = experiment.value(key, Json()), there = joint.value(key, Json());
      if (is_combined(key)) {
        join(joint[key], here);
      } else if (key == "alias") {
        joint[key].update(here);
      } else if (key != "name" && here != there) {
        refuse_merging(each, fmt::format("{}: expected {} as in {}, found {}", key, json_text(there),
                                         all.front().folder.string(), json_text(here)));
      }
    }
  }
  return joint;
}

Json joined_inputs(const std::vector<NamedContents>& all) {
  Json joint = Json::object();
  for (const NamedContents& each : all) {
    const Json inputs = each.contents.identity.value("inputs", Json::object());
    for (const auto& [file, digest] : inputs.items()) {
      if (joint.contains(file) && joint[file] != digest) {
        refuse_merging(each,
                       fmt::format("had other contents of the file '{}' than {}", file, all.front().folder.string()));
      }
      joint[file] = digest;
    }
  }
  return joint;
}

/// The place of a case among those of an experiment.
std::size_t case_number(const CombinedValues& values, const CaseFacts& facts) {
  const Combination of{facts.trace, facts.platform, std::to_string(facts.micro_batches), facts.optimizer, ""};
  std::size_t number = 0;
  for (std::size_t list = 0; list + 1 < values.size(); ++list) {
    const auto found = std::ranges::find(values[list], of[list]);
    number = number * values[list].size() + static_cast<std::size_t>(found - values[list].begin());
  }
  return number;
}

/// A case as two folders may tell it: a range that begins at the least budget of all strategies is part of it.
void join_case(std::map<std::size_t, CaseFacts>& cases, std::size_t number, const CaseFacts& facts,
               const NamedContents& from) {
  const auto [known, is_new] = cases.emplace(number, facts);
  if (is_new || known->second.budgets == facts.budgets) return;
  refuse_merging(from,
                 fmt::format("has other budgets for {} on {}: give the range in bytes", facts.trace, facts.platform));
}

/// A record without what is measured, and without its numbers.
Json answer_alone(const std::string& text) {
  Json record = Json::parse(text);
  for (const char* key : {"point", "case", "solve_s", "simulate_s"}) record.erase(key);
  return record;
}

void join_record(SweepContents& joint, const PointNumbers& numbers, const std::string& text,
                 const NamedContents& from) {
  const Json record = Json::parse(text);
  for (const std::size_t point : numbers.of(record)) {
    const auto [known, is_new] = joint.records.emplace(point, numbers.as(point, record, text));
    if (is_new || answer_alone(known->second) == answer_alone(text)) continue;
    refuse_merging(
        from, fmt::format("answers {} for {} on {} otherwise than a folder before it", record.value("strategy", ""),
                          record.value("trace", ""), record.value("platform", "")));
  }
}

/// Where they differ, nothing says what the results are of.
Json common_version(const std::vector<NamedContents>& all) {
  const Json version = all.front().contents.identity.at("version");
  for (const NamedContents& each : all) {
    if (each.contents.identity.at("version") == version) continue;
    refuse_merging(each, fmt::format("is of {}, and {} of {}", json_text(each.contents.identity.at("version")),
                                     all.front().folder.string(), json_text(version)));
  }
  return version;
}

/// Groups that an experiment asks, times budgets.
std::size_t points_of(const SweepContents& contents) {
  const Json& experiment = contents.identity.at("experiment");
  const PointSelection selection = selection_of(experiment);
  const CombinedValues values = combined_values_of(experiment);
  std::size_t all = 0;
  for (const auto& [number, facts] : contents.cases) {
    for (const std::string& strategy : values.back()) {
      const Combination of{facts.trace, facts.platform, std::to_string(facts.micro_batches), facts.optimizer, strategy};
      if (is_asked(selection, values, of)) all += facts.budgets.size();
    }
  }
  return all;
}

Json merged_manifest(const SweepContents& contents, const MergeCount& count, const std::string& command_line) {
  Json cases = Json::array();
  for (const auto& [number, facts] : contents.cases) {
    Json one{{"case", number}};
    one.update(to_json(facts));
    cases.push_back(std::move(one));
  }
  return {{"format", "plimsoll.sweep.v1"},
          {"version", contents.identity.at("version")},
          {"command_line", command_line},
          {"status", count.found == count.all ? "complete" : "interrupted"},
          {"points", count.all},
          {"finished", count.found},
          {"shard", "1/1"},
          {"identity", contents.identity},
          {"failures", contents.failures},
          {"cases", std::move(cases)}};
}

void check_free(const fs::path& folder, bool replace) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored) || fs::is_empty(folder, ignored)) return;
  if (replace && fs::exists(folder / "manifest.json", ignored)) return;
  const char* const otherwise =
      replace ? "is not empty and holds no sweep" : "is not empty; --replace replaces a sweep";
  throw InputError(located(folder.string(), {}, "", otherwise));
}

}  // namespace

std::vector<NamedContents> read_sweeps(const std::vector<fs::path>& folders) {
  std::vector<NamedContents> all;
  for (const fs::path& folder : folders) all.push_back({folder, read_sweep(folder)});
  return all;
}

SweepContents merged(const std::vector<NamedContents>& all) {
  for (const NamedContents& each : all) {
    if (each.contents.identity.is_null()) refuse_merging(each, "holds no sweep");
  }
  if (all.size() == 1) return all.front().contents;
  SweepContents joint;
  joint.identity = {
      {"version", common_version(all)}, {"experiment", joined_experiment(all)}, {"inputs", joined_inputs(all)}};
  const CombinedValues values = combined_values_of(joint.identity["experiment"]);
  for (const NamedContents& each : all) {
    for (const auto& [unused, facts] : each.contents.cases) {
      join_case(joint.cases, case_number(values, facts), facts, each);
    }
    for (const Json& failure : each.contents.failures) {
      if (std::ranges::find(joint.failures, failure) == joint.failures.end()) joint.failures.push_back(failure);
    }
  }
  const PointNumbers numbers(joint.identity["experiment"], joint.cases);
  for (const NamedContents& each : all) {
    for (const auto& [unused, text] : each.contents.records) join_record(joint, numbers, text, each);
  }
  return joint;
}

MergeCount merge_sweeps(const std::vector<fs::path>& folders, const fs::path& into, const std::string& command_line,
                        bool replace) {
  const SweepContents joint = merged(read_sweeps(folders));
  check_free(into, replace);
  std::error_code error;
  fs::create_directories(into, error);
  if (error) throw OutputError(located(into.string(), {}, "", "cannot make the folder: " + error.message()));
  const MergeCount count{joint.records.size(), points_of(joint)};
  StoreDisk disk;
  std::string text;
  for (const auto& [unused, record] : joint.records) text.append(record) += '\n';
  disk.replace(into / "results.jsonl", text);
  disk.replace(into / "results.sqlite", results_database(joint));
  disk.replace(into / "manifest.json", manifest_text(merged_manifest(joint, count, command_line)));
  return count;
}

}  // namespace plimsoll
