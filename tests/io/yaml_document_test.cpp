#include "sim/io/yaml_document.h"

#include <catch2/catch.hpp>

#include "tests/bad_input.h"

using namespace plimsoll;

namespace {

template <class Read>
std::string yaml_complaint(const std::string& value, Read read) {
  return complaint_of([&] {
    YamlDocument document("x: " + value + "\n", "t");
    document.root().object([&](std::string_view, const YamlCursor& c) { read(c); });
    document.throw_if_any();
  });
}

}  // namespace

TEST_CASE("YAML values arrive as what they are", "[io]") {
  YamlDocument document(R"(
word: some text   # a comment
quoted: "80 GB"
yes: true
factor: 1.05
count: 8
index: 0
size: 80 GiB
unlimited: unlimited
time: 5 us
bandwidth: 25 GB/s
rate: 989 TFLOPS
list: [a, b]
base: &base {k: 1}
same: *base
)",
                        "t");
  document.root().object([&](std::string_view key, const YamlCursor& c) {
    if (key == "word") CHECK(c.string() == "some text");
    if (key == "quoted") CHECK(c.bytes() == Bytes{80'000'000'000});
    if (key == "yes") CHECK(c.boolean());
    if (key == "factor") CHECK(c.number(1, 2) == 1.05);
    if (key == "count") CHECK(c.count() == 8);
    if (key == "index") CHECK(c.index() == 0);
    if (key == "size") CHECK(c.capacity() == Bytes{80LL << 30});
    if (key == "unlimited") CHECK(!c.capacity());
    if (key == "time") CHECK(c.seconds() == Seconds{5e-6});
    if (key == "bandwidth") CHECK(c.bandwidth() == BytesPerSecond{25e9});
    if (key == "rate") CHECK(c.flops_rate() == FlopsPerSecond{989e12});
    if (key == "list") CHECK(c.elements().at(1).string() == "b");
    if (key == "same")
      CHECK(c.object([](std::string_view k, const YamlCursor& v) { CHECK((k == "k" && v.count() == 1)); }));
  });
  document.throw_if_any();
}

TEST_CASE("a YAML value of the wrong type is named with its place", "[io]") {
  CHECK(yaml_complaint("[1]", [](const YamlCursor& c) { c.string(); }) ==
        "t:1:4: x: expected a word or text, found a list");
  CHECK(yaml_complaint("{a: 1}", [](const YamlCursor& c) { c.elements(); }) ==
        "t:1:4: x: expected a list, found an object");
  CHECK(yaml_complaint("maybe", [](const YamlCursor& c) { c.boolean(); }) ==
        "t:1:4: x: expected true or false, found 'maybe'");
  CHECK(yaml_complaint("", [](const YamlCursor& c) { c.bytes(); }) ==
        "t:1:1: x: expected a size such as 80 GB, found nothing");
  CHECK(yaml_complaint("[80 GB, 80]", [](const YamlCursor& c) {
          for (const YamlCursor& e : c.elements()) e.bytes();
        }) == "t:1:12: x[1]: missing unit, expected a size such as 80 GB or 64 MiB, found '80'");
  CHECK(yaml_complaint("3.5", [](const YamlCursor& c) { c.count(); }) ==
        "t:1:4: x: expected a whole number from 1 to 1000000, found '3.5'");
}

TEST_CASE("YAML keys that repeat are found at every depth", "[io]") {
  CHECK(complaint_of([] { YamlDocument document("a:\n  - {b: 1}\n  - {b: 1, c: {d: 1, d: 2}, b: 3}\na: 1\n", "t"); }) ==
        "t:3:22: a[1].c.d: repeated key\nt:3:29: a[1].b: repeated key\nt:4:1: a: repeated key");
}

TEST_CASE("YAML that would exhaust the reader is refused", "[io]") {
  for (const char bracket : {'[', '{'}) {
    const std::string complaint = complaint_of([&] { YamlDocument document(std::string(100'000, bracket), "t"); });
    CHECK(complaint.starts_with("t:1:"));
    CHECK(complaint.ends_with(": nested deeper than 64"));
  }
  std::string indented;
  for (std::size_t i = 0; i < 300; ++i) indented += std::string(i, ' ') + "a:\n";
  CHECK(complaint_of([&] { YamlDocument document(indented, "t"); }) == "t:65:65: nested deeper than 64");
}
