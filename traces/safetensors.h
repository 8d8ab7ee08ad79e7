#pragma once
// Headers of safetensors files: names, types and shapes of a checkpoint's tensors, without their numbers.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

struct StoredTensor {
  std::string name, dtype;  ///< dtype: as the file has it, `BF16`
  std::vector<std::int64_t> shape;
  std::int64_t numbers = 1;
  Bytes bytes;
  std::string file;
};

/// The tensors of a `.safetensors` file, or of all files that an index (`model.safetensors.index.json`) names, in the
/// order of headers. Throws InputError, with file and place, where a header is cut short, is no JSON, or where tensors
/// overlap, leave gaps or end beyond the file.
std::vector<StoredTensor> read_safetensors(const std::filesystem::path&);

}  // namespace plimsoll
