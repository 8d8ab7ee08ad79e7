// A header joins files. One that only its neighbour includes joins nothing: its reader goes to and fro.

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

constexpr std::ptrdiff_t most_lines = 700;  // of a file: what would be longer stays apart

/// Headers that stay alone, and why.
const std::map<std::string, std::string> apart{
    {"strategies/hybrid/cluster/shared_costs.h", "what bounds points is another subject than the search over them"},
    {"sim/engine/simgrid/late/versions.h", "SimGrid's names by version: includes in an order of their own, and macros"},
    {"strategies/solve/coin.h", "its source is in a library of its own, which is loaded late"},
};

std::string without_extension(const std::string& file) {
  return file.substr(0, file.rfind('.'));
}

std::string folder_of(const std::string& file) {
  return file.substr(0, file.rfind('/'));
}

/// A header and its source, or one of them: what they include, and how long they are.
struct Unit {
  std::set<std::string> includes;
  std::ptrdiff_t lines = 0;
};

using Units = std::map<std::string, Unit>;  // by path without extension

void add_source(Units& units, const std::string& file, const std::string& text) {
  static const std::regex include(R"re(^\s*#\s*include\s+"([^"]+\.(h|cuh))")re", std::regex::multiline);
  Unit& unit = units[without_extension(file)];
  unit.lines += std::count(text.begin(), text.end(), '\n');
  for (std::sregex_iterator at(text.begin(), text.end(), include), end; at != end; ++at) unit.includes.insert((*at)[1]);
}

/// "HEADER is for NEIGHBOUR only"
std::vector<std::string> lonely_headers(const Units& units, const std::set<std::string>& headers) {
  std::map<std::string, std::set<std::string>> users;
  for (const auto& [name, unit] : units) {
    for (const std::string& header : unit.includes) {
      if (without_extension(header) != name) users[header].insert(name);
    }
  }
  std::vector<std::string> said;
  for (const std::string& header : headers) {
    if (users[header].size() != 1 || apart.contains(header)) continue;
    const std::string& user = *users[header].begin();
    const std::ptrdiff_t together = units.at(without_extension(header)).lines + units.at(user).lines;
    if (folder_of(user) == folder_of(header) && together <= most_lines)
      said.push_back(header + " is for " + user + " only");
  }
  return said;
}

TEST_CASE("no header is for one neighbour only, which has room for it", "[structure]") {
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  Units units;
  std::set<std::string> headers;
  for (const char* folder : {"sim", "traces", "platforms", "strategies", "validate", "experiments", "tests"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
      const std::string file = fs::relative(entry.path(), root);
      std::ifstream in(entry.path());
      add_source(units, file, {std::istreambuf_iterator<char>(in), {}});
      const bool is_header = extension == ".h" || extension == ".cuh";
      if (is_header && !file.starts_with("tests/")) headers.insert(file);
    }
  }
  CHECK(headers.size() > 100);
  CHECK(lonely_headers(units, headers) == std::vector<std::string>{});
  for (const auto& [header, why] : apart) {
    INFO(header);
    CHECK(headers.contains(header));
  }
}

TEST_CASE("a header for one neighbour only is named", "[structure]") {
  const auto said = [](const std::string& test) {
    Units units;
    add_source(units, "a/one.h", "");
    add_source(units, "a/one.cpp", "#include \"a/one.h\"\n");
    add_source(units, "a/two.cpp", "#include \"a/one.h\"\n" + std::string(500, '\n'));
    add_source(units, "a/three.cpp", "#include \"b/four.h\"\n" + std::string(700, '\n'));
    add_source(units, "b/four.h", "");
    add_source(units, "tests/test.cpp", test);
    return lonely_headers(units, {"a/one.h", "b/four.h"});
  };
  CHECK(said("") == std::vector<std::string>{"a/one.h is for a/two only"});
  CHECK(said("#include \"a/one.h\"\n").empty());
}

}  // namespace
}  // namespace plimsoll
