#pragma once
// One training as words that can be changed: a model, what of it is trained, in which precision, by which strategy.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/study/run.h"
#include "sim/core/names.h"

namespace plimsoll {

/// Types of parameters, of their states and of what products read. `bf16` and `fp16`: all of it. `mixed`: parameters in
/// bf16, states and a second copy of parameters in fp32. `amp`: torch.autocast in bf16.
enum class Precision : std::uint8_t { bf16, mixed, amp, fp16, tf32, fp32 };
template <>
struct Names<Precision> {
  static constexpr std::array all{std::pair{Precision::bf16, "bf16"}, std::pair{Precision::mixed, "mixed"},
                                  std::pair{Precision::amp, "amp"},   std::pair{Precision::fp16, "fp16"},
                                  std::pair{Precision::tf32, "tf32"}, std::pair{Precision::fp32, "fp32"}};
};

/// Of the numbers that products compute in: `bf16` of `amp`.
constexpr std::string_view computed_dtype(Precision precision) {
  const bool is_bf16 = precision == Precision::mixed || precision == Precision::amp;
  return is_bf16 ? "bf16" : written(precision);
}

/// The pass that keeps Adam's states in 8 bits.
inline constexpr std::string_view states_in_8_bits = "adam8bit";

struct AskedTraining {
  std::string trace, platform;
  std::string strategy = "store_all";
  std::uint32_t micro_batches = 1;
  std::uint32_t devices = 1;  ///< that work together
  Optimizer optimizer = Optimizer::adam;
  std::vector<ParameterGroup> parameter_groups;  ///< which other optimizers update
  States states = States::by_dtype;
  UpdateKernels update_kernels = UpdateKernels::fused;
  bool ema = false;                           ///< averages of parameters are kept
  bool clip_norm = false;                     ///< gradients are clipped by the norm of all
  std::optional<Evaluation> evaluation = {};  ///< between iterations
  std::uint32_t batches_ahead = 0;            ///< on the device before their turn
  std::optional<Bytes> budget;                ///< of live bytes, for strategies that plan within one
};

/// The question of whether it fits: by PyTorch's caching allocator, on devices of so much memory.
Question question_of(const AskedTraining&, Bytes memory);

/// The same allocator with segments that grow.
AllocatorChoice expandable_segments();

/// `plimsoll simulate -t llama3_8b -p "h200:memory=16 GB" ...`, which repeats it.
std::string command_of(const AskedTraining&, Bytes memory);

}  // namespace plimsoll
