#include "experiments/recordings/recorded_memory.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

namespace plimsoll {

std::optional<RecordedMemory> memory_of_step(const StepRecording& recording, StepWindow step) {
  std::map<std::int64_t, std::vector<MemorySample>> devices;
  for (const MemorySample& sample : recording.memory) {
    if (sample.date >= step.start && sample.date < step.end) devices[sample.device].push_back(sample);
  }
  const auto busiest = std::ranges::max_element(devices, {}, [](const auto& each) { return each.second.size(); });
  if (busiest == devices.end()) return std::nullopt;
  std::vector<MemorySample>& events = busiest->second;
  std::ranges::stable_sort(events, {}, [](const MemorySample& e) { return std::tuple(e.date, e.order); });
  RecordedMemory made;
  made.before = made.peak = events.front().total - events.front().change;
  made.behind = events.back().total;
  std::unordered_map<std::int64_t, std::size_t> live;  // by address
  for (const MemorySample& event : events) {
    made.peak = std::max(made.peak, event.total);
    if (event.change > Bytes{}) {
      live[event.address] = made.blocks.size();
      made.blocks.push_back({.allocated = event.date, .bytes = event.change, .thread = event.thread});
    } else if (const auto block = live.find(event.address); block != live.end()) {  // else from before the step
      made.blocks[block->second].freed = event.date;
      live.erase(block);
    }
  }
  return made;
}

BlockClaims::BlockClaims(const RecordedMemory& memory) : memory_(memory) {
  for (std::size_t b = 0; b < memory.blocks.size(); ++b) threads_[memory.blocks[b].thread].blocks.push_back(b);
}

std::vector<std::size_t>& BlockClaims::open_at(Range range) {
  Thread& thread = threads_[range.thread];
  std::erase_if(thread.open, [&](std::size_t b) { return memory_.blocks[b].freed <= range.start; });
  while (thread.next < thread.blocks.size()) {
    const std::size_t b = thread.blocks[thread.next];
    if (memory_.blocks[b].allocated > range.end) break;
    if (memory_.blocks[b].freed > range.start) thread.open.push_back(b);
    ++thread.next;
  }
  return thread.open;
}

std::optional<std::size_t> BlockClaims::claim(Range range, Bytes tensor) {
  std::vector<std::size_t>& open = open_at(range);
  const auto fits = [&](std::size_t b) {
    const RecordedBlock& block = memory_.blocks[b];
    return block.allocated <= range.end && block.freed > range.end && may_hold(block, tensor);
  };
  const auto latest = std::find_if(open.rbegin(), open.rend(), fits);
  if (latest == open.rend()) return std::nullopt;
  const std::size_t found = *latest;
  open.erase(std::prev(latest.base()));
  return found;
}

std::vector<std::size_t> BlockClaims::rest(Range range) {
  std::vector<std::size_t>& open = open_at(range);
  const auto is_within = [&](std::size_t b) {
    return memory_.blocks[b].allocated >= range.start && memory_.blocks[b].allocated <= range.end;
  };
  std::vector<std::size_t> found;
  std::ranges::copy_if(open, std::back_inserter(found), is_within);
  std::erase_if(open, is_within);
  return found;
}

bool may_hold(const RecordedBlock& block, Bytes tensor) {
  constexpr std::int64_t unit = 512, large = std::int64_t{1} << 20;
  const std::int64_t rounded = std::max<std::int64_t>(1, (tensor.count + unit - 1) / unit) * unit;
  const std::int64_t more = block.bytes.count - rounded;
  return more >= 0 && more <= (rounded > large ? large : 0);
}

}  // namespace plimsoll
