#include "traces/imports/onnx/onnx_model.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <onnx_subset.pb.h>

#include <bit>
#include <cstring>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

constexpr int onnx_float32 = 1, onnx_int32 = 6, onnx_int64 = 7;
constexpr std::size_t most_numbers = 4096;  ///< as many as a shape could need

template <class Number>
std::vector<std::int64_t> numbers_in(const std::string& raw) {
  std::vector<std::int64_t> made;
  for (std::size_t at = 0; at + sizeof(Number) <= raw.size(); at += sizeof(Number)) {
    Number value;  // little endian, as this machine is
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&value, raw.data() + at, sizeof(Number));
    made.push_back(value);
  }
  return made;
}

std::optional<float> scalar_of(const plimsoll_onnx::TensorProto& read) {
  if (read.data_type() != onnx_float32) return std::nullopt;
  for (const std::int64_t extent : read.dims()) {
    if (extent != 1) return std::nullopt;
  }
  float value = 0;
  if (read.raw_data().size() == sizeof value) {
    std::memcpy(&value, read.raw_data().data(), sizeof value);
    return value;
  }
  return read.float_data_size() == 1 ? std::optional(read.float_data(0)) : std::nullopt;
}

OnnxTensor tensor_of(const plimsoll_onnx::TensorProto& read) {
  OnnxTensor made{.name = read.name(), .dtype = read.data_type(), .dims = {read.dims().begin(), read.dims().end()}};
  made.scalar = scalar_of(read);
  const bool is_wide = made.dtype == onnx_int64;
  if (!is_wide && made.dtype != onnx_int32) return made;
  std::vector<std::int64_t> numbers;
  if (!read.raw_data().empty() && read.raw_data().size() <= most_numbers * sizeof(std::int64_t)) {
    numbers = is_wide ? numbers_in<std::int64_t>(read.raw_data()) : numbers_in<std::int32_t>(read.raw_data());
  } else if (is_wide) {
    numbers.assign(read.int64_data().begin(), read.int64_data().end());
  } else {
    numbers.assign(read.int32_data().begin(), read.int32_data().end());
  }
  std::size_t count = 1;
  for (const std::int64_t extent : made.dims) {
    if (extent < 0 || static_cast<std::size_t>(extent) > most_numbers) return made;
    count *= static_cast<std::size_t>(extent);
    if (count > most_numbers) return made;
  }
  if (numbers.size() == count) made.numbers = std::move(numbers);
  return made;
}

OnnxNode node_of(const plimsoll_onnx::NodeProto& read) {
  OnnxNode made{.name = read.name(),
                .op = read.op_type(),
                .domain = read.domain(),
                .inputs = {read.input().begin(), read.input().end()},
                .outputs = {read.output().begin(), read.output().end()},
                .attributes = {}};
  for (const auto& each : read.attribute()) {
    OnnxAttribute& attribute = made.attributes[each.name()];
    attribute.i = each.i();
    attribute.f = each.f();
    attribute.s = each.s();
    attribute.ints.assign(each.ints().begin(), each.ints().end());
    if (each.has_t()) attribute.tensor = tensor_of(each.t());
  }
  return made;
}

OnnxInput input_of(const plimsoll_onnx::ValueInfoProto& read) {
  OnnxInput made{.name = read.name(), .dtype = read.type().tensor_type().elem_type(), .shape = {}};
  for (const auto& extent : read.type().tensor_type().shape().dim()) {
    made.shape.push_back(
        {extent.has_dim_value() ? std::optional(extent.dim_value()) : std::nullopt, extent.dim_param()});
  }
  return made;
}

}  // namespace

OnnxModel parse_onnx_model(const std::string& bytes, const std::string& file_name) {
  plimsoll_onnx::ModelProto read;
  constexpr std::size_t most = std::size_t{1} << 31;
  if (bytes.size() >= most)
    throw InputError(located(file_name, {}, "", "2 GiB and more, which no protobuf message has"));
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  if (!read.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    throw InputError(
        located(file_name, {}, "",
                fmt::format("no protobuf from byte {} of {} on: cut off, or of another format, expected an ONNX "
                            "model",
                            stream.CurrentPosition(), bytes.size())));
  }
  if (!read.has_graph() || read.graph().node().empty()) {
    throw InputError(
        located(file_name, {}, "graph", "a protobuf of another message, expected an ONNX model with nodes"));
  }
  OnnxModel made{.producer = read.producer_name(), .nodes = {}, .weights = {}, .inputs = {}, .outputs = {}};
  for (const auto& each : read.graph().node()) made.nodes.push_back(node_of(each));
  for (const auto& each : read.graph().initializer()) made.weights.push_back(tensor_of(each));
  for (const auto& each : read.graph().input()) made.inputs.push_back(input_of(each));
  for (const auto& each : read.graph().output()) made.outputs.push_back(each.name());
  return made;
}

}  // namespace plimsoll
