#pragma once
// What a training takes from a device, part by part, and whether that fits.

#include <optional>
#include <string>
#include <vector>

#include "experiments/fits/reserve_errors.h"
#include "experiments/fits/training.h"

namespace plimsoll {

/// Of a device, which frameworks cannot use.
struct Reserves {
  Bytes capacity;           ///< of the device
  Bytes context;            ///< that CUDA's context and loaded kernels take, outside PyTorch's allocator
  double margin = 0.0;      ///< share of what the allocator reserves that is kept back, since predictions err
  Bytes communicator = {};  ///< that NCCL takes where several devices work together, outside it, too

  /// What the allocator may reserve on each of so many devices that work together.
  Bytes room(std::uint32_t devices = 1) const;
  /// With context, communicator and margin.
  Bytes needed(Bytes reserved, std::uint32_t devices = 1) const;
};

/// Bytes in memory at the peak, of one sort.
inline constexpr std::string_view main_weights_part = "main weights in fp32", states_part = "optimizer states",
                                  averages_part = "averages of weights", evaluation_part = "evaluation's forward",
                                  ahead_part = "batches on their way";
struct NeedPart {
  std::string name;  ///< `weights`
  Bytes bytes;
};

struct TrainingNeeds {
  bool fits = false;
  std::string reason;           ///< why there is no schedule; empty: there is one
  std::vector<NeedPart> parts;  ///< of the live bytes at the peak of the fullest device, their sum
  std::string moment;           ///< of the peak: `in 'loss backward'`
  Bytes live, reserved;         ///< reserved: by PyTorch's caching allocator
  Bytes expandable;             ///< reserved with segments that grow, where it is plain training
  Bytes ahead;                  ///< reserved for batches before their turn: in `reserved` too
  Bytes host;                   ///< of the fullest host
  Bytes checkpoint;             ///< on a disk: trained parameters, their second copies and states, of all devices
  std::optional<ReserveErrors> errors;  ///< of predictions for such models; unset: none was measured
  Seconds time;                         ///< of an iteration
  std::uint32_t devices = 1;            ///< that it uses
  std::int64_t parameters = 0;          ///< numbers in them, of one device; 0: the trace has no shapes
};

/// Of a training by its strategy within the room; with neither parts nor sizes where it has no plan there. Throws
/// InputError where the words do not go together.
TrainingNeeds needs_within_room(const AskedTraining&, const Reserves&);

/// Of a training whose strategy plans within a budget: the largest of a few shares of the room whose plan fits by what
/// the allocator reserves, too, which the training then has as its budget.
TrainingNeeds needs_of_planned(AskedTraining&, const Reserves&);

/// What plain training needs with the lists of torch.optim's default, one for each operation of an update, where their
/// roots make the peak. Of lower ones the allocator would have one block, where PyTorch has one for each parameter.
std::optional<Bytes> needed_by_foreach(AskedTraining, const TrainingNeeds& plain, const Reserves&);

/// The same of plain training; where it does not fit, what it would take.
TrainingNeeds needs_of_plain(const AskedTraining&, const Reserves&);

}  // namespace plimsoll
