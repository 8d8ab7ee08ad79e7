#include "traces/allocations_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "sim/io/fields.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

using enum Need;

AllocationOrder read_order(JsonCursor cursor) {
  AllocationOrder order;
  cursor.array([&](JsonCursor element) { order.push_back(element.signed_bytes().count); });
  return order;
}

/// Pairs of an allocation's number and what it is.
std::vector<LastingAllocation> read_lasting(JsonCursor cursor) {
  std::vector<LastingAllocation> lasting;
  cursor.array([&](JsonCursor element) {
    std::vector<std::uint32_t> pair;
    const bool is_list = element.array([&](JsonCursor number) { pair.push_back(number.index()); });
    if (is_list && pair.size() != 2) {
      element.complain(fmt::format("expected an allocation's number and an index, found {} numbers", pair.size()));
    }
    pair.resize(2);
    lasting.push_back({pair[0], pair[1]});
  });
  return lasting;
}

const Field<PassAllocations, JsonCursor> pass_allocation_fields[] = {
    {"order", required, [](PassAllocations& p, JsonCursor c) { p.order = read_order(c); }},
    {"saved", optional, [](PassAllocations& p, JsonCursor c) { p.saved = read_indices(c); }},
    {"tensors", optional, [](PassAllocations& p, JsonCursor c) { p.tensors = read_lasting(c); }},
    {"parameters", optional, [](PassAllocations& p, JsonCursor c) { p.parameters = read_lasting(c); }},
};

const Field<StageAllocations, JsonCursor> stage_allocation_fields[] = {
    {"forward", required, [](StageAllocations& s, JsonCursor c) { read_fields(c, pass_allocation_fields, s.forward); }},
    {"forward_nograd", required,
     [](StageAllocations& s, JsonCursor c) { read_fields(c, pass_allocation_fields, s.forward_nograd); }},
    {"backward", required,
     [](StageAllocations& s, JsonCursor c) { read_fields(c, pass_allocation_fields, s.backward); }},
    {"backward_accumulate", required,
     [](StageAllocations& s, JsonCursor c) { read_fields(c, pass_allocation_fields, s.backward_accumulate); }},
};

std::vector<AllocationOrder> read_orders(JsonCursor cursor) {
  std::vector<AllocationOrder> orders;
  cursor.array([&](JsonCursor element) { orders.push_back(read_order(element)); });
  return orders;
}

const Field<PlainAllocations, JsonCursor> plain_allocation_fields[] = {
    {"new", required, [](PlainAllocations& p, JsonCursor c) { p.fresh = read_orders(c); }},
    {"accumulate", required, [](PlainAllocations& p, JsonCursor c) { p.accumulate = read_orders(c); }},
};

const Field<ChainAllocations, JsonCursor> chain_allocation_fields[] = {
    {"stages", required,
     [](ChainAllocations& a, JsonCursor c) {
       c.array([&](JsonCursor element) { read_fields(element, stage_allocation_fields, a.stages.emplace_back()); });
     }},
    {"plain", optional,
     [](ChainAllocations& a, JsonCursor c) { read_fields(c, plain_allocation_fields, a.plain.emplace()); }},
};

/// What is alive while an order is followed.
class LiveAllocations {
 public:
  explicit LiveAllocations(std::vector<std::int64_t> there = {}) : bytes_(std::move(there)) {}

  void follow(JsonDocument& document, const std::string& path, const AllocationOrder& order) {
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (order[k] > 0) {
        bytes_.push_back(order[k]);
      } else if (is_alive(-order[k])) {
        freed_.insert(-order[k]);
      } else {
        document.complain(below(path, k), fmt::format("expected bytes above 0, or minus the number of an allocation "
                                                      "that is alive, found {}",
                                                      order[k]));
      }
    }
  }

  bool is_alive(std::int64_t number) const {
    return number > 0 && number <= static_cast<std::int64_t>(bytes_.size()) && !freed_.contains(number);
  }
  std::int64_t bytes(std::int64_t number) const { return bytes_[static_cast<std::size_t>(number) - 1]; }
  std::size_t alive() const { return bytes_.size() - freed_.size(); }

 private:
  std::vector<std::int64_t> bytes_;  // of number k at k - 1
  std::set<std::int64_t> freed_;
};

bool is_listed(const std::vector<std::uint32_t>& list, std::uint32_t index) {
  return std::ranges::find(list, index) != list.end();
}

/// Checks the passes of one stage.
class StageCheck {
 public:
  StageCheck(JsonDocument& document, const Chain& chain, std::size_t i) : document_(document), chain_(chain), i_(i) {}

  void run(const StageAllocations& of) {
    forward("forward", of.forward);
    forward("forward_nograd", of.forward_nograd);
    if (!of.forward_nograd.saved.empty()) complain("forward_nograd", "saved", "nothing is saved without gradients");
    document_.throw_if_any();
    const std::vector<std::int64_t> saved = saved_by(of.forward);
    backward("backward", of.backward, saved);
    backward("backward_accumulate", of.backward_accumulate, saved);
  }

 private:
  const Stage& stage() const { return chain_.stages[i_]; }
  std::string path(const char* pass, const char* key) const {
    return below("allocations.stages", i_, pass) + "." + key;
  }
  void complain(const char* pass, const char* key, std::string_view what) { document_.complain(path(pass, key), what); }

  void forward(const char* name, const PassAllocations& pass) {
    follow(name, pass, {}, [&](std::uint32_t t) -> std::optional<Bytes> {
      if (!is_listed(chain_.boundaries[i_ + 1], t) || is_listed(chain_.boundaries[i_], t)) return {};
      return chain_.tensors[t].bytes;
    });
    if (!pass.parameters.empty()) complain(name, "parameters", "a forward makes no gradients");
  }

  void backward(const char* name, const PassAllocations& pass, const std::vector<std::int64_t>& saved) {
    follow(name, pass, saved, [&](std::uint32_t t) -> std::optional<Bytes> {
      if (!is_listed(chain_.boundaries[i_], t)) return {};
      return stage().tensors ? chain_.tensors[t].gradient.value_or(chain_.tensors[t].bytes) : stage().input_gradient;
    });
    if (!pass.saved.empty()) complain(name, "saved", "a backward saves nothing");
  }

  /// Their bytes, which the stage states too.
  std::vector<std::int64_t> saved_by(const PassAllocations& pass) {
    std::vector<std::int64_t> made, saved;
    std::ranges::copy_if(pass.order, std::back_inserter(made), [](std::int64_t n) { return n > 0; });
    Bytes sum;
    for (const std::uint32_t number : pass.saved) {
      saved.push_back(made[number - 1]);
      sum += Bytes{saved.back()};
    }
    const Bytes stated = stage().saved - stage().output;
    if (sum != stated) {
      complain("forward", "saved",
               fmt::format("not 'saved_bytes' without the output, expected {}, found {}", stated.count, sum.count));
    }
    return saved;
  }

  /// `bytes_of(index)`: of the tensor that the pass makes, or of its gradient; nothing where it makes neither.
  template <class BytesOf>
  void follow(const char* name, const PassAllocations& pass, const std::vector<std::int64_t>& there, BytesOf bytes_of) {
    LiveAllocations live(there);
    live.follow(document_, path(name, "order"), pass.order);
    std::set<std::int64_t> named;
    const auto is_good = [&](const std::string& at, std::uint32_t number) {
      if (live.is_alive(number) && named.insert(number).second) return true;
      document_.complain(at,
                         fmt::format("expected an allocation that is alive at the end, named once, found {}", number));
      return false;
    };
    for (std::size_t k = 0; k < pass.saved.size(); ++k) is_good(below(path(name, "saved"), k), pass.saved[k]);
    for (std::size_t k = 0; k < pass.tensors.size(); ++k) {
      const auto [number, index] = pass.tensors[k];
      const std::string at = below(path(name, "tensors"), k);
      if (!is_good(at, number)) continue;
      const std::optional<Bytes> expected = bytes_of(index);
      if (!expected) {
        document_.complain(at, fmt::format("the pass makes neither tensor {} nor its gradient", index));
      } else if (expected->count != live.bytes(number)) {
        document_.complain(
            at, fmt::format("expected the {} B of tensor {}, found {}", expected->count, index, live.bytes(number)));
      }
    }
    for (std::size_t k = 0; k < pass.parameters.size(); ++k) {
      const auto [number, index] = pass.parameters[k];
      const std::string at = below(path(name, "parameters"), k);
      if (is_good(at, number) && !is_listed(stage().parameters, index)) {
        document_.complain(at, fmt::format("the stage does not have parameter {}", index));
      }
    }
    if (named.size() < live.alive()) {
      complain(name, "order",
               fmt::format("{} allocations are alive at the end, and nothing says what they are",
                           live.alive() - named.size()));
    }
  }

  JsonDocument& document_;
  const Chain& chain_;
  std::size_t i_;
};

void check_plain(JsonDocument& document, const Chain& chain, const char* key,
                 const std::vector<AllocationOrder>& orders) {
  const std::string path = std::string("allocations.plain.") + key;
  if (orders.size() != 2 * chain.stages.size()) {
    document.complain(
        path, fmt::format("expected {} lists, two for each stage, found {}", 2 * chain.stages.size(), orders.size()));
  }
  LiveAllocations live;
  for (std::size_t k = 0; k < orders.size(); ++k) live.follow(document, below(path, k), orders[k]);
}

Json lasting_json(const std::vector<LastingAllocation>& lasting) {
  Json list = Json::array();
  for (const LastingAllocation& of : lasting) list.push_back({of.number, of.index});
  return list;
}

Json pass_json(const PassAllocations& pass) {
  Json json = {{"order", pass.order}};
  if (!pass.saved.empty()) json["saved"] = pass.saved;
  if (!pass.tensors.empty()) json["tensors"] = lasting_json(pass.tensors);
  if (!pass.parameters.empty()) json["parameters"] = lasting_json(pass.parameters);
  return json;
}

}  // namespace

ChainAllocations read_allocations(JsonCursor cursor) {
  ChainAllocations allocations;
  read_fields(cursor, chain_allocation_fields, allocations);
  return allocations;
}

void check_allocations(JsonDocument& document, const Chain& chain, const ChainAllocations& of) {
  if (chain.boundaries.empty()) {
    document.complain("allocations", "there are no boundaries whose tensors could be named");
  } else if (of.stages.size() != chain.stages.size()) {
    document.complain("allocations.stages",
                      fmt::format("expected {}, one a stage, found {}", chain.stages.size(), of.stages.size()));
  } else {
    for (std::size_t i = 0; i < of.stages.size(); ++i) StageCheck(document, chain, i).run(of.stages[i]);
  }
  if (of.plain) {
    check_plain(document, chain, "new", of.plain->fresh);
    check_plain(document, chain, "accumulate", of.plain->accumulate);
  }
  document.throw_if_any();
}

Json to_json(const StageAllocations& of) {
  return {{"forward", pass_json(of.forward)},
          {"forward_nograd", pass_json(of.forward_nograd)},
          {"backward", pass_json(of.backward)},
          {"backward_accumulate", pass_json(of.backward_accumulate)}};
}

Json to_json(const PlainAllocations& of) {
  return {{"new", of.fresh}, {"accumulate", of.accumulate}};
}

}  // namespace plimsoll
