#include "sim/io/json/json_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/io/byte_source.h"
#include "sim/io/json/json_scanner.h"

namespace plimsoll {
namespace {

constexpr char end_of_text = '\0';

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/// Cuts a text that arrives in blocks into values; whether a value is sound is for whoever reads it.
class ValueCutter {
 public:
  explicit ValueCutter(const std::filesystem::path& path) : source_(path), file_(path.string()) {
    refill();
    if (block_.starts_with("\xEF\xBB\xBF")) block_.remove_prefix(3);
  }

  /// The next character that is no space.
  char peek() {
    for (;;) {
      const auto first = std::ranges::find_if_not(block_, is_space);
      pass(static_cast<std::size_t>(first - block_.begin()));
      if (!block_.empty()) return block_.front() == end_of_text ? '\1' : block_.front();
      if (!refill()) return end_of_text;
    }
  }

  void take(char c, std::string_view expected) {
    const char next = peek();
    if (next == end_of_text) refuse(fmt::format("expected {}, the text ends too early", expected));
    if (next != c) refuse(fmt::format("expected {}, found {}", expected, next));
    pass(1);
  }

  /// The text of the next value, wherever it ends.
  std::string take_value() {
    const char first = peek();
    const Position start = at_;
    std::string value;
    Nesting nesting;
    const bool is_scalar = first != '{' && first != '[' && first != '"';
    for (bool ended = false; !ended;) {
      if (block_.empty() && !refill()) {
        if (is_scalar && !value.empty()) break;
        refuse("expected a value, the text ends too early");
      }
      std::size_t count = 0;
      if (is_scalar) {
        count = std::min(block_.size(), block_.find_first_of(" \t\r\n,]}"));
        ended = count < block_.size();
        if (ended && count == 0 && value.empty()) refuse(fmt::format("expected a value, found {}", first));
      } else {
        while (count < block_.size() && !ended) ended = nesting.ends_with(block_[count++]);
      }
      if (value.size() + count > longest_json_element)
        refuse(start, fmt::format("a value longer than {} bytes", longest_json_element));
      value.append(block_, 0, count);
      pass(count);
    }
    return value;
  }

  Position position() const { return at_; }
  const std::string& file() const { return file_; }

  [[noreturn]] void refuse(std::string_view what) const { refuse(at_, what); }

 private:
  /// How deep in brackets, and whether in a string, a text is.
  struct Nesting {
    int depth = 0;
    bool in_string = false, escaped = false;

    /// Takes the next character; true where it is a value's last.
    bool ends_with(char c) {
      if (in_string) {
        if (escaped)
          escaped = false;
        else if (c == '\\')
          escaped = true;
        else if (c == '"')
          in_string = false;
        return depth == 0 && !in_string;
      }
      if (c == '"') in_string = true;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      return depth == 0 && !in_string;
    }
  };

  [[noreturn]] void refuse(Position at, std::string_view what) const {
    throw InputError(located(file_, at, "", fmt::format("not valid JSON: {}", what)));
  }

  bool refill() {
    block_ = source_.next();
    return !block_.empty();
  }

  void pass(std::size_t count) {
    const std::string_view passed = block_.substr(0, count);
    block_.remove_prefix(count);
    const std::size_t newline = passed.rfind('\n');
    if (newline != std::string_view::npos) {
      at_.line += static_cast<std::uint32_t>(std::ranges::count(passed, '\n'));
      at_.column = 1;
    }
    const std::string_view line = newline == std::string_view::npos ? passed : passed.substr(newline + 1);
    const auto starts_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
    at_.column += static_cast<std::uint32_t>(std::ranges::count_if(line, starts_character));
  }

  ByteSource source_;
  std::string file_;
  std::string_view block_;  ///< what is left of it
  Position at_{1, 1};
};

void read_elements(ValueCutter& text, const KeyPath& list, const std::function<void(JsonDocument&)>& each) {
  text.take('[', "'['");
  for (std::size_t index = 0; text.peek() != ']'; ++index) {
    if (index > 0) text.take(',', "',' or ']'");
    text.peek();
    const Position at = text.position();
    const KeyPath path{&list, "", index};
    JsonDocument element(text.take_value(), text.file(), {at, path});
    each(element);
  }
  text.take(']', "']'");
}

void pass_over(ValueCutter& text) {
  text.peek();
  const Position at = text.position();
  JsonScanner scanner(text.take_value(), text.file(), at, JsonScanner::Root::any);
  scanner.skip_value(1);
  if (!scanner.at_end()) scanner.invalid(scanner.next(), "something follows its end");
}

}  // namespace

void read_json_list(const std::filesystem::path& file, std::string_view key,
                    const std::function<void(JsonDocument&)>& each) {
  ValueCutter text(file);
  if (text.peek() == end_of_text) text.refuse("the file is empty");
  const KeyPath root;
  bool found = text.peek() == '[';
  if (found) {
    read_elements(text, root, each);
  } else {
    text.take('{', "an object or a list");
    for (bool first = true; text.peek() != '}'; first = false) {
      if (!first) text.take(',', "',' or '}'");
      if (text.peek() != '"') text.take('"', "a string");
      const Position at = text.position();
      JsonScanner name(text.take_value(), text.file(), at, JsonScanner::Root::any);
      const std::string field(name.take_string());
      text.take(':', "':'");
      if (field != key) {
        pass_over(text);
        continue;
      }
      if (found) throw InputError(located(text.file(), at, field, "repeated key"));
      found = true;
      text.peek();
      if (text.peek() != '[') throw InputError(located(text.file(), text.position(), field, "expected a list"));
      read_elements(text, KeyPath{&root, key}, each);
    }
    text.take('}', "'}'");
    if (!found) throw InputError(located(text.file(), {1, 1}, "", fmt::format("missing key '{}', a list", key)));
  }
  if (text.peek() != end_of_text) text.refuse("something follows its end");
}

}  // namespace plimsoll
