#pragma once
// Values that a codec packs although another reader keeps them whole: packing them saves nothing.

#include <string>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/schedule.h"

namespace plimsoll {

struct KeptWhole {
  TensorId tensor;
  CodecId codec;
  Bytes bytes;                ///< of the packed form, over all micro-batches
  std::vector<OpId> holders;  ///< that read the whole value while its packed form waits; ascending
};

/// By tensor. A value counts where its plain buffer was there when it was packed and still is, in the same memory, when
/// the packed form is read first.
std::vector<KeptWhole> kept_whole(const Graph&, const Schedule&);

/// For a summary: how many, of how many bytes, and who keeps the largest.
std::string sentence(const std::vector<KeptWhole>&, const Graph&, const Schedule&);

}  // namespace plimsoll
