#include "strategies/placement/placed_parts.h"

#include <algorithm>

#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"
#include "strategies/models/graph_tape.h"

namespace plimsoll {
namespace {

class PartitionOfPlacement {
 public:
  PartitionOfPlacement(const Problem& problem, const GraphDag& graph, std::span<const std::uint32_t> on,
                       const Emulation& emulated)
      : problem_(problem),
        graph_(graph),
        on_(on.begin(), on.end()),
        emulated_(emulated),
        order_(emulated.order),
        part_of_(emulated.order.size()),
        position_(graph.dag.size) {
    if (graph.has_host) issue_host_ops();
  }

  Partition build() && {
    for (std::uint32_t p = 0; p < order_.size(); ++p) {
      if (order_[p].empty()) continue;
      part_of_[p] = id_at<PartId>(made_.parts.size());
      Part& part = made_.parts.emplace_back();
      part.device = DeviceId{p};
      for (const std::uint32_t v : order_[p]) {
        position_[v] = static_cast<std::uint32_t>(part.ops.size());
        part.ops.push_back(graph_.op[v]);
      }
    }
    find_exchanges();
    made_.order.resize(problem_.platform.devices.size());
    for (std::uint32_t m = 0; m < problem_.micro_batches; ++m) {
      for (std::uint32_t p = 0; p < made_.parts.size(); ++p) {
        made_.order[made_.parts[p].device.index].push_back({PartId{p}, m});
      }
    }
    return std::move(made_);
  }

 private:
  /// A value goes once to each processor that reads it.
  struct Transfer {
    std::uint32_t value = 0, from = 0, to = 0, reader = 0;  // reader: the first there
  };

  void issue_host_ops() {
    const auto host = static_cast<std::uint32_t>(order_.size() - 1);
    std::vector<std::int64_t> exchanged(host, 0);
    for (const std::uint32_t v : order_[host]) {
      for (const auto& edges : {graph_.dag.in[v], graph_.dag.out[v]}) {
        for (const DagEdge& edge : edges) {
          if (on_[edge.node] != host) exchanged[on_[edge.node]] += 1 + edge.bytes;
        }
      }
    }
    const auto by = static_cast<std::uint32_t>(std::ranges::max_element(exchanged) - exchanged.begin());
    order_[by] = merged(order_[by], order_[host]);
    order_[host].clear();
    for (std::uint32_t& p : on_) p = p == host ? by : p;
  }

  /// Two processors' orders as one, by when ops start; none before what it reads.
  std::vector<std::uint32_t> merged(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) const {
    std::vector<std::uint32_t> all;
    std::vector<bool> is_waiting(graph_.dag.size, false);
    for (const std::uint32_t v : a) is_waiting[v] = true;
    for (const std::uint32_t v : b) is_waiting[v] = true;
    const auto waits = [&](std::uint32_t v) {
      return std::ranges::any_of(graph_.dag.in[v], [&](const DagEdge& edge) { return is_waiting[edge.node]; });
    };
    while (!a.empty() || !b.empty()) {
      const bool first =
          b.empty() || (!a.empty() && (emulated_.start[a.front()] <= emulated_.start[b.front()] ? !waits(a.front())
                                                                                                : waits(b.front())));
      std::span<const std::uint32_t>& from = first ? a : b;
      is_waiting[from.front()] = false;
      all.push_back(from.front());
      from = from.subspan(1);
    }
    return all;
  }

  void find_exchanges() {
    const OpDag& dag = graph_.dag;
    std::vector<std::vector<Transfer>> sent(dag.size), received(dag.size);
    std::vector<Transfer> here;
    for (std::uint32_t value = 0; value < dag.values.size(); ++value) {
      const DagValue& each = dag.values[value];
      if (each.maker == no_node) continue;
      here.clear();
      for (const std::uint32_t reader : each.readers) {
        if (on_[reader] == on_[each.maker]) continue;
        const auto same = [&](const Transfer& t) { return t.to == on_[reader]; };
        const auto found = std::ranges::find_if(here, same);
        if (found == here.end()) {
          here.push_back({value, on_[each.maker], on_[reader], reader});
        } else if (position_[reader] < position_[found->reader]) {
          found->reader = reader;
        }
      }
      for (const Transfer& transfer : here) {
        sent[each.maker].push_back(transfer);
        received[transfer.reader].push_back(transfer);
      }
    }
    // What is wanted first is sent first.
    const auto wanted = [&](const Transfer& t) { return emulated_.start[t.reader]; };
    for (std::vector<Transfer>& transfers : sent) std::ranges::stable_sort(transfers, {}, wanted);
    for (std::uint32_t p = 0; p < order_.size(); ++p) {
      if (order_[p].empty()) continue;
      Part& part = made_.parts[part_of_[p].index];
      for (const std::uint32_t v : order_[p]) {
        for (const Transfer& t : received[v]) {
          part.receives.push_back({graph_.op[v], graph_.tensor[t.value], part_of_[t.from]});
        }
        for (const Transfer& t : sent[v]) {
          part.sends.push_back({graph_.op[v], graph_.tensor[t.value], part_of_[t.to]});
        }
      }
    }
  }

  const Problem& problem_;
  const GraphDag& graph_;
  std::vector<std::uint32_t> on_;  // by node: processor
  const Emulation& emulated_;
  std::vector<std::vector<std::uint32_t>> order_;  // by processor: nodes
  std::vector<PartId> part_of_;                    // by processor
  std::vector<std::uint32_t> position_;            // by node: in its processor's order
  Partition made_;
};

}  // namespace

Partition placed_parts(const Problem& problem, const GraphDag& graph, std::span<const std::uint32_t> on,
                       const Emulation& emulated) {
  return PartitionOfPlacement(problem, graph, on, emulated).build();
}

PlainRun plain_run(const Problem& problem, const Partition& partition) {
  std::vector<Tape> tapes;
  for (const Part& part : partition.parts) tapes.push_back(graph_tape(problem.graph, part));
  const std::variant<Schedule, std::string> lowered = lower(problem, partition, tapes);
  if (const std::string* why = std::get_if<std::string>(&lowered)) throw InputError(*why);
  const Timeline timeline = simulate_event(std::get<Schedule>(lowered), problem.platform);
  PlainRun run{timeline.makespan, {}};
  for (const Device& device : problem.platform.devices) run.peaks.push_back(timeline.peaks[device.memory.index].bytes);
  return run;
}

}  // namespace plimsoll
