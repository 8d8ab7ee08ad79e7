// What a device of a pipeline has of the stages of a model, and what these cost it.

#include <algorithm>
#include <limits>
#include <vector>

#include "strategies/hybrid/cluster/bounds.h"
#include "strategies/pipelining/cuts/cuts.h"

namespace plimsoll {
namespace {

/// The stages [first, last) that a device has as one part.
struct Range {
  std::size_t first, last;
};

/// By device, its parts in their order.
std::vector<std::vector<Range>> placed(const std::vector<std::size_t>& first, std::size_t model_stages,
                                       std::uint32_t devices, PipelineShape shape) {
  std::vector<std::vector<Range>> parts(devices);
  for (std::size_t g = 0; g < first.size(); ++g) {
    const bool goes_back = shape == PipelineShape::v && g >= devices;
    const std::size_t device = goes_back ? 2 * std::size_t{devices} - 1 - g : g % devices;
    parts[device].push_back({first[g], g + 1 < first.size() ? first[g + 1] : model_stages});
  }
  return parts;
}

class OfDevice {
 public:
  explicit OfDevice(const RankCosts& costs) : costs_(costs) {}

  DeviceCosts of(const std::vector<Range>& parts) {
    made_ = {};
    for (std::size_t s = 0; s < parts.front().first; ++s) {
      const RankStage& stage = costs_.stages[s];
      made_.before += stage.forward;
      made_.behind += stage.backward;
      made_.behind_input += stage.backward - stage.weight;
    }
    own_.assign(costs_.parameters.size(), false);
    for (const Range& part : parts) add(part, part.first == parts.front().first);
    for (const Range& part : parts) made_.read_again += inner_parameters(part);
    made_.moves_a_byte = made_.moves_a_state = std::numeric_limits<double>::infinity();
    for (std::uint32_t p = 0; p < costs_.parameters.size(); ++p) {
      if (own_[p]) add(costs_.parameters[p]);
    }
    std::ranges::sort(made_.repeats, {}, &Repeat::seconds_a_byte);
    return made_;
  }

 private:
  Bytes trained_in(std::size_t first, std::size_t last) const {
    std::vector<bool> seen(costs_.parameters.size(), false);
    Bytes sum;
    for (std::size_t s = first; s < last; ++s) {
      for (const std::uint32_t p : costs_.stages[s].parameters) {
        if (!seen[p] && costs_.parameters[p].trained) sum += costs_.parameters[p].bytes;
        seen[p] = true;
      }
    }
    return sum;
  }

  Bytes inner_parameters(const Range& part) const {
    const std::size_t first = std::max<std::size_t>(part.first, 1);
    return trained_in(first, std::max(first, std::min(part.last, costs_.stages.size() - 1)));
  }

  void add(const RankParameter& parameter) {
    made_.parameters += parameter.bytes;
    if (parameter.trained) made_.trained += parameter.bytes;
    if (parameter.trained) made_.largest_trained = std::max(made_.largest_trained, parameter.bytes);
    made_.states += parameter.states;
    made_.updates += parameter.update;
    made_.host_moves += parameter.host_moves;
    const auto moves_a = [&](Bytes bytes) {
      return static_cast<double>(parameter.host_moves.count) / static_cast<double>(bytes.count);
    };
    if (parameter.trained && parameter.bytes > Bytes{}) {
      made_.moves_a_byte = std::min(made_.moves_a_byte, moves_a(parameter.bytes));
    }
    if (parameter.states > Bytes{}) made_.moves_a_state = std::min(made_.moves_a_state, moves_a(parameter.states));
  }

  void add(const Range& part, bool is_first) {
    Seconds forward, backward, weight, longest_forward, again;
    Bytes saved, inputs, gradients;
    for (std::size_t s = part.first; s < part.last; ++s) {
      const RankStage& stage = costs_.stages[s];
      backward += stage.backward;
      weight += stage.weight;
      again += stage.again;
      longest_forward = std::max(longest_forward, stage.again);
      saved += stage.inner;
      forward += stage.forward;
      if (s > part.first) inputs += costs_.stages[s - 1].output;
      made_.at_repeat = std::max(made_.at_repeat, inputs + stage.inner);
      made_.left_by_stage = std::max(made_.left_by_stage, stage.inner);
      const Bytes frees = stage.inner + (s + 1 < part.last ? stage.output : Bytes{});
      made_.repeats.push_back({frees, stage.again.value / static_cast<double>(std::max(frees, Bytes{1}).count)});
      made_.read_and_made = std::max(made_.read_and_made, stage.read_and_made);
      made_.made = std::max(made_.made, stage.made);
      // A parameter that several of its stages read has one gradient.
      if (std::ranges::none_of(stage.parameters, [&](std::uint32_t p) { return own_[p]; })) {
        gradients += stage.gradients;
      }
      for (const std::uint32_t p : stage.parameters) own_[p] = true;
    }
    saved += inputs;
    made_.forward += forward;
    made_.backward += backward;
    made_.longest_pass = std::max({made_.longest_pass, forward, backward - weight});
    made_.last_trained = trained_in(part.last - 1, part.last);
    made_.weight += weight;
    made_.again += again - longest_forward;  // the last stage of a part has just run
    made_.last_backward = std::max(made_.last_backward, backward + again);
    made_.last_weight = std::max(made_.last_weight, weight);
    made_.saved += saved;
    made_.inputs += inputs;
    made_.gradients += gradients;
    made_.least_saved = is_first ? saved : std::min(made_.least_saved, saved);
    made_.least_inputs = is_first ? inputs : std::min(made_.least_inputs, inputs);
    made_.least_gradients = is_first ? gradients : std::min(made_.least_gradients, gradients);
    const Bytes trained = trained_in(part.first, part.last);
    made_.least_trained = is_first ? trained : std::min(made_.least_trained, trained);
  }

  const RankCosts& costs_;
  std::vector<bool> own_;  // by parameter
  DeviceCosts made_;
};

}  // namespace

std::vector<DeviceCosts> device_costs(const RankCosts& costs, const Chain& cut, std::uint32_t stages,
                                      std::uint32_t chunks, PipelineShape shape) {
  const std::vector<std::size_t> first = cut_stages(cut, std::size_t{stages} * chunks, CutRule::balanced);
  OfDevice of(costs);
  std::vector<DeviceCosts> made;
  for (const std::vector<Range>& parts : placed(first, costs.stages.size(), stages, shape)) {
    made.push_back(of.of(parts));
  }
  return made;
}

}  // namespace plimsoll
