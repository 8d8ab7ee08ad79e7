// The part of the program that moves values to the host and back. Source: Patil et al., "POET: Training Neural Networks
// on Tiny Devices with Integrated Rematerialization and Paging", ICML 2022. Differences: a value that comes back counts
// in the stage in which it is copied; copies take time, beside the stage's runs; no constraint against recomputing.

#include "strategies/rematerialization/programs/checkmate_model.h"

namespace plimsoll {

using Terms = LinearProgram::Terms;

void CheckmateModel::add_paging_variables() {
  const std::size_t n = model_.ops.size();
  on_host_.assign(n + 1, std::vector<std::optional<std::size_t>>(model_.values.size()));
  out_ = in_ = on_host_;
  if (!paging_) return;
  for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
    const ModelValue& value = model_.values[v];
    const bool alone = model_.in_storage[value.storage].size() == 1;
    if (!value.maker || !alone || model_.storages[value.storage] == Bytes{0}) continue;
    bool left = false;  // in an earlier stage, perhaps
    for (std::size_t t = 0; t < n; ++t) {
      if (left) on_host_[t][v] = program_.variable({.cost = 0, .lower = 0, .upper = 1, .whole = true});
      if (keeps_[t][v]) {
        out_[t][v] = program_.variable({.cost = 0, .lower = 0, .upper = 1, .whole = true});
        if (left && keeps_[t + 1][v]) in_[t][v] = program_.variable({.cost = 0, .lower = 0, .upper = 1, .whole = true});
        left = true;
      }
    }
  }
}

/// What is copied must be there, on the device when the stage begins or on the host; nothing comes back beside its
/// copy.
void CheckmateModel::add_paging(std::size_t t) {
  for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
    if (out_[t][v]) program_.row({{*out_[t][v], 1}, {*keeps_[t][v], -1}}, -unbounded, 0);
    if (in_[t][v]) {
      program_.row({{*in_[t][v], 1}, {*on_host_[t][v], -1}}, -unbounded, 0);
      Terms there = available(t, v);
      there.emplace_back(*in_[t][v], 1);
      program_.row(std::move(there), -unbounded, 1);
    }
    if (on_host_[t + 1][v]) {
      Terms stays{{*on_host_[t + 1][v], 1}};
      if (on_host_[t][v]) stays.emplace_back(*on_host_[t][v], -1);
      if (out_[t][v]) stays.emplace_back(*out_[t][v], -1);
      program_.row(std::move(stays), -unbounded, 0);
    }
  }
}

/// Runs cost seconds until here. Now stages do, or energy does and the stages end before the deadline.
void CheckmateModel::add_durations() {
  if (!paging_) return;
  const bool energy = paging_->seconds_of_energy_per_byte.has_value();
  Terms all;
  for (std::size_t t = 0; t < model_.ops.size(); ++t) {
    const std::size_t duration = program_.variable({.cost = energy ? 0.0 : 1.0, .lower = 0, .upper = unbounded});
    all.emplace_back(duration, 1);
    Terms runs{{duration, -1}}, out{{duration, -1}}, in{{duration, -1}};
    const auto add_run = [&](std::size_t variable) {
      LinearProgram::Variable& run = program_.variables[variable];
      runs.emplace_back(variable, run.cost);
      if (!energy) run.cost = 0;
    };
    for (std::size_t i = 0; i <= t; ++i) {
      if (runs_[t][i]) add_run(*runs_[t][i]);
      if (saves_[t][i]) add_run(*saves_[t][i]);
      for (const std::size_t way : alternatives_[t][i]) add_run(way);
    }
    for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
      const auto bytes = static_cast<double>(model_.storages[model_.values[v].storage].count);
      const auto add_copy = [&](std::size_t variable, Terms& copies, Seconds latency, double per_byte) {
        copies.emplace_back(variable, (latency.value + per_byte * bytes) / time_unit_);
        if (energy) program_.variables[variable].cost = *paging_->seconds_of_energy_per_byte * bytes / time_unit_;
      };
      if (out_[t][v]) add_copy(*out_[t][v], out, paging_->latency_out, paging_->seconds_per_byte_out);
      if (in_[t][v]) add_copy(*in_[t][v], in, paging_->latency_in, paging_->seconds_per_byte_in);
    }
    for (Terms* terms : {&runs, &out, &in}) program_.row(std::move(*terms), -unbounded, 0);
  }
  if (paging_->deadline) program_.row(std::move(all), -unbounded, paging_->deadline->value / time_unit_);
}

std::vector<PagedIn> CheckmateModel::paged_in(const std::vector<double>& solution) const {
  std::vector<PagedIn> all;
  for (std::size_t t = 0; t < in_.size(); ++t) {
    for (std::uint32_t v = 0; v < in_[t].size(); ++v) {
      if (in_[t][v] && solution[*in_[t][v]] > 0.5) all.push_back({v, t});
    }
  }
  return all;
}

}  // namespace plimsoll
