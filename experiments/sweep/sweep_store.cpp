#include "experiments/sweep/sweep_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "experiments/study/build_name.h"
#include "experiments/study/exit_code.h"
#include "experiments/sweep/point_key.h"
#include "experiments/sweep/record_check.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/json/parsed_json.h"
#include "sim/io/output_error.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::string tag(Shard shard) {
  return shard.n == 1 ? "" : fmt::format(".{}-of-{}", shard.k, shard.n);
}

/// Files named `stem.suffix` or `stem.k-of-n.suffix`, in the order of their names.
std::vector<fs::path> files_of(const fs::path& folder, std::string_view stem, std::string_view suffix) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    const bool shard = name.starts_with(std::string(stem) + ".") && name.ends_with(suffix) &&
                       (name.find("-of-") != std::string::npos || name == std::string(stem).append(suffix));
    if (shard) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

/// Whether the folder holds anything but results files: those may be there, still empty, before their manifest is.
bool holds_other_things(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    const bool about_to_be = name.starts_with("manifest.") && name.find(".unfinished-") != std::string::npos;
    const bool empty_results =
        name.starts_with("results.") && entry.is_regular_file(ignored) && entry.file_size(ignored) == 0;
    if (!about_to_be && !empty_results) return true;
  }
  return false;
}

Json named_parts_of(const Json& record) {
  Json head = Json::object();
  for (const char* key : {"point", "build", "key", "trace", "platform", "micro_batches", "optimizer", "strategy",
                          "memory_budget_bytes", "reason"}) {
    if (const auto value = record.find(key); value != record.end()) head[key] = *value;
  }
  return head;
}

/// Calls `take` with each whole line of a results file and what it says; returns how many bytes they are.
template <class Take>
std::size_t for_each_line(std::string_view text, const fs::path& path, Take take) {
  std::size_t begin = 0, number = 1;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1, ++number) {
    const std::string_view line = text.substr(begin, end - begin);
    take(line, parse_record(line, path, number));
  }
  return begin;
}

/// The whole lines of a results file, and how many bytes they are.
struct WholeLines {
  std::vector<FoundRecord> records;
  std::uintmax_t bytes = 0, torn_bytes = 0;
};

WholeLines read_lines(const fs::path& path) {
  WholeLines lines;
  const std::string text = read_text_file(path);
  lines.bytes = for_each_line(text, path, [&](std::string_view line, const Json& record) {
    lines.records.push_back({std::string(line), named_parts_of(record)});
  });
  lines.torn_bytes = text.size() - lines.bytes;
  return lines;
}

std::string joined(const std::vector<FoundRecord>& records) {
  std::string text;
  for (const FoundRecord& record : records) text.append(record.text) += '\n';
  return text;
}

std::string joined(const Records& records) {
  std::string text;
  for (const auto& [point, record] : records) text.append(record) += '\n';
  return text;
}

Json read_manifest(const fs::path& path) {
  std::string text = read_text_file(path);
  Json manifest = parsed_json(text);
  if (!manifest.is_object() || manifest.value("format", Json()) != "plimsoll.sweep.v1") {
    throw InputError(located(path.string(), {}, "", "is not the manifest of a sweep"));
  }
  if (const auto wrong = wrong_in_manifest(manifest)) {
    JsonDocument document(std::move(text), path.string());
    document.complain(wrong->path, wrong->what);
    document.throw_if_any();
  }
  return manifest;
}

/// What of an experiment must agree for two of its points to be one.
Json settings_of(const Json& identity) {
  const Json experiment = identity.value("experiment", Json::object());
  Json settings = Json::object();
  for (const char* key : {"gradients", "engine", "allocator", "states", "update_kernels", "parameter_groups", "ema",
                          "clip_norm", "evaluate", "within", "timelines"}) {
    settings[key] = experiment.value(key, Json(nullptr));
  }
  return settings;
}

/// Whether files that both name have the same contents.
bool same_inputs(const Json& a, const Json& b) {
  const Json inputs = a.value("inputs", Json::object()), others = b.value("inputs", Json::object());
  const auto is_of_older_program = [](const Json& digest) {
    return digest.is_string() && json_text(digest).size() < 20;
  };
  return std::ranges::all_of(inputs.items(), [&](const auto& input) {
    const Json other = others.value(input.key(), Json());
    return other.is_null() || other == input.value() || is_of_older_program(input.value());
  });
}

[[noreturn]] void refuse(const fs::path& folder, std::string_view of) {
  throw InputError(located(folder.string(), {}, "",
                           fmt::format("holds results of {} than this; choose another folder with -o", of)));
}

/// The manifest that says which experiment the folder is of: that of a sweep without shards, or any if all say the
/// same.
const Json* ruling(const fs::path& folder, const std::vector<std::pair<fs::path, Json>>& manifests) {
  const Json* rules = nullptr;
  for (const auto& each : manifests) {
    const Json& manifest = each.second;
    if (each.first.filename() == "manifest.json") return &manifest;
    if (rules == nullptr) rules = &manifest;
    const auto same = [&](const char* key) {
      return (*rules)["identity"].value(key, Json()) == manifest["identity"].value(key, Json());
    };
    if (!same("experiment") || !same("inputs")) refuse(folder, "shards of other experiments");
  }
  return rules;
}

std::map<std::size_t, CaseFacts> cases_of(const Json& manifest) {
  std::map<std::size_t, CaseFacts> cases;
  for (const Json& one : manifest["cases"]) cases[one.at("case")] = case_facts(one);
  return cases;
}

std::vector<std::pair<fs::path, Json>> manifests_in(const fs::path& folder) {
  std::vector<std::pair<fs::path, Json>> manifests;
  for (const fs::path& path : files_of(folder, "manifest", ".json")) manifests.emplace_back(path, read_manifest(path));
  return manifests;
}

/// Whether limits of the experiment stopped its group.
bool was_stopped(const Json& record) {
  const auto reason = record.find("reason");
  return reason != record.end() && reason->is_string() && is_of_limits(reason->get<std::string>());
}

/// Of a case, or of an older program, there is less to say.
bool is_of_group(const Json& failure) {
  return failure.is_object() && failure.value("strategy", Json()).is_string() &&
         failure.value("message", Json()).is_string() && failure.value("exit_code", Json()).is_number_integer();
}

}  // namespace

Json parse_record(std::string_view line, const fs::path& path, std::size_t line_number) {
  Json record = parsed_json(line);
  if (!record.is_object() || !record.contains("point") || !record["point"].is_number_unsigned()) {
    throw InputError(located(path.string(), {static_cast<std::uint32_t>(line_number), 1}, "",
                             "is not a record of a sweep (a JSON object with a 'point')"));
  }
  if (const std::optional<std::string> wrong = wrong_type_in_record(record)) {
    throw InputError(located(path.string(), {static_cast<std::uint32_t>(line_number), 1}, "", *wrong));
  }
  return record;
}

std::string manifest_text(const Json& manifest) {
  std::string text;
  for (const auto& [key, value] : manifest.items()) {
    text += (text.empty() ? "{\n  " : ",\n  ") + json_text(Json(key)) + ": ";
    if (value.is_array()) {
      std::vector<std::string> lines;
      for (const Json& element : value) lines.push_back("\n    " + json_text(element));
      text += fmt::format("[{}{}]", fmt::join(lines, ","), lines.empty() ? "" : "\n  ");
    } else {
      for (const char c : json_text(value, 2)) text.append(c == '\n' ? "\n  " : std::string_view(&c, 1));
    }
  }
  return text + "\n}\n";
}

const Json* failure_of(const CaseFacts& facts, const Json& strategy, const std::vector<Json>& failures) {
  const Json is{{"trace", facts.trace},
                {"platform", facts.platform},
                {"micro_batches", facts.micro_batches},
                {"optimizer", facts.optimizer},
                {"strategy", strategy}};
  const auto found = std::ranges::find_if(failures, [&](const Json& failure) {
    return std::ranges::all_of(is.items(), [&](const auto& item) {
      return failure.contains(item.key()) && failure[item.key()] == item.value();
    });
  });
  return found == failures.end() ? nullptr : &*found;
}

std::string_view word_for(const Json& failure) {
  return failure.at("exit_code") == exit_bad_input ? "refused" : "failed";
}

SweepContents read_sweep(const fs::path& folder) {
  SweepContents contents;
  const auto manifests = manifests_in(folder);
  const Json* rules = ruling(folder, manifests);
  for (const auto& [path, manifest] : manifests) {
    std::map<std::size_t, CaseFacts> cases = cases_of(manifest);
    const bool is_it = rules != nullptr && manifest["identity"].value("experiment", Json()) ==
                                               (*rules)["identity"].value("experiment", Json());
    if (!is_it) continue;
    contents.cases.merge(cases);
    for (const Json& failure : manifest.value("failures", Json::array())) {
      const bool is_known = std::ranges::find(contents.failures, failure) != contents.failures.end();
      if (is_of_group(failure) && !is_known) contents.failures.push_back(failure);
    }
  }
  if (rules != nullptr) contents.identity = (*rules)["identity"];
  const PointNumbers numbers(
      contents.identity.is_null() ? Json::object() : contents.identity.value("experiment", Json::object()),
      contents.cases);
  for (const fs::path& path : files_of(folder, "results", ".jsonl")) {
    for_each_line(read_text_file(path), path, [&](std::string_view text, const Json& record) {
      for (const std::size_t point : numbers.of(record)) {
        const bool is_it = record["point"] == point;
        if (is_it || !contents.records.contains(point)) {
          contents.records[point] = is_it ? std::string(text) : numbers.numbered(record, point);
        }
      }
    });
  }
  return contents;
}

SweepStore::SweepStore(fs::path folder, Shard shard, const Json& identity, StoreDisk& disk)
    : disk_(disk),
      folder_(std::move(folder)),
      results_(folder_ / ("results" + tag(shard) + ".jsonl")),
      manifest_(folder_ / ("manifest" + tag(shard) + ".json")),
      identity_(identity) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw OutputError(located(folder_.string(), {}, "", "cannot make the folder: " + error.message()));
  for (auto& [path, manifest] : manifests_in(folder_)) manifests_.push_back(std::move(manifest));
  if (manifests_.empty() && holds_other_things(folder_)) {
    throw InputError(
        located(folder_.string(), {}, "", "is not empty and holds no sweep; choose another folder with -o"));
  }
  for (const fs::path& path : files_of(folder_, "results", ".jsonl")) {
    if (path != results_) std::ranges::move(read_lines(path).records, std::back_inserter(of_others_));
  }
  open_results();
  WholeLines lines = read_lines(results_);
  own_ = std::move(lines.records);
  check_found();
  if (lines.torn_bytes > 0) disk_.cut(file_.fd(), results_, lines.bytes);  // it would spoil the next line
}

/// What has no results yet may still be changed.
void SweepStore::check_found() const {
  if (found() == 0) return;
  bool is_the_same = false, has_same_files = true;
  for (const Json& manifest : manifests_) {
    const Json& there = manifest["identity"];
    if (settings_of(there) != settings_of(identity_)) refuse(folder_, "another experiment");
    is_the_same |= there.value("experiment", Json()) == identity_.value("experiment", Json());
    has_same_files &= same_inputs(there, identity_);
  }
  if (is_the_same && has_same_files) return;
  const Json experiment = identity_.value("experiment", Json::object());
  const Json files = identity_.value("inputs", Json::object());
  const auto any = [&](auto is) { return std::ranges::any_of(own_, is) || std::ranges::any_of(of_others_, is); };
  const auto is_of_it = [&](const FoundRecord& record) { return has_group_of(experiment, record.head); };
  const auto is_of_its_files = [&](const FoundRecord& record) {
    return has_group_of(experiment, record.head) && std::ranges::any_of(manifests_, [&](const Json& manifest) {
             return same_files_of(record.head, manifest["identity"].value("inputs", Json::object()), files);
           });
  };
  if (!is_the_same && !any(is_of_it)) refuse(folder_, "another experiment");
  if (!has_same_files && !any(is_of_its_files)) refuse(folder_, "other contents of the trace or platform files");
}

std::vector<Json> SweepStore::manifests_that_hold() const {
  std::vector<Json> holding;
  for (const Json& manifest : manifests_) {
    const Json& there = manifest["identity"];
    const bool same_build = there.value("version", "") == identity_.value("version", "");
    const bool same = same_build && settings_of(there) == settings_of(identity_);
    if (same) holding.push_back(manifest);
  }
  return holding;
}

void SweepStore::open_results() {
  file_ = Descriptor(open(results_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file_.fd() < 0) throw OutputError(located(results_.string(), {}, "", std::strerror(errno)));
  // The workers of a sweep that was killed hold its lock until they have ended, too: moments.
  int locked = flock(file_.fd(), LOCK_EX | LOCK_NB);
  for (int more = 20; locked != 0 && more > 0; --more) {
    usleep(25'000);
    locked = flock(file_.fd(), LOCK_EX | LOCK_NB);
  }
  if (locked != 0) {
    throw InputError(located(results_.string(), {}, "", "another sweep is writing here"));
  }
}

fs::path SweepStore::set_aside(const std::string& text) {
  if (text.empty()) return {};
  fs::path aside = results_.string() + ".previous";
  std::error_code ignored;
  for (int n = 2; fs::exists(aside, ignored); ++n) aside = fmt::format("{}.previous-{}", results_.string(), n);
  disk_.replace(aside, text);
  return aside;
}

fs::path SweepStore::start_afresh() {
  const fs::path aside = set_aside(joined(own_));
  disk_.cut(file_.fd(), results_, 0);
  own_.clear();
  of_others_.clear();
  return aside;
}

Kept SweepStore::keep(const PointNumbers& numbers, const std::function<std::string(std::size_t)>& key_of) {
  Kept kept;
  std::string aside;
  bool all_as_they_were = true;
  const auto is_of_this_build = [](const Json& record) { return record.value("build", "") == build_name(); };
  const Json here = identity_.value("experiment", Json::object());
  const bool limits_hold = std::ranges::all_of(manifests_, [&](const Json& manifest) {
    return same_limits(manifest["identity"].value("experiment", Json::object()), here);
  });
  const auto points_of = [&](const Json& record) {
    if (was_stopped(record) && !limits_hold) return std::vector<std::size_t>{};
    std::vector<std::size_t> points = numbers.of(record);
    const Json key = record.value("key", Json());
    // Another build has other keys; that it is another one is told.
    if (is_of_this_build(record)) std::erase_if(points, [&](std::size_t point) { return key != key_of(point); });
    return points;
  };
  for (const auto& [text, record] : own_) {
    const std::vector<std::size_t> points = points_of(record);
    if (points.empty() || !is_of_this_build(record)) {
      ++(points.empty() ? kept.of_other_points : kept.of_other_builds);
      aside.append(text) += '\n';
    }
    if (!is_of_this_build(record)) continue;
    for (const std::size_t point : points) {
      const bool is_it = record["point"] == point;
      if (is_it || !records_.contains(point)) {
        records_[point] = is_it ? text : numbers.numbered(Json::parse(text), point);
      }
      kept.points.insert(point);
    }
    all_as_they_were &= std::ranges::find(points, record["point"].get<std::size_t>()) != points.end();
  }
  for (const auto& [text, record] : of_others_) {
    if (!is_of_this_build(record)) continue;
    const std::vector<std::size_t> points = points_of(record);
    kept.points.insert(points.begin(), points.end());
  }
  kept.aside = set_aside(aside);
  own_.clear();
  of_others_.clear();
  if (!aside.empty() || !all_as_they_were) sort();
  return kept;
}

void SweepStore::append(std::size_t point, std::string_view record) {
  disk_.append(file_.fd(), results_, std::string(record) + "\n");
  records_[point] = record;
}

void SweepStore::write_manifest(const Json& manifest) {
  disk_.replace(manifest_, manifest_text(manifest));
}

void SweepStore::sort() {
  if (!own_.empty()) return;  // they have no numbers yet
  disk_.replace(results_, joined(records_));
  open_results();
}

}  // namespace plimsoll
