// The list of all kernels. DUNLIN_GPU_REDUCES and DUNLIN_GPU_AVERAGES apply a macro to each, beside
// which there is dunlin_sgd, of SgdBody:
// kernels.cu makes the kernels in this way, and the stand-in for the driver in tests/ makes its
// table of them.
#pragma once

#include "collectives/kernels/gpu/bodies.h"

// REDUCE(name, element, operator, whether integers of the type are signed)
#define DUNLIN_GPU_REDUCE_FLOATS(REDUCE, type, element) \
  REDUCE(reduce_##type##_sum, element, Sum, true)       \
  REDUCE(reduce_##type##_prod, element, Product, true)  \
  REDUCE(reduce_##type##_min, element, Min, true)       \
  REDUCE(reduce_##type##_max, element, Max, true)
#define DUNLIN_GPU_REDUCE_INTEGERS(REDUCE, type, wrapping, compared, is_signed) \
  REDUCE(reduce_##type##_sum, Plain<wrapping>, Sum, is_signed)                  \
  REDUCE(reduce_##type##_prod, Plain<wrapping>, Product, is_signed)             \
  REDUCE(reduce_##type##_min, Plain<compared>, Min, is_signed)                  \
  REDUCE(reduce_##type##_max, Plain<compared>, Max, is_signed)
#define DUNLIN_GPU_REDUCES(REDUCE)                                             \
  DUNLIN_GPU_REDUCE_INTEGERS(REDUCE, int8, std::uint8_t, std::int8_t, true)    \
  DUNLIN_GPU_REDUCE_INTEGERS(REDUCE, uint8, std::uint8_t, std::uint8_t, false) \
  DUNLIN_GPU_REDUCE_INTEGERS(REDUCE, int32, std::uint32_t, std::int32_t, true) \
  DUNLIN_GPU_REDUCE_INTEGERS(REDUCE, int64, std::uint64_t, std::int64_t, true) \
  DUNLIN_GPU_REDUCE_FLOATS(REDUCE, float16, Float16)                           \
  DUNLIN_GPU_REDUCE_FLOATS(REDUCE, bfloat16, Bfloat16)                         \
  DUNLIN_GPU_REDUCE_FLOATS(REDUCE, float32, Plain<float>)                      \
  DUNLIN_GPU_REDUCE_FLOATS(REDUCE, float64, Plain<double>)

// AVERAGE(name, element)
#define DUNLIN_GPU_AVERAGES(AVERAGE)     \
  AVERAGE(average_float16, Float16)      \
  AVERAGE(average_bfloat16, Bfloat16)    \
  AVERAGE(average_float32, Plain<float>) \
  AVERAGE(average_float64, Plain<double>)
