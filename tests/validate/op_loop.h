#pragma once
// One thread that runs ops one after the other, every tensor with memory of its own: what replays are compared with.

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/training/training.h"
#include "validate/networks/initial_values.h"
#include "validate/networks/networks.h"

namespace plimsoll {

class OneThreadLoop {
 public:
  explicit OneThreadLoop(CpuNetwork made) : made_(std::move(made)) {
    for (const Tensor& tensor : graph().tensors) values_.push_back(initial_value(tensor));
  }

  const Graph& graph() const { return made_.network.graph; }

 protected:
  /// What a kernel is given. A gradient of a parameter is made beside what there is of it.
  struct Run {
    KernelArguments arguments;
    std::vector<std::vector<float>> parts;  ///< by output; empty: no gradient of a parameter
    std::vector<std::byte> scratch;
  };

  /// All but the inputs.
  Run run_of(const Op& op) {
    Run run;
    for (const TensorId t : op.outputs) {
      const bool adds = graph()[t].kind == TensorKind::parameter_gradient;
      run.parts.emplace_back(adds ? values_[t.index].size() / sizeof(float) : 0);
      run.arguments.outputs.push_back(adds ? static_cast<void*>(run.parts.back().data()) : values_[t.index].data());
    }
    run.scratch.resize(static_cast<std::size_t>(op.workspace.count) + 64);
    run.arguments.scratch = run.scratch.data();
    for (const auto& [name, value] : op.attributes) {
      if (name != statistics_attribute || op.phase != Phase::forward) continue;
      const auto moved = std::ranges::find(graph().tensors, value, &Tensor::name) - graph().tensors.begin();
      run.arguments.statistics =
          static_cast<float*>(static_cast<void*>(values_[static_cast<std::size_t>(moved)].data()));
    }
    return run;
  }

  void run_kernel(const Op& op, const Run& run) {
    made_.kernels[static_cast<std::size_t>(&op - graph().ops.data())].run(run.arguments);
  }

  /// Adds its parts to the gradients; those that have none yet become them.
  void add_parts(const Op& op, const Run& run) {
    for (std::size_t o = 0; o < run.parts.size(); ++o) {
      const std::vector<float>& part = run.parts[o];
      if (part.empty()) continue;
      const TensorId t = op.outputs[o];
      auto* sum = static_cast<float*>(static_cast<void*>(values_[t.index].data()));
      const bool is_first = summed_.insert(t).second;
      for (std::size_t j = 0; j < part.size(); ++j) sum[j] = is_first ? part[j] : sum[j] + part[j];
    }
  }

  CpuNetwork made_;
  std::vector<std::vector<std::byte>> values_;  // by tensor
  std::set<TensorId> summed_;                   // gradients with a contribution
};

}  // namespace plimsoll
