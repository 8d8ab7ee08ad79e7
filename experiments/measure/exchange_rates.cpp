#include "experiments/measure/exchange_rates.h"

#include <fmt/format.h>

#include <array>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "sim/mesh/collective_times.h"

namespace plimsoll {
namespace {

constexpr std::array exchanged_kinds{CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                     CollectiveKind::all_gather};

CollectiveTimes times_on(const Platform& platform, std::uint32_t ranks) {
  std::variant<CollectiveTimes, std::string> made =
      CollectiveTimes::on(platform, Mesh{{Axis{.name = "rank", .ranks = ranks, .way = CollectiveWay::nccl}}});
  if (const std::string* why = std::get_if<std::string>(&made)) {
    throw InputError(fmt::format("platform '{}': {}", platform.name, *why));
  }
  return std::get<CollectiveTimes>(std::move(made));
}

}  // namespace

std::optional<std::vector<MeasuredExchange>> measured_exchanges(Backend& backend, const Platform& platform,
                                                                std::span<const Bytes> sizes, std::size_t repetitions,
                                                                const Proceed& proceed) {
  if (platform.devices.size() < 2) {
    throw InputError(fmt::format("platform '{}': collectives need two devices or more, it has one", platform.name));
  }
  std::vector<MeasuredExchange> made;
  for (std::uint32_t ranks = 2; ranks <= platform.devices.size(); ranks *= 2) {
    CollectiveTimes times = times_on(platform, ranks);
    for (const CollectiveKind kind : exchanged_kinds) {
      for (const Bytes bytes : sizes) {
        if (!proceed(fmt::format("{} of {} between {} ranks", written(kind), format_bytes(bytes), ranks))) {
          return std::nullopt;
        }
        const std::array<std::uint32_t, 1> axis{0};
        made.push_back({kind, ranks, bytes, backend.exchange_seconds(kind, ranks, bytes, repetitions),
                        times.seconds(kind, bytes, axis)});
      }
    }
  }
  return made;
}

std::string exchanges_csv(std::span<const MeasuredExchange> exchanges) {
  std::string text = "operation,ranks,bytes,time_us\n";
  for (const MeasuredExchange& each : exchanges) {
    text +=
        fmt::format("{},{},{},{:.3f}\n", written(each.kind), each.ranks, each.bytes.count, 1e6 * each.seconds.median);
  }
  return text;
}

std::string exchanges_text(std::span<const MeasuredExchange> exchanges) {
  std::string text;
  for (const MeasuredExchange& each : exchanges) {
    const Seconds measured{each.seconds.median};
    text += fmt::format("{:<14} {} ranks  {:>9}  measured {:>9}  modelled {:>9}  {:+.0f} %\n", written(each.kind),
                        each.ranks, format_bytes(each.bytes), format_seconds(measured), format_seconds(each.modelled),
                        100 * (each.modelled / measured - 1));
  }
  return text;
}

}  // namespace plimsoll
