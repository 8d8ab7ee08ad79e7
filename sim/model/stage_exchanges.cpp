#include "sim/model/stage_exchanges.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"

namespace plimsoll {
namespace {

/// What is left of an exchange that began when the other thing did.
Seconds beyond(Seconds exchange, Seconds beside) {
  return std::max(exchange - beside, Seconds{0});
}

constexpr std::string_view exchanges_key = "exchanges";

std::string exact(Seconds seconds) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), seconds.value).ptr;
  return {text.data(), end};
}

/// Up to the separator, which is taken from the text too.
std::string_view next_word(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

Seconds next_seconds(std::string_view& text) {
  const std::string_view word = next_word(text, ':');
  double value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return {value};
}

/// Of an op in which a stage exchanges that, and waits so long for what is exchanged beside, each axis for its share.
std::vector<ExchangeShare> shares(const std::vector<AxisExchange>& own, const std::map<std::string, double>& of_wait,
                                  Seconds wait, Seconds wait_unsaved) {
  std::map<std::string, ExchangeShare> made;
  for (const AxisExchange& each : own) {
    ExchangeShare& share = made[each.axis];
    share.total += each.within + each.beside + each.hidden;
    share.exposed += each.within;
    share.exposed_unsaved += each.within;
  }
  for (const auto& [axis, part] : of_wait) {
    if (wait <= Seconds{0} && wait_unsaved <= Seconds{0}) break;
    made[axis].exposed += part * wait;
    made[axis].exposed_unsaved += part * wait_unsaved;
  }
  std::vector<ExchangeShare> list;
  for (auto& [axis, share] : made) {
    share.axis = axis;
    list.push_back(std::move(share));
  }
  return list;
}

/// By axis, which part it is of all that is exchanged beside.
std::map<std::string, double> parts_of_wait(std::span<const PassExchanges> stages) {
  std::map<std::string, double> parts;
  double sum = 0;
  for (const PassExchanges& each : stages) {
    for (const auto* list : {&each.forward, &each.backward}) {
      for (const AxisExchange& one : *list) {
        if (one.beside <= Seconds{0}) continue;
        parts[one.axis] += one.beside.value;
        sum += one.beside.value;
      }
    }
  }
  for (auto& [axis, part] : parts) part /= sum;
  return parts;
}

std::vector<AxisExchange> without(std::vector<AxisExchange> all, const std::vector<AxisExchange>& some) {
  for (const AxisExchange& each : some) {
    const auto found = std::ranges::find(all, each.axis, &AxisExchange::axis);
    EXPECTS(found != all.end());
    found->within = found->within - each.within;
    found->beside = found->beside - each.beside;
    found->hidden = found->hidden - each.hidden;
  }
  return all;
}

/// What is left of the second of two exchanges, which go one after the other.
Seconds beyond_both(Seconds first, Seconds second, Seconds beside) {
  return beyond(first + second, beside) - beyond(first, beside);
}

/// Gradients of weights are there when the weight's part of a split backward is over.
void wait_behind_backward(Stage& stage, Seconds wait) {
  stage.backward += wait;
  stage.backward_weight += wait;
}

void wait_before_forward(Stage& stage, Seconds kept, Seconds without) {
  stage.forward += kept;
  stage.forward_nograd += without;
}

}  // namespace

StageExchanges exchanges_beside(const Problem& problem, std::span<const std::size_t> forward,
                                std::span<const std::size_t> backward) {
  StageExchanges made;
  const auto add = [&](std::span<const std::size_t> some, Seconds& gather, Bytes& gathered) {
    for (const std::size_t o : some) {
      const Op& op = problem.graph.ops[o];
      if (!runs_beside(op) || goes_round(op)) continue;
      const bool gathers = collective_of(op)->kind == CollectiveKind::all_gather;
      (gathers ? gather : made.sum) += duration_on(problem, id_at<OpId>(o), DeviceId{0}, Saving::keep);
      (gathers ? gathered : made.gradients) += exchanged_bytes(problem.graph, op);
    }
  };
  add(forward, made.forward_gather, made.gathered_forward);
  add(backward, made.backward_gather, made.gathered_backward);
  return made;
}

bool goes_round(const Op& op) {
  const std::optional<OpCollective> exchange = collective_of(op);
  return exchange && exchange->overlaps && exchange->kind == CollectiveKind::shift;
}

PassTime pass_time(const Problem& problem, std::span<const std::size_t> ops, Saving saving) {
  struct Coming {
    Seconds there;
    std::string_view axis;
  };
  PassTime made;
  Seconds link_is_free;
  std::map<StorageId, Coming> coming;
  const Graph& graph = problem.graph;
  for (const std::size_t o : ops) {
    const Op& op = graph.ops[o];
    const bool is_shift = goes_round(op);
    if (runs_beside(op) && !is_shift) continue;
    Coming last{};
    for (const TensorId t : op.inputs) {
      const auto found = coming.find(graph[t].storage);
      if (found != coming.end() && last.there < found->second.there) last = found->second;
    }
    const Seconds time = duration_on(problem, id_at<OpId>(o), DeviceId{0}, saving);
    if (is_shift) {
      link_is_free = std::max({link_is_free, made.seconds, last.there}) + time;
      for (const TensorId t : op.outputs) coming[graph[t].storage] = {link_is_free, collective_of(op)->axis};
      continue;
    }
    if (made.seconds < last.there) {
      made.waits[std::string(last.axis)] += last.there - made.seconds;
      made.seconds = last.there;
    }
    made.seconds += time;
  }
  return made;
}

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
    stage.backward += gathers_ahead ? beyond(own.backward_gather, before) : own.backward_gather;
    const Seconds gathered_first = i > 1 && gathers_ahead ? exchanges[i - 2].backward_gather : Seconds{};
    wait_behind_backward(stage, i > 0 ? beyond_both(gathered_first, own.sum, plain[i - 1].backward) : own.sum);
    if (!is_last) add_backward_workspace(stage, exchanges[i + 1].gradients);
    if (!gathers_ahead) continue;
    const Bytes next = is_last ? own.gathered_backward : exchanges[i + 1].gathered_forward;
    stage.forward_workspace += next;
    stage.forward_nograd_workspace += next;
    if (i > 0) add_backward_workspace(stage, exchanges[i - 1].gathered_backward);
  }
}

void add_exposed_exchanges(Chain& chain, std::span<const StageExchanges> exchanges) {
  EXPECTS(exchanges.size() == chain.stages.size());
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const StageExchanges& own = exchanges[i];
    Stage& stage = chain.stages[i];
    wait_before_forward(stage, own.forward_gather, own.forward_gather);
    stage.backward += own.backward_gather;
    wait_behind_backward(stage, own.sum);
  }
}

std::vector<ExchangeShare> exchanges_within(const Op& op) {
  std::vector<ExchangeShare> found;
  std::string_view text = attribute_of(op, exchanges_key).value_or("");
  while (!text.empty()) {
    std::string_view one = next_word(text, ' ');
    ExchangeShare& share = found.emplace_back();
    share.axis = next_word(one, ':');
    share.total = next_seconds(one);
    share.exposed = next_seconds(one);
    share.exposed_unsaved = next_seconds(one);
  }
  return found;
}

void state_exchanges(Op& op, const std::vector<ExchangeShare>& shares) {
  std::erase_if(op.attributes, [](const auto& a) { return a.first == exchanges_key; });
  std::string text;
  for (const ExchangeShare& each : shares) {
    text += (text.empty() ? "" : " ") + each.axis + ":" + exact(each.total) + ":" + exact(each.exposed) + ":" +
            exact(each.exposed_unsaved);
  }
  if (!text.empty()) op.attributes.emplace_back(exchanges_key, std::move(text));
}

AxisExchange& PassExchanges::add(std::vector<AxisExchange>& list, std::string_view axis, Seconds seconds,
                                 bool is_beside) {
  auto found = std::ranges::find(list, axis, &AxisExchange::axis);
  if (found == list.end()) found = list.insert(list.end(), {.axis = std::string(axis), .within = {}, .beside = {}});
  (is_beside ? found->beside : found->within) += seconds;
  return *found;
}

PassExchanges exchanges_by_axis(const Problem& problem, std::span<const std::size_t> forward,
                                std::span<const std::size_t> backward, std::span<const std::size_t> weight) {
  PassExchanges made;
  const auto add = [&](std::span<const std::size_t> some, std::vector<AxisExchange>& list) {
    for (const std::size_t o : some) {
      const std::optional<OpCollective> exchange = collective_of(problem.graph.ops[o]);
      if (!exchange) continue;
      const Seconds seconds = duration_on(problem, id_at<OpId>(o), DeviceId{0}, Saving::keep);
      const bool is_shift = goes_round(problem.graph.ops[o]);
      AxisExchange& of_axis =
          PassExchanges::add(list, exchange->axis, is_shift ? Seconds{} : seconds, exchange->overlaps);
      if (is_shift) of_axis.hidden += seconds;
    }
    for (const auto& [axis, wait] : pass_time(problem, some, Saving::keep).waits) {
      AxisExchange& of_axis = PassExchanges::add(list, axis, wait, false);
      of_axis.hidden = std::max(of_axis.hidden - wait, Seconds{0});
    }
  };
  add(forward, made.forward);
  add(backward, made.backward);
  add(weight, made.weight);
  return made;
}

void state_exchanges(Graph& graph, const ChainGraph& index, const Chain& without_waits, const Chain& with,
                     std::span<const PassExchanges> stages) {
  EXPECTS(stages.size() == with.stages.size() && stages.size() == without_waits.stages.size());
  const std::map<std::string, double> of_wait = parts_of_wait(stages);
  const auto state = [&](OpId op, const std::vector<AxisExchange>& own, Seconds wait, Seconds wait_unsaved) {
    if (op != no_op) state_exchanges(graph.ops[op.index], shares(own, of_wait, wait, wait_unsaved));
  };
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const PassExchanges& own = stages[i];
    const Stage &before = without_waits.stages[i], &after = with.stages[i];
    state(index.forward[i], own.forward, after.forward - before.forward, after.forward_nograd - before.forward_nograd);
    Seconds wait = after.backward - before.backward;
    if (index.weight.empty()) {
      state(index.backward[i], own.backward, wait, wait);
      continue;
    }
    const Seconds of_weight = after.backward_weight - before.backward_weight;
    state(index.weight[i], own.weight, of_weight, of_weight);
    wait = wait - of_weight;
    state(index.backward[i], without(own.backward, own.weight), wait, wait);
  }
}

}  // namespace plimsoll
