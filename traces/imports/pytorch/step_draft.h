#pragma once
// The graph of one recorded training step, as readers of PyTorch's recordings put it together: tensors from shapes,
// parameters with their gradients, and all that the optimizer runs as one update.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/graph.h"
#include "traces/imports/import_numbers.h"
#include "traces/imports/pytorch/aten_work.h"

namespace plimsoll {

/// Ranges by name: what autograd's engine runs, what the optimizer runs, and which step of the profiler this is.
bool is_backward_range(std::string_view name);
bool is_update_range(std::string_view name);
std::optional<std::int64_t> profiler_step(std::string_view name);

/// Which of the steps, by number in the order of their dates: `--set step=N`, else the last; unset where there are
/// none. Throws InputError where the file has no such step.
std::optional<std::size_t> chosen_step(const std::vector<std::int64_t>& steps, const std::string& file, ImportNumbers&);

struct RecordedOperand {
  AtenShape shape;
  std::string dtype;  ///< empty: no tensor
};

class RecordedDraft {
 public:
  Graph graph;

  /// With a storage of its own, or in another one's.
  TensorId tensor(std::string name, TensorKind, const RecordedOperand& like, std::optional<StorageId> storage = {});

  /// The tensor becomes the parameter's gradient.
  void own(TensorId gradient, TensorId parameter);
  bool is_owned(TensorId parameter) const;
  std::size_t owned() const { return parameters_.size(); }

  /// One op that updates every parameter with a gradient, and the states: duration, flops and kernels are the caller's.
  /// Without `bytes_moved` it reads parameter and gradient and writes the parameter.
  void add_update(Op op, const std::vector<TensorId>& states);

 private:
  double numbers_ = 0;
  std::vector<TensorId> parameters_, gradients_;
};

/// Of each op, the outputs that only the backward reads.
void mark_saved(Graph&);

/// Throws what is wrong with the graph, as of the file.
Graph checked(Graph, const std::filesystem::path&);

}  // namespace plimsoll
