#include "validate/cpu/kernels/onednn.h"

namespace plimsoll {

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

NumberType type_of(const Tensor& tensor) {
  return is_bf16(tensor) ? NumberType::bf16 : NumberType::f32;
}

dnnl::memory::desc dense(const Dims& dims, NumberType type) {
  Dims strides(dims.size());
  std::int64_t step = 1;
  for (std::size_t d = dims.size(); d-- > 0;) {
    strides[d] = step;
    step *= dims[d];
  }
  return strided(dims, strides, type);
}

dnnl::memory::desc strided(const Dims& dims, const Dims& strides, NumberType type) {
  return {dims, type, strides};
}

dnnl::primitive_attr own_scratch() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory at(const dnnl::memory::desc& desc, const void* address) {
  return {desc, cpu_engine(), const_cast<void*>(address)};  // inputs are only read
}

void execute(const dnnl::primitive& primitive, const std::vector<std::pair<int, dnnl::memory>>& arguments) {
  dnnl::stream stream(cpu_engine());
  primitive.execute(stream, std::unordered_map<int, dnnl::memory>(arguments.begin(), arguments.end()));
  stream.wait();
}

Kernel bound_kernel(const dnnl::primitive& primitive, const dnnl::memory::desc& scratch, std::vector<Bound> bindings) {
  const auto bytes = static_cast<std::int64_t>(scratch.get_size());
  return {[primitive, scratch, bindings = std::move(bindings)](const KernelArguments& arguments) {
            std::vector<std::pair<int, dnnl::memory>> memories{{DNNL_ARG_SCRATCHPAD, at(scratch, arguments.scratch)}};
            for (const Bound& b : bindings) {
              void* base = b.is_output ? arguments.outputs[b.index] : arguments.inputs[b.index];
              memories.emplace_back(b.argument, at(b.desc, static_cast<std::byte*>(base) + b.offset));
            }
            execute(primitive, memories);
          },
          Bytes{bytes}};
}

}  // namespace plimsoll
