#include "sim/lower/exchange_order.h"

#include <utility>

namespace plimsoll {

ExchangeOrder::ExchangeOrder(const Partition& partition) : partition_(partition), devices_(partition.exchanges.size()) {
  for (std::size_t d = 0; d < partition.exchanges.size(); ++d) {
    for (std::size_t k = 0; k < partition.exchanges[d].size(); ++k) {
      const PartExchange& each = partition.exchanges[d][k];
      auto& [sender, receiver] = places_[key(each)];
      (device(each.from) == d ? sender : receiver) = k;
    }
  }
}

/// Whether all up to the exchange, which is the device's own, has been sent or received; goes on as far as that is so.
bool ExchangeOrder::is_past(std::size_t d, const Key& until) {
  Device& here = devices_[d];
  const auto& [sender, receiver] = places_.at(until);
  const std::size_t place = device(std::get<0>(until)) == d ? sender : receiver;
  for (; here.at <= place; ++here.at) {
    const PartExchange& next = partition_.exchanges[d][here.at];
    const auto sent = sent_.find(key(next));
    if (sent == sent_.end()) return false;
    if (device(next.from) == d) {
      here.before = sent->second;
    } else {
      here.before.insert(here.before.end(), sent->second.begin(), sent->second.end());
      here.come.insert(here.come.end(), sent->second.begin(), sent->second.end());
    }
  }
  return true;
}

bool ExchangeOrder::may_send(PartId from, PartId to, std::uint32_t micro_batch) {
  const Key asked{from, to, micro_batch};
  const auto place = places_.find(asked);
  if (place == places_.end() || sent_.contains(asked)) return true;
  const std::size_t d = device(from), k = place->second.first;
  return k == 0 || is_past(d, key(partition_.exchanges[d][k - 1]));
}

std::vector<StepId> ExchangeOrder::send(PartId from, PartId to, std::uint32_t micro_batch, TensorId value,
                                        StepId step) {
  const Key asked{from, to, micro_batch};
  if (!places_.contains(asked)) return {};
  values_[{to, micro_batch, value}] = asked;
  sent_[asked].push_back(step);
  return devices_[device(from)].before;
}

bool ExchangeOrder::may_receive(PartId to, std::uint32_t micro_batch, TensorId value) {
  const auto of = values_.find({to, micro_batch, value});
  return of == values_.end() || is_past(device(to), of->second);
}

std::vector<StepId> ExchangeOrder::receive(PartId to, std::uint32_t micro_batch, TensorId value) {
  if (!values_.contains({to, micro_batch, value})) return {};
  return std::exchange(devices_[device(to)].come, {});
}

}  // namespace plimsoll
