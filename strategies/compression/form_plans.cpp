#include "strategies/compression/form_plans.h"

#include <algorithm>
#include <set>

#include "sim/codec/predicted_error.h"
#include "sim/core/expects.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {

FormPlans::FormPlans(const PartTask& task, const OffloadModel& model, std::span<const SavedTensor> saved,
                     const KeptForms& kept_forms, const OpModel* ops, double largest_error)
    : task_(task), model_(model), saved_(saved), kept_forms_(kept_forms), ops_(ops), largest_error_(largest_error) {
  if (ops_ == nullptr) return;
  dies_.assign(ops_->values.size(), false);
  const std::size_t turn = last_forward(*ops_);
  for (std::uint32_t v = 0; v < dies_.size(); ++v) {
    const ModelValue& value = ops_->values[v];
    value_in_[task.problem.graph[value.tensor].storage.index] = v;
    dies_[v] = can_evict(*ops_, v) && (value.readers.empty() || value.readers.back() <= turn);
  }
}

std::optional<FormPlans::Measured> FormPlans::measure(Tape tape) {
  const std::variant<Schedule, std::string> lowered =
      lower(task_.problem, task_.partition, std::span<const Tape>(&tape, 1));
  if (const std::string* why = std::get_if<std::string>(&lowered)) throw InputError(*why);
  const auto& schedule = std::get<Schedule>(lowered);
  const double error = predicted_errors(schedule, task_.problem.graph).whole;
  if (error > largest_error_) return std::nullopt;
  const Timeline timeline = simulate_event(schedule, task_.problem.platform);
  const MemoryId memory = task_.problem.platform[task_.part().device].memory;
  const Measured measured{timeline.peaks[memory.index].bytes, timeline.makespan, error};
  PlannedTape planned{std::move(tape), measured.peak, measured.makespan, std::nullopt};
  if (error > error_) {
    later_.emplace_back(error, std::move(planned));
  } else {
    pool_.add(std::move(planned));
  }
  return measured;
}

void FormPlans::allow(double error) {
  EXPECTS(error_ <= error && error <= largest_error_);
  error_ = error;
  std::erase_if(later_, [&](std::pair<double, PlannedTape>& each) {
    if (each.first > error) return false;
    pool_.add(std::move(each.second));
    return true;
  });
}

/// Runs again what the forms say, then packs what they say of what is there now; nothing where that cannot be.
std::optional<Tape> FormPlans::tape_again(const std::vector<std::uint32_t>& forms) const {
  Evicted evicted = dies_;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    if (kept_forms_[i].forms[forms[i]].again) {
      evicted[value_in_.at(task_.problem.graph[kept_forms_[i].tensor].storage.index)] = true;
    }
  }
  const std::optional<OpSequence> sequence = recompute_order(*ops_, evicted);
  return sequence ? std::optional(planned_ops(task_, *sequence).tape) : std::nullopt;
}

void FormPlans::add(const std::vector<std::uint32_t>& forms) {
  const auto [place, is_new] = tried_.try_emplace(forms);
  if (!is_new) return;
  bool again = false, packs = false;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    (kept_forms_[i].forms[forms[i]].again ? again : packs) |= forms[i] > 0;
  }
  if (!again) {
    place->second = measure(packed_tape(task_.problem.graph, model_, saved_, kept_forms_.choice(forms)));
    return;
  }
  std::optional<Tape> tape = tape_again(forms);
  if (!tape) return;
  if (packs) {
    const auto model = std::get<OffloadModel>(offload_model(task_, &*tape));
    tape = packed_tape(task_.problem.graph, model, saved_tensors(task_.problem.graph, model),
                       kept_forms_.choice_elsewhere(forms));
  }
  place->second = measure(std::move(*tape));
}

void FormPlans::add(const Tape& tape, const std::vector<std::uint32_t>& forms) {
  const auto model = std::get<OffloadModel>(offload_model(task_, &tape));
  measure(packed_tape(task_.problem.graph, model, saved_tensors(task_.problem.graph, model),
                      kept_forms_.choice_elsewhere(forms)));
}

/// By rising memory.
std::vector<std::vector<std::uint32_t>> FormPlans::front() const {
  std::vector<const Tried::value_type*> all;
  for (const Tried::value_type& each : tried_) {
    if (each.second && each.second->error <= error_) all.push_back(&each);
  }
  std::ranges::stable_sort(all, {},
                           [](const auto* each) { return std::pair(each->second->peak, each->second->makespan); });
  std::vector<std::vector<std::uint32_t>> front;
  std::optional<Seconds> fastest;
  for (const Tried::value_type* each : all) {
    if (fastest && each->second->makespan >= *fastest) continue;
    fastest = each->second->makespan;
    front.push_back(each->first);
  }
  return front;
}

void FormPlans::improve(std::size_t trials) {
  std::set<std::vector<std::uint32_t>> done;
  const std::size_t before = tried_.size();
  for (bool any = true; any;) {
    any = false;
    for (const std::vector<std::uint32_t>& forms : front()) {
      if (!done.insert(forms).second) continue;
      any = true;
      for (std::size_t i = 0; i < forms.size(); ++i) {
        std::vector<std::uint32_t> changed = forms;
        for (changed[i] = 0; changed[i] < kept_forms_[i].forms.size(); ++changed[i]) {
          if (tried_.size() >= before + trials) return;
          add(changed);
        }
      }
    }
  }
}

}  // namespace plimsoll
