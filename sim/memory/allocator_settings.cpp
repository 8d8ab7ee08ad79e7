#include "sim/memory/allocator_settings.h"

#include <algorithm>
#include <bit>

namespace plimsoll {

std::string trouble_with(const CachingSettings& settings) {
  constexpr Bytes least_max_split{(20LL << 20) + 1}, page{2LL << 20};
  if (settings.max_split && settings.segments == Segments::expandable) {
    return "max_split does not go with expandable segments: a block that may not be split takes their whole free end, "
           "and memory grows without bound";
  }
  if (settings.segments != Segments::native && (settings.max_split || settings.gc_threshold > 0)) {
    return settings.max_split ? "max_split needs native segments: stitched blocks are always split"
                              : "gc needs native segments: only those go back as a whole";
  }
  if (settings.max_split && *settings.max_split < least_max_split) {
    return "max_split must be more than 20 MiB, the size of a shared segment";
  }
  if (!(settings.gc_threshold >= 0 && settings.gc_threshold < 1)) return "gc must be at least 0 and below 1";
  if (settings.gc_threshold > 0 && !settings.fraction) {
    return "gc needs a fraction: the threshold is a share of the bytes that the process may reserve";
  }
  if (settings.fraction && !(*settings.fraction > 0 && *settings.fraction <= 1)) {
    return "fraction must be above 0 and at most 1";
  }
  if (std::ranges::any_of(settings.roundup, [](std::uint32_t d) { return d != 0 && !std::has_single_bit(d); })) {
    return "roundup must be powers of two";
  }
  if (settings.fragment_limit < page) return "fragment_limit must be at least 2 MiB, the pages that are stitched";
  return "";
}

AllocatorChoice usual(AllocatorKind kind) {
  AllocatorChoice choice{.kind = kind, .text = std::string(written(kind))};
  if (kind == AllocatorKind::cuda_expandable) choice.caching.segments = Segments::expandable;
  if (kind == AllocatorKind::cuda_stitching) choice.caching.segments = Segments::stitched;
  return choice;
}

Bytes cublas_workspace_bytes(std::string_view device_model) {
  constexpr std::array<std::string_view, 5> hopper{"H100", "H200", "H800", "H20", "GH200"};
  const bool is_hopper =
      std::ranges::any_of(hopper, [&](std::string_view name) { return device_model.find(name) != name.npos; });
  return is_hopper ? Bytes{8 * 4096 * 1024} : Bytes{2 * 4096 * 1024 + 8 * 16 * 1024};
}

}  // namespace plimsoll
