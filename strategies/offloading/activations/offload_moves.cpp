#include "strategies/offloading/activations/offload_moves.h"

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"

namespace plimsoll {

std::vector<OffloadItem> offload_items(const OffloadModel& model, std::uint32_t chunks) {
  std::vector<OffloadItem> items;
  for (std::uint32_t g = 0; g < model.gaps.size(); ++g) {
    if (!model.gaps[g].holds_positions()) continue;
    const Bytes bytes = model.gaps[g].bytes, value = model.gaps[g].value_bytes;
    const std::uint32_t count = bytes.count >= chunks ? chunks : 1;
    for (std::uint32_t c = 0; c < count; ++c) {
      const Chunk chunk{c, count};
      const ChunkRange range = range_of(value, chunk);
      items.push_back({g, chunk, packed_share(bytes, value, range.offset, range.length)});
    }
  }
  return items;
}

Tape offload_tape(const OffloadModel& model, std::span<const OffloadMove> moves) {
  std::vector<std::vector<Action>> before(model.positions()), prefetches = before, after = before;
  const Way out{place::device, model.store}, back{model.store, place::device};
  const auto travels = [&](Way way, ActionKind kind, const OffloadMove& move) {
    const OffloadGap& gap = model.gaps[move.item.gap];
    return in_form(gap.form, along(way, kind, gap.tensor, move.item.chunk));
  };
  const auto stays = [&](MemoryId at, ActionKind kind, const OffloadMove& move) {
    const OffloadGap& gap = model.gaps[move.item.gap];
    return in_form(gap.form, on_copy_at(at, kind, gap.tensor, move.item.chunk));
  };
  std::vector<OffloadMove> returning(moves.begin(), moves.end());
  std::ranges::stable_sort(returning, {}, [&](const OffloadMove& move) { return model.gaps[move.item.gap].until; });
  for (const OffloadMove& move : moves) {
    const OffloadGap& gap = model.gaps[move.item.gap];
    EXPECTS(gap.made <= move.issue && move.issue < move.gone && gap.from < move.gone);
    EXPECTS(move.gone <= move.back && move.back <= gap.until);
    after[move.issue].push_back(travels(out, ActionKind::copy, move));
    before[move.gone].push_back(stays(model.store, ActionKind::wait, move));
    if (move.copied) before[*move.copied].push_back(stays(model.store, ActionKind::wait, move));
  }
  for (const OffloadMove& move : moves) {
    const OffloadGap& gap = model.gaps[move.item.gap];
    after[std::max(gap.from, move.issue)].push_back(stays(place::device, ActionKind::drop, move));
  }
  for (const OffloadMove& move : returning) prefetches[move.back].push_back(travels(back, ActionKind::move, move));
  for (const OffloadMove& move : returning) {
    if (move.arrived) prefetches[*move.arrived].push_back(stays(place::device, ActionKind::wait, move));
  }
  Tape tape;
  tape.codecs = model.codecs;
  for (std::size_t p = 0; p < model.positions(); ++p) {
    for (const auto* actions : {&before[p], &prefetches[p]}) {
      tape.actions.insert(tape.actions.end(), actions->begin(), actions->end());
    }
    tape.actions.push_back(model.computes[p]);
    tape.actions.insert(tape.actions.end(), after[p].begin(), after[p].end());
    tape.actions.insert(tape.actions.end(), model.drops[p].begin(), model.drops[p].end());
  }
  return tape;
}

std::optional<PlannedTape> planned_moves(const PartTask& task, const OffloadModel& model,
                                         std::span<const OffloadMove> moves) {
  return simulated_tape(task, model, offload_tape(model, moves));
}

std::optional<PlannedTape> simulated_tape(const PartTask& task, const OffloadModel& model, Tape tape) {
  PlannedTape planned{std::move(tape), {}, {}, std::nullopt};
  const std::variant<Schedule, std::string> made = lower(task.problem, task.partition, std::span(&planned.tape, 1));
  if (const std::string* why = std::get_if<std::string>(&made)) throw InputError(*why);
  const Timeline timeline = simulate_event(std::get<Schedule>(made), task.problem.platform);
  const DeviceId device = task.part().device;
  planned.peak = timeline.peaks[task.problem.platform[device].memory.index].bytes;
  planned.makespan = timeline.makespan;
  const std::optional<MemoryId> host = memory_at(task.problem.platform, device, model.store);
  if (host && timeline.peaks[host->index].bytes > model.host_capacity) return std::nullopt;
  return planned;
}

}  // namespace plimsoll
