// Strategies know each other by name, and the text of a pass pipeline is understood only where it enters the program.

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

/// The sources below a folder whose text has one of these words, by their paths.
std::set<std::string> sources_with(const char* folder, std::initializer_list<const char*> words) {
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  std::set<std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
    if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
    std::ifstream in(entry.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto has = [&text](const char* word) { return text.find(word) != std::string::npos; };
    if (std::ranges::any_of(words, has)) found.insert(fs::relative(entry.path(), root).string());
  }
  return found;
}

TEST_CASE("no strategy asks for another by text, nor for plans of all passes", "[structure]") {
  CHECK(sources_with("strategies", {"strategies/compose/spec.h", "strategies/compose/plan.h", "find_strategy("}) ==
        std::set<std::string>{"strategies/list.cpp", "strategies/list.h", "strategies/compose/plan.cpp",
                              "strategies/compose/spec.cpp"});
  CHECK(sources_with("strategies", {" strategies()"}) ==
        std::set<std::string>{"strategies/list.cpp", "strategies/list.h", "strategies/portfolio/portfolio_members.cpp",
                              "strategies/compose/spec.cpp"});
}

TEST_CASE("what a strategy can do is never read off the name of an option", "[structure]") {
  const auto by_name = {"has_option(",     "options.text(\"", "options.integer(\"", "options.number(\"",
                        "options.with(\"", "options.find(",   "option.name =="};
  CHECK(sources_with("strategies", by_name) ==
        std::set<std::string>{"strategies/compose/spec.cpp"});  // where texts are read
  CHECK(sources_with("experiments", by_name).empty());
}

TEST_CASE("the text of a pass pipeline is understood where it enters the program", "[structure]") {
  const auto understanding = {"parse_spec(", "parse_pipeline(", "changes_of("};
  CHECK(
      sources_with("experiments", understanding) ==
      std::set<std::string>{"experiments/commands/commands.cpp",  // the command line
                            "experiments/sweep/experiment_file.cpp", "experiments/measure/validation_file.cpp",
                            "experiments/truth/measured_runs.cpp",
                            "experiments/fits/training.cpp",  // plans that are proposed, as a shell would be told them
                            "experiments/study/run.cpp"});    // a schedule from a file
  for (const char* folder : {"sim", "traces", "platforms", "validate"})
    CHECK(sources_with(folder, understanding).empty());
}

}  // namespace
}  // namespace plimsoll
