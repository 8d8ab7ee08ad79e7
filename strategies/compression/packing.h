#pragma once
// Tapes in which saved values wait for the backward in packed forms: what every compression strategy makes once it has
// chosen a codec for each use.

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/codec.h"
#include "sim/core/layer_use.h"
#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/offload_model.h"

namespace plimsoll {

// What a forward leaves for the backward, and who reads it there: what compression strategies choose from.

/// A use of a saved value in the backward. `is_result`: the layer itself has made it; else it was the layer's input. A
/// stage of a chain may use a value several times at once.
struct SavedUse {
  std::uint32_t position = 0;
  SavedBy by = SavedBy::other;
  bool is_result = false;
  OpId op;                  ///< that reads it
  std::int64_t kernel = 0;  ///< of a convolution: pixels a side of its weight
  bool shape_only = false;  ///< of a chain's stage: it needs no more

  LayerUse layer_use() const { return {by, is_result, shape_only, kernel}; }
};

/// A value that is made before the backward and is used there; the network's input is never among them.
struct SavedTensor {
  TensorId tensor;         ///< stands for its storage
  std::uint32_t from = 0;  ///< position of its last use before the gap
  std::vector<SavedUse> uses;
};

std::vector<SavedTensor> saved_tensors(const Graph&, const OffloadModel&);

/// Of the tensor as a matrix whose columns are its last dimension.
std::int64_t rows_of(const Tensor&);

/// Whether the op sums over the rows of the value and of a gradient with as many rows, to the gradient of a weight.
bool sums_over_rows(const Graph&, const Op&, const Tensor& value);

/// A choice of uses: `conv.input+bn.input`, `conv3x3.input`, `relu.output`, `softmax`, `all`.
class UsePattern {
 public:
  /// Why the text is none, or nothing.
  static std::string refusal(std::string_view text);

  /// The text must be one.
  explicit UsePattern(std::string_view text);

  bool matches(const SavedUse&) const;
  bool names_all() const;
  bool names(SavedBy) const;  ///< not only by `all`

 private:
  struct Term {
    bool all = false;
    SavedBy layer = SavedBy::other;
    std::int64_t kernel = 0;  ///< 0: any
    bool inputs = true, results = true;
  };
  std::vector<Term> terms_;
};

/// `conv.input`, `relu.output`: every kind of use there is, for a message.
std::string written_uses(std::span<const SavedTensor>);

/// By which codec a use gets the value; nothing: as it is.
using CodecChoice = std::function<std::optional<Codec>(const SavedTensor&, const SavedUse&)>;

/// What runs again right before a position, so that a ReLU's gradient there reads what it makes, which is dropped
/// after.
using Reruns = std::map<std::uint32_t, std::vector<Action>>;

/// What is chosen for the saved values of a tape.
struct PackingChoice {
  template <std::convertible_to<CodecChoice> Choice>
  PackingChoice(Choice of_uses) : codec(std::move(of_uses)) {}

  CodecChoice codec;
  Reruns reruns;                                                          ///< in the place of a codec
  std::function<Seconds(const OffloadModel&, const SavedUse&)> overhead;  ///< of packing, where numbers are quantized
  std::function<std::string(const OffloadModel&, std::size_t packed)> note;  ///< of a tape that packs so many values
  std::uint32_t stays = 2;  ///< what is restored stays for a use that comes so many positions later at most
};

/// A packed form that a layer keeps though its backward does not read it: packed after one position, restored and freed
/// around another.
struct UnreadForm {
  TensorId tensor;
  std::uint32_t from = 0, until = 0;
  Codec codec;
};

/// The model's tape with saved values packed after their last use in the forward, once by each codec that a use asks
/// for, or after a later forward that runs again from it as it is. The value itself dies then, or with its last use
/// that takes it as it is. Before a use the packed form is unpacked; what is restored lives until that use, or on to a
/// next one right after. A use that can do with the packed form reads it as it is. What the codec cannot pack stays.
Tape packed_tape(const Graph&, const OffloadModel&, std::span<const SavedTensor>, const PackingChoice&,
                 std::span<const UnreadForm> = {});

/// Chooses for the saved values of one tape; throws InputError where nothing can be chosen.
using ChoiceOf = std::function<PackingChoice(const Graph&, std::span<const SavedTensor>)>;
using UnreadOf = std::function<std::vector<UnreadForm>(const Graph&, const OffloadModel&)>;

/// One plan whatever the budget, of the tape of the pass before or of plain training.
std::vector<TapeOutcome> packed_tapes(const PartTask&, std::string_view strategy,
                                      std::span<const std::optional<Bytes>> budgets, const Tape* before,
                                      const ChoiceOf&, const UnreadOf& = {});

/// From what a ReLU's gradient gets the signs of its output.
enum class ReluSigns : std::uint8_t { bit, byte, keep, recompute };

/// Options that strategies of one codec share; each has the rows of those that it heeds.
struct PackedOptions {
  std::string tensors = "all";  ///< by who uses them, as UsePattern
  ReluSigns relu = ReluSigns::bit;
  bool of_layer = false;  ///< each layer has a packed form of its own
};

/// The codec for the uses that the option `tensors` names, and the option `relu` for what a ReLU has made, unless that
/// is named, too.
ChoiceOf choice_by_pattern(std::string_view strategy, const Codec&, const PackedOptions&);

/// Throws InputError if the codec fits no saved value with a use that the pattern matches. Not for a part of a
/// pipeline: what fits no value there may fit another part's, and the whole model is asked about first.
void refuse_if_unfit(std::string_view strategy, const Graph&, std::span<const SavedTensor>, std::string_view pattern,
                     const Codec&);

/// Whether pictures are samples x height x width x channels in this graph, by the weights of its convolutions; in a
/// chain's, whether it is of one of the project's networks, which lay them out so.
bool has_channels_last(const Graph&);

inline constexpr auto tensors_option = option_of<&PackedOptions::tensors>({
    .name = "tensors",
    .values = "layers with .input or .output joined by +, or all",
    .help = "which saved values, by who uses them in the backward: `conv.input+bn.input`, `softmax.output`, `linear`",
    .allowed = [](std::string_view text) { return UsePattern::refusal(text).empty(); },
});

inline constexpr auto relu_option = option_of<&PackedOptions::relu>({
    .name = "relu",
    .words = "bit byte keep",
    .help = "where a ReLU's gradient gets the signs of its output: a mask of one bit or one byte per value, or the "
            "output itself",
});

/// For strategies by choice_by_pattern().
inline constexpr auto relu_or_anew_option = option_of<&PackedOptions::relu>({
    .name = "relu",
    .words = "bit byte keep recompute",
    .help = "where a ReLU's gradient gets the signs of its output: a mask of one bit or one byte per value, the output "
            "itself, or a recomputation of the batch norms before it and of the ReLU, where the input of these is kept "
            "unpacked (else a bit)",
});

inline constexpr auto packed_store_option = option_of<&PackedOptions::of_layer>({
    .name = "store",
    .words = "shared layer",
    .help = "who keeps a packed form: all layers that use the value share one, or each "
            "layer has its own, as layers that replace "
            "PyTorch's do",
});

/// Of `relu_option`; nothing: from the output itself.
std::optional<Codec> relu_codec(const PackedOptions&);

}  // namespace plimsoll
