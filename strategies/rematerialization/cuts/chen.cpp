#include "strategies/rematerialization/cuts/chen.h"

#include <algorithm>
#include <cmath>

#include "sim/core/expects.h"

namespace plimsoll {

namespace {

void append(ChainSequence& sequence, ChainStep::Kind kind, std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) sequence.push_back({kind, i});
}

void append_backwards(ChainSequence& sequence, std::size_t first, std::size_t end) {
  for (std::size_t i = end; i-- > first;) sequence.push_back({ChainStep::Kind::backward, i});
}

}  // namespace

std::size_t chen_segments(std::size_t stages) {
  EXPECTS(stages > 0);
  return std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(stages - 1)))));
}

ChainSequence chen_sequence(std::size_t stages, std::size_t segments) {
  EXPECTS(stages > 0 && segments > 0);
  const std::size_t before_loss = stages - 1;
  const std::size_t count = std::max<std::size_t>(1, std::min(segments, before_loss));
  const std::size_t size = before_loss / count;
  const std::size_t last = (count - 1) * size;

  ChainSequence sequence;
  append(sequence, ChainStep::Kind::forward, 0, last);
  append(sequence, ChainStep::Kind::forward_saving, last, stages);
  append_backwards(sequence, last, stages);
  for (std::size_t first = last; first > 0;) {
    first -= size;
    append(sequence, ChainStep::Kind::forward_saving, first, first + size);
    append_backwards(sequence, first, first + size);
  }
  return sequence;
}

}  // namespace plimsoll
