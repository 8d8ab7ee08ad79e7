#pragma once
// Orders of pipelines as CSV in the convention of torch.distributed.pipelining.schedules: a line a rank, a cell an
// action or nothing. 2F0 is part 2's forward of micro-batch 0, B a whole backward, I and W its two halves; (2F1;3B0)
// OVERLAP_F_B is both, one after the other; 2SEND_F0, 3RECV_F0, 3SEND_B0 and 2RECV_B0 are an exchange's two ends, in
// the order in which a rank takes part in them. UNSHARD, RESHARD and REDUCE_GRAD are FSDP's, which an order has no part
// in. Until November 2024 the two halves were B and W, and a whole backward BW.

#include <string>

#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

struct OrderFile {
  PipelineOrder order;
  std::uint32_t micro_batches = 0;
  std::vector<std::vector<PartExchange>> exchanges = {};  ///< by rank, as of Partition; empty: the file has none
  std::size_t left_out = 0;                               ///< cells of FSDP
};

/// Throws InputError, located, where the file is no order of whole pipelines: every part's forward and backward of
/// every micro-batch once, all of a part on one rank, no rank waits for ever and, where it has exchanges, both ends of
/// all of them.
OrderFile read_order(const std::string& file);

/// The same of a text, `name` being its file's.
OrderFile parse_order(const std::string& name, std::string_view text);

std::string order_csv(const PipelineOrder&);

/// With its exchanges.
std::string order_csv(const OrderFile&);

}  // namespace plimsoll
