// strategies/README.md has a section for every strategy of the list, under fixed headings, with the default of every
// option, and for no other name.

#include <catch2/catch.hpp>
#include <fstream>
#include <map>

#include "strategies/list.h"

namespace plimsoll {
namespace {

/// By name of the strategy, the sections that are called as one.
std::map<std::string, std::string> sections_of_strategies() {
  std::ifstream page("strategies/README.md");
  REQUIRE(page.is_open());
  std::map<std::string, std::string> sections;
  std::string* section = nullptr;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) section = nullptr;
    if (line.starts_with("## `") && line.ends_with('`')) {
      const auto [place, is_new] = sections.try_emplace(line.substr(4, line.size() - 5));
      INFO(line);
      CHECK(is_new);
      section = &place->second;
    }
    if (section != nullptr) *section += line + "\n";
  }
  return sections;
}

TEST_CASE("every strategy has a section with the fixed headings and every option's default, no other name has one",
          "[readme]") {
  std::map<std::string, std::string> sections = sections_of_strategies();
  for (const StrategyInfo* strategy : strategies()) {
    INFO(strategy->name);
    const std::string text = sections[std::string(strategy->name)];
    std::size_t at = 0;
    for (const char* heading : {"Idea", "Equation", "Source", "Options", "Scope and limits", "Validation"}) {
      INFO(heading);
      at = text.find("\n**" + std::string(heading) + ".** ", at);
      REQUIRE(at != std::string::npos);
    }
    const std::size_t first = text.find("\n**Options.** ");
    const std::string options = text.substr(first, text.find("\n**Scope and limits.** ") - first);
    for (const OptionInfo& option : strategy->options) {
      INFO(option.name);
      CHECK(options.find("`" + std::string(option.name) + "=" + std::string(option.default_value) + "`") !=
            std::string::npos);
    }
    sections.erase(std::string(strategy->name));
  }
  for (const auto& [name, text] : sections) FAIL_CHECK("a section for '" << name << "', which is no strategy");
}

}  // namespace
}  // namespace plimsoll
