#pragma once
// PyTorch's execution traces (torch.profiler.ExecutionTraceObserver), as JSON: operators with the tensors that they
// read and make, by the numbers of tensor and storage. Chakra's linker adds the kernels of the device with their times.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.h"
#include "traces/imports/pytorch/aten_work.h"

namespace plimsoll {

struct ExecutionTensor {
  std::int64_t storage = 0;  ///< 0: no tensor; numbers are used again for others after its end
  std::int64_t offset = 0;   ///< in the storage, in elements
  std::int64_t count = 0;    ///< of its elements
  std::uint32_t argument = 0;
  std::string device;
  AtenShape shape;
  std::string dtype;  ///< PyTorch's long word
};

struct ExecutionNode {
  std::uint64_t id = 0, parent = 0;
  std::string name, schema;
  std::int64_t scope = 0, sequence = -1, thread = 0;
  std::vector<ExecutionTensor> inputs, outputs;
  std::string arguments;  ///< the values of the inputs, as JSON without spaces
  std::string category;   ///< of a linked file: `kernel` and the like
  Seconds duration;       ///< of a kernel
  std::int64_t stream = 0;
  std::uint32_t position = 0;  ///< in the file's list
};

struct ExecutionTrace {
  std::string schema;
  std::vector<ExecutionNode> nodes;  ///< by id, which grows as operators begin
};

/// Throws InputError where the file is none, or of an unknown schema.
ExecutionTrace parse_execution_trace(std::string text, const std::string& file_name);

/// Tensors within lists of values, shapes and types such as `[[3,4,0,524288,4,"cuda:0"],[1,2]]`, `[[512,1024],[[],[]]]`
/// and `["Tensor(float)","GenericList[Int,Int]"]`, also as Python writes them. Throws InputError where one is absurd.
std::vector<ExecutionTensor> execution_tensors(std::string_view values, std::string_view shapes,
                                               std::string_view types);

/// The k-th argument's text; empty where there are fewer.
std::string_view execution_argument(std::string_view arguments, std::size_t k);

}  // namespace plimsoll
