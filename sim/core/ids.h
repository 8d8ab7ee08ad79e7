#pragma once
// Typed indices: how one noun refers to another. They can be copied, compared and written to a file.

#include <compare>
#include <cstddef>
#include <cstdint>

namespace plimsoll {

template <class Tag>
struct Id {
  std::uint32_t index = 0;

  friend constexpr auto operator<=>(Id, Id) = default;
};

using TensorId = Id<struct TensorTag>;
using StorageId = Id<struct StorageTag>;
using OpId = Id<struct OpTag>;
using DeviceId = Id<struct DeviceTag>;
using MemoryId = Id<struct MemoryTag>;
using LinkId = Id<struct LinkTag>;
using StreamId = Id<struct StreamTag>;
using BufferId = Id<struct BufferTag>;
using StepId = Id<struct StepTag>;
using RouteId = Id<struct RouteTag>;
using CollectiveId = Id<struct CollectiveTag>;
using CodecId = Id<struct CodecTag>;
using PartId = Id<struct PartTag>;

/// The id of the element at `index`: `id_at<OpId>(i)`.
template <class AnyId>
constexpr AnyId id_at(std::size_t index) {
  return AnyId{static_cast<std::uint32_t>(index)};
}

}  // namespace plimsoll
