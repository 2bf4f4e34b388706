#include "collectives/kernels/sweep.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "collectives/kernels/instruction_sets.h"

#ifndef DUNLIN_SWEEP_KERNELS
#define DUNLIN_SWEEP_KERNELS
namespace dunlin::collective {
namespace {

constinit Kernel<void(DataType, ReduceOp, const Sweep&)> sweeps;

}  // namespace
}  // namespace dunlin::collective
#endif

// Highway compiles the code between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE once per
// instruction set, by including this file several times.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/sweep.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dunlin::collective::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// True if Highway's float16 conversions use the CPU's instructions, which round to nearest even.
// The conversions that Highway emulates truncate.
#if (HWY_ARCH_X86 && HWY_TARGET < HWY_SSE4 && !defined(HWY_DISABLE_F16C)) || HWY_ARCH_ARM_A64
inline constexpr bool kHasFloat16 = true;
#else
inline constexpr bool kHasFloat16 = false;
#endif

// The next classes define how elements are loaded, computed with and stored. `D` is the tag of the
// type that is computed with. Functions on pairs take two full vectors of that type.
template <typename T>
struct Plain {
  using Stored = T;
  using Computed = T;
  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const std::byte* input, std::size_t i) {
    return hn::LoadU(d, reinterpret_cast<const T*>(input) + i);
  }
  template <class D, class V>
  static HWY_INLINE V rounded(D, V value) {
    return value;
  }
  template <class D, class V>
  static HWY_INLINE void load_pair(D d, const std::byte* input, std::size_t i, V& a, V& b) {
    a = load(d, input, i);
    b = load(d, input, i + hn::Lanes(d));
  }
};

// Elements of two bytes that are computed with as float32. `Format` converts vectors of bits. A
// pair of vectors of float32 corresponds to one vector of bits.
template <class Format>
struct Widened {
  using Stored = std::uint16_t;
  using Computed = float;
  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const std::byte* input, std::size_t i) {
    const hn::Rebind<Stored, D> stored;
    return Format::widen(d, hn::LoadU(stored, reinterpret_cast<const Stored*>(input) + i));
  }
  template <class D, class V>
  static HWY_INLINE hn::VFromD<hn::Rebind<Stored, D>> rounded(D d, V value) {
    return Format::narrow(d, value);
  }
#if HWY_TARGET != HWY_SCALAR
  template <class D, class V>
  static HWY_INLINE void load_pair(D d, const std::byte* input, std::size_t i, V& a, V& b) {
    Format::widen_pair(d, reinterpret_cast<const Stored*>(input) + i, a, b);
  }
  template <class D, class V>
  static HWY_INLINE hn::VFromD<hn::Repartition<Stored, D>> rounded_pair(D d, V a, V b) {
    return Format::narrow_pair(d, a, b);
  }
#endif
};

// Returns the lower halves of 32-bit lanes, whose upper halves must be 0.
template <class D, class V>
HWY_INLINE hn::VFromD<hn::Rebind<std::uint16_t, D>> low_halves(D, V bits) {
  const hn::Rebind<std::int32_t, D> d32;
  return hn::DemoteTo(hn::Rebind<std::uint16_t, D>(), hn::BitCast(d32, bits));
}

// Drops the last kBits of `bits`, rounding to nearest even.
template <int kBits, class D, class V>
HWY_INLINE V round_bits(D d, V bits) {
  const auto odd = hn::And(hn::ShiftRight<kBits>(bits), hn::Set(d, 1));
  const auto half = hn::Set(d, (1 << (kBits - 1)) - 1);
  return hn::ShiftRight<kBits>(hn::Add(hn::Add(bits, half), odd));
}

struct Brain {
  template <class D, class V>
  static HWY_INLINE hn::VFromD<D> widen(D d, V stored) {
    const hn::RebindToUnsigned<D> bits;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, stored)));
  }
  // finished() has made all NaNs the one without payload, so that rounding cannot overflow.
  template <class D, class V>
  static HWY_INLINE auto narrow(D d, V value) {
    const hn::RebindToUnsigned<D> bits;
    return low_halves(d, round_bits<16>(bits, hn::BitCast(bits, value)));
  }
#if HWY_TARGET != HWY_SCALAR
  // One vector gets the even elements, the other the odd ones, so no element has to move.
  template <class D, class V>
  static HWY_INLINE void widen_pair(D d, const std::uint16_t* from, V& even, V& odd) {
    const hn::RebindToUnsigned<D> bits;
    const hn::Repartition<std::uint16_t, D> stored;
    const auto both = hn::BitCast(bits, hn::LoadU(stored, from));
    even = hn::BitCast(d, hn::ShiftLeft<16>(both));
    odd = hn::BitCast(d, hn::And(both, hn::Set(bits, 0xffff0000u)));
  }
  template <class D, class V>
  static HWY_INLINE auto narrow_pair(D, V even, V odd) {
    const hn::RebindToUnsigned<D> bits;
    const auto low = round_bits<16>(bits, hn::BitCast(bits, even));
    const auto high = round_bits<16>(bits, hn::BitCast(bits, odd));
    return hn::BitCast(hn::Repartition<std::uint16_t, D>(), hn::Or(low, hn::ShiftLeft<16>(high)));
  }
#endif
};

struct Half {
  template <class D, class V>
  static HWY_INLINE hn::VFromD<D> widen(D d, V stored) {
    if constexpr (kHasFloat16) {
      return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), stored));
    } else {
      const hn::RebindToSigned<D> bits;
      const auto word = hn::PromoteTo(bits, stored);
      const auto magnitude = hn::And(word, hn::Set(bits, 0x7fff));
      const auto shifted = hn::ShiftLeft<13>(magnitude);
      // Exponents have a bias of 15 in float16 and of 127 in float32.
      const auto normal = hn::Add(shifted, hn::Set(bits, (127 - 15) << 23));
      const auto infinite = hn::Or(shifted, hn::Set(bits, 0x7f800000));  // or NaN
      const auto denormal = hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-24f));
      const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits, 0x0400)),
                                         hn::BitCast(bits, denormal), normal);
      const auto wide = hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits, 0x7c00)), finite, infinite);
      return hn::BitCast(d, hn::Or(wide, hn::ShiftLeft<16>(hn::Xor(word, magnitude))));
    }
  }
  template <class D, class V>
  static HWY_INLINE auto narrow(D d, V value) {
    if constexpr (kHasFloat16) {
      return hn::BitCast(hn::Rebind<std::uint16_t, D>(),
                         hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
    } else {
      const hn::RebindToSigned<D> bits;
      const auto absolute = hn::Abs(value);
      const auto magnitude = hn::BitCast(bits, absolute);
      const auto rebiased = hn::Sub(magnitude, hn::Set(bits, (127 - 15) << 23));
      const auto normal = round_bits<13>(bits, rebiased);
      // Next to 0.5 the last bit of a float32 counts 2^-24, like the last bit of a float16
      // denormal.
      const auto near_half = hn::Add(absolute, hn::Set(d, 0.5f));
      const auto denormal = hn::Sub(hn::BitCast(bits, near_half), hn::Set(bits, 0x3f000000));
      const auto finite =
          hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits, 0x38800000)), denormal, normal);
      // From 2^16 on, the result is infinity. Values just below 2^16 round to infinity, too.
      const auto infinite = hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits, 0x7f800000)),
                                           hn::Set(bits, 0x7e00), hn::Set(bits, 0x7c00));
      const auto narrowed =
          hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits, 0x47800000)), finite, infinite);
      const auto sign = hn::Xor(hn::BitCast(bits, value), magnitude);
      return low_halves(d,
                        hn::Or(narrowed, hn::And(hn::ShiftRight<16>(sign), hn::Set(bits, 0x8000))));
    }
  }
#if HWY_TARGET != HWY_SCALAR
  template <class D, class V>
  static HWY_INLINE void widen_pair(D d, const std::uint16_t* from, V& a, V& b) {
    const hn::Rebind<std::uint16_t, D> stored;
    a = widen(d, hn::LoadU(stored, from));
    b = widen(d, hn::LoadU(stored, from + hn::Lanes(d)));
  }
  template <class D, class V>
  static HWY_INLINE auto narrow_pair(D d, V a, V b) {
    return hn::Combine(hn::Repartition<std::uint16_t, D>(), narrow(d, b), narrow(d, a));
  }
#endif
};

template <class D, class V>
HWY_INLINE V product(D d, V a, V b) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) > 1) {
    return hn::Mul(a, b);
  } else if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::Set(d, static_cast<T>(hn::GetLane(a) * hn::GetLane(b)));
  } else {  // even and odd bytes in lanes of two
    const hn::Repartition<std::uint16_t, D> pairs;
    const auto even = hn::Mul(hn::BitCast(pairs, a), hn::BitCast(pairs, b));
    const auto odd =
        hn::Mul(hn::ShiftRight<8>(hn::BitCast(pairs, a)), hn::ShiftRight<8>(hn::BitCast(pairs, b)));
    return hn::BitCast(d, hn::Or(hn::And(even, hn::Set(pairs, 0xff)), hn::ShiftLeft<8>(odd)));
  }
}

template <class D, class V>
HWY_INLINE V minimum(D, V a, V b) {
  if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
    // If neither is less, both are the same number, or one is NaN. Combining their bits by or gives
    // the same number, -0 if either is -0, and NaN if either is NaN.
    const V other = hn::IfThenElse(hn::Lt(b, a), b, hn::Or(a, b));
    return hn::IfThenElse(hn::Lt(a, b), a, other);
  } else {
    return hn::Min(a, b);
  }
}

template <class D, class V>
HWY_INLINE V maximum(D d, V a, V b) {
  if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
    return hn::Neg(minimum(d, hn::Neg(a), hn::Neg(b)));
  } else {
    return hn::Max(a, b);
  }
}

template <ReduceOp kOp, class D, class V>
HWY_INLINE V combined(D d, V a, V b) {
  if constexpr (kOp == ReduceOp::kSum) {
    return hn::Add(a, b);
  } else if constexpr (kOp == ReduceOp::kProduct) {
    return product(d, a, b);
  } else if constexpr (kOp == ReduceOp::kMin) {
    return minimum(d, a, b);
  } else {
    return maximum(d, a, b);
  }
}

// Only floating-point sums are divided here. All NaNs are replaced by one, because the compiler may
// choose which operand's payload an addition keeps.
template <ReduceOp kOp, class D, class V>
HWY_INLINE V finished(D d, V value, Finish finish, double factor) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_floating_point_v<T>) {
    if constexpr (kOp == ReduceOp::kSum) {
      if (finish == Finish::kMultiply) {
        value = hn::Mul(value, hn::Set(d, static_cast<T>(factor)));
      } else if (finish == Finish::kDivide) {
        value = hn::Div(value, hn::Set(d, static_cast<T>(factor)));
      }
    }
    const auto nan = hn::Set(d, std::numeric_limits<T>::quiet_NaN());
    value = hn::IfThenElse(hn::IsNaN(value), nan, value);
  }
  return value;
}

// Reduces as many elements as one vector of `d` holds, from element `i` on.
template <class Element, ReduceOp kOp, class D>
HWY_INLINE void sweep_vector(D d, const Sweep& s, std::size_t i) {
  using Computed = typename Element::Computed;
  using Stored = typename Element::Stored;
  std::size_t k = 0;
  auto value = s.partial_in != nullptr
                   ? hn::LoadU(d, reinterpret_cast<const Computed*>(s.partial_in) + i)
                   : Element::load(d, s.inputs[k++], i);
  for (; k < s.input_count; ++k) {
    value = combined<kOp>(d, value, Element::load(d, s.inputs[k], i));
  }
  if (s.partial_out != nullptr) {
    hn::StoreU(value, d, reinterpret_cast<Computed*>(s.partial_out) + i);
    return;
  }
  const auto result = Element::rounded(d, finished<kOp>(d, value, s.finish, s.factor));
  for (std::size_t t = 0; t < s.target_count; ++t) {
    hn::StoreU(result, hn::Rebind<Stored, D>(), reinterpret_cast<Stored*>(s.targets[t]) + i);
  }
}

#if HWY_TARGET != HWY_SCALAR

template <class D, class V, typename T = hn::TFromD<D>>
HWY_INLINE void store_pair(D d, V a, V b, T* to, bool streams) {
  if (streams) {
    hn::Stream(a, d, to);
    hn::Stream(b, d, to + hn::Lanes(d));
  } else {
    hn::StoreU(a, d, to);
    hn::StoreU(b, d, to + hn::Lanes(d));
  }
}

// Reduces as many steps of four full vectors as fit and returns the element after the last one.
// With four vectors per step, the loop over the inputs, whose number is not a constant, costs
// little.
template <class Element, ReduceOp kOp>
HWY_NOINLINE std::size_t sweep_steps(const Sweep& sweep) {
  using Computed = typename Element::Computed;
  using Stored = typename Element::Stored;
  const hn::ScalableTag<Computed> d;
  const hn::ScalableTag<Stored> stored;
  const std::size_t lanes = hn::Lanes(d);
  const Sweep s = sweep;  // a copy tells the compiler that stores do not change it
  std::size_t i = s.begin;
  for (; i + 4 * lanes <= s.end; i += 4 * lanes) {
    const std::size_t half = i + 2 * lanes;
    hn::VFromD<decltype(d)> v0, v1, v2, v3;
    std::size_t k = 0;
    if (s.partial_in != nullptr) {
      Plain<Computed>::load_pair(d, s.partial_in, i, v0, v1);
      Plain<Computed>::load_pair(d, s.partial_in, half, v2, v3);
    } else {
      const std::byte* input = s.inputs[k++];
      Element::load_pair(d, input, i, v0, v1);
      Element::load_pair(d, input, half, v2, v3);
    }
    for (; k < s.input_count; ++k) {
      const std::byte* input = s.inputs[k];
      hn::VFromD<decltype(d)> w0, w1, w2, w3;
      Element::load_pair(d, input, i, w0, w1);
      Element::load_pair(d, input, half, w2, w3);
      v0 = combined<kOp>(d, v0, w0);
      v1 = combined<kOp>(d, v1, w1);
      v2 = combined<kOp>(d, v2, w2);
      v3 = combined<kOp>(d, v3, w3);
    }
    if (s.partial_out != nullptr) {
      auto* partial = reinterpret_cast<Computed*>(s.partial_out);
      store_pair(d, v0, v1, partial + i, false);
      store_pair(d, v2, v3, partial + half, false);
      continue;
    }
    v0 = finished<kOp>(d, v0, s.finish, s.factor);
    v1 = finished<kOp>(d, v1, s.finish, s.factor);
    v2 = finished<kOp>(d, v2, s.finish, s.factor);
    v3 = finished<kOp>(d, v3, s.finish, s.factor);
    if constexpr (sizeof(Stored) < sizeof(Computed)) {
      const auto r0 = Element::rounded_pair(d, v0, v1);
      const auto r1 = Element::rounded_pair(d, v2, v3);
      for (std::size_t t = 0; t < s.target_count; ++t) {
        auto* to = reinterpret_cast<Stored*>(s.targets[t]) + i;
        store_pair(stored, r0, r1, to, s.streams);
      }
    } else {
      for (std::size_t t = 0; t < s.target_count; ++t) {
        auto* to = reinterpret_cast<Stored*>(s.targets[t]);
        store_pair(stored, v0, v1, to + i, s.streams);
        store_pair(stored, v2, v3, to + half, s.streams);
      }
    }
  }
  return i;
}

#endif  // HWY_TARGET != HWY_SCALAR

template <class Element, ReduceOp kOp>
HWY_NOINLINE void sweep_elements(const Sweep& s) {
  using Computed = typename Element::Computed;
  std::size_t i = s.begin;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<Computed> full;
  if (s.end - s.begin >= 4 * hn::Lanes(full)) i = sweep_steps<Element, kOp>(s);
  const hn::CappedTag<Computed, 16 / sizeof(Computed)> short_vector;
  for (; i + hn::Lanes(short_vector) <= s.end; i += hn::Lanes(short_vector)) {
    sweep_vector<Element, kOp>(short_vector, s, i);
  }
#endif
  const hn::CappedTag<Computed, 1> one;
  for (; i < s.end; ++i) sweep_vector<Element, kOp>(one, s, i);
}

// Signed and unsigned sums and products have the same bits; `Unsigned` wraps without overflow.
template <class Unsigned, class Element>
void sweep_op(ReduceOp op, const Sweep& s) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return sweep_elements<Unsigned, ReduceOp::kSum>(s);
    case ReduceOp::kProduct:
      return sweep_elements<Unsigned, ReduceOp::kProduct>(s);
    case ReduceOp::kMin:
      return sweep_elements<Element, ReduceOp::kMin>(s);
    case ReduceOp::kMax:
      return sweep_elements<Element, ReduceOp::kMax>(s);
  }
}

void sweep_type(DataType type, ReduceOp op, const Sweep& s) {
  switch (type) {
    case DataType::kInt8:
      return sweep_op<Plain<std::uint8_t>, Plain<std::int8_t>>(op, s);
    case DataType::kUint8:
      return sweep_op<Plain<std::uint8_t>, Plain<std::uint8_t>>(op, s);
    case DataType::kInt32:
      return sweep_op<Plain<std::uint32_t>, Plain<std::int32_t>>(op, s);
    case DataType::kInt64:
      return sweep_op<Plain<std::uint64_t>, Plain<std::int64_t>>(op, s);
    case DataType::kFloat16:
      return sweep_op<Widened<Half>, Widened<Half>>(op, s);
    case DataType::kBfloat16:
      return sweep_op<Widened<Brain>, Widened<Brain>>(op, s);
    case DataType::kFloat32:
      return sweep_op<Plain<float>, Plain<float>>(op, s);
    case DataType::kFloat64:
      return sweep_op<Plain<double>, Plain<double>>(op, s);
  }
}

}  // namespace dunlin::collective::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace dunlin::collective::HWY_NAMESPACE {

[[maybe_unused]] const bool kIsAdded = sweeps.add(HWY_TARGET, &sweep_type);

}  // namespace dunlin::collective::HWY_NAMESPACE

#if HWY_ONCE
namespace dunlin::collective {

void sweep(DataType type, ReduceOp op, const Sweep& sweep) {
  sweeps.chosen()(type, op, sweep);
}

}  // namespace dunlin::collective
#endif
