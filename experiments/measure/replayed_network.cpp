#include "experiments/measure/replayed_network.h"

#include "sim/core/slices.h"
#include "validate/networks/changed_network.h"
#include "validate/networks/network_prefix.h"
#include "validate/networks/networks.h"

namespace plimsoll {

Network replayed_network(const Problem& problem, const Schedule& schedule, const std::string& reference) {
  std::optional<Optimizers> updates;
  if (problem.index) updates = Optimizers{schedule.optimizer, schedule.parameter_groups};
  Network network = named_network(reference, updates).network;
  if (problem.mesh) return network;  // the whole one, of which ranks have shares
  const std::size_t first = first_stage_of(network, problem.graph, problem.chain ? problem.chain->stages.size() : 0);
  network = without_first_stages(network, first);
  const std::uint32_t slices = sequence_slices(problem.graph);
  if (slices > 1) network.slices = network_in_slices(reference, updates, slices);
  take_shapes(network.graph, problem.graph);
  take_updates(network.graph, problem.graph);
  return network;
}

}  // namespace plimsoll
