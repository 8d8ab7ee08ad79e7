#pragma once
// The validation: networks trained for real, schedule after schedule, beside what the simulator says of them.

#include <string>

#include "experiments/measure/validation_file.h"
#include "experiments/study/backends.h"

namespace plimsoll {

struct ValidationRequest {
  Validation validation;
  BackendArguments backend;
  std::string folder, command_line;
};

/// Measures the machine, then network by network: times of ops, store_all and every schedule, interleaved in rounds.
/// Writes the calibrated platform, one row a schedule (rows.jsonl) as soon as its network is done, then validation.json
/// and the table. The exit code: 0, or 130 where Ctrl-C ended it early; what is finished is kept and summed up.
int validate(const ValidationRequest&);

}  // namespace plimsoll
