#include "traces/imports/dtr_log.h"

#include <fmt/format.h>

#include <deque>
#include <unordered_map>

#include "sim/io/text_file.h"
#include "traces/imports/dtr_log_line.h"

namespace plimsoll {
namespace {

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
