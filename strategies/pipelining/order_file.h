#pragma once
// Orders of pipelines as CSV in the convention of torch.distributed.pipelining.schedules: a line a rank, a cell an
// action or nothing; 2F0 is part 2's forward of micro-batch 0, B a whole backward, I and W its two halves.

#include <string>

#include "strategies/pipelining/orders.h"

namespace plimsoll {

struct OrderFile {
  PipelineOrder order;
  std::uint32_t micro_batches = 0;
};

/// Throws InputError, located, where the file is no order of whole pipelines: every part's forward and backward of
/// every micro-batch once, all of a part on one rank, and no rank waits for ever.
OrderFile read_order(const std::string& file);

/// The same of a text, `name` being its file's.
OrderFile parse_order(const std::string& name, std::string_view text);

std::string order_csv(const PipelineOrder&);

}  // namespace plimsoll
