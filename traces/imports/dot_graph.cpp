#include "traces/imports/dot_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "sim/io/text_file.h"
#include "traces/imports/edge_list.h"

namespace plimsoll {
namespace {

// The words and signs of a text in Graphviz's DOT language, one after the other.

struct DotToken {
  enum class Kind : std::uint8_t { word, sign, end };

  Kind kind = Kind::end;
  std::string text;        ///< of a word without its quotes; of a sign: `{ } [ ] ; , = : + -> --`
  bool is_quoted = false;  ///< no keyword then
  Position place;

  bool is(std::string_view sign) const { return kind == Kind::sign && text == sign; }
  /// Whether the word is this keyword, in lower or upper case.
  bool is_keyword(std::string_view lower) const;
};

/// The text lives as long as this.
class DotScanner {
 public:
  DotScanner(std::string_view text, Complaints& complaints) : text_(text), complaints_(complaints) {}

  /// Throws where a quote or a comment has no end, or a character is none of the language.
  DotToken next();

 private:
  void skip_blanks();
  void pass(std::size_t bytes);
  Position here() const { return {line_, column_}; }
  [[noreturn]] void refuse(Position, std::string_view what);
  DotToken quoted();

  std::string_view text_;
  Complaints& complaints_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1, column_ = 1;
};

bool is_of_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         byte >= 0x80U;
}

char lowered(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

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

constexpr double seconds_in_microsecond = 1e-6;

struct DotValue {
  std::string text;
  Position place;
};
using DotAttributes = std::map<std::string, DotValue, std::less<>>;

/// An edge whose nodes may be named before they are described.
struct DotEdge {
  std::string from, to;
  Position from_place, to_place;
  std::optional<Bytes> bytes;
};

class DotReader {
 public:
  DotReader(const std::string& text, const std::string& file)
      : complaints_(file, text), scanner_(text, complaints_), token_(scanner_.next()) {
    list_.name = std::filesystem::path(file).stem().string();
  }

  Graph read() {
    if (token_.is_keyword("strict")) advance();
    if (token_.is_keyword("graph")) refuse("expected 'digraph', found 'graph': edges need a direction");
    if (!token_.is_keyword("digraph")) refuse_token("'digraph'");
    advance();
    if (is_word()) {
      list_.name = token_.text;
      advance();
    }
    take("{");
    while (!token_.is("}")) read_statement();
    advance();
    if (token_.kind != DotToken::Kind::end) refuse_token("the end");
    if (are_nodes_bare_) count_alike();
    if (list_.ops.empty()) complaints_.add(token_.place, "", "no node");
    find_ends();
    complaints_.throw_if_any();
    write_notes();
    return graph_of(std::move(list_), complaints_);
  }

 private:
  void advance() { token_ = scanner_.next(); }
  bool is_word() const { return token_.kind == DotToken::Kind::word; }

  [[noreturn]] void refuse(std::string_view what) {
    complaints_.add(token_.place, "", what);
    complaints_.throw_now();
  }
  [[noreturn]] void refuse_token(std::string_view expected) {
    const bool is_end = token_.kind == DotToken::Kind::end;
    refuse(fmt::format("expected {}, found {}", expected, is_end ? token_.text : fmt::format("'{}'", token_.text)));
  }

  void take(std::string_view sign) {
    if (!token_.is(sign)) refuse_token(fmt::format("'{}'", sign));
    advance();
  }

  /// A word, or several quoted ones joined by `+`.
  DotToken word(std::string_view expected) {
    if (!is_word()) refuse_token(expected);
    DotToken taken = token_;
    advance();
    while (taken.is_quoted && token_.is("+")) {
      advance();
      if (!is_word()) refuse_token("a quoted word");
      taken.text += token_.text;
      advance();
    }
    return taken;
  }

  /// A node's name; a port is where its edge is drawn.
  DotToken node_name() {
    DotToken name = word("the name of a node");
    while (token_.is(":")) {
      advance();
      word("a port");
    }
    return name;
  }

  DotAttributes attributes() {
    DotAttributes read;
    while (token_.is("[")) {
      advance();
      while (!token_.is("]")) {
        const DotToken key = word("an attribute or ']'");
        take("=");
        const Position place = token_.place;
        read.insert_or_assign(key.text, DotValue{word("a value").text, place});
        if (token_.is(",") || token_.is(";")) advance();
      }
      advance();
    }
    return read;
  }

  void read_statement() {
    if (token_.is(";")) {
      advance();
      return;
    }
    if (token_.is_keyword("subgraph") || token_.is("{")) refuse("subgraphs are not read, expected nodes and edges");
    for (const auto& [keyword, defaults] :
         {std::pair{"node", &node_defaults_}, std::pair{"edge", &edge_defaults_}, std::pair{"graph", &ignored_}}) {
      if (!token_.is_keyword(keyword)) continue;
      advance();
      DotAttributes read = attributes();
      for (auto& [key, value] : read) defaults->insert_or_assign(key, value);
      return;
    }
    const DotToken name = node_name();
    if (token_.is("=")) {  // an attribute of the graph
      advance();
      word("a value");
    } else if (token_.is("->")) {
      read_edges(name);
    } else if (token_.is("--")) {
      refuse("expected '->', found '--': edges need a direction");
    } else {
      add_node(name);
    }
  }

  void read_edges(DotToken from) {
    const std::size_t first = edges_.size();
    while (token_.is("->")) {
      advance();
      DotToken to = node_name();
      edges_.push_back(
          {.from = from.text, .to = to.text, .from_place = from.place, .to_place = to.place, .bytes = std::nullopt});
      from = std::move(to);
    }
    DotAttributes given = attributes();
    complete(given, edge_defaults_, "bytes", "weight");
    are_edges_bare_ = are_edges_bare_ && given.empty();
    const std::optional<Bytes> sent = bytes(one_of_two(given, "bytes", "weight"));
    for (std::size_t e = first; e < edges_.size(); ++e) edges_[e].bytes = sent;
  }

  /// Adds the defaults of what is not given, of two names for one thing under neither.
  static void complete(DotAttributes& given, const DotAttributes& defaults, std::string_view one,
                       std::string_view other) {
    const bool has_either = given.contains(one) || given.contains(other);
    for (const auto& [key, value] : defaults) {
      if (!has_either || (key != one && key != other)) given.emplace(key, value);
    }
  }

  using Found = const DotAttributes::value_type*;

  static Found find(const DotAttributes& given, std::string_view key) {
    const auto found = given.find(key);
    return found == given.end() ? nullptr : &*found;
  }

  Found one_of_two(const DotAttributes& given, std::string_view one, std::string_view other) {
    const Found first = find(given, one), second = find(given, other);
    if (first != nullptr && second != nullptr) {
      complaints_.add(second->second.place, other, fmt::format("given together with '{}', expected one of them", one));
    }
    return first != nullptr ? first : second;
  }

  /// A number of bytes, or a size with its unit.
  std::optional<Bytes> bytes(Found found) {
    if (found == nullptr) return std::nullopt;
    const auto& [key, value] = *found;
    if (const Parsed<std::int64_t> count = parse_integer(value.text);
        count.fine() && count.value >= 0 && count.value <= largest_bytes.count) {
      return Bytes{count.value};
    }
    const Parsed<Bytes> size = parse_bytes(value.text);
    if (size.fine()) return size.value;
    complaints_.add(value.place, key,
                    fmt::format("expected a whole number of bytes or a size with its unit, found '{}'", value.text));
    return Bytes{};
  }

  /// A number of microseconds, or a time with its unit.
  Seconds time(Found found) {
    const auto& [key, value] = *found;
    constexpr double most = longest_seconds.value / seconds_in_microsecond;
    if (const Parsed<double> count = parse_number(value.text);
        count.fine() && count.value >= 0 && count.value <= most) {
      return {count.value * seconds_in_microsecond};
    }
    const Parsed<Seconds> parsed = parse_seconds(value.text);
    if (parsed.fine()) return parsed.value;
    complaints_.add(value.place, key,
                    fmt::format("expected a number of us or a time with its unit, found '{}'", value.text));
    return {};
  }

  /// One of a few words, or unset.
  std::optional<std::string_view> choice(const DotAttributes& given, std::string_view key,
                                         std::span<const std::string_view> words) {
    const Found found = find(given, key);
    if (found == nullptr) return std::nullopt;
    for (const std::string_view known : words) {
      if (found->second.text == known) return known;
    }
    complaints_.add(found->second.place, key,
                    fmt::format("expected {}, found '{}'", alternatives(words), found->second.text));
    return std::nullopt;
  }

  void add_node(const DotToken& name) {
    DotAttributes given = attributes();
    complete(given, node_defaults_, "time", "weight");
    ListedOp op;
    op.name = name.text;
    if (const Found label = find(given, "label"); label != nullptr && label->second.text != "\\N") {
      op.name = label->second.text;
    }
    are_nodes_bare_ = are_nodes_bare_ && (given.empty() || (given.size() == 1 && given.contains("label")));
    if (const Found found = one_of_two(given, "time", "weight")) {
      op.time = time(found);
    } else {
      timeless_.push_back(name);
    }
    op.output = bytes(find(given, "size"));
    op.parameters = bytes(find(given, "parameters")).value_or(Bytes{});
    constexpr std::array<std::string_view, 2> phases{"forward", "backward"}, devices{"accelerator", host_device};
    const std::optional<std::string_view> phase = choice(given, "phase", phases);
    if (phase == "backward") op.phase = Phase::backward;
    has_phases_ |= phase.has_value();
    if (choice(given, "device", devices) == host_device) op.attributes.emplace_back(device_attribute, host_device);
    if (const Found group = find(given, "colocate")) {
      op.together = groups_.emplace(group->second.text, static_cast<std::uint32_t>(groups_.size())).first->second;
    }
    if (!number_.emplace(name.text, static_cast<std::uint32_t>(list_.ops.size())).second) {
      complaints_.add(name.place, "", fmt::format("a second statement about node '{}'", name.text));
    }
    list_.ops.push_back(std::move(op));
  }

  /// Where no node has an attribute the file is of a graph alone, as dagP reads them: each weighs 1, and nodes may be
  /// named by their edges only.
  void count_alike() {
    timeless_.clear();
    for (ListedOp& op : list_.ops) op.time = Seconds{seconds_in_microsecond};
    for (const DotEdge& edge : edges_) {
      for (const std::string* end : {&edge.from, &edge.to}) {
        if (!number_.emplace(*end, static_cast<std::uint32_t>(list_.ops.size())).second) continue;
        ListedOp op;
        op.name = *end;
        op.time = Seconds{seconds_in_microsecond};
        list_.ops.push_back(std::move(op));
      }
    }
  }

  std::optional<std::uint32_t> node(const std::string& name, Position place) {
    const auto found = number_.find(name);
    if (found != number_.end()) return found->second;
    complaints_.add(place, "", fmt::format("no node '{}'", name));
    return std::nullopt;
  }

  void find_ends() {
    for (const DotToken& node : timeless_) {
      complaints_.add(node.place, "", fmt::format("node '{}' has neither time nor weight", node.text));
    }
    const bool have_sizes = std::ranges::any_of(list_.ops, [](const ListedOp& op) { return op.output.has_value(); });
    are_edges_bare_ = are_edges_bare_ && !have_sizes && !edges_.empty();
    for (DotEdge& edge : edges_) {
      if (are_edges_bare_) edge.bytes = Bytes{1};
    }
    for (const DotEdge& edge : edges_) {
      const std::optional<std::uint32_t> from = node(edge.from, edge.from_place), to = node(edge.to, edge.to_place);
      if (!from || !to) continue;
      if (!edge.bytes && !list_.ops[*from].output) {
        complaints_.add(edge.from_place, "",
                        fmt::format("the edge from '{}' to '{}' has neither bytes nor weight, and '{}' has no size",
                                    edge.from, edge.to, edge.from));
      }
      list_.edges.push_back({.from = *from, .to = *to, .bytes = edge.bytes, .place = edge.from_place});
    }
  }

  void write_notes() {
    auto& notes = list_.notes;
    notes.emplace_back("imported_from", "a graph in the DOT language: numbers are us and bytes where no unit stands");
    notes.emplace_back("assumed",
                       "fp32, which the file does not say; what 'parameters' says is of that op alone; edges of one "
                       "node that carry as many bytes carry one value; no workspaces");
    if (are_nodes_bare_) notes.emplace_back("times", "the file has no weights of nodes: 1 us each");
    if (are_edges_bare_) notes.emplace_back("bytes", "the file has no weights of edges: 1 byte each");
    if (!has_phases_) notes.emplace_back("phases", "the file does not say any: all ops are forward");
  }

  Complaints complaints_;
  DotScanner scanner_;
  DotToken token_;
  EdgeList list_;
  std::vector<DotEdge> edges_;
  DotAttributes node_defaults_, edge_defaults_, ignored_;
  std::unordered_map<std::string, std::uint32_t> number_;  ///< of a node
  std::map<std::string, std::uint32_t> groups_;
  std::vector<DotToken> timeless_;                                           ///< nodes without a weight
  bool has_phases_ = false, are_nodes_bare_ = true, are_edges_bare_ = true;  // without attributes
};

}  // namespace

Graph parse_dot_graph(const std::string& text, const std::string& file_name) {
  return DotReader(text, file_name).read();
}

Graph read_dot_graph(const std::filesystem::path& path) {
  return parse_dot_graph(read_text_file(path), path.string());
}

}  // namespace plimsoll
