#pragma once
// Tensors and scratch as packing places them: at multiples of 64 bytes, and of no more.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/training/op_cases.h"
#include "validate/networks/packing.h"

namespace plimsoll {

/// `lines` x 64 bytes behind a multiple of 256.
inline std::byte* placed_in(std::vector<std::byte>& storage, std::size_t lines) {
  const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
  return storage.data() + (256 - address % 256) % 256 + lines * alignment;
}

class ScratchPiece {
 public:
  ScratchPiece(Bytes bytes, std::size_t lines)
      : storage_(static_cast<std::size_t>(bytes.count) + 1024, std::byte{0x5A}),
        address_(placed_in(storage_, lines)),
        size_(static_cast<std::size_t>(bytes.count)) {}

  std::byte* address() const { return address_; }
  bool is_untouched_behind() const {
    return std::all_of(address_ + size_, address_ + size_ + 64, [](std::byte b) { return b == std::byte{0x5A}; });
  }

 private:
  std::vector<std::byte> storage_;
  std::byte* address_;
  std::size_t size_;
};

class PlacedValues {
 public:
  explicit PlacedValues(const OpValues& values) {
    place(values.inputs, inputs_);
    place(values.outputs, outputs_);
  }

  KernelArguments arguments() const {
    KernelArguments made;
    for (const ScratchPiece& piece : inputs_) made.inputs.push_back(piece.address());
    for (const ScratchPiece& piece : outputs_) made.outputs.push_back(piece.address());
    return made;
  }
  void read_back(OpValues& values) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) read(values.inputs[i], inputs_[i]);
    for (std::size_t o = 0; o < outputs_.size(); ++o) read(values.outputs[o], outputs_[o]);
  }

 private:
  static void place(const std::vector<std::vector<float>>& all, std::vector<ScratchPiece>& pieces) {
    pieces.reserve(all.size());
    for (const std::vector<float>& values : all) {
      pieces.emplace_back(Bytes{static_cast<std::int64_t>(4 * values.size())}, 1);
      std::memcpy(pieces.back().address(), values.data(), 4 * values.size());
    }
  }
  static void read(std::vector<float>& values, const ScratchPiece& piece) {
    std::memcpy(values.data(), piece.address(), 4 * values.size());
  }

  std::vector<ScratchPiece> inputs_, outputs_;
};

}  // namespace plimsoll
