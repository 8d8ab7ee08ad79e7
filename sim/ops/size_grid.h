#pragma once
// Numbers measured at some sizes, and between them: linear in the logarithms of the sizes, the nearest border's
// outside.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace plimsoll {

/// At most so many sizes, such as those of a product.
inline constexpr std::size_t most_axes = 3;

/// What a place between the points of a grid takes of them: two to the number of axes, with weights that sum to one.
struct GridShares {
  std::array<std::size_t, 1U << most_axes> points{};
  std::array<double, 1U << most_axes> weights{};
  std::size_t count = 0;
};

class SizeGrid {
 public:
  SizeGrid() = default;
  /// Sizes of each axis, positive and ascending; a value for each combination, the last axis the fastest.
  SizeGrid(std::vector<std::vector<double>> sizes, std::vector<double> values);

  /// Between the values around these sizes, one for each axis.
  double at(std::span<const double> sizes) const;
  GridShares shares(std::span<const double> sizes) const;
  /// Whether the value there is that of a border.
  bool is_outside(std::span<const double> sizes) const;

  const std::vector<std::vector<double>>& sizes() const { return sizes_; }
  const std::vector<double>& values() const { return values_; }
  std::size_t points() const { return values_.size(); }

 private:
  /// Along one axis: the two points round a size, and how far it lies from the first to the second.
  struct Between {
    std::size_t low = 0, high = 0;
    double part = 0;
  };
  /// Sizes by octave, so that a few comparisons find one: of each octave, from that of the first size on, how many
  /// sizes are below it. Behind the sizes there are as many without end as an octave has at most.
  struct Octaves {
    std::vector<double> padded;
    std::vector<std::size_t> below;
    std::uint64_t first = 0;
    std::size_t most = 1;

    explicit Octaves(const std::vector<double>& sizes);
    /// How many sizes are not above this one, which is at least the first.
    std::size_t count_up_to(double size) const;
  };
  Between between(std::size_t axis, double size) const;
  template <std::size_t axes>
  double at_axes(std::span<const double> sizes) const;

  std::vector<std::vector<double>> sizes_, logarithms_;
  std::vector<Octaves> octaves_;
  std::vector<double> values_;
};

}  // namespace plimsoll
