#include "bindings/c10d/tensors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

namespace dunlin::torch_backend {

using collective::DataType;
using collective::ReduceOp;
using collective::Reduction;

namespace {

DataType type_of(const at::Tensor& tensor, const char* call) {
  switch (tensor.scalar_type()) {
    case at::kChar:
      return DataType::kInt8;
    case at::kByte:
      return DataType::kUint8;
    case at::kInt:
      return DataType::kInt32;
    case at::kLong:
      return DataType::kInt64;
    case at::kHalf:
      return DataType::kFloat16;
    case at::kBFloat16:
      return DataType::kBfloat16;
    case at::kFloat:
      return DataType::kFloat32;
    case at::kDouble:
      return DataType::kFloat64;
    default:
      TORCH_CHECK(false, "dunlin: ", call, ": elements of type ", tensor.scalar_type(),
                  " can be moved, not reduced; int8, uint8, int32, int64, float16, bfloat16, "
                  "float32, float64 and bool can");
  }
}

ReduceOp op_of(c10d::ReduceOp::RedOpType op, const char* call) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAverage;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceOp::kSum;
    default:
      TORCH_CHECK(false, "dunlin: ", call, ": there is no reduction of the number ",
                  static_cast<int>(op));
  }
}

// The factor of PREMUL_SUM if it was given as a tensor; 1.13 has one for each device.
template <typename Supplement>
at::Tensor factor_tensor(const Supplement& supplement) {
  if constexpr (requires { supplement.tensor_factor; }) {
    return supplement.tensor_factor;
  } else {
    return supplement.tensor_factors.empty() ? at::Tensor() : supplement.tensor_factors.front();
  }
}

std::byte* data(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

}  // namespace

void check(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK(tensor.defined(), "dunlin: ", call, ": an undefined tensor");
  TORCH_CHECK(tensor.layout() == at::kStrided, "dunlin: ", call, ": a tensor of the layout ",
              tensor.layout(), "; only all_reduce takes sparse ones: use to_dense()");
  TORCH_CHECK(!tensor.is_meta(), "dunlin: ", call,
              ": the tensor is on the meta device, where it has no elements");
}

at::Tensor& only(std::vector<at::Tensor>& tensors, const char* call) {
  TORCH_CHECK(tensors.size() == 1, "dunlin: ", call, ": one tensor per process, not ",
              tensors.size());
  check(tensors[0], call);
  return tensors[0];
}

void check_like(const at::Tensor& tensor, const at::Tensor& like, const char* call) {
  check(tensor, call);
  TORCH_CHECK(tensor.scalar_type() == like.scalar_type(), "dunlin: ", call, ": tensors of types ",
              tensor.scalar_type(), " and ", like.scalar_type());
  TORCH_CHECK(tensor.numel() == like.numel(), "dunlin: ", call, ": tensors of ", tensor.numel(),
              " and ", like.numel(), " elements");
}

void check_types(const std::vector<at::Tensor>& tensors, const at::Tensor& like, const char* call) {
  for (const at::Tensor& tensor : tensors) {
    check(tensor, call);
    TORCH_CHECK(tensor.scalar_type() == like.scalar_type(), "dunlin: ", call, ": tensors of types ",
                tensor.scalar_type(), " and ", like.scalar_type());
  }
}

bool is_bitwise(const c10d::ReduceOp& op) {
  return op == c10d::ReduceOp::BAND || op == c10d::ReduceOp::BOR || op == c10d::ReduceOp::BXOR;
}

void check_bits(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK(at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true), "dunlin: ", call,
              ": bitwise reductions need integers or bools, not ", tensor.scalar_type());
}

void fold_bits(const at::Tensor& rows, std::size_t parts, const c10d::ReduceOp& op,
               const at::Tensor& target) {
  // Views that autograd knows nothing of.
  const auto plain = [&](std::byte* from) {
    return at::from_blob(from, {target.numel()}, at::TensorOptions(target.scalar_type()));
  };
  if (target.numel() == 0) return;
  std::memcpy(data(target), data(rows), bytes(target));
  at::Tensor result = plain(data(target));
  for (std::size_t part = 1; part < parts; ++part) {
    const at::Tensor row = plain(data(rows) + part * bytes(target));
    if (op == c10d::ReduceOp::BAND) {
      result.bitwise_and_(row);
    } else if (op == c10d::ReduceOp::BOR) {
      result.bitwise_or_(row);
    } else {
      result.bitwise_xor_(row);
    }
  }
}

at::Tensor scaled(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* call) {
  if (op != c10d::ReduceOp::PREMUL_SUM) return tensor;
  TORCH_CHECK(at::isFloatingType(tensor.scalar_type()), "dunlin: ", call,
              ": PREMUL_SUM needs floating-point numbers, not ", tensor.scalar_type());
  // As documented in torch.distributed, the user of a supplement has to know its type.
  const auto* const supplement =
      static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "dunlin: ", call, ": PREMUL_SUM without a factor");
  const at::Tensor given = factor_tensor(*supplement);
  const at::Scalar factor = given.defined() ? given.item() : supplement->double_factor;
  return tensor.detach() * factor;
}

Reduction reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* call) {
  const ReduceOp reduce = op_of(op, call);
  if (tensor.scalar_type() != at::kBool) return {type_of(tensor, call), reduce};
  TORCH_CHECK(reduce != ReduceOp::kAverage, "dunlin: ", call, ": bools have no average");
  const bool is_any = reduce == ReduceOp::kSum || reduce == ReduceOp::kMax;
  return {DataType::kUint8, is_any ? ReduceOp::kMax : ReduceOp::kMin};
}

bool are_even(const std::vector<at::Tensor>& tensors) {
  return std::ranges::all_of(
      tensors, [&](const at::Tensor& tensor) { return tensor.numel() == tensors[0].numel(); });
}

Flat flat_of(const std::vector<at::Tensor>& tensors) {
  int64_t elements = 0;
  bool is_one = true;
  for (const at::Tensor& tensor : tensors) {
    is_one = is_one && data(tensor) == data(tensors[0]) + elements * tensor.element_size();
    elements += tensor.numel();
  }
  // Different allocations that happen to be adjacent work as well.
  if (is_one) return {tensors[0], false};
  return {at::empty({elements}, tensors[0].options().requires_grad(false)), true};
}

void pack(const std::vector<at::Tensor>& tensors, const at::Tensor& flat) {
  std::byte* to = data(flat);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) std::memcpy(to, data(tensor), bytes(tensor));
    to += bytes(tensor);
  }
}

void unpack(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  const std::byte* from = data(flat);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) std::memcpy(data(tensor), from, bytes(tensor));
    from += bytes(tensor);
  }
}

}  // namespace dunlin::torch_backend
