#pragma once
// Which saved values wait in how many bits and which are made again, so that memory stays below a level and the error
// of all gradients below a bound, at little time.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/codec/predicted_error.h"
#include "sim/core/platform.h"
#include "strategies/compression/packing.h"
#include "strategies/models/op_model.h"

namespace plimsoll {

/// One way to keep a saved value.
struct KeptForm {
  std::optional<Codec> codec = {};  ///< of all its uses but a ReLU's own; nothing: as it is
  bool signs = false;               ///< a ReLU's own use reads a mask
  bool again = false;               ///< not at all: it is made anew for its first use
  Seconds time = {};                ///< of packing and unpacking, or of what runs again while all else is kept
  double square = 0;                ///< what it adds to the squared error of all gradients
};

/// What a value that is kept in another form frees.
struct FreedRange {
  std::uint32_t begin = 0, end = 0;  ///< positions [begin, end)
  Bytes bytes;
};

class KeptForms {
 public:
  /// With `codecs` from the mildest to the strongest.
  KeptForms(const Graph&, std::span<const SavedTensor>, std::span<const Codec> codecs, const Device&);

  /// Adds the form `again`, the last, for values that a forward may make anew. The model is that of the tape whose
  /// values these are, in which every op runs once.
  void offer_recomputation(const OffloadModel&, const OpModel&);

  struct Value {
    TensorId tensor;                             ///< stands for its storage
    std::vector<bool> takes_signs;               ///< by use
    std::vector<KeptForm> forms;                 ///< the first: as it is
    std::vector<std::vector<FreedRange>> freed;  ///< by form
  };
  std::size_t size() const { return values_.size(); }
  const Value& operator[](std::size_t i) const { return values_[i]; }

  /// The first of these forms, or the form as it is, that waits by the codec; nothing: by signs at most.
  std::uint32_t form_of(std::size_t i, const std::optional<Codec>&) const;

  /// The first saved value in the tensor's storage.
  std::optional<std::size_t> value_of(TensorId t) const { return first_of_[graph_[t].storage.index]; }

  /// For packed_tape; `forms`: which one, by saved value. Refers to this.
  CodecChoice choice(std::vector<std::uint32_t> forms) const;

  /// The same for another tape of the graph, in which values are made anew: what has no forms here stays as it is.
  CodecChoice choice_elsewhere(std::vector<std::uint32_t> forms) const;

 private:
  std::optional<Codec> codec_of(const KeptForm&, const SavedUse&) const;
  static std::vector<FreedRange> freed_by(const KeptForm&, const Value&, const SavedTensor&, const Graph&);

  const Graph& graph_;
  std::span<const SavedTensor> saved_;
  std::vector<Value> values_;
  std::vector<std::optional<std::size_t>> first_of_;  // by storage
};

/// Forms by saved value, for as many levels of memory from all that is wanted down to the least that is found with a
/// squared error of all gradients within the bound. Wherever memory is above the level, the value there goes on to a
/// later form that costs the least for what it frees, in seconds and, at `price` seconds for the whole squared error,
/// in error. Then every value, the slowest first, goes back to the first form that is no slower and with which all
/// still fits.
/// Time: levels x values x log positions, and the square of the values.
std::vector<std::vector<std::uint32_t>> forms_of_levels(const KeptForms&, const OffloadModel&, std::uint32_t levels,
                                                        double largest_square, double price);

}  // namespace plimsoll
