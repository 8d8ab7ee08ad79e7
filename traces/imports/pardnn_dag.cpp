#include "traces/imports/pardnn_dag.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>

#include "sim/io/quantity.h"
#include "sim/io/text_file.h"
#include "traces/imports/edge_list.h"

namespace plimsoll {
namespace {

constexpr double seconds_in_unit = 1e-6;
constexpr std::array<std::string_view, 6> op_columns{"id", "kind", "time_us", "param_bytes", "out_bytes", "coloc"};
constexpr std::array<std::string_view, 2> edge_columns{"src", "dst"};

class DagReader {
 public:
  DagReader(const std::string& text, const std::string& file) : rest_(text), complaints_(file, text) {
    list_.name = std::filesystem::path(file).stem().string();
  }

  Graph read() {
    read_head();
    for (std::uint32_t id = 0; id < ops_ && next_row("op", ops_, id); ++id) read_op(id);
    for (std::uint32_t e = 0; !ended_ && e < edges_ && next_row("edge", edges_, e); ++e) read_edge();
    if (!ended_ && next_line()) complain(words_.front(), "", fmt::format("expected the end, after {} edges", edges_));
    complaints_.throw_if_any();
    write_notes();
    return graph_of(std::move(list_), complaints_);
  }

 private:
  /// The next line that has words.
  bool next_line() {
    while (!rest_.empty()) {
      line_ = rest_.substr(0, rest_.find('\n'));
      rest_.remove_prefix(std::min(rest_.size(), line_.size() + 1));
      ++number_;
      words_.clear();
      for (std::size_t at = line_.find_first_not_of(blanks); at != std::string_view::npos;) {
        const std::size_t end = std::min(line_.find_first_of(blanks, at), line_.size());
        words_.push_back(line_.substr(at, end - at));
        at = line_.find_first_not_of(blanks, end);
      }
      if (!words_.empty()) return true;
    }
    return false;
  }

  bool next_row(std::string_view noun, std::uint32_t expected, std::uint32_t found) {
    if (next_line()) return true;
    complaints_.add({number_, 1}, "", fmt::format("expected {} {}s, found {}", expected, noun, found));
    ended_ = true;
    return false;
  }

  void complain(std::string_view word, std::string_view key, std::string_view what) {
    const Position in_line = position_of(line_, static_cast<std::size_t>(word.data() - line_.data()));
    complaints_.add({number_, in_line.column}, key, what);
  }

  std::int64_t whole(std::string_view word, std::string_view key, std::int64_t least, std::int64_t most) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc{} && end == word.data() + word.size() && value >= least && value <= most) return value;
    complain(word, key, fmt::format("expected a whole number from {} to {}, found '{}'", least, most, word));
    return least;
  }

  Seconds microseconds(std::string_view word, std::string_view key) {
    constexpr double most = longest_seconds.value / seconds_in_unit;
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool fine = error == std::errc{} && end == word.data() + word.size() && value >= 0 && value <= most;
    if (!fine) complain(word, key, fmt::format("expected a number from 0 to {:.0f}, found '{}'", most, word));
    return {fine ? value * seconds_in_unit : 0};
  }

  void read_head() {
    constexpr std::int64_t most = 100'000'000;
    if (!next_line() || words_.size() < 4 || words_[0] != "#" || words_[1] != "dag1") {
      complaints_.add({1, 1}, "", "expected the line '# dag1 OPS EDGES ...'");
      complaints_.throw_now();
    }
    ops_ = static_cast<std::uint32_t>(whole(words_[2], "ops", 1, most));
    edges_ = static_cast<std::uint32_t>(whole(words_[3], "edges", 0, most));
    complaints_.throw_if_any();
    for (const std::string_view word : std::span(words_).subspan(4)) {
      if (!remarks_.empty()) remarks_ += ' ';
      remarks_ += word;
    }
  }

  bool has_columns(std::span<const std::string_view> columns) {
    if (words_.size() == columns.size()) return true;
    std::string names;
    for (const std::string_view column : columns) names.append(names.empty() ? "" : " ").append(column);
    complain(words_.front(), "", fmt::format("expected '{}', found {} columns", names, words_.size()));
    return false;
  }

  void read_op(std::uint32_t id) {
    ListedOp op;
    op.name = fmt::format("op {}", id);
    if (has_columns(op_columns)) {
      if (words_[0] != std::to_string(id)) {
        complain(words_[0], "id", fmt::format("expected {}, the place in the list, found '{}'", id, words_[0]));
      }
      if (words_[1] != "F" && words_[1] != "B") {
        complain(words_[1], "kind", fmt::format("expected F (forward) or B (backward), found '{}'", words_[1]));
      }
      if (words_[1] == "B") op.phase = Phase::backward;
      has_backward_ |= words_[1] == "B";
      op.time = microseconds(words_[2], "time_us");
      op.parameters = Bytes{whole(words_[3], "param_bytes", 0, largest_bytes.count)};
      op.output = Bytes{whole(words_[4], "out_bytes", 0, largest_bytes.count)};
      const std::int64_t together = whole(words_[5], "coloc", -1, 1'000'000'000);
      if (together >= 0) op.together = static_cast<std::uint32_t>(together);
    }
    list_.ops.push_back(std::move(op));
  }

  std::uint32_t end_of_edge(std::size_t column) {
    return static_cast<std::uint32_t>(whole(words_[column], edge_columns[column], 0, ops_ - 1));
  }

  void read_edge() {
    if (!has_columns(edge_columns)) return;
    const std::uint32_t from = end_of_edge(0), to = end_of_edge(1);
    list_.edges.push_back({.from = from, .to = to, .bytes = std::nullopt, .place = {number_, 1}});
  }

  void write_notes() {
    auto& notes = list_.notes;
    notes.emplace_back("imported_from", "a graph of ParDNN's (dag1): times in us became seconds");
    if (!remarks_.empty()) notes.emplace_back("remarks", remarks_);
    notes.emplace_back("assumed",
                       "fp32, which the file does not say; param_bytes are parameters of that op alone; all that read "
                       "what an op makes read all of its out_bytes; no workspaces; no op is the host's");
    if (!has_backward_) notes.emplace_back("phases", "the file calls all ops forward, whatever they are");
  }

  static constexpr std::string_view blanks = " \t\r";

  std::string_view rest_, line_;
  std::vector<std::string_view> words_;
  std::uint32_t number_ = 0;  // of the line
  Complaints complaints_;
  EdgeList list_;
  std::uint32_t ops_ = 0, edges_ = 0;
  std::string remarks_;
  bool has_backward_ = false, ended_ = false;
};

}  // namespace

Graph parse_pardnn_dag(const std::string& text, const std::string& file_name) {
  return DagReader(text, file_name).read();
}

Graph read_pardnn_dag(const std::filesystem::path& path) {
  return parse_pardnn_dag(read_text_file(path), path.string());
}

}  // namespace plimsoll
