#include "sim/io/unfinished.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <string>
#include <string_view>
#include <system_error>

#include <unistd.h>

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

bool has_ended(std::string_view process) {
  pid_t id = 0;
  const auto [end, error] = std::from_chars(process.data(), process.data() + process.size(), id);
  if (error != std::errc{} || end != process.data() + process.size() || id <= 0) return false;
  return kill(id, 0) != 0 && errno == ESRCH;
}

}  // namespace

fs::path unfinished_beside(const fs::path& path) {
  const std::string stem = path.filename().string() + ".unfinished-";
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(stem) && has_ended(std::string_view(name).substr(stem.size()))) {
      fs::remove(entry.path(), ignored);
    }
  }
  return path.string() + ".unfinished-" + std::to_string(::getpid());
}

}  // namespace plimsoll
