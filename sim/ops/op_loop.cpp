#include "sim/ops/op_loop.h"

#include <algorithm>
#include <charconv>

#include "sim/core/op_attribute.h"
#include "sim/ops/split_rules.h"

namespace plimsoll {
namespace {

constexpr std::string_view loop_key = "loop", reduces_key = "loop_reduces";

std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

class LoopReader {
 public:
  LoopReader(const Graph& graph, OpId op) : graph_(graph), op_(graph[op]) {}

  std::variant<OpLoop, std::string> read(std::string_view text, std::string_view reduces) {
    constexpr std::string_view arrow = "->";
    const std::size_t middle = text.find(arrow);
    if (middle == std::string_view::npos) return refusal("has no '->'");
    read_operands(text.substr(0, middle), op_.inputs, loop_.inputs, "inputs");
    read_operands(text.substr(middle + arrow.size()), op_.outputs, loop_.outputs, "outputs");
    for (const Row& row : rows_) settle(row);
    if (!reduces.empty()) read_reductions(reduces);
    if (!why_.empty()) return why_;
    return std::move(loop_);
  }

  std::string refusal(std::string_view what) const { return "the loop of '" + op_.name + "' " + std::string(what); }

 private:
  void refuse(const std::string& what) {
    if (why_.empty()) why_ = refusal(what);
  }

  void read_operands(std::string_view text, const std::vector<TensorId>& tensors,
                     std::vector<std::vector<std::uint8_t>>& operands, std::string_view which) {
    std::vector<std::string_view> written = split_at(text, ',');
    if (tensors.empty() && written.size() == 1 && words_of(written.front()).empty()) written.clear();
    if (written.size() != tensors.size()) {
      return refuse("names the dimensions of " + std::to_string(written.size()) + " " + std::string(which) +
                    ", but the op has " + std::to_string(tensors.size()));
    }
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      const Tensor& tensor = graph_[tensors[k]];
      std::vector<std::string_view> names = words_of(written[k]);
      if (&operands == &loop_.outputs) read_whole(names);
      if (names.size() != tensor.shape.size()) {
        return refuse("names " + std::to_string(names.size()) + " dimensions of '" + tensor.name +
                      "', whose shape has " + std::to_string(tensor.shape.size()));
      }
      std::vector<std::uint8_t>& operand = operands.emplace_back();
      for (std::size_t d = 0; d < names.size(); ++d) operand.push_back(dim_of(names[d], tensor.shape[d]));
    }
  }

  /// Takes the names off that say where an output is whole.
  void read_whole(std::vector<std::string_view>& names) {
    std::vector<std::uint8_t>& whole = loop_.whole.emplace_back();
    std::erase_if(names, [&](std::string_view name) {
      if (!name.starts_with('=')) return false;
      name.remove_prefix(1);
      if (const auto dim = loop_.dim(name)) {
        whole.push_back(*dim);
      } else {
        refuse("has no dimension '" + std::string(name) + "'");
      }
      return true;
    });
  }

  std::uint8_t dim_of(std::string_view name, std::int64_t size) {
    const bool is_whole = name.ends_with('!'), is_halved = name.ends_with('~');
    if (is_whole || is_halved) name.remove_suffix(1);
    const std::size_t star = name.find('*');
    bool is_row = star != std::string_view::npos;
    if (is_row) {
      const std::string_view each = name.substr(star + 1);
      name = name.substr(0, star);
      if (const std::int64_t count = each.empty() ? 0 : number(each).value_or(0); count > 0 && size % count == 0) {
        size /= count;
        is_row = false;
      } else if (!each.empty()) {
        refuse("cannot have " + std::string(each) + " of each '" + std::string(name) + "' in " + std::to_string(size));
      }
    }
    if (name == "-") {
      loop_.dims.push_back({"-", size, false});
      return static_cast<std::uint8_t>(loop_.dims.size() - 1);
    }
    const auto place = std::ranges::find(loop_.dims, name, &LoopDim::name) - loop_.dims.begin();
    const auto dim = static_cast<std::uint8_t>(place);
    if (dim == loop_.dims.size()) loop_.dims.push_back({std::string(name), is_row ? unknown : size, true});
    LoopDim* known = &loop_.dims[dim];
    if (is_row) rows_.push_back({dim, size});
    if (!is_row && known->size == unknown) known->size = size;
    if (!is_row && known->size != size) {
      refuse("gives '" + std::string(name) + "' the sizes " + std::to_string(known->size) + " and " +
             std::to_string(size));
    }
    known->by_halves = !is_whole && (known->by_halves || (is_halved && known->cuttable));
    known->cuttable = known->cuttable && !is_whole && !is_halved;
    return dim;
  }

  /// Several numbers of each of a dimension, in a row of a shape.
  struct Row {
    std::uint8_t dim = 0;
    std::int64_t size = 0;
  };

  void settle(const Row& row) {
    const LoopDim& dim = loop_.dims[row.dim];
    if (dim.size == unknown) return refuse("says nowhere how many '" + dim.name + "' there are");
    if (row.size % dim.size == 0) return;
    refuse("has rows of " + std::to_string(row.size) + " for '" + dim.name + "', which has " +
           std::to_string(dim.size));
  }

  void read_reductions(std::string_view text) {
    for (const std::string_view each : split_at(text, ',')) {
      const std::vector<std::string_view> words = words_of(each);
      const auto dim = words.size() == 2 || words.size() == 3 ? loop_.dim(words[0]) : std::nullopt;
      LoopReduction made{dim.value_or(0)};
      if (dim) made.count = number(words[1]).value_or(0);
      if (words.size() == 3) made.operand = number(words[2]);
      const bool has_operand =
          words.size() == 2 || (made.operand && *made.operand < op_.inputs.size() + op_.outputs.size());
      if (!dim || made.count == 0 || !has_operand) {
        return refuse("reduces '" + std::string(each) + "', expected a dimension and a count");
      }
      loop_.reductions.push_back(made);
    }
  }

  static std::optional<std::uint32_t> number(std::string_view word) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
    return value;
  }

  static constexpr std::int64_t unknown = 0;

  const Graph& graph_;
  const Op& op_;
  OpLoop loop_;
  std::vector<Row> rows_;
  std::string why_;
};

}  // namespace

std::optional<std::uint8_t> OpLoop::dim(std::string_view name) const {
  const auto found = std::ranges::find(dims, name, &LoopDim::name);
  if (found == dims.end()) return std::nullopt;
  return static_cast<std::uint8_t>(found - dims.begin());
}

TensorId reduced_tensor(const Op& op, const LoopReduction& reduction) {
  if (!reduction.operand) return op.outputs.front();
  const std::size_t k = *reduction.operand;
  return k < op.inputs.size() ? op.inputs[k] : op.outputs[k - op.inputs.size()];
}

std::variant<OpLoop, std::string> loop_of(const Graph& graph, OpId op) {
  if (const auto text = attribute_of(graph[op], loop_key)) {
    return LoopReader(graph, op).read(*text, attribute_of(graph[op], reduces_key).value_or(std::string_view()));
  }
  const auto ruled = loops_by_rule(graph, op);
  if (const NoRule* none = std::get_if<NoRule>(&ruled)) return none->why;
  std::optional<std::string> why;  // of the first, which is the likeliest
  for (const RuledLoop& form : std::get<std::vector<RuledLoop>>(ruled)) {
    std::variant<OpLoop, std::string> read = LoopReader(graph, op).read(form.loop, form.reduces);
    if (std::holds_alternative<OpLoop>(read)) return read;
    if (!why) why = std::get<std::string>(std::move(read));
  }
  return *why;
}

}  // namespace plimsoll
