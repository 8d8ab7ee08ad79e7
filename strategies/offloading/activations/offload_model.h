#pragma once
// A tape as offload planners see it: positions (its computes in order), how full the device is at each, and the gaps in
// which a value is there but not used.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "strategies/api/strategy.h"

namespace plimsoll {

/// A value between two uses; nothing between them touches its storage. They may follow each other.
struct OffloadGap {
  TensorId tensor;                            ///< stands for its storage
  Form form;                                  ///< of it
  Bytes bytes;                                ///< of the form
  Bytes value_bytes;                          ///< of the value itself, whose chunks those of the form are shares of
  std::uint32_t made = 0;                     ///< position that last changed it
  std::uint32_t from = 0, until = 0;          ///< positions of the uses around the gap
  std::optional<std::uint32_t> earlier = {};  ///< the gap before in which the same value, unchanged, may be away

  bool holds_positions() const { return from + 1 < until; }
};

/// What a copy takes when nobody shares its links.
struct CopyRate {
  Seconds latency;
  BytesPerSecond bandwidth = unlimited_bandwidth;

  Seconds time(Bytes bytes) const { return latency + bytes / bandwidth; }
};

struct OffloadModel {
  std::vector<Action> computes;            ///< by position: runs, packs and unpacks
  std::vector<Codec> codecs;               ///< of the forms
  std::vector<Seconds> time;               ///< of a position
  std::vector<Bytes> memory;               ///< while a position runs, everything counted, nothing offloaded
  std::vector<Bytes> held;                 ///< right before a position, likewise
  std::vector<std::vector<Action>> drops;  ///< after a position
  std::vector<OffloadGap> gaps;            ///< by `from`; the network's input is never among them
  MemoryId store = place::host;            ///< where values go
  bool has_host = false;                   ///< it can be reached both ways
  CopyRate out, in;
  Bytes host_capacity = largest_bytes;

  std::uint32_t turn = 0;  ///< the first position of the backward

  std::size_t positions() const { return computes.size(); }
};

/// "platform 'x' has no host memory ..." is for the strategies that must offload.
std::string no_host(const PartTask&);

/// The model of the tape made by the pass before, or of plain training; or in one sentence why it cannot be offloaded.
std::variant<OffloadModel, std::string> offload_model(const PartTask&, const Tape* before,
                                                      MemoryId store = place::host);

/// The position after which a gap's value may begin to leave, if those of `moved` (by gap) are away in theirs.
std::uint32_t leaves_after(const OffloadModel&, std::uint32_t gap, const std::vector<bool>& moved);

/// Gaps between the forward, recomputation aside, and the backward: what autograd saves.
std::vector<std::uint32_t> saved_gaps(const OffloadModel&);

/// Start of every position, and the end of the last, when nothing waits for copies.
std::vector<Seconds> starts_without_copies(const OffloadModel&);

}  // namespace plimsoll
