// The part of DLPack's binary interface that is needed to read a tensor of another package. It is
// that of versions before 1.0, which every exporter supports. Layout:
// https://dmlc.github.io/dlpack.
#pragma once

#include <cstdint>

namespace dunlin::python::dlpack {

inline constexpr const char* kCapsule = "dltensor";
inline constexpr const char* kUsedCapsule = "used_dltensor";

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : std::uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4 };

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct Type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  Type type;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: contiguous in C order
  std::uint64_t byte_offset;
};

struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);  // may be null
};
static_assert(sizeof(Tensor) == 48 && sizeof(ManagedTensor) == 64, "DLPack's layout on 64 bits");

}  // namespace dunlin::python::dlpack
