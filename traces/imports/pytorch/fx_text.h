#pragma once
// The text that torch.compile and AOTAutograd print of their graphs (`TORCH_LOGS=aot_graphs`, `print_readable()`):
//   add: "f32[8, 16]" = torch.ops.aten.add.Tensor(x, y);  x = y = None

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/input_error.h"
#include "traces/imports/import_numbers.h"
#include "traces/imports/pytorch/aten_work.h"

namespace plimsoll {

struct FxType {
  std::string_view dtype;  ///< `f32`
  AtenShape shape, strides;
  bool has_strides = false;
};

struct FxArgument {
  enum class Kind : std::uint8_t { other, node, truth, list };
  Kind kind = Kind::other;
  std::uint32_t node = 0;
  bool truth = false;
  std::vector<FxArgument> items;
};

/// A line of a graph. Its texts are parts of the file's.
struct FxNode {
  enum class Kind : std::uint8_t { given, constant, call, item };
  Kind kind = Kind::call;
  std::string_view name, target;  ///< `aten.add.Tensor`
  std::string_view written;       ///< all behind the `=`
  std::optional<FxType> type;     ///< unset: several values, or a number that is no tensor
  std::vector<FxArgument> arguments;
  std::uint32_t item_of = 0;
  std::size_t offset = 0;  ///< in the text
};

struct FxGraph {
  enum class Role : std::uint8_t { forward, backward, joint };
  Role role = Role::forward;
  bool is_marked = false;  ///< the log says which it is
  std::vector<FxNode> nodes;
  std::vector<FxArgument> results;
  std::size_t offset = 0;
};

/// All graphs of the text, which must outlive them. `s0=128` gives an axis its size. Complaints name the line.
std::vector<FxGraph> parse_fx_text(std::string_view text, Complaints&, ImportNumbers&);

/// Whether a text seems to be one.
bool seems_fx_text(std::string_view text);

}  // namespace plimsoll
