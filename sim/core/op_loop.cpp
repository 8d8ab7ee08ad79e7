#include "sim/core/op_loop.h"

#include <algorithm>
#include <charconv>

#include "sim/core/op_attribute.h"

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

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words = split_at(text, ' ');
  std::erase(words, std::string_view());
  return words;
}

class LoopReader {
 public:
  LoopReader(const Graph& graph, OpId op) : graph_(graph), op_(graph[op]) {}

  std::variant<OpLoop, std::string> read(std::string_view text) {
    constexpr std::string_view arrow = "->";
    const std::size_t middle = text.find(arrow);
    if (middle == std::string_view::npos) return refusal("has no '->'");
    read_operands(text.substr(0, middle), op_.inputs, loop_.inputs, "inputs");
    read_operands(text.substr(middle + arrow.size()), op_.outputs, loop_.outputs, "outputs");
    if (const auto reduces = attribute_of(op_, reduces_key)) read_reductions(*reduces);
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
    if (written.size() == 1 && words_of(written.front()).empty()) written.clear();
    if (written.size() != tensors.size()) {
      return refuse("names the dimensions of " + std::to_string(written.size()) + " " + std::string(which) +
                    ", but the op has " + std::to_string(tensors.size()));
    }
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      const Tensor& tensor = graph_[tensors[k]];
      const std::vector<std::string_view> names = words_of(written[k]);
      if (names.size() != tensor.shape.size()) {
        return refuse("names " + std::to_string(names.size()) + " dimensions of '" + tensor.name +
                      "', whose shape has " + std::to_string(tensor.shape.size()));
      }
      std::vector<std::uint8_t>& operand = operands.emplace_back();
      for (std::size_t d = 0; d < names.size(); ++d) operand.push_back(dim_of(names[d], tensor.shape[d]));
    }
  }

  std::uint8_t dim_of(std::string_view name, std::int64_t size) {
    const bool is_whole = name.ends_with('!');
    if (is_whole) name.remove_suffix(1);
    if (name == "-") {
      loop_.dims.push_back({"-", size, false});
      return static_cast<std::uint8_t>(loop_.dims.size() - 1);
    }
    const auto known = std::ranges::find(loop_.dims, name, &LoopDim::name);
    if (known == loop_.dims.end()) {
      loop_.dims.push_back({std::string(name), size, !is_whole});
      return static_cast<std::uint8_t>(loop_.dims.size() - 1);
    }
    if (known->size != size) {
      refuse("gives '" + std::string(name) + "' the sizes " + std::to_string(known->size) + " and " +
             std::to_string(size));
    }
    known->cuttable = known->cuttable && !is_whole;
    return static_cast<std::uint8_t>(known - loop_.dims.begin());
  }

  void read_reductions(std::string_view text) {
    for (const std::string_view each : split_at(text, ',')) {
      const std::vector<std::string_view> words = words_of(each);
      const auto dim = words.size() == 2 ? loop_.dim(words[0]) : std::nullopt;
      std::uint32_t count = 0;
      if (dim) std::from_chars(words[1].data(), words[1].data() + words[1].size(), count);
      if (!dim || count == 0) return refuse("reduces '" + std::string(each) + "', expected a dimension and a count");
      loop_.reductions.push_back({*dim, count});
    }
  }

  const Graph& graph_;
  const Op& op_;
  OpLoop loop_;
  std::string why_;
};

}  // namespace

std::optional<std::uint8_t> OpLoop::dim(std::string_view name) const {
  const auto found = std::ranges::find(dims, name, &LoopDim::name);
  if (found == dims.end()) return std::nullopt;
  return static_cast<std::uint8_t>(found - dims.begin());
}

std::variant<OpLoop, std::string> loop_of(const Graph& graph, OpId op) {
  LoopReader reader(graph, op);
  const auto text = attribute_of(graph[op], loop_key);
  if (!text) {
    return "'" + graph[op].name + "' (" + graph[op].kind +
           ") has no rule by which it could be cut: the trace gives it no attribute 'loop'";
  }
  return reader.read(*text);
}

}  // namespace plimsoll
