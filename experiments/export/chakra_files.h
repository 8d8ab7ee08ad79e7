#pragma once
// A simulated schedule as execution traces of Chakra (MLCommons), which ASTRA-sim and others replay: one file a rank.
// Source: mlcommons/chakra, schema/protobuf/et_def.proto (package ChakraProtoMsg); written without libprotobuf.

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct ChakraFile {
  std::string suffix;   ///< `.0.et` of rank 0; `.groups.json`: the ranks of each communicator group
  std::string content;  ///< varint length + message each: a GlobalMetadata, then a Node a step
};

/// Of every rank that computes; a device of a mesh stands for as many ranks. Steps are COMP, MEM_STORE and MEM_LOAD
/// (copies to and from hosts), COMM_SEND and COMM_RECV (between ranks) and COMM_COLL. ctrl_deps are the step before on
/// the stream, data_deps what a step waits for; where that is on another rank, a pair of messages without bytes. Dates
/// are whole microseconds, as the format has them, and attributes `start_ns`, `duration_ns`. Attributes `inputs` and
/// `outputs` list tensors as STAGE does, and others what `import chakra` needs to make the graph again. Throws
/// InputError for what the format has no name for.
std::vector<ChakraFile> chakra_files(const Problem&, const Schedule&, const Timeline&, std::string_view made_by);

}  // namespace plimsoll
