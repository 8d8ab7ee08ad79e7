#include "sim/io/json/json_scanner.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

namespace plimsoll {
namespace {

bool is_json_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Bytes of the character at `at` (RFC 3629), or 0 where it is none.
std::size_t character_length(const char* at, const char* end) {
  const auto byte = [&](std::size_t i) -> unsigned { return at + i < end ? static_cast<unsigned char>(at[i]) : 0; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool overlong = lead == 0xE0 && byte(1) < 0xA0, surrogate = lead == 0xED && byte(1) > 0x9F;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool overlong = lead == 0xF0 && byte(1) < 0x90, too_large = lead == 0xF4 && byte(1) > 0x8F;
    return follows(1) && follows(2) && follows(3) && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

void append_utf8(std::string& text, unsigned code) {
  const auto add = [&](unsigned byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xC0U | code >> 6U);
  } else if (code < 0x10000) {
    add(0xE0U | code >> 12U);
    add(0x80U | (code >> 6U & 0x3FU));
  } else {
    add(0xF0U | code >> 18U);
    add(0x80U | (code >> 12U & 0x3FU));
    add(0x80U | (code >> 6U & 0x3FU));
  }
  add(0x80U | (code & 0x3FU));
}

}  // namespace

JsonScanner::JsonScanner(std::string text, std::string file, Position origin, Root root)
    : text_(std::move(text)),
      origin_(origin),
      complaints_(std::move(file), origin == Position{1, 1} ? std::string_view(text_) : ""),
      next_(text_.data()) {
  check_characters();
  if (text_.starts_with("\xEF\xBB\xBF")) next_ += 3;  // a byte order mark
  skip_space();
  if (at_end()) invalid(text_.data(), "the file is empty");
  if (root == Root::any) return;
  if (peek() != '{' && peek() != '[') invalid(next_, "expected an object, which begins with '{'");
}

Position JsonScanner::position(const char* at) const {
  const Position within = position_of(text_, static_cast<std::size_t>(at - text_.data()));
  if (within.line > 1) return {origin_.line + within.line - 1, within.column};
  return {origin_.line, origin_.column + within.column - 1};
}

void JsonScanner::check_characters() {
  const char* const end = text_.data() + text_.size();
  for (const char* at = text_.data(); at < end;) {
    std::uint64_t eight = 0;
    if (end - at >= 8) std::memcpy(&eight, at, 8);
    if (end - at >= 8 && (eight & 0x8080808080808080U) == 0) {
      at += 8;
      continue;
    }
    const std::size_t length = character_length(at, end);
    if (length == 0) invalid(at, "not UTF-8");
    at += length;
  }
}

void JsonScanner::invalid(const char* at, std::string_view what) {
  complaints_.add(position(at), "", fmt::format("not valid JSON: {}", what));
  complaints_.throw_now();
}

std::string_view JsonScanner::word_at(const char* at) const {
  const std::string_view rest(at, static_cast<std::size_t>(text_.data() + text_.size() - at));
  if (!rest.starts_with('"')) return rest.substr(0, rest.find_first_of(" \t\r\n,:[]{}\""));
  std::size_t end = 1;
  while (end < rest.size() && rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
  return rest.substr(0, end + 1);
}

void JsonScanner::refuse(std::string_view expected) {
  const std::string_view word = word_at(next_);
  const std::string_view found = word.empty() ? std::string_view(next_, at_end() ? 0 : 1) : word.substr(0, 60);
  invalid(next_, at_end() ? fmt::format("expected {}, the text ends too early", expected)
                          : fmt::format("expected {}, found {}", expected, found));
}

std::string_view JsonScanner::take_string() {
  const char* const open = next_;
  take('"', "a string");
  const char* const first = next_;
  const auto is_plain = [](char c) { return c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20; };
  while (is_plain(*next_)) ++next_;
  if (*next_ == '"') return {first, static_cast<std::size_t>(next_++ - first)};

  unescaped_.assign(first, next_);
  while (*next_ != '"') {
    if (at_end()) invalid(open, "a string that does not end");
    if (*next_ == '\\') {
      take_escape(unescaped_);
    } else if (is_plain(*next_)) {
      unescaped_ += *next_++;
    } else {
      invalid(next_, "a line break or control character in a string");
    }
  }
  ++next_;
  return unescaped_;
}

void JsonScanner::take_escape(std::string& into) {
  const char* const start = next_++;
  constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
  const char letter = *next_;
  const std::size_t known = at_end() ? std::string_view::npos : letters.find(letter);
  if (known != std::string_view::npos) {
    into += meanings[known];
    ++next_;
    return;
  }
  if (letter != 'u') invalid(start, "a bad escape in a string");
  ++next_;
  unsigned code = take_hexadecimal();
  if (code >= 0xD800 && code <= 0xDBFF) {  // half of a pair
    if (next_[0] != '\\' || next_[1] != 'u') invalid(start, "a bad escape in a string");
    next_ += 2;
    const unsigned low = take_hexadecimal();
    if (low < 0xDC00 || low > 0xDFFF) invalid(start, "a bad escape in a string");
    code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code <= 0xDFFF) {
    invalid(start, "a bad escape in a string");
  }
  append_utf8(into, code);
}

unsigned JsonScanner::take_hexadecimal() {
  unsigned code = 0;
  for (int i = 0; i < 4; ++i, ++next_) {
    const char c = *next_;
    unsigned digit = 16;
    if (is_json_digit(c)) digit = static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') digit = static_cast<unsigned>(c - 'a') + 10;
    if (c >= 'A' && c <= 'F') digit = static_cast<unsigned>(c - 'A') + 10;
    if (digit == 16) invalid(next_, "a bad escape in a string");
    code = code * 16 + digit;
  }
  return code;
}

void JsonScanner::take_digits() {
  if (!is_json_digit(*next_)) invalid(next_, "expected a digit");
  while (is_json_digit(*next_)) ++next_;
}

std::string_view JsonScanner::take_number() {
  const char* const start = next_;
  if (*next_ == '-') ++next_;
  if (*next_ == '0' && is_json_digit(next_[1])) invalid(start, "a number must not begin with 0");
  take_digits();
  if (*next_ == '.') {
    ++next_;
    take_digits();
  }
  if (*next_ == 'e' || *next_ == 'E') {
    ++next_;
    if (*next_ == '+' || *next_ == '-') ++next_;
    take_digits();
  }
  return {start, static_cast<std::size_t>(next_ - start)};
}

void JsonScanner::take_literal(std::string_view literal) {
  const std::string_view word = word_at(next_);
  if (!word.empty() && word == literal) {
    next_ += literal.size();
    return;
  }
  if (at_end()) invalid(next_, "expected a value, the text ends too early");
  invalid(next_, word.empty() ? fmt::format("expected a value, found {}", *next_)
                              : fmt::format("'{}' is not a value", word.substr(0, 60)));
}

const char* JsonScanner::find(const char* container, std::string_view part) {
  const bool is_object = *container == '{';
  if (!is_object && *container != '[') return nullptr;
  const char close = is_object ? '}' : ']';
  go_to(container + 1);
  skip_space();
  for (std::size_t index = 0; peek() != close; ++index) {
    bool is_it = !is_object && std::to_string(index) == part;
    if (is_object) {
      is_it = take_string() == part;
      skip_space();
      take(':', "':'");
      skip_space();
    }
    if (is_it) return next_;
    skip_value(1);
    skip_space();
    if (peek() == close) return nullptr;
    take(',', is_object ? "',' or '}'" : "',' or ']'");
    skip_space();
  }
  return nullptr;
}

void JsonScanner::skip_value(int depth) {
  if (peek() == '"') {
    take_string();
  } else if (peek() == '-' || is_json_digit(peek())) {
    take_number();
  } else if (peek() == 't' || peek() == 'f' || peek() == 'n') {
    take_literal(peek() == 't' ? "true" : peek() == 'f' ? "false" : "null");
  } else if (peek() == '{' || peek() == '[') {
    if (depth >= deepest) invalid(next_, fmt::format("nested deeper than {}", deepest));
    const bool is_object = peek() == '{';
    const char close = is_object ? '}' : ']';
    ++next_;
    skip_space();
    while (peek() != close) {
      if (is_object) {
        take_string();
        skip_space();
        take(':', "':'");
        skip_space();
      }
      skip_value(depth + 1);
      skip_space();
      if (peek() == close) break;
      take(',', is_object ? "',' or '}'" : "',' or ']'");
      skip_space();
      if (peek() == close) invalid(next_, "a comma too many");
    }
    ++next_;
  } else {
    take_literal("");
  }
}

}  // namespace plimsoll
