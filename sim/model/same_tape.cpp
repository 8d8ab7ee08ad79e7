#include "sim/model/same_tape.h"

#include <algorithm>

namespace plimsoll {
namespace {

// Every member is named: one that is added to these structs does not compile here until it is compared.

bool same(const Action& a, const Action& b) {
  const auto& [kind, op, saving, tensor, peer, last_only, implementation, chunk, at, to, form, next] = a;
  return kind == b.kind && op == b.op && saving == b.saving && tensor == b.tensor && peer == b.peer &&
         last_only == b.last_only && implementation == b.implementation && chunk.index == b.chunk.index &&
         chunk.count == b.chunk.count && at == b.at && to == b.to && form == b.form && next == b.next;
}

bool same(const Home& a, const Home& b) {
  const auto& [tensor, memories] = a;
  return tensor == b.tensor && memories == b.memories;
}

template <class Element>
bool all_same(const std::vector<Element>& a, const std::vector<Element>& b) {
  return std::ranges::equal(a, b, [](const Element& x, const Element& y) { return same(x, y); });
}

}  // namespace

bool same(const Tape& a, const Tape& b) {
  const auto& [actions, end, codecs, homes, backprop] = a;
  return backprop == b.backprop && codecs == b.codecs && all_same(actions, b.actions) && all_same(end, b.end) &&
         all_same(homes, b.homes);
}

}  // namespace plimsoll
