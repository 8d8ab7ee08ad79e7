#pragma once
// An ONNX model as plain structs: nodes, shapes of weights and inputs, small integers that shapes are computed from.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {

struct OnnxTensor {
  std::string name;
  int dtype = 0;  ///< TensorProto.DataType
  std::vector<std::int64_t> dims;
  std::optional<std::vector<std::int64_t>> numbers;  ///< of few integers
  std::optional<float> scalar;                       ///< of one float
};

struct OnnxAttribute {
  std::int64_t i = 0;
  float f = 0;
  std::string s;
  std::vector<std::int64_t> ints;
  std::optional<OnnxTensor> tensor;
};

struct OnnxNode {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, OnnxAttribute> attributes;
};

/// A size, or the name of one.
struct OnnxExtent {
  std::optional<std::int64_t> value;
  std::string symbol;
};

struct OnnxInput {
  std::string name;
  int dtype = 0;
  std::vector<OnnxExtent> shape;
};

struct OnnxModel {
  std::string producer;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> weights;
  std::vector<OnnxInput> inputs;
  std::vector<std::string> outputs;
};

/// Throws InputError where the bytes are no such model.
OnnxModel parse_onnx_model(const std::string& bytes, const std::string& file_name);

}  // namespace plimsoll
