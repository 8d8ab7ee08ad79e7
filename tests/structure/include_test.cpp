// Who may include whom: the table of sim/README.md, read off the sources.

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

/// The row of the table that a file belongs to: the longest of these prefixes.
const std::map<std::string, std::set<std::string>> may_include{
    {"sim/core", {"sim/core"}},
    {"sim/io", {"sim/io", "sim/core"}},
    {"sim/memory", {"sim/memory", "sim/core"}},
    {"sim/engine", {"sim/engine", "sim/core"}},
    {"sim/engine/event", {"sim/engine/event", "sim/engine", "sim/core"}},
    {"sim/engine/simgrid", {"sim/engine/simgrid", "sim/engine/event", "sim/engine", "sim/core"}},
    {"traces", {"traces", "sim/io", "sim/core"}},
    {"platforms", {"platforms", "sim/io", "sim/core"}},
    {"strategies", {"strategies", "sim/io", "sim/core", "sim/engine/event", "sim/engine"}},
    {"validate", {"validate", "validate/networks", "validate/cpu", "sim/io", "sim/core", "sim/memory"}},
    {"validate/networks", {"validate/networks", "sim/io", "sim/core"}},
    {"validate/profiler", {"validate/profiler", "sim/io", "sim/core"}},
    {"validate/reference", {"validate/reference", "validate/networks", "sim/core"}},
    {"validate/device", {"validate/device", "validate", "sim/memory", "sim/core"}},
    {"validate/cpu", {"validate/cpu", "validate/reference", "validate/networks", "validate", "sim/core"}},
    {"validate/cuda",
     {"validate/cuda", "validate/device", "validate/reference", "validate/networks", "validate", "sim/memory",
      "sim/core"}},
    {"experiments",
     {"experiments", "strategies", "traces", "platforms", "sim/io", "sim/core", "sim/memory", "sim/engine",
      "sim/engine/event", "sim/engine/simgrid", "validate", "validate/networks", "validate/profiler", "validate/cpu",
      "validate/cuda"}},
};

/// Third parties that only some files may name.
const std::vector<std::pair<std::regex, std::vector<std::string>>> wrapped{
    {std::regex(R"(^(simgrid|xbt)/)"), {"sim/engine/simgrid/simgrid_engine.cpp"}},
    {std::regex(R"(^yaml-cpp/)"), {"sim/io/"}},
    {std::regex(R"(^nlohmann/)"), {"sim/io/"}},
    {std::regex(R"(^zlib)"), {"sim/io/byte_source.cpp"}},
    {std::regex(R"(^CLI/)"), {"experiments/"}},
    {std::regex(R"(^coin/)"), {"strategies/solvers/coin.cpp"}},
    {std::regex(R"(^(dnnl|omp\.h))"), {"validate/cpu/"}},
    {std::regex(R"(^(cuda|cublas|cudnn|nvtx3))"), {"validate/cuda/"}},
};

std::string row_of(const std::string& path) {
  std::string row;
  for (const auto& [prefix, allowed] : may_include) {
    if (path.starts_with(prefix + "/") && prefix.size() > row.size()) row = prefix;
  }
  return row;
}

std::vector<std::string> sources() {
  std::vector<std::string> files;
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  for (const char* folder : {"sim", "traces", "platforms", "strategies", "validate", "experiments"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh")
        files.push_back(fs::relative(entry.path(), root));
    }
  }
  std::ranges::sort(files);
  return files;
}

TEST_CASE("every file includes only what its row of the include table allows", "[structure]") {
  const std::regex include(R"re(^\s*#\s*include\s+(["<])([^">]+)[">])re");
  const std::vector<std::string> files = sources();
  REQUIRE(files.size() > 50);
  for (const std::string& file : files) {
    const std::string row = row_of(file);
    INFO(file);
    REQUIRE(!row.empty());
    std::ifstream text(fs::path(PLIMSOLL_SOURCE_DIR) / file);
    for (std::string line; std::getline(text, line);) {
      std::smatch found;
      if (!std::regex_search(line, found, include)) continue;
      const std::string target = found[2];
      INFO(line);
      if (found[1] == "\"") CHECK(may_include.at(row).contains(row_of(target)));
      for (const auto& [library, only] : wrapped) {
        if (!std::regex_search(target, library)) continue;
        CHECK(std::ranges::any_of(only, [&](const std::string& prefix) { return file.starts_with(prefix); }));
      }
      if (row == "sim/core" && found[1] == "<") {
        CHECK(target.find('/') == std::string::npos);  // the standard library only
        CHECK(target.find(".h") == std::string::npos);
      }
    }
  }
}

TEST_CASE("the include table in sim/README.md names the rows that this test proves", "[structure]") {
  std::ifstream text(fs::path(PLIMSOLL_SOURCE_DIR) / "sim/README.md");
  const std::string page(std::istreambuf_iterator<char>(text), {});
  for (const auto& [row, allowed] : may_include) {
    INFO(row);
    CHECK(page.find("`" + row + "`") != std::string::npos);
  }
}

}  // namespace
}  // namespace plimsoll
