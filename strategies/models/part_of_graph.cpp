#include "strategies/models/part_alone.h"

#include <utility>

#include "sim/core/expects.h"
#include "strategies/models/part_copy.h"

namespace plimsoll {
namespace {

class GraphPartBuilder {
 public:
  explicit GraphPartBuilder(const PartTask& task)
      : part_(task.part()), graph_(task.problem.graph), copy_(task, made_) {}

  PartAlone build() && {
    auto send = part_.sends.begin(), receive = part_.receives.begin();
    for (const OpId op : part_.ops) {
      for (; receive != part_.receives.end() && receive->op == op; ++receive) {
        add_transfer(*receive, ActionKind::receive, {}, {copy_.tensor(receive->tensor)});
      }
      copy_.add(copy_.copied(op), op);
      for (; send != part_.sends.end() && send->op == op; ++send) {
        add_transfer(*send, ActionKind::send, {copy_.tensor(send->tensor)}, {copy_.order_token("(sent)")});
      }
    }
    for (const OpId update : copy_.own_updates()) copy_.add(copy_.copied(update), update);
    made_.stands_for.resize(made_.op_of.size());
    copy_.add_partition();
    return std::move(made_);
  }

 private:
  void add_transfer(const Crossing& exchange, ActionKind kind, std::vector<TensorId> inputs,
                    std::vector<TensorId> outputs) {
    Op op;
    op.name = kind == ActionKind::send ? "(send)" : "(receive)";
    op.kind = kind_of_transfer;
    op.phase = graph_[exchange.op].phase;
    op.stage = graph_[exchange.op].stage;
    op.duration = Seconds{0};
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.recomputable = false;
    const OpId here = copy_.add(std::move(op), no_op);
    made_.stands_for.resize(made_.op_of.size());
    made_.stands_for[here.index] =
        on_tensor(kind, exchange.tensor, kind == ActionKind::send ? exchange.peer : PartId{});
  }

  const Part& part_;
  const Graph& graph_;
  PartAlone made_;
  PartCopy copy_;
};

}  // namespace

PartAlone graph_part_alone(const PartTask& task) {
  return GraphPartBuilder(task).build();
}

Tape tape_with_exchanges(const PartAlone& alone, const Tape& tape) {
  Tape made;
  made.codecs = tape.codecs;
  for (const Home& home : tape.homes) made.homes.push_back({alone.tensor_of[home.tensor.index], home.memories});
  const auto add_to = [&](std::vector<Action>& actions, Action action) {
    if (action.kind == ActionKind::run) {
      if (const std::optional<Action>& transfer = alone.stands_for[action.op.index]) {
        actions.push_back(*transfer);
        return;
      }
      action.op = alone.op_of[action.op.index];
      EXPECTS(action.op != no_op);
    } else {
      action.tensor = alone.tensor_of[action.tensor.index];
      if (action.tensor == no_tensor) return;
    }
    actions.push_back(action);
  };
  for (const Action& action : tape.actions) add_to(made.actions, action);
  for (const Action& action : tape.end) add_to(made.end, action);
  return made;
}

}  // namespace plimsoll
