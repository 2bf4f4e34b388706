// The choice among kernels that Highway compiled for several instruction sets.
//
// Highway compiles a file once per target, which is an instruction set and has a number of one bit;
// a lower number is a wider set. Its own choice at run time (HWY_EXPORT, HWY_DYNAMIC_DISPATCH)
// needs libhwy, which measures the frequency of the CPU's clock when it is loaded: 4 ms in every
// process, for 64 ranks on two cores an eighth of a second. So Dunlin uses Highway's headers only.
//
// A file of kernels includes this header before those of Highway, defines a Kernel, and adds its
// function in the namespace of each target, outside of HWY_BEFORE_NAMESPACE: the code that adds it
// must run on every CPU.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#ifdef HWY_IS_DEBUG_BUILD
#error "instruction_sets.h must come before Highway's headers"
#endif
// Highway's assertions are in libhwy.
#define HWY_IS_DEBUG_BUILD 0
// Kernels are compiled for what can be chosen only: on x86 up to AVX-512, on other CPUs the
// baseline of the compiler.
#if defined(__x86_64__) || defined(__i386__)
#define HWY_DISABLED_TARGETS (HWY_AVX3 - 1)
#else
#define HWY_COMPILE_ONLY_STATIC
#endif

namespace dunlin::collective {

// The targets that there are kernels of and that this CPU can run.
std::vector<std::int64_t> usable_targets();
// From now on, the kernels of this target run, one of usable_targets(). For tests.
void use_target(std::int64_t target);

namespace instruction_sets {

// The position of a target's bit.
inline std::size_t position_of(std::int64_t target) {
  return static_cast<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(target)));
}
// The position of the bit of the target whose kernels run.
extern std::atomic<std::size_t> chosen;
// There are kernels of this target.
void add(std::int64_t target);

}  // namespace instruction_sets

// A function that exists for several targets. Functions are added while the library is loaded;
// after that, any thread.
template <typename Function>
class Kernel {
 public:
  // True, so that it can initialize a variable.
  bool add(std::int64_t target, Function* function) {
    functions_[instruction_sets::position_of(target)] = function;
    instruction_sets::add(target);
    return true;
  }
  // The function for the widest instruction set of this CPU.
  Function& chosen() const {
    return *functions_[instruction_sets::chosen.load(std::memory_order_relaxed)];
  }

 private:
  std::array<Function*, 64> functions_{};
};

}  // namespace dunlin::collective
