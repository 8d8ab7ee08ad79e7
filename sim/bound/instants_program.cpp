#include "sim/bound/instants_program.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/core/tolerance.h"

namespace plimsoll {
namespace {

/// More than the rounding of a quotient of bytes that is a whole number.
constexpr double whole_bytes = model_tolerance;

/// Whether all that the op makes is there after each of its runs.
bool makes_all(const SnapshotModel& model, std::uint32_t op) {
  return model.ops[op].is_there && !model.ops[op].saves;
}

}  // namespace

std::vector<OpId> heaviest_path(const SnapshotModel& model, std::span<const double> weights) {
  std::vector<double> sum(model.ops.size(), 0);
  std::vector<std::uint32_t> before(model.ops.size(), 0);
  std::uint32_t last = 0;
  for (std::uint32_t o = 0; o < model.ops.size(); ++o) {
    before[o] = o;
    for (const std::uint32_t earlier : model.ops[o].after) {
      if (sum[earlier] <= sum[o]) continue;
      sum[o] = sum[earlier];
      before[o] = earlier;
    }
    if (makes_all(model, o)) sum[o] += weights[o];
    if (sum[o] > sum[last]) last = o;
  }
  std::vector<OpId> path;
  for (std::uint32_t o = last;; o = before[o]) {
    if (makes_all(model, o)) path.push_back({o});
    if (before[o] == o) break;
  }
  std::ranges::reverse(path);
  return path;
}

InstantsProgram::InstantsProgram(const SnapshotModel& model, std::span<const OpId> ops) : model_(model) {
  for (const OpId op : ops) instants_.push_back(instant_at(model, op));
  std::int64_t divisor = 0, largest = 1;
  for (const SnapshotValue& value : model.values) {
    divisor = std::gcd(divisor, value.bytes.count);
    largest = std::max(largest, value.bytes.count);
  }
  constexpr double widest = 1e5;
  const auto exact = static_cast<double>(std::max<std::int64_t>(1, divisor));
  byte_unit_ = std::max(exact, static_cast<double>(largest) / widest);
  double all = 0, some = 0;
  for (const SnapshotOp& op : model.ops) {
    all += op.again.value;
    some += op.again > Seconds{0} ? 1 : 0;
  }
  if (all > 0) time_unit_ = all / some;
  for (std::uint32_t o = 0; o < model.ops.size(); ++o) once_ += has_values(o) ? model.ops[o].again.value : 0;
  add_variables();
  add_runs();
  add_reads();
  add_memory();
}

bool InstantsProgram::has_values(std::uint32_t op) const {
  return !model_.ops[op].reads.empty() || !model_.ops[op].makes.empty();
}

void InstantsProgram::add_variables() {
  const std::size_t intervals = instants_.size() + 1;
  runs_.assign(intervals, std::vector<std::optional<std::size_t>>(model_.ops.size()));
  loads_.assign(intervals, std::vector<std::optional<std::size_t>>(model_.values.size()));
  there_.assign(intervals, std::vector<std::optional<std::size_t>>(model_.values.size()));
  const auto side = [&](std::size_t instant, std::uint32_t op) { return instants_[instant].side[op]; };
  for (std::size_t j = 0; j < intervals; ++j) {
    for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
      const SnapshotOp& op = model_.ops[o];
      if (!has_values(o)) continue;
      // Before instant j + 1 neither its op nor one that needs it has run.
      const bool may = j == instants_.size() || (side(j, o) != Side::after && side(j, o) != Side::itself);
      const bool has_run = j > 0 && (side(j - 1, o) == Side::before);
      if (!may || (has_run && op.once)) continue;
      const bool must = j > 0 && side(j - 1, o) == Side::itself;
      runs_[j][o] = program_.variable(
          {.cost = op.again.value / time_unit_, .lower = must ? 1.0 : 0.0, .upper = 1, .whole = true});
    }
    for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
      const SnapshotValue& value = model_.values[v];
      if (value.readers.empty()) continue;
      if (!value.maker) loads_[j][v] = program_.variable({.cost = 0, .lower = 0, .upper = 1, .whole = true});
      if (j == 0) continue;
      const auto has_begun = [&](std::uint32_t o) {
        return side(j - 1, o) != Side::after && side(j - 1, o) != Side::itself;
      };
      if (value.maker && !has_begun(*value.maker)) continue;
      const auto may_read = [&](std::uint32_t r) {
        const auto later = [&](std::size_t k) { return runs_[k][r].has_value(); };
        if (side(j - 1, r) != Side::before) return true;
        return !model_.ops[r].once || later(j);
      };
      if (std::ranges::none_of(value.readers, may_read)) continue;
      // What the instant's op reads is there; its first run needs no variable for that.
      const std::vector<std::uint32_t>& reads = model_.ops[instants_[j - 1].op.index].reads;
      const bool is_read = std::ranges::find(reads, v) != reads.end();
      there_[j][v] = program_.variable({.cost = 0, .lower = is_read ? 1.0 : 0.0, .upper = 1, .whole = true});
    }
  }
}

std::optional<std::size_t> InstantsProgram::made(std::size_t interval, std::uint32_t v) const {
  const std::optional<std::uint32_t> maker = model_.values[v].maker;
  return maker ? runs_[interval][*maker] : loads_[interval][v];
}

/// Each op once at least, and before each instant that needs it.
void InstantsProgram::add_runs() {
  for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
    LinearProgram::Terms sum;
    for (std::size_t j = 0; j < runs_.size(); ++j) {
      if (j > 0 && instants_[j - 1].side[o] == Side::before && (j == 1 || instants_[j - 2].side[o] != Side::before)) {
        program_.row(sum, 1, unbounded);
      }
      if (runs_[j][o]) sum.emplace_back(*runs_[j][o], 1.0);
    }
    if (sum.empty()) continue;
    program_.row(sum, 1, model_.ops[o].once ? 1 : unbounded);
  }
  for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
    LinearProgram::Terms sum;
    for (std::size_t j = 0; j < loads_.size(); ++j) {
      if (loads_[j][v]) sum.emplace_back(*loads_[j][v], 1.0);
    }
    if (!sum.empty()) program_.row(sum, -unbounded, 1);
  }
}

/// Who runs in an interval finds what it reads: there at its begin, or made in it. What is there at an instant was
/// there at the one before, or was made between.
void InstantsProgram::add_reads() {
  for (std::size_t j = 0; j < runs_.size(); ++j) {
    for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
      if (!runs_[j][o]) continue;
      const bool at_its_begin = j > 0 && instants_[j - 1].side[o] == Side::itself;
      if (at_its_begin) continue;
      for (const std::uint32_t v : model_.ops[o].reads) {
        LinearProgram::Terms terms{{*runs_[j][o], 1.0}};
        if (there_[j][v]) terms.emplace_back(*there_[j][v], -1.0);
        if (const auto making = made(j, v)) terms.emplace_back(*making, -1.0);
        program_.row(std::move(terms), -unbounded, 0);
      }
    }
    if (j == 0) continue;
    for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
      if (!there_[j][v]) continue;
      LinearProgram::Terms terms{{*there_[j][v], 1.0}};
      if (there_[j - 1][v]) terms.emplace_back(*there_[j - 1][v], -1.0);
      if (const auto making = made(j - 1, v)) terms.emplace_back(*making, -1.0);
      program_.row(std::move(terms), -unbounded, 0);
    }
  }
}

void InstantsProgram::add_memory() {
  for (std::size_t j = 1; j < runs_.size(); ++j) {
    LinearProgram::Terms terms;
    for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
      if (!there_[j][v] || instants_[j - 1].counted[v]) continue;
      const double bytes = static_cast<double>(model_.values[v].bytes.count) / byte_unit_;
      terms.emplace_back(*there_[j][v], std::floor(bytes + whole_bytes));
    }
    limited_.emplace_back(program_.row(std::move(terms), -unbounded, unbounded), instants_[j - 1].bytes);
  }
}

/// Each interval's op first, then what runs for the first time in the given order, each behind what it needs anew, then
/// what runs again for later intervals. Ops that read and make no values run in the last interval, or before what waits
/// for them.
std::vector<std::uint32_t> InstantsProgram::order_of(const std::vector<double>& values) const {
  const auto is_set = [&](const std::optional<std::size_t>& variable) { return variable && values[*variable] > 0.5; };
  std::vector<bool> has_run(model_.ops.size(), false);
  std::vector<std::uint32_t> order;
  for (std::size_t j = 0; j < runs_.size(); ++j) {
    std::vector<bool> left(model_.ops.size(), false);
    for (std::uint32_t o = 0; o < left.size(); ++o) {
      left[o] = has_values(o) ? is_set(runs_[j][o]) : !has_run[o] && j + 1 == runs_.size();
    }
    const auto run = [&](std::uint32_t op) {
      std::vector<std::pair<std::uint32_t, std::size_t>> open{{op, 0}};
      left[op] = false;
      while (!open.empty()) {
        auto& [o, next] = open.back();
        const std::vector<std::uint32_t>&reads = model_.ops[o].reads, &after = model_.ops[o].after;
        if (next == reads.size() + after.size()) {
          order.push_back(o);
          has_run[o] = true;
          open.pop_back();
          continue;
        }
        std::optional<std::uint32_t> first;
        if (next < reads.size()) {
          const std::optional<std::uint32_t> maker = model_.values[reads[next]].maker;
          if (maker && left[*maker] && !is_set(there_[j][reads[next]])) first = maker;
        } else if (const std::uint32_t earlier = after[next - reads.size()]; !has_run[earlier]) {
          if (left[earlier] || !has_values(earlier)) first = earlier;
        }
        ++next;
        if (!first) continue;
        left[*first] = false;
        open.emplace_back(*first, 0);
      }
    };
    if (j > 0) run(instants_[j - 1].op.index);
    for (const bool again : {false, true}) {
      for (std::uint32_t o = 0; o < left.size(); ++o) {
        if (left[o] && (again || !has_run[o])) run(o);
      }
    }
  }
  return order;
}

std::optional<LinearProgram> InstantsProgram::within(Bytes budget, Seconds known) const {
  LinearProgram program = program_;
  for (const auto& [row, beside] : limited_) {
    const double room = static_cast<double>((budget - beside).count) / byte_unit_;
    if (room < 0) return std::nullopt;
    program.rows[row].upper = std::floor(room + whole_bytes);
  }
  if (!std::isfinite(known.value)) return program;
  LinearProgram::Terms cost;
  for (std::size_t v = 0; v < program.variables.size(); ++v) {
    if (program.variables[v].cost > 0) cost.emplace_back(v, program.variables[v].cost);
  }
  program.row(std::move(cost), -unbounded, (known.value + once_) / time_unit_);
  return program;
}

Seconds InstantsProgram::extra(double cost) const {
  return Seconds{std::max(0.0, cost * time_unit_ - once_)};
}

}  // namespace plimsoll
