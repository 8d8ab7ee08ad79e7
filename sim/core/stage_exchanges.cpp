#include "sim/core/stage_exchanges.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// What is left of an exchange that began when the other thing did.
Seconds beyond(Seconds exchange, Seconds beside) {
  return std::max(exchange - beside, Seconds{0});
}

void wait_before_forward(Stage& stage, Seconds kept, Seconds without) {
  stage.forward += kept;
  stage.forward_nograd += without;
}

}  // namespace

void add_backward_workspace(Stage& stage, Bytes more) {
  stage.backward_workspace += more;
  stage.backward_accumulate_workspace += more;
  for (auto* space : {&stage.backward_released_workspace, &stage.backward_accumulate_released_workspace,
                      &stage.backward_input_workspace, &stage.backward_weight_workspace,
                      &stage.backward_weight_accumulate_workspace}) {
    if (*space) **space += more;
  }
}

void add_exchanges(Chain& chain, std::span<const StageExchanges> exchanges, bool gathers_ahead) {
  EXPECTS(exchanges.size() == chain.stages.size());
  const std::vector<Stage> plain = chain.stages;
  const std::size_t count = plain.size();
  const auto sum_of = [&](std::size_t i) { return i < count ? exchanges[i].sum : Seconds{}; };
  for (std::size_t i = 0; i < count; ++i) {
    const StageExchanges& own = exchanges[i];
    Stage& stage = chain.stages[i];
    if (i > 0 && gathers_ahead) {
      wait_before_forward(stage, beyond(own.forward_gather, plain[i - 1].forward),
                          beyond(own.forward_gather, plain[i - 1].forward_nograd));
    } else {
      wait_before_forward(stage, own.forward_gather, own.forward_gather);
    }
    const bool is_last = i + 1 == count;
    const Seconds before = is_last ? plain[i].forward : plain[i + 1].backward;
    if (gathers_ahead) {
      stage.backward += beyond(own.backward_gather + sum_of(i + 2), before);
    } else {
      stage.backward += own.backward_gather + beyond(sum_of(i + 2), before);
    }
    if (i == 0) {
      const Seconds rest = own.sum + beyond(sum_of(1), plain[0].backward);
      stage.backward += rest;
      stage.backward_weight += rest;
    }
    if (!is_last) add_backward_workspace(stage, exchanges[i + 1].gradients);
    if (!gathers_ahead) continue;
    const Bytes next = is_last ? own.gathered_backward : exchanges[i + 1].gathered_forward;
    stage.forward_workspace += next;
    stage.forward_nograd_workspace += next;
    if (i > 0) add_backward_workspace(stage, exchanges[i - 1].gathered_backward);
  }
}

}  // namespace plimsoll
