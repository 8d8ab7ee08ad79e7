#pragma once
// Whether a checkpoint that lies beside a configuration file has the parameters of the configuration's model.

#include <cstdint>
#include <optional>
#include <string>

#include "sim/core/units.h"

namespace plimsoll {

struct StoredTensors {
  std::string file;  ///< `model.safetensors`
  std::size_t tensors = 0;
  Bytes bytes;
  std::string dtypes;  ///< `BF16`, or several
};

/// Of `hf:FOLDER/config.json` the headers of model.safetensors.index.json or model.safetensors there; nothing where
/// there is none, or the reference is another. Tensors are compared with the model's parameters by their numbers, layer
/// by layer, those of experts together; buffers and heads of other tasks are left out. Throws InputError that names the
/// first tensor that differs.
std::optional<StoredTensors> stored_tensors_of(const std::string& reference);

}  // namespace plimsoll
