// Files stay short enough to be read in one go.

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::ptrdiff_t lines_of(const fs::path& file) {
  std::ifstream in(file);
  return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
}

TEST_CASE("no source of the simulator or of a strategy has more than 700 lines", "[structure]") {
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  std::size_t files = 0;
  std::vector<std::string> long_ones;
  for (const char* folder : {"sim", "strategies"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".def") continue;
      ++files;
      const std::ptrdiff_t lines = lines_of(entry.path());
      if (lines > 700) long_ones.push_back(fs::relative(entry.path(), root).string() + ": " + std::to_string(lines));
    }
  }
  CHECK(files > 300);
  CHECK(long_ones == std::vector<std::string>{});
}

TEST_CASE("strategies stay within their files and lines", "[structure]") {
  std::size_t files = 0;
  std::ptrdiff_t lines = 0;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(fs::path(PLIMSOLL_SOURCE_DIR) / "strategies")) {
    if (entry.path().extension() != ".h" && entry.path().extension() != ".cpp") continue;
    ++files;
    lines += lines_of(entry.path());
  }
  // A thin strategy is a row of its family's file. Who raises these numbers says in the commit what they buy.
  CHECK(files > 200);
  CHECK(files <= 380);
  CHECK(lines <= 59'600);
}

TEST_CASE("no folder holds more than 40 sources", "[structure]") {
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  std::map<std::string, std::size_t> sources;  // by folder
  for (const char* folder : {"sim", "traces", "platforms", "strategies", "validate", "experiments", "tests"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      const bool is_source = extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh";
      if (is_source) ++sources[fs::relative(entry.path().parent_path(), root).string()];
    }
  }
  CHECK(sources.size() > 30);
  std::vector<std::string> crowded;
  for (const auto& [folder, count] : sources) {
    if (count > 40) crowded.push_back(folder + ": " + std::to_string(count));
  }
  CHECK(crowded == std::vector<std::string>{});
}

}  // namespace
}  // namespace plimsoll
