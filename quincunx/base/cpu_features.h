// What this machine's CPU can do, as far as the operating system lets programs use it. Found once, then constant.
#pragma once

#include <cstdint>
#include <string>

namespace qx {

struct CpuFeatures {
  // x86-64. A vector extension counts only where the operating system saves its registers.
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512dq = false;
  bool avx512vl = false;
  bool avx512vnni = false;
  bool avx512bf16 = false;
  bool avx512fp16 = false;
  // A process must ask the kernel for the tile registers (arch_prctl ARCH_REQ_XCOMP_PERM) before it uses them.
  bool amx_tile = false;
  bool amx_int8 = false;
  bool amx_bf16 = false;
  // AArch64.
  bool neon = false;
  bool sve = false;
};

const CpuFeatures& cpu_features();
// "avx2 fma f16c", in the order above; "baseline" if there are none.
std::string to_string(const CpuFeatures& features);

// What CPUID and XGETBV answer: the registers that the features above are read from.
struct CpuidAnswers {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t leaf7_ecx = 0;
  uint32_t leaf7_edx = 0;
  uint32_t leaf7_1_eax = 0;
  uint64_t xcr0 = 0;  // 0 where leaf 1 says that the operating system does not use XSAVE
};
CpuFeatures features_from_cpuid(const CpuidAnswers& answers);

// Of the caches that one core reaches; a level that does not exist is 0. Where nothing can be found out: 32 KiB,
// 512 KiB, 0, and lines of 64 bytes.
struct CacheSizes {
  int64_t l1_data_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;
  int64_t line_bytes = 0;
};
const CacheSizes& cache_sizes();

}  // namespace qx
