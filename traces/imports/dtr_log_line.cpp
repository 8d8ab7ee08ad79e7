#include "traces/imports/dtr_log_line.h"

#include <fmt/format.h>

#include <charconv>

#include "sim/io/excerpt.h"

namespace plimsoll {
namespace {

constexpr std::int64_t largest = std::int64_t{1} << 52;  // bytes or nanoseconds

}  // namespace

LogLine::LogLine(std::string_view text, const std::string& file, std::uint32_t number)
    : text_(text), file_(file), number_(number) {
  skip_spaces();
  expect('{');
  skip_spaces();
  if (at_ < text_.size() && text_[at_] == '}') {
    ++at_;
  } else {
    read_field();
    for (skip_spaces(); at_ < text_.size() && text_[at_] == ','; skip_spaces()) {
      ++at_;
      read_field();
    }
    expect('}');
  }
  skip_spaces();
  if (at_ < text_.size()) complain_at(at_, "", "expected one object a line, found more");
}

void LogLine::complain_at(std::size_t offset, std::string_view key, std::string_view what) const {
  const Position in_line = position_of(text_, offset);
  throw InputError(located(file_, {number_, in_line.column}, key, what), {excerpt(text_, in_line)});
}

void LogLine::complain(std::string_view key, std::string_view what) const {
  for (const Field& field : fields_) {
    if (field.key == key) complain_at(field.at, key, what);
  }
  complain_at(0, key, what);
}

void LogLine::skip_spaces() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
}

void LogLine::expect(char c) {
  if (at_ < text_.size() && text_[at_] == c) {
    ++at_;
    return;
  }
  const std::string found = at_ < text_.size() ? fmt::format("'{}'", text_[at_]) : "the end of the line";
  complain_at(at_, "", fmt::format("expected '{}', found {}", c, found));
}

std::string LogLine::read_string() {
  const std::size_t start = at_;
  expect('"');
  std::string word;
  while (at_ < text_.size() && text_[at_] != '"') {
    if (text_[at_] == '\\') {
      constexpr std::string_view written = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
      const std::size_t which = at_ + 1 < text_.size() ? written.find(text_[at_ + 1]) : std::string_view::npos;
      if (which == std::string_view::npos) complain_at(at_, "", "unknown escape in a string");
      word += meant[which];
      at_ += 2;
    } else {
      word += text_[at_++];
    }
  }
  if (at_ == text_.size()) complain_at(start, "", "a string without end");
  ++at_;
  return word;
}

std::string LogLine::read_scalar() {
  skip_spaces();
  if (at_ < text_.size() && text_[at_] == '"') return read_string();
  const std::size_t start = at_;
  constexpr std::string_view of_number = "+-.0123456789eE";
  while (at_ < text_.size() && of_number.find(text_[at_]) != std::string_view::npos) ++at_;
  if (at_ == start) complain_at(at_, "", "expected a string or a number");
  return std::string(text_.substr(start, at_ - start));
}

void LogLine::read_field() {
  skip_spaces();
  const std::size_t start = at_;
  Field field;
  field.key = read_string();
  for (const Field& earlier : fields_) {
    if (earlier.key == field.key) complain_at(start, field.key, "given twice");
  }
  skip_spaces();
  expect(':');
  skip_spaces();
  field.at = at_;
  if (at_ < text_.size() && text_[at_] == '[') {
    field.is_list = true;
    ++at_;
    skip_spaces();
    if (at_ < text_.size() && text_[at_] == ']') {
      ++at_;
    } else {
      field.words.push_back(read_scalar());
      for (skip_spaces(); at_ < text_.size() && text_[at_] == ','; skip_spaces()) {
        ++at_;
        field.words.push_back(read_scalar());
      }
      expect(']');
    }
  } else {
    field.words.push_back(read_scalar());
  }
  fields_.push_back(std::move(field));
}

const LogLine::Field& LogLine::field(std::string_view key) const {
  for (const Field& field : fields_) {
    if (field.key == key) return field;
  }
  complain_at(0, key, "missing");
}

const std::string& LogLine::word(std::string_view key) const {
  const Field& found = field(key);
  if (found.is_list) complain_at(found.at, key, "expected a string, found a list");
  return found.words.front();
}

const std::vector<std::string>& LogLine::words(std::string_view key) const {
  const Field& found = field(key);
  if (!found.is_list) complain_at(found.at, key, "expected a list, found a single value");
  return found.words;
}

std::int64_t LogLine::whole_of(const Field& field, const std::string& word) const {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool fine = error == std::errc{} && end == word.data() + word.size() && value >= -1 && value <= largest;
  if (!fine) complain_at(field.at, field.key, fmt::format("expected a whole number up to 2^52, found '{}'", word));
  return value;
}

std::int64_t LogLine::whole(std::string_view key) const {
  word(key);
  const Field& found = field(key);
  return whole_of(found, found.words.front());
}

std::vector<std::int64_t> LogLine::wholes(std::string_view key) const {
  words(key);
  const Field& found = field(key);
  std::vector<std::int64_t> values;
  for (const std::string& word : found.words) values.push_back(whole_of(found, word));
  return values;
}

}  // namespace plimsoll
