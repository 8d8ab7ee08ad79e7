#include "traces/imports/dtr_log.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/io/excerpt.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

// One line of a DTR log: a JSON object whose values are strings, numbers, or lists of these.

class LogLine {
 public:
  /// Throws where the text is no such object.
  LogLine(std::string_view text, const std::string& file, std::uint32_t number);

  /// These throw where the key is missing or holds something else.
  const std::string& word(std::string_view key) const;
  const std::vector<std::string>& words(std::string_view key) const;
  std::int64_t whole(std::string_view key) const;  ///< `"17"` or `17`; at least -1
  std::vector<std::int64_t> wholes(std::string_view key) const;

  [[noreturn]] void complain(std::string_view key, std::string_view what) const;

 private:
  struct Field {
    std::string key;
    std::vector<std::string> words;
    bool is_list = false;
    std::size_t at = 0;  ///< of its value
  };

  const Field& field(std::string_view key) const;
  std::int64_t whole_of(const Field&, const std::string& word) const;
  [[noreturn]] void complain_at(std::size_t offset, std::string_view key, std::string_view what) const;

  void expect(char c);
  void skip_spaces();
  std::string read_string();
  std::string read_scalar();
  void read_field();

  std::string_view text_;
  const std::string& file_;
  std::uint32_t number_;
  std::size_t at_ = 0;
  std::vector<Field> fields_;
};

constexpr std::int64_t largest = std::int64_t{1} << 52;  // bytes or nanoseconds

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

class Reader {
 public:
  Reader(const std::string& text, const std::string& file) : text_(text), file_(file) {
    log_.name = std::filesystem::path(file).stem().string();
  }

  OpLog read() {
    skip_to_start();
    while (std::optional<LogLine> line = next()) read_instruction(*line);
    std::vector<bool> listed(log_.tensors.size(), false);
    for (const std::string& name : order_) {
      const TensorId t = named_.at(name);
      if (references_[t.index] > 0 && !listed[t.index]) log_.kept.push_back(t);
      listed[t.index] = true;
    }
    if (log_.calls.empty()) throw InputError(located(file_, {}, "", "no CALL in the log"));
    return std::move(log_);
  }

 private:
  std::optional<LogLine> next() {
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      const std::string_view line(text_.data() + at_, end - at_);
      at_ = end + 1;
      ++number_;
      if (line.find_first_not_of(" \t\r") != std::string_view::npos) return LogLine(line, file_, number_);
    }
    return std::nullopt;
  }

  void skip_to_start() {
    while (const std::optional<LogLine> line = next()) {
      if (line->word("INSTRUCTION") == "ANNOTATE" && line->word("ANNOTATION") == "START") return;
    }
    at_ = 0;
    number_ = 0;
  }

  /// The line that must follow, about the tensor just named.
  LogLine expect(const LogLine& before, std::string_view instruction, const std::string& name) {
    std::optional<LogLine> line = next();
    if (!line) before.complain("INSTRUCTION", fmt::format("no {} of '{}' follows", instruction, name));
    if (line->word("INSTRUCTION") != instruction || line->word("NAME") != name) {
      line->complain("INSTRUCTION", fmt::format("expected {} of '{}'", instruction, name));
    }
    return *line;
  }

  void read_instruction(const LogLine& line) {
    const std::string& what = line.word("INSTRUCTION");
    if (what == "CONSTANT") {
      read_constant(line);
    } else if (what == "CALL") {
      read_call(line);
    } else if (what == "MUTATE") {
      read_mutation(line);
    } else if (what == "COPY") {
      const TensorId source = known(line, "SRC", line.word("SRC"));
      name(line, "DST", line.word("DST"), source);
      refer(source);
    } else if (what == "COPY_FROM") {
      const TensorId old = known(line, "DST", line.word("DST")), source = known(line, "SRC", line.word("SRC"));
      release(line, "DST", old);
      if (references_[source.index] == 0) line.complain("SRC", fmt::format("'{}' was released", line.word("SRC")));
      named_[line.word("DST")] = source;
      refer(source);
    } else if (what == "RELEASE") {
      const auto found = named_.find(line.word("NAME"));  // logs release what was made before their start
      if (found != named_.end()) release(line, "NAME", found->second);
    } else if (what == "ANNOTATE") {
      in_backward_ |= line.word("ANNOTATION") == "BACKWARD";
      log_.marks_backward = in_backward_;
    } else {
      line.complain("INSTRUCTION", fmt::format("unknown instruction '{}'{}", what, suggestion(what, instructions())));
    }
  }

  static const std::vector<std::string>& instructions() {
    static const std::vector<std::string> all{"CONSTANT", "CALL", "MUTATE", "COPY", "COPY_FROM", "RELEASE", "ANNOTATE"};
    return all;
  }

  TensorId known(const LogLine& line, std::string_view key, const std::string& word) const {
    const auto found = named_.find(word);
    if (found == named_.end()) line.complain(key, fmt::format("no tensor is called '{}'", word));
    return found->second;
  }

  void name(const LogLine& line, std::string_view key, const std::string& word, TensorId t) {
    if (!named_.try_emplace(word, t).second) line.complain(key, fmt::format("'{}' exists already", word));
    order_.push_back(word);
  }

  void refer(TensorId t) {
    ++references_[t.index];
    log_.events.push_back({OpLog::EventKind::reference, t.index});
  }

  void release(const LogLine& line, std::string_view key, TensorId t) {
    if (references_[t.index] == 0) {
      line.complain(key, fmt::format("'{}' is released more often than it is referred to", log_[t].name));
    }
    --references_[t.index];
    log_.events.push_back({OpLog::EventKind::release, t.index});
  }

  TensorId add_tensor(std::string tensor_name, Bytes bytes, std::optional<TensorId> alias_of) {
    log_.tensors.push_back({std::move(tensor_name), bytes, alias_of});
    references_.push_back(1);
    storage_bytes_.push_back(alias_of ? storage_bytes_[alias_of->index] : bytes);
    return id_at<TensorId>(log_.tensors.size() - 1);
  }

  void add_call(LoggedCall call) {
    call.phase = in_backward_ ? Phase::backward : Phase::forward;
    log_.events.push_back({OpLog::EventKind::call, static_cast<std::uint32_t>(log_.calls.size())});
    log_.calls.push_back(std::move(call));
  }

  static std::int64_t at_least_zero(const LogLine& line, std::string_view key) {
    const std::int64_t value = line.whole(key);
    if (value < 0) line.complain(key, fmt::format("expected at least 0, found {}", value));
    return value;
  }

  void read_constant(const LogLine& line) {
    const std::string& word = line.word("NAME");
    const Bytes bytes{at_least_zero(expect(line, "MEMORY", word), "MEMORY")};
    const TensorId made = add_tensor(word, bytes, std::nullopt);
    name(line, "NAME", word, made);
    LoggedCall call;
    call.name = "constant";
    call.results = {made};
    call.keep = Keep::forever;
    add_call(std::move(call));
  }

  std::vector<TensorId> arguments_of(const LogLine& line) const {
    std::vector<TensorId> arguments;
    for (const std::string& word : line.words("ARGS")) {
      arguments.push_back(known(line, "ARGS", word));
      if (references_[arguments.back().index] == 0) line.complain("ARGS", fmt::format("'{}' was released", word));
    }
    return arguments;
  }

  void read_call(const LogLine& line) {
    LoggedCall call;
    call.name = line.word("NAME");
    call.nanoseconds = at_least_zero(line, "TIME");
    call.arguments = arguments_of(line);
    if (line.words("RESULT").empty()) line.complain("RESULT", "expected at least one result");
    for (const std::string& word : line.words("RESULT")) {
      Bytes bytes{at_least_zero(expect(line, "MEMORY", word), "MEMORY")};
      const LogLine alias_line = expect(line, "ALIAS", word);
      const std::int64_t alias = alias_line.whole("ALIAS");
      std::optional<TensorId> alias_of;
      if (alias >= static_cast<std::int64_t>(call.arguments.size())) {
        alias_line.complain("ALIAS", fmt::format("the call has {} arguments", call.arguments.size()));
      }
      if (alias >= 0) {
        alias_of = call.arguments[static_cast<std::size_t>(alias)];
        bytes = {};
      }
      const TensorId made = add_tensor(word, bytes, alias_of);
      name(line, "RESULT", word, made);
      call.results.push_back(made);
    }
    add_call(std::move(call));
  }

  /// Becomes a call that makes new versions; the old ones lose the reference that their name was.
  void read_mutation(const LogLine& line) {
    LoggedCall call;
    call.name = line.word("NAME");
    call.nanoseconds = at_least_zero(line, "TIME");
    call.arguments = arguments_of(line);
    const std::vector<std::int64_t> places = line.wholes("MUTATE");
    if (places.empty()) line.complain("MUTATE", "expected at least one argument");
    const std::vector<std::string>& names = line.words("ARGS");
    for (const std::int64_t place : places) {
      if (place < 0 || place >= static_cast<std::int64_t>(names.size())) {
        line.complain("MUTATE", fmt::format("{} is not the index of an argument", place));
      }
      const TensorId old = call.arguments[static_cast<std::size_t>(place)];
      call.results.push_back(add_tensor(log_[old].name + "$", storage_bytes_[old.index], std::nullopt));
    }
    const std::vector<TensorId> results = call.results;
    add_call(std::move(call));
    for (std::size_t k = 0; k < places.size(); ++k) {
      const std::string& word = names[static_cast<std::size_t>(places[k])];
      release(line, "MUTATE", named_.at(word));
      named_[word] = results[k];
    }
  }

  const std::string& text_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::uint32_t number_ = 0;
  bool in_backward_ = false;
  OpLog log_;
  std::unordered_map<std::string, TensorId> named_;
  std::vector<std::string> order_;  // names by first appearance
  std::vector<std::int64_t> references_;
  std::vector<Bytes> storage_bytes_;
};

}  // namespace

OpLog parse_dtr_log(const std::string& text, const std::string& file_name) {
  if (text.starts_with("\x1f\x8b")) {
    throw InputError(located(file_name, {}, "", "compressed; unpack it first, e.g. with gunzip"));
  }
  return Reader(text, file_name).read();
}

OpLog read_dtr_log(const std::filesystem::path& path) {
  return parse_dtr_log(read_text_file(path), path.string());
}

}  // namespace plimsoll
