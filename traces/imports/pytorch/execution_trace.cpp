#include "traces/imports/pytorch/execution_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 5> known_schemas{"1.0.1", "1.0.2", "1.0.3", "1.1.0", "1.1.1"};

/// A list of lists and words, as JSON or as Python writes it.
struct NestedText {
  std::string_view text;
  std::vector<NestedText> items;
  bool is_list = false;

  bool is_word() const { return !text.empty() && (text[0] == '"' || text[0] == '\''); }
  std::string_view word() const { return is_word() && text.size() > 1 ? text.substr(1, text.size() - 2) : text; }
};

class NestedParser {
 public:
  explicit NestedParser(std::string_view text) : text_(text) {}

  NestedText parsed() { return value(0); }

 private:
  static constexpr int deepest = 32;

  NestedText value(int depth) {
    skip_blanks();
    NestedText made;
    const std::size_t first = at_;
    if (at_ < text_.size() && text_[at_] == '[' && depth < deepest) {
      made.is_list = true;
      ++at_;
      for (skip_blanks(); at_ < text_.size() && text_[at_] != ']'; skip_blanks()) {
        const std::size_t before = at_;
        made.items.push_back(value(depth + 1));
        skip_blanks();
        if (at_ < text_.size() && text_[at_] == ',') ++at_;
        if (at_ == before) ++at_;
      }
      if (at_ < text_.size()) ++at_;
    } else if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
      const char quote = text_[at_++];
      while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
      at_ = std::min(at_ + 1, text_.size());
    } else {
      int braces = 0;
      while (at_ < text_.size()) {
        const char c = text_[at_];
        if (braces == 0 && (c == ',' || c == ']')) break;
        braces += c == '{' ? 1 : c == '}' ? -1 : 0;
        ++at_;
      }
    }
    made.text = text_.substr(first, at_ - first);
    return made;
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::optional<std::int64_t> whole(const NestedText& item) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(item.text.data(), item.text.data() + item.text.size(), value);
  const bool is_all = error == std::errc() && end == item.text.data() + item.text.size();
  return is_all && !item.is_list ? std::optional(value) : std::nullopt;
}

/// Finds `Tensor(float)` one after the other in the words of types.
class TypeWords {
 public:
  explicit TypeWords(std::string_view text) : text_(text) {}

  std::string next() {
    constexpr std::string_view key = "Tensor(";
    const std::size_t begin = text_.find(key);
    if (begin == std::string_view::npos) return "";
    text_.remove_prefix(begin + key.size());
    const std::size_t end = text_.find(')');
    const std::string_view word = text_.substr(0, end);
    return element_bytes(word) ? std::string(long_dtype(word)) : "";
  }

 private:
  std::string_view text_;
};

class TensorFinder {
 public:
  std::vector<ExecutionTensor> made;

  void find(const NestedText& values, const NestedText* shapes, TypeWords& types, std::uint32_t argument) {
    if (!values.is_list) return;
    if (is_tensor(values)) return add(values, shapes, types.next(), argument);
    for (std::size_t k = 0; k < values.items.size(); ++k) {
      const bool has_shape = shapes != nullptr && shapes->is_list && k < shapes->items.size();
      find(values.items[k], has_shape ? &shapes->items[k] : nullptr, types, argument);
    }
  }

 private:
  static bool is_tensor(const NestedText& values) {
    if (values.items.size() < 6 || !values.items[5].is_word()) return false;
    return std::all_of(values.items.begin(), values.items.begin() + 5,
                       [](const NestedText& item) { return whole(item).has_value(); });
  }

  void add(const NestedText& values, const NestedText* shape, std::string dtype, std::uint32_t argument) {
    constexpr std::int64_t most = 10'000'000'000'000;
    ExecutionTensor tensor{.storage = *whole(values.items[1]),
                           .offset = *whole(values.items[2]),
                           .count = *whole(values.items[3]),
                           .argument = argument,
                           .device = std::string(values.items[5].word()),
                           .shape = {},
                           .dtype = std::move(dtype)};
    if (tensor.count < 0 || tensor.count > most || tensor.offset < 0 || tensor.offset > most)
      throw InputError("a tensor that is absurdly large");
    if (tensor.dtype.empty()) tensor.dtype = dtype_of(*whole(values.items[4]));
    double product = 1;
    for (std::size_t k = 0; shape != nullptr && shape->is_list && k < shape->items.size(); ++k) {
      const std::optional<std::int64_t> extent = whole(shape->items[k]);
      if (!extent || *extent < 0) break;
      product *= static_cast<double>(std::max<std::int64_t>(1, *extent));
      if (product > static_cast<double>(most)) throw InputError("a tensor that is absurdly large");
      tensor.shape.push_back(*extent);
    }
    if (element_count(tensor.shape) != tensor.count) tensor.shape = {tensor.count};
    made.push_back(std::move(tensor));
  }

  /// Where the file has no word that is known.
  static std::string dtype_of(std::int64_t bytes) {
    constexpr std::array<std::pair<std::int64_t, std::string_view>, 5> words{
        {{1, "uint8"}, {2, "bfloat16"}, {4, "float32"}, {8, "int64"}, {16, "complex128"}}};
    const auto place = std::ranges::find(words, bytes, &std::pair<std::int64_t, std::string_view>::first);
    return place == words.end() ? "uint8" : std::string(place->second);
  }
};

struct ValueTexts {
  std::string values, shapes, types;
};

class ExecutionReader {
 public:
  ExecutionTrace trace(JsonDocument& document) {
    document.read([&](JsonCursor root) {
      root.object([&](std::string_view key, JsonCursor value) {
        if (key == "schema") schema(value);
        if (key == "nodes") {
          value.array([&](JsonCursor each) { node(each); });
          has_nodes_ = true;
        }
      });
      if (made_.schema.empty()) root.complain_missing_key("schema");
      if (!has_nodes_) root.complain_missing_key("nodes");
    });
    std::ranges::stable_sort(made_.nodes, {}, &ExecutionNode::id);
    return std::move(made_);
  }

 private:
  void schema(JsonCursor value) {
    made_.schema = value.string();
    const std::string_view version = std::string_view(made_.schema).substr(0, made_.schema.find('-'));
    if (std::ranges::find(known_schemas, version) != known_schemas.end()) return;
    value.complain(fmt::format("a schema of execution traces that is unknown, expected {}, found '{}'",
                               alternatives(known_schemas), made_.schema));
  }

  void node(JsonCursor cursor) {
    ExecutionNode made{.position = static_cast<std::uint32_t>(made_.nodes.size())};
    ValueTexts inputs, outputs;
    bool has_id = false;
    const bool is_object = cursor.object([&](std::string_view key, JsonCursor value) {
      if (key == "id") {
        made.id = number(value);
        has_id = true;
      } else if (key == "name") {
        made.name = value.string();
      } else if (key == "ctrl_deps" || key == "parent") {
        made.parent = number(value);
      } else if (key == "attrs") {
        value.array([&](JsonCursor each) { attribute(each, made); });
      } else if (key == "inputs" || key == "outputs") {
        texts(value, key == "inputs" ? inputs : outputs);
      } else if (key == "input_shapes" || key == "output_shapes") {
        (key == "input_shapes" ? inputs : outputs).shapes = value.compact();
      } else if (key == "input_types" || key == "output_types") {
        (key == "input_types" ? inputs : outputs).types = value.compact();
      } else if (key == "cat") {
        made.category = value.string();
      } else if (key == "exclusive_dur") {
        made.duration = Seconds{static_cast<double>(value.thousandths()) * 1e-9};  // us
        if (made.duration.value < 0) value.complain("expected a time");
      } else if (key == "stream") {
        made.stream = value.integer();
      } else {
        plain(key, value, made);
      }
    });
    if (!is_object) return;
    if (!has_id) cursor.complain_missing_key("id");
    try {
      made.inputs = execution_tensors(inputs.values, inputs.shapes, inputs.types);
      made.outputs = execution_tensors(outputs.values, outputs.shapes, outputs.types);
    } catch (const InputError& error) {
      cursor.complain(error.what());
    }
    made.arguments = std::move(inputs.values);
    made_.nodes.push_back(std::move(made));
  }

  static std::uint64_t number(JsonCursor value) {
    const std::int64_t read = value.integer();
    if (read < 0) value.complain("expected the number of a node");
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, read));
  }

  static void texts(JsonCursor value, ValueTexts& made) {
    if (!value.is_object()) {
      made.values = value.compact();
      return;
    }
    value.object([&](std::string_view key, JsonCursor each) {
      if (key == "values") made.values = each.compact();
      if (key == "shapes") made.shapes = each.compact();
      if (key == "types") made.types = each.compact();
    });
  }

  /// What stands among the attributes since 1.0.2, before that in the node.
  static void plain(std::string_view key, JsonCursor value, ExecutionNode& made) {
    if (key == "scope") made.scope = value.integer();
    if (key == "seq_id") made.sequence = value.integer();
    if (key == "tid") made.thread = value.integer();
    if (key == "op_schema") made.schema = value.string();
  }

  /// `{"name": "seq_id", "type": "int64", "value": -1}`: the name comes first.
  static void attribute(JsonCursor cursor, ExecutionNode& made) {
    std::string name;
    cursor.object([&](std::string_view key, JsonCursor value) {
      if (key == "name") name = value.string();
      if (key == "value") plain(name, value, made);
    });
  }

  ExecutionTrace made_;
  bool has_nodes_ = false;
};

}  // namespace

std::vector<ExecutionTensor> execution_tensors(std::string_view values, std::string_view shapes,
                                               std::string_view types) {
  const NestedText read = NestedParser(values).parsed(), of_shapes = NestedParser(shapes).parsed();
  TypeWords words(types);
  TensorFinder finder;
  for (std::size_t k = 0; k < read.items.size(); ++k) {
    finder.find(read.items[k], k < of_shapes.items.size() ? &of_shapes.items[k] : nullptr, words,
                static_cast<std::uint32_t>(k));
  }
  return std::move(finder.made);
}

std::string_view execution_argument(std::string_view arguments, std::size_t k) {
  const NestedText read = NestedParser(arguments).parsed();
  return k < read.items.size() ? read.items[k].text : std::string_view();
}

ExecutionTrace parse_execution_trace(std::string text, const std::string& file_name) {
  JsonDocument document(std::move(text), file_name);
  return ExecutionReader().trace(document);
}

}  // namespace plimsoll
