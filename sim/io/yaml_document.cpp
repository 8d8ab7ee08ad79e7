#include "sim/io/yaml_document.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

enum class Shape : std::uint8_t { null, scalar, list, object };

struct TreeNode {
  Shape shape = Shape::null;
  Position at;
  std::string text;                     ///< of a scalar
  std::vector<std::uint32_t> children;  ///< elements, or values
  std::vector<std::string> keys;        ///< one a value
  std::vector<Position> key_at;
  std::size_t size = 1;  ///< nodes in it, aliases expanded
};

Position position(const YAML::Mark& mark) {
  return {static_cast<std::uint32_t>(mark.line + 1), static_cast<std::uint32_t>(mark.column + 1)};
}

}  // namespace

struct YamlTree {
  YamlTree(const std::string& its_text, std::string file) : text(its_text), complaints(std::move(file), text) {}

  /// yaml-cpp counts columns in bytes; ours are characters.
  void complain(Position in_bytes, std::string_view key, std::string_view what) {
    complaints.add(in_characters(in_bytes), key, what);
  }

  Position in_characters(Position in_bytes) const {
    std::size_t line = 0;
    for (std::uint32_t n = 1; n < in_bytes.line && line != std::string::npos; ++n) {
      line = text.find('\n', line);
      if (line != std::string::npos) ++line;
    }
    if (in_bytes.line == 0 || line == std::string::npos) return in_bytes;
    return {in_bytes.line, position_of(std::string_view(text).substr(line), in_bytes.column - 1).column};
  }

  std::string text;

  std::vector<TreeNode> nodes;
  std::uint32_t root = 0;
  Complaints complaints;
};

namespace {

/// Nodes in a document, aliases expanded: far more than any platform or experiment has.
constexpr std::size_t most_nodes = 200'000;

/// Receives yaml-cpp's events. Its own tree would lose repeated keys and the places of keys.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(YamlTree& tree) : tree_(tree) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(make(Shape::null, mark, anchor), mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string& text) override {
    const std::uint32_t node = make(Shape::scalar, mark, anchor);
    tree_.nodes[node].text = text;
    add(node, mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto known = anchors_.find(anchor);
    const bool is_open = known == anchors_.end() ||
                         std::ranges::any_of(open_, [&](const Open& open) { return open.node == known->second; });
    if (is_open) refuse(mark, "an alias inside the node that it names");
    add(known->second, mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(make(Shape::list, mark, anchor), mark);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(make(Shape::object, mark, anchor), mark);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    std::uint32_t node = 0;
    std::optional<std::string> key;  ///< of the value that comes next
    Position key_at;
    std::set<std::string> keys = {};
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view what) {
    tree_.complain(position(mark), "", what);
    tree_.complaints.throw_now();
  }

  std::uint32_t make(Shape shape, const YAML::Mark& mark, YAML::anchor_t anchor) {
    tree_.nodes.push_back({shape, position(mark), {}, {}, {}, {}});
    const auto node = static_cast<std::uint32_t>(tree_.nodes.size() - 1);
    if (anchor != 0) anchors_[anchor] = node;
    return node;
  }

  void add(std::uint32_t node, const YAML::Mark& mark) {
    if (open_.empty()) {
      tree_.root = node;
      return;
    }
    Open& open = open_.back();
    TreeNode& parent = tree_.nodes[open.node];
    if (parent.shape == Shape::object && !open.key) {
      if (tree_.nodes[node].shape != Shape::scalar) refuse(mark, "a key must be a word");
      open.key = tree_.nodes[node].text;
      open.key_at = position(mark);
      return;
    }
    parent.size += tree_.nodes[node].size;
    if (parent.size > most_nodes) refuse(mark, fmt::format("more than {} values, aliases expanded", most_nodes));
    if (parent.shape == Shape::object) {
      const bool repeated = !open.keys.insert(*open.key).second;
      if (repeated) {
        tree_.complain(open.key_at, path(), "repeated key");
      } else {
        parent.keys.push_back(*open.key);
        parent.key_at.push_back(open.key_at);
      }
      open.key.reset();
      if (repeated) return;
    }
    parent.children.push_back(node);
  }

  void open(std::uint32_t node, const YAML::Mark& mark) {
    constexpr std::size_t deepest = 64;
    if (open_.size() == deepest) refuse(mark, fmt::format("nested deeper than {}", deepest));
    open_.push_back({node, {}, {}});
  }

  /// Of the value that comes next.
  std::string path() const {
    std::string text;
    for (const Open& open : open_) {
      if (open.key)
        text.append(text.empty() ? "" : ".").append(*open.key);
      else
        text += fmt::format("[{}]", tree_.nodes[open.node].children.size());
    }
    return text;
  }

  void close() {
    const std::uint32_t node = open_.back().node;
    open_.pop_back();
    const Position at = tree_.nodes[node].at;
    YAML::Mark mark;
    mark.line = static_cast<int>(at.line) - 1;
    mark.column = static_cast<int>(at.column) - 1;
    add(node, mark);
  }

  YamlTree& tree_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, std::uint32_t> anchors_;
};

}  // namespace

YamlDocument::YamlDocument(const std::string& text, std::string file) : tree_(new YamlTree(text, std::move(file))) {
  std::istringstream stream(text);
  try {
    YAML::Parser parser(stream);
    Builder builder(*tree_);
    if (!parser.HandleNextDocument(builder) || tree_->nodes.empty()) {
      tree_->complain({}, "", "the file is empty");
      tree_->complaints.throw_now();
    }
    const std::size_t nodes = tree_->nodes.size();
    const std::uint32_t root = tree_->root;
    if (parser.HandleNextDocument(builder) && tree_->nodes.size() > nodes) {
      tree_->complain(tree_->nodes[nodes].at, "", "a second document; one file holds one");
    }
    tree_->root = root;
  } catch (const YAML::Exception& error) {  // the library's own way to speak; turned into ours with its place
    const Position at = error.mark.is_null() ? Position{} : position(error.mark);
    // Newer versions add what the place shows: "the referenced anchor is not defined: name".
    const std::string what = error.msg.substr(0, error.msg.find(": "));
    tree_->complain(at, "", fmt::format("not valid YAML: {}", what));
  }
  tree_->complaints.throw_if_any();
}

YamlDocument::~YamlDocument() = default;

YamlCursor YamlDocument::root() {
  return {tree_.get(), tree_->root, "", "", {}};
}

void YamlDocument::throw_if_any() const {
  tree_->complaints.throw_if_any();
}

bool YamlCursor::is_scalar() const {
  return tree_->nodes[node_].shape == Shape::scalar;
}
bool YamlCursor::is_object() const {
  return tree_->nodes[node_].shape == Shape::object;
}
bool YamlCursor::is_list() const {
  return tree_->nodes[node_].shape == Shape::list;
}

std::string YamlCursor::found() const {
  constexpr std::size_t longest = 60;
  const TreeNode& node = tree_->nodes[node_];
  switch (node.shape) {
    case Shape::null:
      return "found nothing";
    case Shape::list:
      return "found a list";
    case Shape::object:
      return "found an object";
    case Shape::scalar:
      break;
  }
  return fmt::format("found '{}{}'", node.text.substr(0, longest), node.text.size() > longest ? "..." : "");
}

Position YamlCursor::place_in_bytes() const {
  const TreeNode& node = tree_->nodes[node_];
  const bool is_absent = node.shape == Shape::null && key_at_.line > 0;  // a null's own place is that of what follows
  return is_absent ? key_at_ : node.at;
}

void YamlCursor::complain(std::string_view what) const {
  tree_->complain(place_in_bytes(), path_, what);
}

YamlPlace YamlCursor::place() const {
  return {tree_->complaints.file(), tree_->in_characters(place_in_bytes()), path_};
}

void YamlCursor::complain_unknown_key(const std::vector<std::string_view>& known) const {
  tree_->complain(key_at_, path_, "unknown key" + suggestion(key_, known));
}

void YamlCursor::complain_missing_key(std::string_view key) const {
  complain(fmt::format("missing key '{}'", key));
}

bool YamlCursor::is_object_or_complain() const {
  if (!is_object()) complain("expected an object, " + found());
  return is_object();
}

std::vector<YamlCursor> YamlCursor::fields() const {
  const TreeNode& node = tree_->nodes[node_];
  std::vector<YamlCursor> values;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const std::string path = path_.empty() ? node.keys[i] : path_ + "." + node.keys[i];
    values.push_back(YamlCursor(tree_, node.children[i], path, node.keys[i], node.key_at[i]));
  }
  return values;
}

std::vector<YamlCursor> YamlCursor::elements() const {
  const TreeNode& node = tree_->nodes[node_];
  std::vector<YamlCursor> list;
  if (node.shape != Shape::list) complain("expected a list, " + found());
  if (node.shape != Shape::list) return list;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    list.push_back(YamlCursor(tree_, node.children[i], fmt::format("{}[{}]", path_, i), "", {}));
  }
  return list;
}

std::string YamlCursor::scalar(std::string_view expected) const {
  if (!is_scalar()) complain(fmt::format("expected {}, {}", expected, found()));
  return tree_->nodes[node_].text;
}

std::string YamlCursor::string() const {
  return scalar("a word or text");
}

bool YamlCursor::boolean() const {
  const std::string word = tree_->nodes[node_].text;
  if (!is_scalar() || (word != "true" && word != "false")) complain("expected true or false, " + found());
  return word == "true";
}

template <class Parse>
auto YamlCursor::quantity(Parse parse, std::string_view expected) const {
  auto parsed = parse(std::string_view(scalar(expected)));
  if (is_scalar() && !parsed.fine()) complain(parsed.complaint);
  return parsed.value;
}

double YamlCursor::number(double least, double most) const {
  const Parsed<double> parsed = is_scalar() ? parse_number(tree_->nodes[node_].text) : Parsed<double>{0, "none"};
  if (parsed.fine() && parsed.value >= least && parsed.value <= most) return parsed.value;
  complain(fmt::format("expected a number from {} to {}, {}", least, most, found()));
  return least;
}

std::uint32_t YamlCursor::index() const {
  return whole(0, 1'000'000);
}

std::uint32_t YamlCursor::count() const {
  return whole(1, 1'000'000);
}

std::uint32_t YamlCursor::whole(std::int64_t least, std::int64_t most) const {
  const Parsed<std::int64_t> parsed =
      is_scalar() ? parse_integer(tree_->nodes[node_].text) : Parsed<std::int64_t>{0, "none"};
  if (parsed.fine() && parsed.value >= least && parsed.value <= most) return static_cast<std::uint32_t>(parsed.value);
  complain(fmt::format("expected a whole number from {} to {}, {}", least, most, found()));
  return static_cast<std::uint32_t>(least);
}

Bytes YamlCursor::bytes() const {
  return quantity(parse_bytes, "a size such as 80 GB");
}
std::optional<Bytes> YamlCursor::capacity() const {
  return quantity(parse_capacity, "a size such as 80 GB, or unlimited");
}
Seconds YamlCursor::seconds() const {
  return quantity(parse_seconds, "a time such as 5 us");
}
BytesPerSecond YamlCursor::bandwidth() const {
  return quantity(parse_bandwidth, "a bandwidth such as 25 GB/s");
}
FlopsPerSecond YamlCursor::flops_rate() const {
  return quantity(parse_flops_rate, "a rate such as 989 TFLOPS");
}

}  // namespace plimsoll
