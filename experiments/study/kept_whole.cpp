#include "experiments/study/kept_whole.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "sim/core/codec.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

/// Steps by their place in issue order.
struct KeptLifetime {
  std::size_t born = 0, first_read = never, freed = never;
};

std::vector<KeptLifetime> lifetimes(const Schedule& schedule) {
  std::vector<KeptLifetime> lives(schedule.buffers.size());
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    for (const BufferId b : schedule.buffers_in(step.allocates)) lives[b.index].born = s;
    for (const BufferId b : schedule.buffers_in(step.reads)) {
      lives[b.index].first_read = std::min(lives[b.index].first_read, s);
    }
    for (const BufferId b : schedule.buffers_in(step.frees)) lives[b.index].freed = s;
  }
  return lives;
}

/// A tensor's storage of one micro-batch and replica in one memory.
using Holding = std::tuple<StorageId, std::uint32_t, std::uint32_t, MemoryId>;
Holding holding_of(const Graph& graph, const Buffer& buffer) {
  return {graph[buffer.tensor].storage, buffer.micro_batch, buffer.replica, buffer.memory};
}

}  // namespace

std::vector<KeptWhole> kept_whole(const Graph& graph, const Schedule& schedule) {
  const std::vector<KeptLifetime> lives = lifetimes(schedule);
  std::map<Holding, std::vector<BufferId>> packed;
  for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
    const Buffer& buffer = schedule.buffers[b];
    if (buffer.is_packed()) packed[holding_of(graph, buffer)].push_back(id_at<BufferId>(b));
  }
  std::map<TensorId, KeptWhole> found;
  std::map<BufferId, std::vector<std::pair<BufferId, KeptWhole*>>> whole;  // plain buffers, with what is packed of them
  for (std::size_t b = 0; b < schedule.buffers.size() && !packed.empty(); ++b) {
    const Buffer& plain = schedule.buffers[b];
    if (plain.is_packed()) continue;
    const auto forms = packed.find(holding_of(graph, plain));
    if (forms == packed.end()) continue;
    for (const BufferId form : forms->second) {
      const KeptLifetime &waits = lives[form.index], &stays = lives[b];
      if (stays.born >= waits.born || waits.first_read == never || stays.freed <= waits.first_read) continue;
      const Buffer& buffer = schedule[form];
      KeptWhole& kept = found.try_emplace(buffer.tensor, KeptWhole{buffer.tensor, buffer.codec, {}, {}}).first->second;
      kept.bytes += buffer.bytes;
      whole[id_at<BufferId>(b)].emplace_back(form, &kept);
    }
  }
  for (std::size_t s = 0; s < schedule.steps.size() && !whole.empty(); ++s) {
    const Step& step = schedule.steps[s];
    if (step.op == no_op) continue;
    for (const BufferId b : schedule.buffers_in(step.reads)) {
      const auto keeps = whole.find(b);
      if (keeps == whole.end()) continue;
      for (const auto& [form, kept] : keeps->second) {
        const bool waits = s > lives[form.index].born;
        if (waits && std::ranges::find(kept->holders, step.op) == kept->holders.end()) kept->holders.push_back(step.op);
      }
    }
  }
  std::vector<KeptWhole> list;
  for (auto& [tensor, kept] : found) {
    std::ranges::sort(kept.holders);
    list.push_back(std::move(kept));
  }
  return list;
}

std::string sentence(const std::vector<KeptWhole>& list, const Graph& graph, const Schedule& schedule) {
  Bytes bytes;
  for (const KeptWhole& kept : list) bytes += kept.bytes;
  std::vector<bool> is_packed(graph.tensors.size(), false);
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.is_packed()) is_packed[buffer.tensor.index] = true;
  }
  const KeptWhole& largest = *std::ranges::max_element(list, {}, &KeptWhole::bytes);
  std::string holders;
  for (const OpId op : largest.holders) holders += fmt::format("{}'{}'", holders.empty() ? "" : ", ", graph[op].name);
  return fmt::format(
      "packing {} of {} values saves nothing, and takes {} more: they stay whole for other readers, "
      "the largest ('{}', by {}) for {}",
      list.size(), std::ranges::count(is_packed, true), format_bytes(bytes), graph[largest.tensor].name,
      text_of(schedule.codecs[largest.codec.index]), holders.empty() ? "none" : holders);
}

}  // namespace plimsoll
