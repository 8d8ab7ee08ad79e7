#include "traces/imports/dot_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

bool is_of_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         byte >= 0x80U;
}

char lowered(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool DotToken::is_keyword(std::string_view lower) const {
  return kind == Kind::word && !is_quoted &&
         std::ranges::equal(text, lower, [](char a, char b) { return lowered(a) == b; });
}

void DotScanner::refuse(Position place, std::string_view what) {
  complaints_.add(place, "", what);
  complaints_.throw_now();
}

void DotScanner::pass(std::size_t bytes) {
  for (std::size_t k = 0; k < bytes && at_ < text_.size(); ++k) {
    const auto byte = static_cast<unsigned char>(text_[at_++]);
    if (byte == '\n') {
      ++line_;
      column_ = 1;
    } else if ((byte & 0xC0U) != 0x80U) {  // the first byte of a character
      ++column_;
    }
  }
}

/// Blanks, comments, and lines for the preprocessor.
void DotScanner::skip_blanks() {
  while (at_ < text_.size()) {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("//") || (rest.starts_with('#') && column_ == 1)) {
      pass(std::min(rest.find('\n'), rest.size()));
    } else if (rest.starts_with("/*")) {
      const std::size_t end = rest.find("*/", 2);
      if (end == std::string_view::npos) refuse(here(), "a comment without its end");
      pass(end + 2);
    } else if (std::string_view(" \t\r\n").find(rest.front()) != std::string_view::npos) {
      pass(1);
    } else {
      return;
    }
  }
}

DotToken DotScanner::quoted() {
  DotToken token{.kind = DotToken::Kind::word, .text = "", .is_quoted = true, .place = here()};
  pass(1);
  while (at_ < text_.size() && text_[at_] != '"') {
    const bool is_escaped = text_[at_] == '\\' && at_ + 1 < text_.size();
    const char next = is_escaped ? text_[at_ + 1] : text_[at_];
    if (is_escaped && next == '\n') {  // goes on in the next line
      pass(2);
      continue;
    }
    if (is_escaped && next != '"') token.text += '\\';
    token.text += next;
    pass(is_escaped ? 2 : 1);
  }
  if (at_ == text_.size()) refuse(token.place, "a quoted word without its end");
  pass(1);
  return token;
}

DotToken DotScanner::next() {
  skip_blanks();
  if (at_ == text_.size()) return {.kind = DotToken::Kind::end, .text = "the end", .is_quoted = false, .place = here()};
  const std::string_view rest = text_.substr(at_);
  if (rest.front() == '"') return quoted();
  DotToken token{.kind = DotToken::Kind::sign, .text = "", .is_quoted = false, .place = here()};
  for (const std::string_view sign : {"->", "--", "{", "}", "[", "]", ";", ",", "=", ":", "+"}) {
    if (!rest.starts_with(sign)) continue;
    token.text = sign;
    pass(sign.size());
    return token;
  }
  std::size_t length = rest.front() == '-' ? 1 : 0;  // a negative number is a word
  while (length < rest.size() && is_of_word(rest[length])) ++length;
  if (length == (rest.front() == '-' ? 1U : 0U)) refuse(here(), fmt::format("unexpected '{}'", rest.front()));
  token.kind = DotToken::Kind::word;
  token.text = rest.substr(0, length);
  pass(length);
  return token;
}

}  // namespace plimsoll
