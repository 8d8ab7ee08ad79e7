// Options of strategies: texts become members of a struct and back, by the rows of its table.

#include "strategies/api/options.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {
namespace {

enum class Rounds : std::uint8_t { first, last, both };

struct Shared {
  bool early = false;
};

struct Example : Shared {
  std::int64_t count = 3;
  std::uint32_t bits = 4;
  double share = 0.5;
  std::optional<std::uint32_t> most;
  std::optional<Bytes> size = Bytes{25'000'000};
  Rounds rule = Rounds::last;
  std::string names = "*";
};

constexpr auto example_options =
    options_of<Example>(option_of<&Shared::early>({.name = "early", .words = "no yes", .help = "h"}),
                        option_of<&Example::count>({.name = "count", .least = 1, .most = 1'000'000, .help = "h"}),
                        option_of<&Example::bits>({.name = "bits", .words = "1 2 4 8", .help = "h"}),
                        option_of<&Example::share>({.name = "share", .least = 0.01, .most = 1, .help = "h"}),
                        option_of<&Example::most>({.name = "most", .least = 0, .most = 64, .none = "all", .help = "h"}),
                        option_of<&Example::size>({.name = "size", .none = "off", .help = "h"}),
                        option_of<&Example::rule>({.name = "rule", .words = "first last both", .help = "h"}),
                        option_of<&Example::names>(
                            {.name = "names", .values = "patterns", .help = "h", .allowed = [](std::string_view text) {
                               return !text.empty();
                             }}));

const OptionSet table = example_options;

TEST_CASE("defaults and what is allowed follow from the struct and the rows", "[options]") {
  const std::vector<std::vector<std::string>> expected{
      {"early", "no", "no or yes"},
      {"count", "3", "a whole number from 1 to 1000000"},
      {"bits", "4", "1, 2, 4 or 8"},
      {"share", "0.5", "a number from 0.01 to 1"},
      {"most", "all", "all or a whole number from 0 to 64"},
      {"size", "25MB", "off or a size, such as 25MB"},
      {"rule", "last", "first, last or both"},
      {"names", "*", "patterns"},
  };
  std::vector<std::vector<std::string>> found;
  for (const OptionInfo& row : table) {
    found.push_back({std::string(row.name), table.default_text(row), row.values_text()});
  }
  CHECK(found == expected);
}

TEST_CASE("texts are read into members, and members written as texts", "[options]") {
  const Options options(table, {{"early", "yes"},
                                {"count", "1000000"},
                                {"bits", "8"},
                                {"share", "0.25"},
                                {"most", "0"},
                                {"size", "64MiB"},
                                {"rule", "both"},
                                {"names", "a+b"}});
  const Example& read = options.as<Example>();
  CHECK(read.early);
  CHECK(read.count == 1'000'000);
  CHECK(read.bits == 8);
  CHECK(read.share == 0.25);
  CHECK(read.most == 0U);
  CHECK(read.size == Bytes{std::int64_t{64} << 20});
  CHECK(read.rule == Rounds::both);
  CHECK(read.names == "a+b");
  std::string texts;
  for (const OptionInfo& row : table) texts += options.text(row) + " ";
  CHECK(texts == "yes 1000000 8 0.25 0 64MiB both a+b ");
  CHECK_FALSE(Options(table, {{"size", "off"}}).as<Example>().size);
}

TEST_CASE("an option refuses what its row does not allow", "[options]") {
  const auto allows = [](std::string_view name, std::string_view text) {
    return table.allows(*table.find(name), text);
  };
  for (const char* text : {"", "y", "Yes", "no yes"}) CHECK_FALSE(allows("early", text));
  for (const char* text : {"", "0", "1000001", "+3", " 3", "3 ", "3.0", "99999999999999999999"}) {
    CHECK_FALSE(allows("count", text));
  }
  for (const char* text : {"3", "16", "1 2"}) CHECK_FALSE(allows("bits", text));
  for (const char* text : {"0.009", "1.01", "nan", "half"}) CHECK_FALSE(allows("share", text));
  for (const char* text : {"65", "auto", "-1"}) CHECK_FALSE(allows("most", text));
  for (const char* text : {"25", "auto", ""}) CHECK_FALSE(allows("size", text));
  for (const char* text : {"none", "first last"}) CHECK_FALSE(allows("rule", text));
  CHECK_FALSE(allows("names", ""));
  CHECK(table.find("nothing") == nullptr);
}

TEST_CASE("what several strategies share is found in the options of each, and only there", "[options]") {
  Options options(table);
  REQUIRE(options.get_if<Shared>() != nullptr);
  CHECK(options.get_if<Rounds>() == nullptr);
  const Options before = options;
  options.change<Shared>().early = true;
  CHECK(options.as<Example>().early);
  CHECK_FALSE(before.as<Example>().early);
  CHECK(Options(OptionSet()).get_if<Shared>() == nullptr);
}

}  // namespace
}  // namespace plimsoll
