#pragma once
// A model as planners of pipelines see it: layers with the ways in which each can be run, what flows between them, and
// the machine to plan for where the file names one. The format is described in traces/imports.md.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

inline constexpr std::string_view layer_table_format = "plimsoll.layers.v1";

/// One way to run a layer, on `devices` devices at once that share its tensors.
struct LayerOption {
  std::string name;
  std::uint32_t devices = 1;
  Seconds forward, backward;  ///< of a micro-batch
  Bytes parameters;           ///< whose gradients replicas exchange
  Bytes kept;                 ///< of each micro-batch in flight
  Bytes fixed;                ///< whatever is in flight: parameters, gradients, states, workspace
  /// (edge, bytes) that this way sends beside the edge's own where its other end is in another stage.
  std::vector<std::pair<std::uint32_t, Bytes>> sent;

  friend bool operator==(const LayerOption&, const LayerOption&) = default;
};

struct Layer {
  enum class Place { anywhere, first, last };  ///< of the pipeline's stages

  std::string name;
  std::uint32_t count = 1;  ///< equal layers in a row
  Place place = Place::anywhere;
  bool backward = false;                  ///< of the backward pass, which then has layers of its own
  std::optional<std::uint32_t> together;  ///< layers of one number share a device
  std::optional<Seconds> host;            ///< on a host, where it can run there
  std::vector<LayerOption> options;       ///< none: it runs on a host only

  friend bool operator==(const Layer&, const Layer&) = default;
};

struct LayerEdge {
  std::uint32_t from = 0, to = 0;
  Bytes bytes;
  Seconds time;  ///< of the transfer, where the file states it instead of a bandwidth

  friend bool operator==(const LayerEdge&, const LayerEdge&) = default;
};

struct LayerTable {
  std::string name;
  std::vector<std::pair<std::string, std::string>> notes;  ///< where it comes from
  std::vector<Layer> layers;
  std::vector<LayerEdge> edges;
  std::optional<std::uint32_t> devices, hosts, micro_batches;
  std::optional<Bytes> memory;  ///< of a device
  std::optional<BytesPerSecond> bandwidth;

  friend bool operator==(const LayerTable&, const LayerTable&) = default;
};

/// Throws InputError with file:line:column for what is malformed.
LayerTable read_layer_table(const std::filesystem::path&);
LayerTable parse_layer_table(std::string text, std::string file_name);

/// Reads back as the same table.
std::string layer_table_text(const LayerTable&);
void write_layer_table(const std::filesystem::path&, const LayerTable&);

/// Whether edges lead from a layer back to it, so that there is no order to compute the layers in.
bool has_circle(const LayerTable&);

}  // namespace plimsoll
