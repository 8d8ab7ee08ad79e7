#include "traces/imports/pytorch/fx_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "traces/imports/pytorch/fx_extent.h"

namespace plimsoll {
namespace {

constexpr std::string_view fx_blanks = " \t\r";

std::string_view fx_trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(fx_blanks);
  if (first == std::string_view::npos) return text.substr(0, 0);
  return text.substr(first, text.find_last_not_of(fx_blanks) + 1 - first);
}

bool is_fx_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_fx_name_part(char c) {
  return is_fx_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// Behind what a logger puts before each line: `I1129 08:22:11.271000 8285 torch/a.py:592] [0/0] [__aot_graphs] `.
std::string_view without_log_prefix(std::string_view line) {
  const bool is_logged = line.size() > 6 && std::string_view("VDIWEC").find(line[0]) != std::string_view::npos &&
                         std::ranges::all_of(line.substr(1, 4), is_fx_digit) && line[5] == ' ';
  const std::size_t end = is_logged ? line.find("] ") : std::string_view::npos;
  if (end == std::string_view::npos) return line;
  line.remove_prefix(end + 2);
  while (!line.empty() && line[0] == '[') {
    const std::size_t close = line.find("] ");
    if (close == std::string_view::npos) return line.substr(line.size());
    line.remove_prefix(close + 2);
  }
  return line;
}

/// The length of the text up to one of `ends` outside of brackets and quotes.
std::size_t length_to(std::string_view text, std::string_view ends) {
  int depth = 0;
  char quote = 0;
  for (std::size_t k = 0; k < text.size(); ++k) {
    const char c = text[k];
    if (quote != 0) {
      if (c == '\\') ++k;
      if (c == quote) quote = 0;
      continue;
    }
    if (depth == 0 && ends.find(c) != std::string_view::npos) return k;
    if (c == '"' || c == '\'') quote = c;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
  }
  return text.size();
}

/// Calls each(part) for what commas separate outside of brackets.
void for_fx_parts(std::string_view text, const auto& each) {
  while (!fx_trimmed(text).empty()) {
    const std::size_t length = length_to(text, ",");
    each(fx_trimmed(text.substr(0, length)));
    text.remove_prefix(std::min(text.size(), length + 1));
  }
}

class FxParser {
 public:
  FxParser(std::string_view text, Complaints& complaints, ImportNumbers& numbers)
      : text_(text), complaints_(complaints), numbers_given_(numbers) {}

  std::vector<FxGraph> graphs() && {
    for (std::size_t at = 0; at < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      line(fx_trimmed(without_log_prefix(text_.substr(at, end - at))));
      at = end + 1;
    }
    if (graphs_.empty() && dynamo_at_) {
      complain(text_.substr(*dynamo_at_), "",
               "a graph as Dynamo captured it, without a backward, expected what TORCH_LOGS=aot_graphs prints");
    }
    if (!graphs_.empty() && !ended_) {
      complain(text_.substr(text_.size()), "",
               fmt::format("the graph ends without 'return', after {} lines", graphs_.back().nodes.size()));
    }
    complaints_.throw_if_any();
    return std::move(graphs_);
  }

 private:
  void complain(std::string_view part, std::string_view key, std::string_view what) {
    complaints_.add(position_of(text_, offset(part)), key, what);
  }
  std::size_t offset(std::string_view part) const { return static_cast<std::size_t>(part.data() - text_.data()); }

  void line(std::string_view code) {
    if (!code.empty() && code[0] == '=' && code.find("graph") != std::string_view::npos) return marker(code);
    if (is_in_head_) return head(code);
    if (code.starts_with("def forward(") && code.find(" L_") != std::string_view::npos) {
      if (!dynamo_at_) dynamo_at_ = offset(code);
      return;  // as are its lines, which are in no graph
    }
    if (code.starts_with("def forward(")) return begin(code);
    if (code.find(" = call_function[target=") != std::string_view::npos) {
      complain(code, "",
               "a graph printed without shapes, expected what print_readable() or TORCH_LOGS=aot_graphs prints");
      complaints_.throw_now();
    }
    if (ended_ || code.empty() || code[0] == '#') return;
    if (code.starts_with("return")) return finish(code.substr(6));
    if (code.find("tree_flatten_spec(") != std::string_view::npos) return joint();
    if (graphs_.back().nodes.empty() || code.find('=') == std::string_view::npos) {
      if (given_only(code)) return;
    }
    statement(code);
  }

  /// `===== Forward graph 0 =====`
  void marker(std::string_view code) {
    marked_.reset();
    if (code.find("Forward graph") != std::string_view::npos) marked_ = FxGraph::Role::forward;
    if (code.find("Backward graph") != std::string_view::npos) marked_ = FxGraph::Role::backward;
    if (code.find("Joint graph") != std::string_view::npos) marked_ = FxGraph::Role::joint;
  }

  void begin(std::string_view code) {
    if (!ended_) complain(code, "", "a graph within a graph, expected 'return' before it");
    FxGraph& graph = graphs_.emplace_back();
    graph.offset = offset(code);
    graph.is_marked = marked_.has_value();
    if (marked_) graph.role = *marked_;
    marked_.reset();
    numbers_.clear();
    ended_ = false;
    is_in_head_ = true;
    head(code.substr(std::string_view("def forward(").size()));
  }

  /// `self, primals_1: "f32[8, 16]", ...):`, over one or several lines.
  void head(std::string_view code) {
    while (!code.empty()) {
      const std::size_t length = length_to(code, ",)");
      const std::string_view part = fx_trimmed(code.substr(0, length));
      if (!part.empty() && part[0] != '#' && part != "self") given(part);
      if (!part.empty() && part[0] == '#') return;
      if (length < code.size() && code[length] == ')') {
        is_in_head_ = false;
        return;
      }
      code.remove_prefix(std::min(code.size(), length + 1));
    }
  }

  /// `primals_1: "f32[8, 16]"`
  void given(std::string_view part) {
    FxNode node{.kind = FxNode::Kind::given};
    const std::size_t colon = part.find(':');
    node.name = fx_trimmed(part.substr(0, colon));
    node.offset = offset(part);
    if (colon != std::string_view::npos) node.type = annotation(fx_trimmed(part.substr(colon + 1)), node.name);
    if (node.name == "primals" || node.name == "tangents") return;  // of a joint graph, whose parts follow
    if (graphs_.back().role == FxGraph::Role::forward && !graphs_.back().is_marked &&
        node.name.starts_with("tangents_")) {
      graphs_.back().role = FxGraph::Role::backward;
    }
    add(std::move(node));
  }

  /// `primals_1: "f32[8, 16]"; tangents_1: "f32[]";`, as joint graphs have them.
  bool given_only(std::string_view code) {
    const std::size_t colon = code.find(':');
    if (colon == std::string_view::npos || code.find('=') != std::string_view::npos) return false;
    while (!fx_trimmed(code).empty()) {
      const std::size_t length = length_to(code, ";");
      given(fx_trimmed(code.substr(0, length)));
      code.remove_prefix(std::min(code.size(), length + 1));
    }
    return true;
  }

  void joint() { graphs_.back().role = FxGraph::Role::joint; }

  void add(FxNode node) {
    numbers_[node.name] = static_cast<std::uint32_t>(graphs_.back().nodes.size());
    graphs_.back().nodes.push_back(std::move(node));
  }

  /// `"f32[8, 16][16, 1]cuda:0"`; nothing for numbers (`"Sym(4)"`).
  std::optional<FxType> annotation(std::string_view quoted, std::string_view name) {
    std::string_view text = quoted;
    if (text.size() >= 2 && (text[0] == '"' || text[0] == '\'')) text = text.substr(1, text.size() - 2);
    const std::size_t open = text.find('[');
    if (open == std::string_view::npos) return std::nullopt;
    FxType type;
    type.dtype = text.substr(0, open);
    if (!element_bytes(type.dtype)) {
      complain(quoted, name, fmt::format("unknown type of numbers '{}'", type.dtype));
      return std::nullopt;
    }
    text.remove_prefix(open);
    const std::optional<AtenShape> shape = extents(text, name);
    if (!shape) return std::nullopt;
    type.shape = *shape;
    text.remove_prefix(text.find(']') + 1);
    if (text.empty() || text[0] != '[') return type;
    const std::optional<AtenShape> strides = extents(text, name);
    type.has_strides = strides && strides->size() == type.shape.size();
    if (type.has_strides) type.strides = *strides;
    return type;
  }

  std::optional<std::int64_t> size_of(std::string_view axis) {
    const auto [place, is_new] = sizes_.try_emplace(axis);
    if (is_new) place->second = numbers_given_.asked(axis);
    return place->second;
  }

  /// `[8, 16]` and whatever follows.
  std::optional<AtenShape> extents(std::string_view text, std::string_view name) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) {
      complain(text, name, "expected ']' behind the shape");
      return std::nullopt;
    }
    AtenShape shape;
    bool fine = true;
    for_fx_parts(text.substr(1, close - 1), [&](std::string_view part) {
      const FxExtent extent = fx_extent(part, [&](std::string_view axis) { return size_of(axis); });
      if (extent.fault.empty()) {
        shape.push_back(extent.value);
      } else if (fine) {
        complain(part, name, fmt::format("expected an extent, found '{}': {}", part, extent.fault));
        fine = false;
      }
    });
    if (fine) return shape;
    complaints_.throw_now();
  }

  /// `return (a, None, b)`, `return [a]`, `return pytree.tree_unflatten([a, b], self._out_spec)`
  void finish(std::string_view rest) {
    ended_ = true;
    const std::size_t open = rest.find_first_of("([");
    if (open == std::string_view::npos) {
      graphs_.back().results = {argument(fx_trimmed(rest))};
      return;
    }
    rest = fx_trimmed(rest);
    if (is_fx_name_part(rest[0])) rest.remove_prefix(rest.find_first_of("([") + 1);  // of the call
    const std::size_t first = rest.find_first_of("([");
    if (first == std::string_view::npos) return;
    rest.remove_prefix(first + 1);
    for_fx_parts(rest.substr(0, length_to(rest, ")]")),
                 [&](std::string_view part) { graphs_.back().results.push_back(argument(part)); });
  }

  /// `name: "type" = value;  x = None`
  void statement(std::string_view code) {
    const std::size_t equals = length_to(code, "=");
    if (equals == code.size()) {
      complain(code, "", fmt::format("expected 'NAME = ...', found '{}'", code.substr(0, 40)));
      return;
    }
    FxNode node;
    const std::string_view left = fx_trimmed(code.substr(0, equals));
    const std::size_t colon = left.find(':');
    node.name = fx_trimmed(left.substr(0, colon));
    node.offset = offset(code);
    std::string_view right = code.substr(equals + 1);
    node.written = fx_trimmed(right.substr(0, length_to(right, ";#")));
    if (node.written == "None") return;  // lets go of a value
    if (colon != std::string_view::npos) node.type = annotation(fx_trimmed(left.substr(colon + 1)), node.name);
    value(node);
    add(std::move(node));
  }

  void value(FxNode& node) {
    const std::string_view text = node.written;
    constexpr std::string_view operators = "torch.ops.";
    if (text.starts_with("self.")) {
      node.kind = FxNode::Kind::constant;
    } else if (text.starts_with(operators)) {
      const std::size_t open = std::min(text.find('('), text.size());
      node.target = text.substr(operators.size(), open - operators.size());
      node.arguments = list_of(text.substr(std::min(text.size(), open + 1)));
    } else if (const std::size_t open = text.find('['); open != std::string_view::npos && text.ends_with(']')) {
      const auto whole = numbers_.find(fx_trimmed(text.substr(0, open)));
      if (whole == numbers_.end()) return complain(text, node.name, fmt::format("no such value: '{}'", text));
      node.kind = FxNode::Kind::item;
      node.item_of = whole->second;
    } else if (node.type || text.starts_with("torch.") || text.starts_with("l_self") ||
               text.find('.') != std::string_view::npos) {
      complain(
          text, node.name,
          fmt::format("expected an op of the dispatcher (torch.ops...), as TORCH_LOGS=aot_graphs prints, found '{}'",
                      text.substr(0, text.find('('))));
      complaints_.throw_now();
    }  // else arithmetic of sizes
  }

  /// Positions only, up to the bracket that closes the call; keywords are passed over.
  std::vector<FxArgument> list_of(std::string_view text, int depth = 0) {
    std::vector<FxArgument> made;
    for_fx_parts(text.substr(0, length_to(text, ")]")), [&](std::string_view part) {
      const std::size_t equals = length_to(part, "=");
      if (equals < part.size()) part = fx_trimmed(part.substr(equals + 1));
      made.push_back(argument(part, depth));
    });
    return made;
  }

  FxArgument argument(std::string_view part, int depth = 0) {
    constexpr int deepest = 8;
    if (part.empty()) return {};
    if (part[0] == '[' || part[0] == '(') {
      if (depth == deepest) return {};
      return {.kind = FxArgument::Kind::list, .items = list_of(part.substr(1), depth + 1)};
    }
    if (part == "True" || part == "False") return {.kind = FxArgument::Kind::truth, .truth = part == "True"};
    const bool is_name = std::ranges::all_of(part, is_fx_name_part) && !is_fx_digit(part[0]) && part != "None";
    if (!is_name || part == "inf" || part == "nan") return {};
    const auto place = numbers_.find(part);
    if (place == numbers_.end()) {
      complain(part, "", fmt::format("no such value: '{}'", part));
      return {};
    }
    return {.kind = FxArgument::Kind::node, .node = place->second};
  }

  std::string_view text_;
  Complaints& complaints_;
  ImportNumbers& numbers_given_;
  std::unordered_map<std::string_view, std::optional<std::int64_t>> sizes_;  // of axes with a name
  std::vector<FxGraph> graphs_;
  std::unordered_map<std::string_view, std::uint32_t> numbers_;  // of the present graph's nodes
  std::optional<FxGraph::Role> marked_;
  bool is_in_head_ = false, ended_ = true;
  std::optional<std::size_t> dynamo_at_;
};

}  // namespace

std::vector<FxGraph> parse_fx_text(std::string_view text, Complaints& complaints, ImportNumbers& numbers) {
  return FxParser(text, complaints, numbers).graphs();
}

bool seems_fx_text(std::string_view text) {
  return text.find("def forward(") != std::string_view::npos && text.find("torch.") != std::string_view::npos;
}

}  // namespace plimsoll
