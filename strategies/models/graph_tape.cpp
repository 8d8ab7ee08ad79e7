#include "strategies/models/graph_tape.h"

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"

namespace plimsoll {
namespace {

class GraphTape {
 public:
  GraphTape(const Graph& graph, const Part& part)
      : graph_(graph), part_(part), for_host_(graph.storages, false), for_device_(graph.storages, false) {
    for (const OpId op : part.ops) {
      const bool is_pinned = is_pinned_to_host(graph[op]);
      for (const TensorId t : graph[op].inputs) {
        if (per_micro_batch(graph[t].kind)) (is_pinned ? for_host_ : for_device_)[graph[t].storage.index] = true;
      }
    }
    for (const Crossing& send : part.sends) for_device_[graph[send.tensor].storage.index] = true;
  }

  Tape build() && {
    auto send = part_.sends.begin(), receive = part_.receives.begin();
    for (const OpId op : part_.ops) {
      for (; receive != part_.receives.end() && receive->op == op; ++receive) {
        tape_.actions.push_back(on_tensor(ActionKind::receive, receive->tensor));
        copy_to_host(receive->tensor);
      }
      is_pinned_to_host(graph_[op]) ? run_on_host(op) : run_on_device(op);
      for (; send != part_.sends.end() && send->op == op; ++send) {
        tape_.actions.push_back(on_tensor(ActionKind::send, send->tensor, send->peer));
      }
    }
    EXPECTS(send == part_.sends.end() && receive == part_.receives.end());
    tape_ = with_drops(graph_, std::move(tape_));
    drop_on_host();
    return std::move(tape_);
  }

 private:
  void copy_to_host(TensorId t) {
    if (for_host_[graph_[t].storage.index]) tape_.actions.push_back(along(way::device_to_host, ActionKind::copy, t));
  }

  void run_on_device(OpId op) {
    tape_.actions.push_back(run(op));
    for (const TensorId t : graph_[op].outputs) {
      if (per_micro_batch(graph_[t].kind)) copy_to_host(t);
    }
  }

  void run_on_host(OpId op) {
    tape_.actions.push_back(run_at(place::host, op));
    for (const TensorId t : graph_[op].outputs) {
      if (per_micro_batch(graph_[t].kind) && for_device_[graph_[t].storage.index]) {
        tape_.actions.push_back(along(way::host_to_device, ActionKind::copy, t));
      }
    }
  }

  /// Right after its last use there.
  void drop_on_host() {
    std::vector<bool> used_later(graph_.storages, false);
    std::vector<Action> reversed;
    const auto use = [&](TensorId t) {
      if (!per_micro_batch(graph_[t].kind) || used_later[graph_[t].storage.index]) return;
      used_later[graph_[t].storage.index] = true;
      reversed.push_back(on_copy_at(place::host, ActionKind::drop, t));
    };
    for (std::size_t a = tape_.actions.size(); a-- > 0;) {
      const Action& action = tape_.actions[a];
      const bool copies = action.kind == ActionKind::copy;
      if (copies) use(action.tensor);
      if (action.kind == ActionKind::run && action.at == place::host) {
        for (const TensorId t : graph_[action.op].outputs) use(t);
        for (const TensorId t : graph_[action.op].inputs) use(t);
      }
      reversed.push_back(action);
    }
    std::ranges::reverse(reversed);
    tape_.actions = std::move(reversed);
  }

  const Graph& graph_;
  const Part& part_;
  std::vector<bool> for_host_, for_device_;  // by storage: pinned ops of the part read it; others do, or it is sent
  Tape tape_;
};

}  // namespace

Tape graph_tape(const Graph& graph, const Part& part) {
  return GraphTape(graph, part).build();
}

}  // namespace plimsoll
