// A name stands for one type in the whole program. Two types of one name in one namespace compile and link, and the
// linker mixes their inline functions: what then happens depends on the optimizer. A type that a file has to itself, in
// an unnamed namespace, has a name of its own, too: files are compiled in groups, and each build has its own groups.

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

/// The text without comments, and with nothing between quotes.
std::string bare(const std::string& text) {
  std::string kept;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (text.compare(i, 2, "/*") == 0) {
      i = std::min(text.find("*/", i + 2), text.size() - 2) + 1;
    } else if (text.compare(i, 3, "R\"(") == 0) {
      i = std::min(text.find(")\"", i + 3), text.size() - 2) + 1;
    } else if (text[i] == '"' ||
               (text[i] == '\'' && (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1]))))) {
      const char quote = text[i];
      for (++i; i < text.size() && text[i] != quote; ++i) i += text[i] == '\\' ? 1U : 0U;
    } else {
      kept += text[i];
    }
  }
  return kept;
}

/// Names of the types that a source defines in named namespaces, with these, or that it has to itself: in an unnamed
/// one.
std::set<std::string> types_in(const std::string& source, bool to_itself = false) {
  static const std::regex opens_namespace(R"(\bnamespace\s*([\w:]*)\s*$)");
  static const std::regex opens_type(
      R"((?:^|[\s>])(?:struct|class|union|enum(?:\s+class)?)\s+(?:\[\[\w+\]\]\s*)?(\w+)(?:\s+final)?\s*(?::[^:;{}][^;{}]*)?$)");
  const std::string text = bare(source);
  const std::string unnamed, other_brace = "{";
  std::vector<std::string> open;  // names of namespaces, and other braces
  std::set<std::string> types;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find_first_of("{};", begin)) != std::string::npos; begin = end + 1) {
    if (text[end] == '}' && !open.empty()) open.pop_back();
    if (text[end] != '{') continue;
    const std::string head = text.substr(begin, end - begin);
    std::smatch found;
    if (std::regex_search(head, found, opens_namespace)) {
      open.push_back(found[1]);
      continue;
    }
    const bool is_ours = !open.empty() && std::ranges::count(open, other_brace) == 0 &&
                         (std::ranges::count(open, unnamed) > 0) == to_itself;
    if (is_ours && std::regex_search(head, found, opens_type)) {
      std::string name;
      for (const std::string& space : open) name += space == unnamed ? "" : space + "::";
      types.insert(name + found[1].str());
    }
    open.push_back(other_brace);
  }
  return types;
}

TEST_CASE("what counts as a type of a name", "[structure]") {
  CHECK(types_in("namespace a { struct B : C<int> { enum class D { e }; }; struct F; enum class G : char { h }; }") ==
        std::set<std::string>{"a::B", "a::G"});
  CHECK(types_in("namespace a { namespace { struct B {}; } void f() { struct C {}; } // struct D {\n }").empty());
  CHECK(types_in("namespace a {\ntemplate <class T>\nclass B final : public C {\n public:\n  char c = '{'; };\n"
                 "const char* d = \"}\"; union E {}; struct B::F {}; }") == std::set<std::string>{"a::B", "a::E"});
  CHECK(types_in("namespace a { struct B {}; namespace { struct C {}; void f() { struct D {}; } } }", true) ==
        std::set<std::string>{"a::C"});
}

using Files = std::map<std::string, std::set<std::string>>;

/// By name of type: the files of these folders that define it.
Files definitions(const std::vector<std::string>& folders, bool to_itself) {
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  Files defined_in;
  for (const std::string& folder : folders) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
      std::ifstream text(entry.path());
      const std::string source(std::istreambuf_iterator<char>(text), {});
      for (const std::string& type : types_in(source, to_itself)) {
        defined_in[type].insert(fs::relative(entry.path(), root));
      }
    }
  }
  return defined_in;
}

std::string listed(const std::set<std::string>& files) {
  std::string list;
  for (const std::string& file : files) list += file + " ";
  return list;
}

const std::vector<std::string> program{"sim", "traces", "platforms", "strategies", "validate", "experiments"};

TEST_CASE("no two types have one name", "[structure]") {
  std::vector<std::string> folders = program;
  folders.emplace_back("tests");
  const Files defined_in = definitions(folders, false);
  CHECK(defined_in.size() > 300);
  for (const auto& [type, files] : defined_in) {
    INFO(type << " is defined in " << listed(files));
    CHECK(files.size() == 1);
  }
}

TEST_CASE("a type that a file has to itself has a name of its own", "[structure]") {
  const Files of_all = definitions(program, false);
  for (const std::string& folder : program) {  // a group has files of one of them
    const Files of_one = definitions({folder}, true);
    CHECK((folder == "platforms" || !of_one.empty()));
    for (const auto& [type, files] : of_one) {
      const auto other = of_all.find(type);
      INFO(type << " is in " << listed(files) << (other == of_all.end() ? "" : "and " + listed(other->second)));
      const bool differs = files.size() == 1 && other == of_all.end();
      CHECK(differs);
    }
  }
}

}  // namespace
}  // namespace plimsoll
