#pragma once
// Published models by name: sizes for the formulas, as facts of their configuration files.

#include <cstdint>
#include <span>
#include <string_view>

namespace plimsoll {

struct NamedModel {
  std::string_view name;    ///< `llama3_8b`
  std::string_view sizes;   ///< a reference of a formula: `llama:layers=32,...`
  std::int64_t parameters;  ///< as published with the weights
  std::string_view source;  ///< whose configuration file has the sizes
};

std::span<const NamedModel> named_models();

}  // namespace plimsoll
