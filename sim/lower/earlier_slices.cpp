#include "sim/lower/earlier_slices.h"

#include <algorithm>

#include "sim/core/slices.h"

namespace plimsoll {

EarlierSlices::EarlierSlices(const Graph& graph) : graph_(graph), slices_(sequence_slices(graph)) {
  if (slices_ == 1) return;
  for (const Op& op : graph.ops) attended_.push_back(attended_by(graph, op));
}

void EarlierSlices::read(LiveCopies& copies, OpId id, std::uint32_t micro_batch, DeviceId device, NewStep& step,
                         std::vector<std::pair<TensorId, Copy*>>& used) const {
  if (attended_.empty() || !attended_[id.index]) return;
  const TensorId t = *attended_[id.index];
  const auto key = [&](std::uint32_t slice) { return copies.key_at(t, slice, device, place::device); };
  const auto& makes = graph_[id].outputs;
  const bool is_there = std::ranges::find(makes, t) != makes.end() && copies.contains(key(micro_batch));
  for (std::uint32_t slice = micro_batch - micro_batch % slices_; slice < micro_batch + (is_there ? 1 : 0); ++slice) {
    CopyKey k = key(slice);
    for (; k.chunk < copies.chunks_of(t); ++k.chunk) {
      if (!copies.contains(k)) {
        throw CannotLower{"'" + graph_[id].name + "' on one slice of a sequence reads '" + graph_[t].name +
                          "' of an earlier one, which is not on its device"};
      }
      used.emplace_back(t, &copies.read(t, k, false, step));
    }
  }
}

}  // namespace plimsoll
