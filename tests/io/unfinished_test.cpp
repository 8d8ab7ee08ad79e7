// What a killed process has left half-written beside a file goes with the next writing of it.

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "sim/io/text_file.h"
#include "sim/io/unfinished.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

/// Of a process that has ended.
pid_t ended_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  return child;
}

TEST_CASE("what processes that have ended left of a file is removed when it is written", "[io]") {
  const fs::path folder = fs::temp_directory_path() / ("plimsoll_unfinished_" + std::to_string(getpid()));
  fs::create_directory(folder);
  const auto left_by = [&](const std::string& name, const std::string& process) {
    const fs::path path = folder / (name + ".unfinished-" + process);
    std::ofstream(path) << "half";
    return path;
  };
  const std::string ended = std::to_string(ended_process());
  const fs::path gone = left_by("plan.json", ended), of_a_living_one = left_by("plan.json", std::to_string(getppid())),
                 of_another_file = left_by("other.json", ended), no_number = left_by("plan.json", "5x"),
                 too_large = left_by("plan.json", "99999999999999999999"), none = left_by("plan.json", "");
  write_text_file(folder / "plan.json", "whole");
  CHECK_FALSE(fs::exists(gone));
  for (const fs::path& path : {of_a_living_one, of_another_file, no_number, too_large, none}) {
    CAPTURE(path);
    CHECK(fs::exists(path));
  }
  CHECK(read_text_file(folder / "plan.json") == "whole");
  CHECK(unfinished_beside("plan.json") == "plan.json.unfinished-" + std::to_string(getpid()));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace plimsoll
