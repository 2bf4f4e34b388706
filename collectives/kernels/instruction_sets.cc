#include "collectives/kernels/instruction_sets.h"

#include <hwy/detect_targets.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace dunlin::collective {
namespace instruction_sets {
namespace {

constinit std::atomic<std::uint64_t> known = 0;  // the bits of all targets that were added

#if HWY_ARCH_X86
// __builtin_cpu_supports() does not know these by name in all compilers.
bool has_f16c_and_lzcnt() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_F16C) == 0) return false;
  return __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & bit_LZCNT) != 0;
}
#endif

// On x86, the sets whose contents Highway documents; on other CPUs, only the baseline.
bool can_run(std::int64_t target) {
  if (target == HWY_STATIC_TARGET) return true;
#if HWY_ARCH_X86
  __builtin_cpu_init();
  const bool has_ssse3 = __builtin_cpu_supports("ssse3") != 0;
  if (target == HWY_SSSE3) return has_ssse3;
  const bool has_sse4 = has_ssse3 && __builtin_cpu_supports("sse4.1") != 0 &&
                        __builtin_cpu_supports("sse4.2") != 0 &&
                        __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
  if (target == HWY_SSE4) return has_sse4;
  const bool has_avx2 = has_sse4 && __builtin_cpu_supports("avx2") != 0 &&
                        __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("bmi") != 0 &&
                        __builtin_cpu_supports("bmi2") != 0 && has_f16c_and_lzcnt();
  if (target == HWY_AVX2) return has_avx2;
  if (target == HWY_AVX3) {
    return has_avx2 && __builtin_cpu_supports("avx512f") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
           __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512cd") != 0;
  }
#endif
  return false;
}

}  // namespace

// Before anything is added: a position that no target has.
constinit std::atomic<std::size_t> chosen = 63;

void add(std::int64_t target) {
  const auto bit = static_cast<std::uint64_t>(target);
  if ((known.fetch_or(bit) & bit) != 0) return;  // another kernel's function was added before
  if (can_run(target) && position_of(target) < chosen) chosen = position_of(target);
}

}  // namespace instruction_sets

std::vector<std::int64_t> usable_targets() {
  std::vector<std::int64_t> targets;
  for (std::uint64_t left = instruction_sets::known; left != 0; left &= left - 1) {
    const auto target = static_cast<std::int64_t>(left & -left);
    if (instruction_sets::can_run(target)) targets.push_back(target);
  }
  return targets;
}

void use_target(std::int64_t target) {
  instruction_sets::chosen = instruction_sets::position_of(target);
}

}  // namespace dunlin::collective
