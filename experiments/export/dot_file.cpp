#include "experiments/export/dot_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "sim/core/op_attribute.h"

namespace plimsoll {
namespace {

/// A name or label in quotes, on one line.
std::string dot_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted += '"';
}

class DotWriter {
 public:
  explicit DotWriter(const Problem& problem)
      : problem_(problem),
        graph_(problem.graph),
        maker_(graph_.tensors.size()),
        counted_(graph_.tensors.size(), false) {
    for (std::size_t g = 0; g < graph_.colocate.size(); ++g) {
      for (const OpId op : graph_.colocate[g]) group_[op] = g;
    }
  }

  std::string write(std::string_view made_by) {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) add(id_at<OpId>(o));
    const std::string head = fmt::format("// {}\n// left out: {} updates, {} inputs and optimizer states\n",
                                         one_line(made_by), updates_, count_left_out());
    return head + "digraph " + dot_quoted(graph_.name) + " {\n" + nodes_ + edges_ + "}\n";
  }

 private:
  static std::string one_line(std::string_view text) {
    std::string line(text);
    std::ranges::replace(line, '\n', ' ');
    return line;
  }

  std::size_t count_left_out() const {
    return static_cast<std::size_t>(std::ranges::count_if(graph_.tensors, [](const Tensor& tensor) {
      return tensor.kind == TensorKind::input || tensor.kind == TensorKind::optimizer_state;
    }));
  }

  void add(OpId id) {
    const Op& op = graph_[id];
    if (op.phase == Phase::update) {
      ++updates_;
      return;
    }
    std::map<std::uint32_t, Bytes> from;  // by op that makes it
    Bytes parameters, output;
    for (const TensorId t : op.inputs) {
      const Tensor& tensor = graph_[t];
      if (maker_[t.index]) {
        from[maker_[t.index]->index] += tensor.bytes;
      } else if (tensor.kind == TensorKind::parameter && !counted_[t.index]) {
        counted_[t.index] = true;
        parameters += tensor.bytes;
      }
    }
    for (const TensorId t : op.outputs) {
      maker_[t.index] = id;
      output += graph_[t].bytes;
    }
    node(id, parameters, output);
    for (const auto& [maker, bytes] : from) {
      edges_ += fmt::format("  op{} -> op{} [bytes={}];\n", maker, id.index, bytes.count);
    }
  }

  void node(OpId id, Bytes parameters, Bytes output) {
    const Op& op = graph_[id];
    const Seconds takes = duration_on(problem_, id, DeviceId{0}, Saving::keep);
    nodes_ += fmt::format("  op{} [label={}, time=\"{} s\", size={}, phase={}", id.index, dot_quoted(op.name),
                          takes.value, output.count, is_backward(op.phase) ? "backward" : "forward");
    if (parameters > Bytes{}) nodes_ += fmt::format(", parameters={}", parameters.count);
    if (is_pinned_to_host(op)) nodes_ += ", device=host";
    if (const auto group = group_.find(id); group != group_.end())
      nodes_ += fmt::format(", colocate={}", group->second);
    nodes_ += "];\n";
  }

  const Problem& problem_;
  const Graph& graph_;
  std::vector<std::optional<OpId>> maker_;  // by tensor
  std::vector<bool> counted_;               // by tensor: its parameter is some op's
  std::map<OpId, std::size_t> group_;
  std::string nodes_, edges_;
  std::size_t updates_ = 0;
};

}  // namespace

std::string dot_text(const Problem& problem, std::string_view made_by) {
  return DotWriter(problem).write(made_by);
}

}  // namespace plimsoll
