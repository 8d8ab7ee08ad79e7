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
#include <utility>
#include <vector>

#include "sim/core/codec.h"
#include "strategies/api/strategy.h"
#include "strategies/compression/saved_tensors.h"

namespace plimsoll {

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
    .help =
        "how a ReLU's gradient gets the signs of its output: as a mask of a bit or a byte a value, or from the output "
        "itself",
});

/// For strategies by choice_by_pattern().
inline constexpr auto relu_or_anew_option = option_of<&PackedOptions::relu>({
    .name = "relu",
    .words = "bit byte keep recompute",
    .help =
        "how a ReLU's gradient gets the signs of its output: as a mask of a bit or a byte a value, from the output "
        "itself, "
        "or by running the batch norms before it and the ReLU again, where what these read waits as it is (else a bit)",
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
