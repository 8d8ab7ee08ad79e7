#include "strategies/rematerialization/programs/checkmate_model.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

using Terms = LinearProgram::Terms;

bool contains_value(const std::vector<std::uint32_t>& list, std::uint32_t v) {
  return std::ranges::find(list, v) != list.end();
}

Terms times(double factor, Terms terms) {
  for (auto& [variable, f] : terms) f *= factor;
  return terms;
}

void append_values(Terms& terms, const Terms& more) {
  terms.insert(terms.end(), more.begin(), more.end());
}

/// The first op that can have the value: its maker, or the first reader of an input.
std::optional<std::size_t> first_user(const ModelValue& value) {
  if (value.maker) return *value.maker;
  if (value.readers.empty()) return std::nullopt;
  return value.readers.front();
}

bool may_be_read(const OpModel& model, const ModelValue& value, std::size_t stage) {
  return std::ranges::any_of(value.readers, [&](std::uint32_t r) { return r >= stage || !model.ops[r].once; });
}

/// What gradients exist before the op runs for the first time, and what it adds.
GradientBytes gradients_at(const OpModel& model, std::size_t op) {
  GradientBytes bytes;
  for (std::size_t g = 0; g < model.gradients.size(); ++g) {
    const std::uint32_t first = model.makers_of[g].front();
    if (first < op) bytes.existing += model.gradients[g];
    if (first != op) continue;
    bytes.fresh += model.gradients[g];
    bytes.any_fresh = true;
  }
  return bytes;
}

}  // namespace

CheckmateModel::CheckmateModel(const OpModel& model, Bytes budget, Formulation formulation,
                               std::optional<Paging> paging)
    : model_(model), paging_(paging) {
  std::int64_t divisor = 0, largest = 1;
  for (const Bytes b : model.storages) {
    divisor = std::gcd(divisor, b.count);
    largest = std::max(largest, b.count);
  }
  double all = 0;
  for (const ModelOp& op : model.ops) {
    for (const OpWay& way : op.ways) divisor = std::gcd(divisor, way.workspace.count);
    for (const OpAlternative& way : op.alternatives) divisor = std::gcd(divisor, way.workspace.count);
    all += op.ways.front().time.value;
  }
  constexpr double widest = 1e5;
  const auto exact = static_cast<double>(std::max<std::int64_t>(1, divisor));
  byte_unit_ = static_cast<double>(largest) / exact <= widest ? exact : static_cast<double>(largest) / widest;
  if (all > 0) time_unit_ = all / static_cast<double>(model.ops.size());

  build(budget, formulation);
  if (!complete_) program_ = {};
}

/// Known before anything is built: every run has its memory row and a limit on it.
bool CheckmateModel::is_too_large() const {
  constexpr std::size_t nonzeros_of_a_run = 5;
  std::size_t runs = 0;
  for (std::size_t o = 0; o < model_.ops.size(); ++o) runs += model_.ops[o].once ? 1 : model_.ops.size() - o;
  return nonzeros_of_a_run * runs > most_nonzeros;
}

void CheckmateModel::build(Bytes budget, Formulation formulation) {
  if (is_too_large()) return;
  add_variables();
  add_paging_variables();
  for (std::size_t t = 0; t < model_.ops.size(); ++t) {
    add_dependencies(t);
    add_overwriting(t);
    add_memory(t, budget, formulation);
    add_paging(t);
    if (program_.nonzeros > most_nonzeros) return;
  }
  add_durations();
  complete_ = true;
}

void CheckmateModel::add_variables() {
  const std::size_t n = model_.ops.size();
  runs_.assign(n, std::vector<std::optional<std::size_t>>(n));
  saves_ = runs_;
  alternatives_.assign(n, std::vector<std::vector<std::size_t>>(n));
  keeps_.assign(n + 1, std::vector<std::optional<std::size_t>>(model_.values.size()));
  for (std::size_t t = 0; t < n; ++t) {
    for (std::size_t i = 0; i <= t; ++i) {
      const ModelOp& op = model_.ops[i];
      if (op.once && i != t) continue;
      const double cost = op.ways.back().time.value / time_unit_;
      runs_[t][i] = program_.variable({.cost = cost, .lower = i == t ? 1.0 : 0.0, .upper = 1, .whole = true});
      if (op.ways.size() > 1) {
        saves_[t][i] = program_.variable(
            {.cost = op.ways.front().time.value / time_unit_ - cost, .lower = 0, .upper = 1, .whole = true});
        program_.row({{*saves_[t][i], 1}, {*runs_[t][i], -1}}, -unbounded, 0);
      }
      add_alternatives(t, i);
    }
    for (std::size_t v = 0; v < model_.values.size(); ++v) {
      const std::optional<std::size_t> first = first_user(model_.values[v]);
      if (!first || *first >= t || !may_be_read(model_, model_.values[v], t)) continue;
      keeps_[t][v] = program_.variable({.cost = 0, .lower = 0, .upper = 1, .whole = true});
    }
  }
}

void CheckmateModel::add_alternatives(std::size_t stage, std::size_t op) {
  const std::vector<OpAlternative>& known = model_.ops[op].alternatives;
  if (known.empty()) return;
  Terms one{{saves_[stage][op] ? *saves_[stage][op] : *runs_[stage][op], -1}};
  for (const OpAlternative& way : known) {
    const double more = (way.time - model_.ops[op].ways.front().time).value / time_unit_;
    alternatives_[stage][op].push_back(program_.variable({.cost = more, .lower = 0, .upper = 1, .whole = true}));
    one.emplace_back(alternatives_[stage][op].back(), 1);
  }
  program_.row(std::move(one), -unbounded, 0);
}

Terms CheckmateModel::made(std::size_t stage, std::uint32_t v) const {
  const ModelValue& value = model_.values[v];
  const std::optional<std::size_t> maker = first_user(value);
  if (!maker || *maker > stage || !runs_[stage][*maker]) return {};
  if (!value.maker) return *maker == stage ? Terms{{*runs_[stage][stage], 1}} : Terms{};
  const bool only_saved = saves_[stage][*maker] && !contains_value(model_.ops[*maker].ways.back().makes, v);
  return {{only_saved ? *saves_[stage][*maker] : *runs_[stage][*maker], 1}};
}

Terms CheckmateModel::available(std::size_t stage, std::uint32_t v) const {
  Terms terms = made(stage, v);
  if (keeps_[stage][v]) terms.emplace_back(*keeps_[stage][v], 1);
  return terms;
}

void CheckmateModel::add_dependencies(std::size_t t) {
  for (std::size_t j = 0; j <= t; ++j) {
    if (!runs_[t][j]) continue;
    for (const std::uint32_t v : model_.ops[j].reads) {
      Terms terms = times(-1, available(t, v));
      terms.emplace_back(*runs_[t][j], 1);
      program_.row(std::move(terms), -unbounded, 0);
    }
  }
}

/// The op that overwrites the value with one of its own outputs, if one does.
std::optional<std::size_t> CheckmateModel::overwriter(std::uint32_t v) const {
  for (const std::uint32_t reader : model_.values[v].readers) {
    if (contains_value(model_.ops[reader].ways.front().clears, v)) return reader;
  }
  return std::nullopt;
}

/// Whether what the op makes takes the place of something it reads.
bool CheckmateModel::replaces_input(std::size_t op, std::uint32_t v) const {
  return std::ranges::any_of(model_.ops[op].reads, [&](std::uint32_t read) {
    return model_.values[read].storage == model_.values[v].storage &&
           contains_value(model_.ops[op].ways.front().clears, read);
  });
}

void CheckmateModel::add_overwriting(std::size_t t) {
  for (std::size_t o = 0; o <= t; ++o) {
    if (!runs_[t][o]) continue;
    for (const std::uint32_t v : model_.ops[o].ways.front().clears) {
      const std::optional<std::size_t> made_at = first_user(model_.values[v]);
      if (!made_at) continue;
      const std::optional<std::size_t> kept = *made_at < o ? keeps_[t + 1][v] : keeps_[t][v];
      if (kept) program_.row({{*kept, 1}, {*runs_[t][o], 1}}, -unbounded, 1);
    }
  }
}

void CheckmateModel::add_memory(std::size_t t, Bytes budget, Formulation formulation) {
  Terms start;
  std::vector<Terms> freed(t + 1);
  for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
    const double size = scaled(model_.storages[model_.values[v].storage]);
    if (keeps_[t][v] && size > 0) start.emplace_back(*keeps_[t][v], size);
    if (in_[t][v]) start.emplace_back(*in_[t][v], size);
    if (keeps_[t + 1][v]) {
      Terms carry = times(-1, available(t, v));
      if (in_[t][v]) carry.emplace_back(*in_[t][v], -1);
      carry.emplace_back(*keeps_[t + 1][v], 1);
      program_.row(std::move(carry), -unbounded, 0);
    }
    if (size > 0) add_free(t, v, freed, formulation);
  }
  const GradientBytes gradients = gradients_at(model_, t);
  const Bytes before = model_.repeats ? model_.all_gradients : gradients.existing;
  Terms change = std::move(start);  // since the last row
  std::optional<std::size_t> used;
  for (std::size_t k = 0; k <= t; ++k) {
    if (!runs_[t][k]) continue;
    const ModelOp& op = model_.ops[k];
    for (const std::uint32_t v : op.ways.front().makes) {
      if (!replaces_input(k, v))
        append_values(change, times(scaled(model_.storages[model_.values[v].storage]), made(t, v)));
    }
    for (const std::uint32_t v : op.reads) {
      const bool loaded = !model_.values[v].maker && k == t;
      if (loaded) append_values(change, times(scaled(model_.storages[model_.values[v].storage]), made(t, v)));
    }
    const std::size_t now = program_.variable({.cost = 0, .lower = 0, .upper = unbounded, .whole = false});
    if (used) change.emplace_back(*used, 1);
    change.emplace_back(now, -1);
    program_.row(std::move(change), 0, 0);

    Terms limited{{now, 1}};
    Bytes beside = before;
    if (op.makes_gradient) {
      beside = beside_values(model_, op, op.ways.front(), gradients);
    } else {
      limited.emplace_back(*runs_[t][k], scaled(op.ways.back().workspace));
      if (saves_[t][k]) {
        limited.emplace_back(*saves_[t][k], scaled(op.ways.front().workspace) - scaled(op.ways.back().workspace));
      }
    }
    for (std::size_t a = 0; a < op.alternatives.size(); ++a) {
      const Bytes more = op.makes_gradient ? beside_values(model_, op, op.alternatives[a], gradients) - beside
                                           : op.alternatives[a].workspace - op.ways.front().workspace;
      limited.emplace_back(alternatives_[t][k][a], scaled(more));
    }
    limited_.emplace_back(program_.row(std::move(limited), -unbounded, scaled(budget - model_.resident - beside)),
                          beside);
    used = now;
    change = times(-1, freed[k]);
  }
}

void CheckmateModel::add_free(std::size_t t, std::uint32_t v, std::vector<Terms>& freed, Formulation formulation) {
  const ModelValue& value = model_.values[v];
  const double size = scaled(model_.storages[value.storage]);
  std::vector<std::size_t> users;  // after which it may die; after op t it no longer matters
  if (value.maker && !made(t, v).empty()) users.push_back(*value.maker);
  for (const std::uint32_t reader : value.readers) {
    if (reader < t && runs_[t][reader] && reader != overwriter(v)) users.push_back(reader);
  }
  if (!users.empty() && users.front() >= t) users.clear();
  Terms all = times(-1, available(t, v));
  for (const std::size_t k : users) {
    const std::size_t free =
        program_.variable({.cost = 0, .lower = 0, .upper = 1, .whole = formulation == Formulation::kappa});
    freed[k].emplace_back(free, size);
    all.emplace_back(free, 1);
    if (out_[t][v]) program_.row({{free, 1}, {*out_[t][v], 1}}, -unbounded, 1);
    add_hazards(t, v, k, free, formulation);
  }
  if (users.empty() || formulation == Formulation::kappa) return;
  if (in_[t][v]) {  // what stays may have come back instead
    program_.row(all, -unbounded, 0);
    all.emplace_back(*in_[t][v], -1);
  }
  if (keeps_[t + 1][v]) all.emplace_back(*keeps_[t + 1][v], 1);
  const std::optional<std::size_t> overwritten = overwriter(v);
  if (overwritten && *overwritten <= t && runs_[t][*overwritten]) all.emplace_back(*runs_[t][*overwritten], 1);
  program_.row(std::move(all), -unbounded, 0);
}

void CheckmateModel::add_hazards(std::size_t t, std::uint32_t v, std::size_t op, std::size_t free,
                                 Formulation formulation) {
  Terms hazards;
  for (const std::uint32_t reader : model_.values[v].readers) {
    if (reader > op && reader <= t && runs_[t][reader]) hazards.emplace_back(*runs_[t][reader], 1);
  }
  if (formulation == Formulation::tight) {
    for (const auto& [variable, factor] : hazards) program_.row({{free, 1}, {variable, 1}}, -unbounded, 1);
    return;
  }
  if (keeps_[t + 1][v]) hazards.emplace_back(*keeps_[t + 1][v], 1);
  const double kappa = 1 + static_cast<double>(hazards.size());
  append_values(hazards, op == model_.values[v].maker ? times(-1, made(t, v)) : Terms{{*runs_[t][op], -1}});
  Terms most = hazards;
  hazards.emplace_back(free, 1);
  program_.row(std::move(hazards), 0, unbounded);
  most.emplace_back(free, kappa);
  program_.row(std::move(most), -unbounded, kappa - 1);
}

std::vector<std::pair<std::size_t, double>> CheckmateModel::limits(Bytes budget) const {
  std::vector<std::pair<std::size_t, double>> uppers;
  for (const auto& [row, beside] : limited_) uppers.emplace_back(row, scaled(budget - model_.resident - beside));
  return uppers;
}

OpSequence CheckmateModel::plan(const std::vector<double>& solution) const {
  OpSequence sequence;
  for (std::size_t t = 0; t < runs_.size(); ++t) {
    for (std::size_t i = 0; i <= t; ++i) {
      if (!runs_[t][i] || solution[*runs_[t][i]] < 0.5) continue;
      const bool nothing = saves_[t][i] && solution[*saves_[t][i]] < 0.5;
      OpRun run{model_.ops[i].id, nothing ? Saving::nothing : Saving::keep};
      for (std::size_t a = 0; a < alternatives_[t][i].size(); ++a) {
        if (solution[alternatives_[t][i][a]] > 0.5) run.implementation = model_.ops[i].alternatives[a].implementation;
      }
      sequence.push_back(run);
    }
  }
  return sequence;
}

std::vector<std::vector<double>> CheckmateModel::kept(const std::vector<double>& solution) const {
  std::vector<std::vector<double>> kept(keeps_.size(), std::vector<double>(model_.values.size(), 0));
  for (std::size_t t = 0; t < keeps_.size(); ++t) {
    for (std::size_t v = 0; v < model_.values.size(); ++v) {
      if (keeps_[t][v]) kept[t][v] = solution[*keeps_[t][v]];
    }
  }
  return kept;
}

std::optional<std::vector<double>> CheckmateModel::solution(const OpSequence& sequence) const {
  std::unordered_map<std::uint32_t, std::size_t> number;
  for (std::size_t o = 0; o < model_.ops.size(); ++o) number[model_.ops[o].id.index] = o;
  std::vector<double> solution(program_.variables.size(), 0);
  std::size_t t = 0;
  for (const OpRun& run : sequence) {
    const std::size_t o = number.at(run.op.index);
    if (t == runs_.size() || o > t || !runs_[t][o]) return std::nullopt;
    solution[*runs_[t][o]] = 1;
    if (saves_[t][o] && run.saving == Saving::keep) solution[*saves_[t][o]] = 1;
    if (run.implementation > 0) solution[alternatives_[t][o][run.implementation - 1]] = 1;
    if (o == t) ++t;
  }
  std::vector<bool> needed(model_.values.size(), false);
  for (t = runs_.size(); t-- > 0;) {
    for (std::size_t v = 0; v < needed.size(); ++v) {
      if (!needed[v]) continue;
      if (!keeps_[t + 1][v]) return std::nullopt;
      solution[*keeps_[t + 1][v]] = 1;
    }
    for (std::size_t o = t + 1; o-- > 0;) {
      if (!runs_[t][o] || solution[*runs_[t][o]] == 0) continue;
      const bool nothing = saves_[t][o] && solution[*saves_[t][o]] == 0;
      const OpWay& way = nothing ? model_.ops[o].ways.back() : model_.ops[o].ways.front();
      for (const std::uint32_t v : way.makes) needed[v] = false;
      for (const std::uint32_t v : model_.ops[o].reads) needed[v] = true;
    }
    for (std::uint32_t v = 0; v < needed.size(); ++v) {  // loaded in this stage
      if (!model_.values[v].maker && first_user(model_.values[v]) == t) needed[v] = false;
    }
  }
  return solution;
}

// The part of the program that moves values to the host and back. Source: Patil et al., "POET: Training Neural Networks
// on Tiny Devices with Integrated Rematerialization and Paging", ICML 2022. Differences: a value that comes back counts
// in the stage in which it is copied; copies take time, beside the stage's runs; no constraint against recomputing.

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
