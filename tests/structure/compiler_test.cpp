// What one of the compilers refuses that build this program, in words that the others take.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

/// Words that Clang 14, Debian 12's, cannot read in the library of GCC 12: views, and algorithms that return a range.
std::vector<std::string> words_refused_by_clang(const std::string& text) {
  static const std::regex comment(R"(//[^\n]*)"),
      refused(R"(\b(?:ranges|std)::views::\w+|\branges::(?:unique|remove|remove_if|rotate|partition|stable_partition|)"
              R"(find_end|search|search_n|subrange|equal_range)\b)");
  const std::string code = std::regex_replace(text, comment, "");
  std::vector<std::string> found;
  for (std::sregex_iterator at(code.begin(), code.end(), refused), end; at != end; ++at) found.push_back(at->str());
  return found;
}

TEST_CASE("what counts as a word that Clang 14 refuses", "[structure]") {
  CHECK(words_refused_by_clang("a = std::ranges::unique(b); std::views::reverse(c); std::ranges::unique_copy(d);") ==
        std::vector<std::string>{"ranges::unique", "std::views::reverse"});
  CHECK(words_refused_by_clang("std::unique(b.begin(), b.end());  // not std::ranges::unique\n"
                               "std::ranges::partition_point(a, f);")
            .empty());
}

TEST_CASE("Clang 14 reads every source", "[structure]") {
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  std::size_t read = 0;
  for (const char* folder : {"sim", "traces", "platforms", "strategies", "validate", "experiments"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cpp") continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      ++read;
      INFO(fs::relative(entry.path(), root).string());
      CHECK(words_refused_by_clang(text) == std::vector<std::string>{});
    }
  }
  CHECK(read > 800);
}

}  // namespace
}  // namespace plimsoll
