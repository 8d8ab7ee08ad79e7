#include "experiments/sweep/point_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "experiments/sweep/record_check.h"
#include "experiments/sweep/store_disk.h"
#include "experiments/sweep/worker_pool.h"
#include "sim/io/input_error.h"
#include "sim/io/json/parsed_json.h"
#include "sim/io/output_error.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

/// Machines may give processes the same numbers.
std::string name_of_process() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fmt::format(".{}-{}.part", host.data(), getpid());
}

}  // namespace

PointCache::PointCache(fs::path folder) : folder_(std::move(folder)), own_(name_of_process()) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error || !fs::is_directory(folder_, error)) {
    throw InputError(fmt::format("--cache: '{}' cannot be a folder: {}", folder_.string(), error.message()));
  }
}

fs::path PointCache::file_of(const std::string& key) const {
  return folder_ / key.substr(0, 2) / (key.substr(2) + ".json");
}

std::optional<Json> PointCache::find(const std::string& key) const {
  const fs::path file = file_of(key);
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return std::nullopt;
  try {
    Json record = parsed_json(read_text_file(file));
    const bool is_it = record.is_object() && record.value("key", Json()) == key && !wrong_in_record(record);
    return is_it ? std::optional(std::move(record)) : std::nullopt;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

void PointCache::keep(const std::string& key, std::string_view record) {
  const fs::path file = file_of(key), unfinished = file.string() + own_;
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  try {
    const Descriptor to(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (to.fd() < 0) return;
    StoreDisk().append(to.fd(), unfinished, std::string(record) + "\n");
    fs::rename(unfinished, file, error);
  } catch (const OutputError&) {
    fs::remove(unfinished, error);
  }
}

}  // namespace plimsoll
