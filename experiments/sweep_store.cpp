#include "experiments/sweep_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sim/io/input_error.h"
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

/// The whole lines of a results file, and how many bytes they are.
struct WholeLines {
  Records records;
  std::uintmax_t bytes = 0, torn_bytes = 0;
};

WholeLines read_lines(const fs::path& path) {
  const std::string text = read_text_file(path);
  Records records;
  std::size_t begin = 0, number = 1;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1, ++number) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    const Json record = parse_record(line, path, number);
    records[record["point"].get<std::size_t>()] = line;
  }
  return {std::move(records), begin, text.size() - begin};
}

std::string joined(const Records& records) {
  std::string text;
  for (const auto& [point, record] : records) text.append(record) += '\n';
  return text;
}

Json read_manifest(const fs::path& path) {
  Json manifest = Json::parse(read_text_file(path), nullptr, false);
  constexpr const char* keys[] = {"format", "identity", "cases"};
  const bool whole =
      manifest.is_object() && std::ranges::all_of(keys, [&](auto key) { return manifest.contains(key); });
  if (!whole || manifest["format"] != "plimsoll.sweep.v1") {
    throw InputError(located(path.string(), {}, "", "is not the manifest of a sweep"));
  }
  return manifest;
}

void check_same(const fs::path& folder, const Json& found, const Json& asked) {
  for (const auto& [key, value] : asked.items()) {
    if (found.contains(key) && found[key] == value) continue;
    const std::string why = key == "version"  ? fmt::format("another version, {},", found.value(key, "unknown"))
                            : key == "inputs" ? "other contents of the trace or platform files"
                                              : "another experiment";
    throw InputError(located(folder.string(), {}, "",
                             fmt::format("holds results of {} than this; choose another folder with -o", why)));
  }
}

}  // namespace

Json parse_record(std::string_view line, const fs::path& path, std::size_t line_number) {
  Json record = Json::parse(line, nullptr, false);
  if (!record.is_object() || !record.contains("point") || !record["point"].is_number_unsigned()) {
    throw InputError(located(path.string(), {static_cast<std::uint32_t>(line_number), 1}, "",
                             "is not a record of a sweep (a JSON object with a 'point')"));
  }
  return record;
}

SweepContents read_sweep(const fs::path& folder) {
  SweepContents contents;
  for (const fs::path& path : files_of(folder, "manifest", ".json")) {
    const Json manifest = read_manifest(path);
    if (contents.identity.is_null()) contents.identity = manifest["identity"];
    check_same(path, manifest["identity"], contents.identity);
    try {
      for (const Json& one : manifest["cases"]) contents.cases[one.at("case")] = case_facts(one);
    } catch (const Json::exception& error) {
      throw InputError(located(path.string(), {}, "cases", error.what()));
    }
  }
  for (const fs::path& path : files_of(folder, "results", ".jsonl")) contents.records.merge(read_lines(path).records);
  return contents;
}

SweepStore::SweepStore(fs::path folder, Shard shard, const Json& identity, StoreDisk& disk)
    : disk_(disk),
      folder_(std::move(folder)),
      results_(folder_ / ("results" + tag(shard) + ".jsonl")),
      manifest_(folder_ / ("manifest" + tag(shard) + ".json")) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw OutputError(located(folder_.string(), {}, "", "cannot make the folder: " + error.message()));
  before_ = read_sweep(folder_);
  if (!before_.identity.is_null()) {
    // What has no results yet may still be changed.
    if (before_.records.empty() && before_.identity != identity) before_.cases.clear();
    if (!before_.records.empty()) check_same(folder_, before_.identity, identity);
  } else if (holds_other_things(folder_)) {
    throw InputError(
        located(folder_.string(), {}, "", "is not empty and holds no sweep; choose another folder with -o"));
  }
  open_results();
  WholeLines lines = read_lines(results_);
  own_ = std::move(lines.records);
  if (lines.torn_bytes > 0) disk_.cut(file_.fd(), results_, lines.bytes);  // it would spoil the next line
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

fs::path SweepStore::start_afresh() {
  fs::path aside;
  if (!own_.empty()) {
    aside = results_.string() + ".previous";
    std::error_code ignored;
    for (int n = 2; fs::exists(aside, ignored); ++n) aside = fmt::format("{}.previous-{}", results_.string(), n);
    disk_.replace(aside, joined(own_));
  }
  disk_.cut(file_.fd(), results_, 0);
  own_.clear();
  before_.records.clear();
  return aside;
}

void SweepStore::append(std::size_t point, std::string_view record) {
  disk_.append(file_.fd(), results_, std::string(record) + "\n");
  own_[point] = record;
}

void SweepStore::write_manifest(const Json& manifest) {
  disk_.replace(manifest_, json_text(manifest, 2) + "\n");
}

void SweepStore::sort() {
  disk_.replace(results_, joined(own_));
  open_results();
}

}  // namespace plimsoll
