#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "sim/core/names.h"

namespace plimsoll {
namespace {

TEST_CASE("sim/README.md has a row for every kind of stream, and what slows it down", "[schedule]") {
  std::ifstream readme("sim/README.md");
  std::string rows;
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line == "| stream | runs | is slowed down by |") inside = true;
    if (line.empty()) inside = false;
    if (inside) rows += line.substr(0, line.find('|', 1)) + "\n";
  }
  for (const auto& [kind, name] : Names<StreamKind>::all) {
    INFO(name);
    CHECK(rows.find("`" + std::string(name) + "`") != std::string::npos);
  }
}

}  // namespace
}  // namespace plimsoll
