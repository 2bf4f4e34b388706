// The arithmetic of one element, for nvcc and for the host's compiler. Both get the same bits:
// float16 and bfloat16 are converted by integer operations, nothing is contracted (nvcc has
// -fmad=false, the host -ffp-contract=off), denormals are kept, and every NaN that a reduction
// stores is the positive quiet NaN without payload. collectives/kernels/sweep.cc has the same
// arithmetic for the vectors of CPUs.
#pragma once

#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define DUNLIN_DEVICE __device__ __forceinline__
#else
#define DUNLIN_DEVICE inline
#endif

namespace dunlin::collective::gpu {

template <typename To, typename From>
DUNLIN_DEVICE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// Drops the last kBits of `bits`, rounding to nearest even.
template <int kBits>
DUNLIN_DEVICE std::uint32_t round_bits(std::uint32_t bits) {
  return (bits + ((1u << (kBits - 1)) - 1) + (bits >> kBits & 1)) >> kBits;
}

// The next classes say in which types elements are stored and computed.
template <typename T>
struct Plain {
  using Stored = T;
  using Computed = T;
  DUNLIN_DEVICE static T widen(T stored) { return stored; }
  DUNLIN_DEVICE static T narrow(T value) { return value; }
};

struct Bfloat16 {
  using Stored = std::uint16_t;
  using Computed = float;
  DUNLIN_DEVICE static float widen(Stored stored) {
    return bits_as<float>(static_cast<std::uint32_t>(stored) << 16);
  }
  DUNLIN_DEVICE static Stored narrow(float value) {
    if (value != value) return 0x7fc0;
    return static_cast<Stored>(round_bits<16>(bits_as<std::uint32_t>(value)));
  }
};

struct Float16 {
  using Stored = std::uint16_t;
  using Computed = float;
  // Exponents have a bias of 15 in float16 and of 127 in float32.
  static constexpr std::uint32_t kRebias = (127u - 15u) << 23;

  DUNLIN_DEVICE static float widen(Stored stored) {
    const std::uint32_t magnitude = stored & 0x7fffu;
    const std::uint32_t sign = (stored & 0x8000u) << 16;
    std::uint32_t bits = (magnitude << 13) + kRebias;
    if (magnitude < 0x0400) {  // zero, or a denormal, which is a normal float32
      bits = bits_as<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
    } else if (magnitude >= 0x7c00) {  // infinity or NaN
      bits = magnitude << 13 | 0x7f800000u;
    }
    return bits_as<float>(bits | sign);
  }
  DUNLIN_DEVICE static Stored narrow(float value) {
    if (value != value) return 0x7e00;
    const std::uint32_t bits = bits_as<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t sign = bits >> 16 & 0x8000u;
    std::uint32_t narrowed = 0x7c00;  // infinity; numbers just below 2^16 round to it, too
    if (magnitude < 0x38800000u) {
      // Next to 0.5 the last bit of a float32 counts 2^-24, as that of a denormal float16 does.
      narrowed = bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
    } else if (magnitude < 0x47800000u) {
      narrowed = round_bits<13>(magnitude - kRebias);
    }
    return static_cast<Stored>(narrowed | sign);
  }
};

template <typename T>
DUNLIN_DEVICE T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    // If neither is less, both are the same number, or one is NaN. Combining their bits by or gives
    // the same number, -0 if either is -0, and NaN if either is NaN.
    if (a < b) return a;
    if (b < a) return b;
    return bits_as<T>(static_cast<Bits>(bits_as<Bits>(a) | bits_as<Bits>(b)));
  } else {
    return b < a ? b : a;
  }
}

template <typename T>
DUNLIN_DEVICE T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return -smaller<T>(-a, -b);
  } else {
    return a < b ? b : a;
  }
}

// The operators. Signed sums and products are computed with unsigned numbers, which wrap.
struct Sum {
  static constexpr bool kDivides = true;
  template <typename T>
  DUNLIN_DEVICE static T combine(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Product {
  static constexpr bool kDivides = false;
  template <typename T>
  DUNLIN_DEVICE static T combine(T a, T b) {
    return static_cast<T>(a * b);
  }
};
struct Min {
  static constexpr bool kDivides = false;
  template <typename T>
  DUNLIN_DEVICE static T combine(T a, T b) {
    return smaller(a, b);
  }
};
struct Max {
  static constexpr bool kDivides = false;
  template <typename T>
  DUNLIN_DEVICE static T combine(T a, T b) {
    return larger(a, b);
  }
};

// Divides a wrapped sum and truncates toward zero. The divisor may exceed the range of the type.
template <typename Unsigned, bool kIsSigned>
DUNLIN_DEVICE Unsigned divide_integer(Unsigned sum, std::uint64_t divisor) {
  const bool is_negative = kIsSigned && sum >> (sizeof(Unsigned) * 8 - 1) != 0;
  const auto magnitude = is_negative ? static_cast<Unsigned>(0 - sum) : sum;
  const auto quotient = magnitude < divisor
                            ? Unsigned{0}
                            : static_cast<Unsigned>(magnitude / static_cast<Unsigned>(divisor));
  return is_negative ? static_cast<Unsigned>(0 - quotient) : quotient;
}

// a * b + c with one rounding.
DUNLIN_DEVICE float multiply_add(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
DUNLIN_DEVICE double multiply_add(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}

// The NaN that reductions store, in place of any other.
template <typename T>
DUNLIN_DEVICE T without_payload(T value) {
  if (value == value) return value;
  if constexpr (sizeof(T) == 4) {
    return bits_as<T>(std::uint32_t{0x7fc00000});
  } else {
    return bits_as<T>(std::uint64_t{0x7ff8000000000000});
  }
}

}  // namespace dunlin::collective::gpu
