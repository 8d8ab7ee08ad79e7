#pragma once
// Which allocator a device's memory is replayed with, and its settings.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "sim/core/names.h"
#include "sim/core/units.h"

namespace plimsoll {

enum class AllocatorKind : std::uint8_t {
  exact,            ///< live bytes, as if every buffer fitted anywhere
  cuda,             ///< PyTorch's CUDA caching allocator with its default (native) segments
  cuda_expandable,  ///< the same with expandable segments
  cuda_stitching,   ///< the same with free blocks of several segments stitched into one, as GMLake does
  planned           ///< offsets that are assigned before the run, in one segment
};

enum class Segments : std::uint8_t { native, expandable, stitched };

/// PyTorch's roundup_power2_divisions: into how many steps the sizes from one power of two to the next are divided, by
/// the power: 1 MiB and all below, 2 MiB, ... 32 GiB and all above. 0 or 1: sizes are rounded to 512 B only.
using RoundupDivisions = std::array<std::uint32_t, 16>;

/// How the caching allocator decides.
struct CachingSettings {
  Segments segments = Segments::native;
  std::optional<Bytes> max_split{};   ///< free blocks from this size on are not split, and serve no smaller request
  RoundupDivisions roundup{};         ///< all 0: none
  double gc_threshold = 0;            ///< of the allowed bytes, above which old free segments go back; 0: never
  std::optional<double> fraction{};   ///< of the capacity that may be reserved (set_per_process_memory_fraction)
  Bytes fragment_limit{512LL << 20};  ///< stitched: the smallest request that blocks are stitched for (fragLimit)
  bool stitch_late = false;           ///< stitched: only where there is no new memory (defragLevel 1)

  friend bool operator==(const CachingSettings&, const CachingSettings&) = default;
};

/// Why the settings do not go together, or are out of range; empty: they are fine.
std::string trouble_with(const CachingSettings&);

/// Which allocator, as it was asked for.
struct AllocatorChoice {
  AllocatorKind kind = AllocatorKind::exact;
  CachingSettings caching{};
  bool cublas_workspace = false;  ///< whether each compute stream's is taken from the allocator
  std::string text = "exact";     ///< what outputs call it

  friend bool operator==(const AllocatorChoice&, const AllocatorChoice&) = default;
};

template <>
struct Names<AllocatorKind> {
  static constexpr std::array all{std::pair{AllocatorKind::exact, "exact"}, std::pair{AllocatorKind::cuda, "cuda"},
                                  std::pair{AllocatorKind::cuda_expandable, "cuda-expandable"},
                                  std::pair{AllocatorKind::cuda_stitching, "cuda-stitching"},
                                  std::pair{AllocatorKind::planned, "static"}};
};

/// The allocator without further options.
AllocatorChoice usual(AllocatorKind);

/// Bytes that cuBLAS keeps for each handle and stream from its first call on, on a device of that model: 32 MiB on
/// Hopper (compute capability 9.0), else two of 4 MiB and eight of 16 KiB. Source: getChosenWorkspaceSize in
/// aten/src/ATen/cuda/CublasHandlePool.cpp of PyTorch 2.6.
Bytes cublas_workspace_bytes(std::string_view device_model);

}  // namespace plimsoll
