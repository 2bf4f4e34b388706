// The bodies of the kernels: what one of `threads` threads of a launch does. nvcc makes kernels of
// them (kernels.cu). The host's compiler makes functions of them, which the stand-in for the driver
// in tests/ calls once per thread.
#pragma once

#include "collectives/kernels/gpu/arguments.h"
#include "collectives/kernels/gpu/element.h"

namespace dunlin::collective::gpu {

// The values of `kSize` elements from element `i` on (a vector, or a single element), in the type
// that the kernels compute with.
template <typename Element, std::size_t kSize>
struct Pack {
  using Stored = typename Element::Stored;
  struct alignas(kSize * sizeof(Stored)) Memory {
    Stored at[kSize];
  };
  typename Element::Computed at[kSize];

  DUNLIN_DEVICE static Pack load(const void* from, std::uint64_t i) {
    const auto memory = *reinterpret_cast<const Memory*>(static_cast<const Stored*>(from) + i);
    Pack pack;
#pragma unroll
    for (std::size_t e = 0; e < kSize; ++e) pack.at[e] = Element::widen(memory.at[e]);
    return pack;
  }
  DUNLIN_DEVICE Memory narrowed() const {
    Memory memory;
#pragma unroll
    for (std::size_t e = 0; e < kSize; ++e) memory.at[e] = Element::narrow(at[e]);
    return memory;
  }
  DUNLIN_DEVICE static void store(const Memory& memory, void* to, std::uint64_t i) {
    *reinterpret_cast<Memory*>(static_cast<Stored*>(to) + i) = memory;
  }
};

// How many inputs a step loads before it computes with them. For vectors of many elements it is
// one: each gives enough to compute, and the code would grow.
template <std::size_t kSize>
constexpr int kUnrolled = kSize > 4 ? 1 : 4;

// Calls body.step<kSize>(i) for the elements of a thread. Neighboring threads take neighboring
// vectors, so that a warp accesses whole cache lines.
template <typename Stored, typename Body>
DUNLIN_DEVICE void for_elements(const Extent& extent, std::uint64_t thread, std::uint64_t threads,
                                const Body& body) {
  constexpr std::size_t kSize = kVectorBytes / sizeof(Stored);
  for (std::uint64_t v = thread; v < extent.vectors; v += threads)
    body.template step<kSize>(extent.first + v * kSize);
  const std::uint64_t in_vectors = extent.vectors * kSize;
  for (std::uint64_t s = thread; s < extent.count - in_vectors; s += threads)
    body.template step<1>(s < extent.first ? s : s + in_vectors);
}

// `kIsSigned` says whether integers are divided as signed ones. All loads of a step come before its
// stores, so that a target may be an input.
template <typename Element, typename Op, bool kIsSigned>
struct ReduceBody {
  using Stored = typename Element::Stored;
  using Computed = typename Element::Computed;
  const ReduceArguments& arguments;

  template <std::size_t kSize>
  DUNLIN_DEVICE void step(std::uint64_t i) const {
    [[maybe_unused]] constexpr int kLoads = kUnrolled<kSize>;
    auto pack = Pack<Element, kSize>::load(arguments.inputs[0], i);
#pragma unroll kLoads
    for (std::uint32_t k = 1; k < arguments.input_count; ++k) {
      const auto next = Pack<Element, kSize>::load(arguments.inputs[k], i);
#pragma unroll
      for (std::size_t e = 0; e < kSize; ++e) pack.at[e] = Op::combine(pack.at[e], next.at[e]);
    }
#pragma unroll
    for (std::size_t e = 0; e < kSize; ++e) pack.at[e] = finished(pack.at[e]);
    const auto result = pack.narrowed();
    for (std::uint32_t t = 0; t < arguments.target_count; ++t)
      Pack<Element, kSize>::store(result, arguments.targets[t], i);
  }

  DUNLIN_DEVICE Computed finished(Computed value) const {
    if constexpr (std::is_floating_point_v<Computed>) {
      if constexpr (Op::kDivides) {
        if (arguments.factor != 1) {
          value *= static_cast<Computed>(arguments.factor);
        } else if (arguments.divisor != 1) {
          value /= static_cast<Computed>(arguments.divisor);
        }
      }
      return without_payload(value);
    } else if constexpr (Op::kDivides) {
      if (arguments.divisor != 1)
        value = divide_integer<Computed, kIsSigned>(value, arguments.divisor);
    }
    return value;
  }
};

// All loads of a step come before its store, so that the model may be an input or the own part.
// A fused multiply-add per input for float32 and float64. float16 and bfloat16 are multiplied and
// added in float32, each with a rounding of its own, as CPUs do it.
template <typename Element>
struct AverageBody {
  using Stored = typename Element::Stored;
  using Computed = typename Element::Computed;
  static constexpr bool kIsFused = sizeof(Stored) == sizeof(Computed);
  const AverageArguments& arguments;

  template <std::size_t kSize>
  DUNLIN_DEVICE void step(std::uint64_t i) const {
    [[maybe_unused]] constexpr int kLoads = kUnrolled<kSize>;
    auto pack = Pack<Element, kSize>::load(arguments.own, i);
    const auto self_weight = static_cast<Computed>(arguments.self_weight);
#pragma unroll
    for (std::size_t e = 0; e < kSize; ++e) pack.at[e] *= self_weight;
#pragma unroll kLoads
    for (std::uint32_t k = 0; k < arguments.input_count; ++k) {
      const auto weight = static_cast<Computed>(arguments.weights[k]);
      const auto next = Pack<Element, kSize>::load(arguments.inputs[k], i);
#pragma unroll
      for (std::size_t e = 0; e < kSize; ++e) {
        if constexpr (kIsFused) {
          pack.at[e] = multiply_add(weight, next.at[e], pack.at[e]);
        } else {
          pack.at[e] += weight * next.at[e];
        }
      }
    }
    Pack<Element, kSize>::store(pack.narrowed(), arguments.model, i);
  }
};

// A step of stochastic gradient descent, in the order of operations of collectives/training/sgd.cc.
struct SgdBody {
  using Stored = float;
  const SgdArguments& arguments;

  template <std::size_t kSize>
  DUNLIN_DEVICE void step(std::uint64_t i) const {
    using Floats = Pack<Plain<float>, kSize>;
    auto parameters = Floats::load(arguments.parameters, i);
    auto change = Floats::load(arguments.gradient, i);
    Floats velocity = {};
    if (arguments.velocity != nullptr) velocity = Floats::load(arguments.velocity, i);
#pragma unroll
    for (std::size_t e = 0; e < kSize; ++e) {
      const float decay = arguments.weight_decay * parameters.at[e];
      change.at[e] = arguments.velocity != nullptr
                         ? arguments.momentum * velocity.at[e] + change.at[e] + decay
                         : change.at[e] + decay;
      parameters.at[e] -= arguments.learning_rate * change.at[e];
    }
    if (arguments.velocity != nullptr) Floats::store(change.narrowed(), arguments.velocity, i);
    Floats::store(parameters.narrowed(), arguments.parameters, i);
  }
};

}  // namespace dunlin::collective::gpu
