// The ledger of a replay's memory: of equal peaks it names the first step.

#include "validate/memory_ledger.h"

#include <catch2/catch.hpp>

namespace plimsoll {
namespace {

TEST_CASE("a ledger keeps the first step of its peak, and knows what is free", "[validate]") {
  MemoryLedger ledger(Bytes{10});
  ledger.take(Bytes{4}, std::nullopt);
  CHECK(ledger.peak() == MemoryPeak{Bytes{4}, StepId{}, true});
  ledger.take(Bytes{5}, StepId{7});
  CHECK(ledger.free() == Bytes{1});
  CHECK(ledger.has_room_for(Bytes{1}));
  CHECK_FALSE(ledger.has_room_for(Bytes{2}));
  ledger.give_back(Bytes{5});
  ledger.take(Bytes{5}, StepId{8});  // as much again
  CHECK(ledger.live() == Bytes{9});
  CHECK(ledger.peak() == MemoryPeak{Bytes{9}, StepId{7}, false});
}

}  // namespace
}  // namespace plimsoll
