#include "experiments/export/import_snapshot.h"

#include <fmt/format.h>

#include <iostream>

#include "experiments/export/memory_snapshot.h"
#include "experiments/export/snapshot_replay.h"
#include "experiments/study/allocator_spec.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"

namespace plimsoll {
namespace {

/// That of the snapshot's settings, if it has them, the usual ones, and the one that was named.
std::vector<AllocatorChoice> snapshot_choices(const MemorySnapshot& snapshot, const std::string& named) {
  std::vector<AllocatorChoice> choices;
  if (snapshot.settings && trouble_with(*snapshot.settings).empty()) {
    choices.push_back({.kind = AllocatorKind::cuda, .caching = *snapshot.settings, .text = "as its settings say"});
  }
  choices.push_back(usual(AllocatorKind::cuda));
  choices.push_back(usual(AllocatorKind::cuda_expandable));
  if (named.empty()) return choices;
  choices.push_back(parse_allocator(named, "--allocator"));
  const AllocatorKind kind = choices.back().kind;
  if (kind == AllocatorKind::exact || kind == AllocatorKind::planned) {
    throw InputError(fmt::format("--allocator: expected cuda, cuda-expandable or cuda-stitching, found '{}'", named));
  }
  return choices;
}

bool reproduces(const SnapshotCandidate& candidate, const SnapshotFindings& found) {
  return candidate.reserved == found.in_segments && candidate.peak == found.peak;
}

std::string text_of(const SnapshotFindings& found) {
  std::string text = fmt::format("device {}: {} events on {} streams, {} buffers older than the history\n",
                                 found.device, found.events, found.streams, found.older);
  text += fmt::format("  segments             {:>15} B reserved, {} B active, {} B allocated, {} B requested\n",
                      found.in_segments.count, found.active.count, found.allocated.count, found.requested.count);
  text += fmt::format("  history              {:>15} B reserved at most, {} B before it; {} B allocated at most\n",
                      found.peak.count, found.at_start.count, found.peak_allocated.count);
  if (found.at_start < Bytes{0}) text += "  the history takes more segments than there are: it is of another run\n";
  if (found.torn_segments > 0) {
    text += fmt::format("  {} segments have blocks of other bytes in all than their own\n", found.torn_segments);
  }
  for (const SnapshotCandidate& each : found.candidates) {
    text += fmt::format("  {:<20} {:>15} B reserved, {} B at most: {}\n", each.allocator, each.reserved.count,
                        each.peak.count, reproduces(each, found) ? "the same" : "differs");
  }
  return text;
}

Json json_of(const SnapshotFindings& found) {
  Json allocators = Json::array();
  for (const SnapshotCandidate& each : found.candidates) {
    allocators.push_back({{"allocator", each.allocator},
                          {"reserved_bytes", each.reserved.count},
                          {"peak_reserved_bytes", each.peak.count},
                          {"reproduces", reproduces(each, found)}});
  }
  return {{"device", found.device},
          {"events", found.events},
          {"streams", found.streams},
          {"older_buffers", found.older},
          {"reserved_bytes", found.in_segments.count},
          {"active_bytes", found.active.count},
          {"allocated_bytes", found.allocated.count},
          {"requested_bytes", found.requested.count},
          {"reserved_before_bytes", found.at_start.count},
          {"peak_reserved_bytes", found.peak.count},
          {"peak_allocated_bytes", found.peak_allocated.count},
          {"torn_segments", found.torn_segments},
          {"allocators", std::move(allocators)}};
}

}  // namespace

void import_memory_snapshot(const std::string& file, const std::string& allocator, const std::string& output) {
  const MemorySnapshot snapshot = read_memory_snapshot(file);
  Json devices = Json::array();
  for (const SnapshotFindings& found : replay_snapshot(snapshot, snapshot_choices(snapshot, allocator))) {
    std::cout << text_of(found);
    devices.push_back(json_of(found));
  }
  if (!output.empty()) write_json_file(output, Json{{"devices", std::move(devices)}});
}

}  // namespace plimsoll
