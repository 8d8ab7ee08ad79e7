#include "strategies/rematerialization/cuts/ap_points.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

/// The last forward that reads the value, if one does.
std::optional<std::size_t> last_forward_reader(const ModelValue& value, std::size_t turn) {
  std::optional<std::size_t> last;
  for (const std::uint32_t reader : value.readers) {
    if (reader <= turn) last = reader;
  }
  return last;
}

}  // namespace

std::vector<std::size_t> cut_points(const OpModel& model, Points points) {
  const std::size_t turn = last_forward(model);
  std::vector<std::int64_t> change(model.ops.size() + 1, 0);  // of the number of values that cross
  for (const ModelValue& value : model.values) {
    if (!value.maker) continue;
    const std::optional<std::size_t> last = last_forward_reader(value, turn);
    if (!last) continue;
    ++change[*value.maker];
    --change[*last];
  }
  std::vector<std::size_t> found;
  std::int64_t crossing = 0;
  for (std::size_t o = 0; o < turn; ++o) {
    crossing += change[o];
    if (crossing == 1 || points == Points::all) found.push_back(o);
  }
  return found;
}

std::vector<std::size_t> sqrt_cuts(const std::vector<std::size_t>& points) {
  const auto n = static_cast<double>(points.size() + 1);  // segments there could be
  const auto segments = static_cast<std::size_t>(std::max(1L, std::lround(std::sqrt(n))));
  std::vector<std::size_t> cuts;
  for (std::size_t k = 1; k < segments; ++k) cuts.push_back(points[k * (points.size() + 1) / segments - 1]);
  return cuts;
}

std::vector<std::size_t> greedy_cuts(const OpModel& model, const std::vector<std::size_t>& points, Bytes limit) {
  std::vector<std::size_t> cuts;
  Bytes since;
  std::size_t next = 0;
  for (const std::size_t point : points) {
    for (; next <= point; ++next) {
      for (const std::uint32_t v : model.ops[next].ways.front().makes) {
        since += model.storages[model.values[v].storage];
      }
    }
    if (since <= limit) continue;
    cuts.push_back(point);
    since = {};
  }
  return cuts;
}

Evicted evicted_between(const OpModel& model, const std::vector<std::size_t>& cuts) {
  const std::size_t turn = last_forward(model);
  Evicted evicted(model.values.size(), false);
  if (cuts.empty()) return evicted;
  for (std::uint32_t v = 0; v < model.values.size(); ++v) {
    const ModelValue& value = model.values[v];
    if (!can_evict(model, v) || *value.maker > cuts.back()) continue;
    const std::size_t last = last_forward_reader(value, turn).value_or(*value.maker);
    const auto cut = std::ranges::lower_bound(cuts, *value.maker);
    evicted[v] = cut == cuts.end() || *cut >= last;
  }
  return evicted;
}

}  // namespace plimsoll
