#include "sim/io/pickle.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>

#include "sim/io/input_error.h"

using namespace plimsoll;

namespace {

/// What Python writes for the value, without the end.
Pickle read(const std::string& instructions) {
  return {"\x80\x02" + instructions + ".", "f"};
}

std::string complaint(const std::string& bytes) {
  try {
    const Pickle pickle(bytes, "f");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

}  // namespace

TEST_CASE("numbers of pickles are read as Python writes them", "[pickle]") {
  const auto integer = [](std::initializer_list<int> bytes) {
    const Pickle pickle = read(bytes_of(bytes));
    REQUIRE(pickle.kind(pickle.root()) == PickleKind::integer);
    return pickle.integer(pickle.root());
  };
  CHECK(integer({'K', 255}) == 255);
  CHECK(integer({'M', 0x34, 0x12}) == 0x1234);
  CHECK(integer({'J', 0xff, 0xff, 0xff, 0xff}) == -1);
  CHECK(integer({0x8a, 0}) == 0);
  CHECK(integer({0x8a, 1, 0xff}) == -1);
  CHECK(integer({0x8a, 5, 0, 0, 0, 0, 1}) == std::int64_t{1} << 32);
  CHECK(integer({0x8a, 5, 0, 0, 0, 0, 0xff}) == -(std::int64_t{1} << 32));
  CHECK(integer({0x8a, 8, 0, 0, 0, 0, 0, 0, 0, 0x80}) == std::numeric_limits<std::int64_t>::min());
  const Pickle real = read(bytes_of({'G', 0x3f, 0xe0, 0, 0, 0, 0, 0, 0}));
  CHECK(real.real(real.root()) == 0.5);
}

TEST_CASE("lists, dictionaries, tuples and the memo of pickles are read", "[pickle]") {
  // {"a": [1, 2], "b": (the same list, "a"), "a": None}: the later "a" counts.
  const Pickle pickle =
      read("}(X\x01" + std::string("\0\0\0", 3) + "aq" + std::string("\0", 1) + "](K\x01K\x02" + "eq\x01X\x01" +
           std::string("\0\0\0", 3) + "bh\x01h" + std::string("\0", 1) + "\x86h" + std::string("\0", 1) + "Nu");
  const PickleId pair = pickle.find(pickle.root(), "b");
  REQUIRE(pickle.kind(pair) == PickleKind::list);
  REQUIRE(pickle.list(pair).size() == 2);
  CHECK(pickle.text(pickle.list(pair)[1]) == "a");
  CHECK(pickle.list(pickle.list(pair)[0]).size() == 2);
  CHECK(pickle.kind(pickle.find(pickle.root(), "a")) == PickleKind::none);
  CHECK(pickle.find(pickle.root(), "c") == pickle.root());
}

TEST_CASE("what is no pickle of data is refused at its byte", "[pickle]") {
  CHECK(complaint("") == "f: pickle: byte 0: expected a pickle of protocol 2 to 5, which begins with 0x80");
  CHECK(complaint("\x80\x06N.") == "f: pickle: byte 0: expected protocol 2 to 5, found 6");
  CHECK(complaint("\x80\x02K") == "f: pickle: byte 3: the file ends too early");
  CHECK(complaint("\x80\x02N") == "f: pickle: byte 3: the file ends too early");
  CHECK(complaint("\x80\x02NN.") == "f: pickle: byte 4: expected one value at the end");
  CHECK(complaint("\x80\x02(.") == "f: pickle: byte 3: expected one value at the end");
  CHECK(complaint("\x80\x02"
                  "cos\nsystem\n") ==
        "f: pickle: byte 2: instruction 99 is not a list, dictionary, text or number; expected a pickle of data only");
  CHECK(complaint("\x80\x02N\x86.") == "f: pickle: byte 3: an instruction finds too few values");
}

TEST_CASE("no instruction takes values from below a mark", "[pickle]") {
  CHECK(complaint("\x80\x02]N(a.") == "f: pickle: byte 5: an instruction finds too few values");
  CHECK(complaint("\x80\x02]NN(\x86.") == "f: pickle: byte 6: an instruction finds too few values");
  CHECK(complaint("\x80\x02]e.") == "f: pickle: byte 3: an instruction finds no mark");
  CHECK(complaint("\x80\x02N(Ne.") == "f: pickle: byte 5: an instruction finds no list or dictionary to add to");
  CHECK(complaint("\x80\x02}(Nu.") == "f: pickle: byte 5: a key has no value");
}

TEST_CASE("a pickle that was written is read again, whatever its numbers and sizes", "[pickle]") {
  PickleWriter writer;
  const std::int64_t numbers[] = {0, 255, 256, 65535, 65536, -1, 2147483647, 2147483648, -2147483648LL, 1LL << 62};
  writer.dictionary([&] {
    writer.key("numbers");
    writer.list(std::size(numbers), [&](std::size_t i) { writer.integer(numbers[i]); });
    writer.key("many");
    writer.list(2500, [&](std::size_t i) { writer.text(i % 2 == 0 ? "even" : "odd"); });
    writer.key("rest");
    writer.list(3, [&](std::size_t i) { i == 0 ? writer.real(0.25) : writer.boolean(i == 1); });
  });
  const std::string bytes = std::move(writer).finish();
  CHECK(bytes.find("even") == bytes.rfind("even"));  // each text stands there once
  const Pickle pickle(bytes, "f");
  const PickleId list = pickle.find(pickle.root(), "numbers");
  REQUIRE(pickle.list(list).size() == std::size(numbers));
  for (std::size_t i = 0; i < std::size(numbers); ++i) CHECK(pickle.integer(pickle.list(list)[i]) == numbers[i]);
  const PickleId many = pickle.find(pickle.root(), "many");
  REQUIRE(pickle.list(many).size() == 2500);
  CHECK(pickle.text(pickle.list(many)[2499]) == "odd");
  const PickleId rest = pickle.find(pickle.root(), "rest");
  CHECK(pickle.real(pickle.list(rest)[0]) == 0.25);
  CHECK(pickle.integer(pickle.list(rest)[1]) == 1);
  CHECK(pickle.kind(pickle.list(rest)[2]) == PickleKind::boolean);
}
