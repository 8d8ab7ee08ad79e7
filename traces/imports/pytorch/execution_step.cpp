#include "traces/imports/pytorch/execution_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "sim/io/input_error.h"
#include "traces/imports/pytorch/step_draft.h"

namespace plimsoll {
namespace {

class StepFinder {
 public:
  StepFinder(const ExecutionTrace& trace, const std::string& file) : trace_(trace), file_(file) {}

  ExecutionStep step(ImportNumbers& numbers) && {
    find_parents();
    choose_step(numbers);
    find_device();
    find_kernels();
    find_order();
    return std::move(made_);
  }

 private:
  const ExecutionNode& node(std::uint32_t n) const { return trace_.nodes[n]; }

  [[noreturn]] void refuse(std::uint32_t n, std::string_view what) const {
    throw InputError(located(file_, {}, fmt::format("nodes[{}]", node(n).position), what));
  }

  void find_parents() {
    const std::size_t count = trace_.nodes.size();
    std::unordered_map<std::uint64_t, std::uint32_t> place;
    made_.parents.assign(count, no_node);
    last_.resize(count);
    made_.ranges.assign(count, {});
    std::size_t processes = 0;
    for (std::uint32_t n = 0; n < count; ++n) {
      const ExecutionNode& each = node(n);
      if (!place.try_emplace(each.id, n).second) {
        refuse(n, fmt::format("a second node {}: a file of several ranks, expected one", each.id));
      }
      const auto parent = place.find(each.parent);
      if (parent != place.end() && parent->second != n) made_.parents[n] = parent->second;
      last_[n] = n;
      if (each.name.ends_with("|process]") && ++processes > 1) refuse(n, "a second process, expected one rank");
      if (made_.parents[n] != no_node) made_.ranges[n] = made_.ranges[made_.parents[n]];
      if (is_backward_range(each.name)) made_.ranges[n].in_backward = true;
      if (is_update_range(each.name)) made_.ranges[n].in_update = true;
      if (each.name == accumulate_range) made_.ranges[n].accumulates = n;
    }
    for (std::uint32_t n = static_cast<std::uint32_t>(count); n-- > 0;) {
      if (made_.parents[n] != no_node) last_[made_.parents[n]] = std::max(last_[made_.parents[n]], last_[n]);
    }
  }

  /// From the range of the step to what comes after it on its thread: autograd's thread has nodes in between.
  void choose_step(ImportNumbers& numbers) {
    std::vector<std::int64_t> steps;
    std::vector<std::uint32_t> nodes;
    for (std::uint32_t n = 0; n < trace_.nodes.size(); ++n) {
      if (const auto step = profiler_step(node(n).name)) steps.push_back(*step), nodes.push_back(n);
    }
    made_.end = static_cast<std::uint32_t>(trace_.nodes.size());
    const std::optional<std::size_t> which = chosen_step(steps, file_, numbers);
    if (!which) return;
    made_.number = steps[*which];
    made_.begin = nodes[*which];
    std::vector<bool> within(trace_.nodes.size(), false);
    for (std::uint32_t n = made_.begin; n < made_.end; ++n) {
      within[n] = n == made_.begin || (made_.parents[n] != no_node && within[made_.parents[n]]);
      if (!within[n] && n > made_.begin && node(n).thread == node(made_.begin).thread) made_.end = n;
    }
  }

  bool is_within(std::uint32_t n) const { return n >= made_.begin && n < made_.end; }

  /// The accelerator of which the file has tensors; the host where there is none.
  void find_device() {
    for (std::uint32_t n = 0; n < trace_.nodes.size(); ++n) {
      if (!is_within(n)) continue;
      for (const auto* list : {&node(n).inputs, &node(n).outputs}) {
        for (const ExecutionTensor& tensor : *list) {
          if (tensor.storage == 0 || tensor.device == "cpu" || tensor.device == "meta" || tensor.device.empty())
            continue;
          if (made_.device.empty()) made_.device = tensor.device;
          if (made_.device == tensor.device) continue;
          refuse(n, fmt::format("tensors on {} and on {}, expected those of one rank", made_.device, tensor.device));
        }
      }
      if (node(n).name == "record_param_comms") ++made_.exchanges;
    }
    if (made_.device.empty()) made_.device = "cpu";
  }

  void find_kernels() {
    made_.kernels.resize(trace_.nodes.size());
    for (std::uint32_t n = 0; n < trace_.nodes.size(); ++n) {
      const std::string& category = node(n).category;
      if (category != "kernel" && category != "gpu_memcpy" && category != "gpu_memset") continue;
      made_.is_linked = true;
      std::uint32_t op = made_.parents[n];
      while (op != no_node && operator_word(node(op)).empty()) op = made_.parents[op];
      if (!is_within(n)) continue;
      LaunchedKernels& all = made_.streams[node(n).stream];
      ++all.count;
      all.time += node(n).duration;
      if (op == no_node) {
        ++made_.unlaunched;
        continue;
      }
      LaunchedKernels& of = made_.kernels[op];
      if (of.count == 0) of.stream = node(n).stream;
      ++of.count;
      of.time += node(n).duration;
    }
  }

  void find_order() {
    for (std::uint32_t n = made_.begin; n < made_.end; ++n) made_.order.push_back(n);
    std::ranges::sort(made_.order, [&](std::uint32_t a, std::uint32_t b) {
      return last_[a] != last_[b] ? last_[a] < last_[b] : a > b;
    });
  }

  const ExecutionTrace& trace_;
  const std::string& file_;
  ExecutionStep made_;
  std::vector<std::uint32_t> last_;  // by node: the last one below it
};

}  // namespace

std::string_view operator_word(const ExecutionNode& node) {
  const std::string_view name = node.name;
  const std::size_t at = name.find("::");
  if (node.scope != 0 || at == std::string_view::npos || at == 0) return "";
  const std::string_view space = name.substr(0, at);
  if (space == "autograd" || space == "torch" || !node.category.empty()) return "";
  return name.substr(at + 2);
}

ExecutionStep execution_step(const ExecutionTrace& trace, const std::string& file, ImportNumbers& numbers) {
  return StepFinder(trace, file).step(numbers);
}

}  // namespace plimsoll
