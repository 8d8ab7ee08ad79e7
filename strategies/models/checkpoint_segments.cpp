#include "strategies/models/checkpoint_segments.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {

ChainSequence segments_sequence(const std::vector<Segment>& segments) {
  using Kind = ChainStep::Kind;
  ChainSequence sequence;
  std::size_t next = 0;
  for (const Segment& segment : segments) {
    EXPECTS(segment.first == next && segment.end > next);
    for (; next < segment.end; ++next) {
      sequence.push_back({segment.recomputed ? Kind::forward : Kind::forward_saving, next});
    }
  }
  for (std::size_t s = segments.size(); s-- > 0;) {
    const Segment& segment = segments[s];
    for (std::size_t i = segment.first; segment.recomputed && i < segment.end; ++i) {
      sequence.push_back({Kind::forward_saving, i});
    }
    for (std::size_t i = segment.end; i-- > segment.first;) sequence.push_back({Kind::backward, i});
  }
  return sequence;
}

std::vector<Segment> segment_each(const std::vector<bool>& recomputed) {
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < recomputed.size(); ++i) segments.push_back({i, i + 1, recomputed[i]});
  return segments;
}

std::vector<Segment> segments_of(std::size_t stages, std::size_t size) {
  EXPECTS(stages > 0 && size > 0);
  const std::size_t before_loss = stages - 1;
  std::vector<Segment> segments;
  std::size_t first = 0;
  for (; first + size < before_loss; first += size) segments.push_back({first, first + size, true});
  segments.push_back({first, stages, false});
  return segments;
}

}  // namespace plimsoll
