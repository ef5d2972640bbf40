#include "quincunx/base/cpu_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace qx {
namespace {

CpuidAnswers everything() {
  return {.leaf1_ecx = ~0u, .leaf7_ebx = ~0u, .leaf7_ecx = ~0u, .leaf7_edx = ~0u, .leaf7_1_eax = ~0u, .xcr0 = ~0ull};
}

TEST(CpuFeatures, NeedsTheOperatingSystemToSaveTheRegisters) {
  CpuidAnswers answers = everything();
  EXPECT_EQ(to_string(features_from_cpuid(answers)),
            "avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512vnni avx512bf16 avx512fp16 "
            "amx_tile amx_int8 amx_bf16");
  answers.xcr0 = 0xe7;  // no tiles
  EXPECT_EQ(to_string(features_from_cpuid(answers)),
            "avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512vnni avx512bf16 avx512fp16");
  answers.xcr0 = 0x27;  // the mask registers without the upper halves of ZMM
  EXPECT_EQ(to_string(features_from_cpuid(answers)), "avx2 fma f16c");
  answers.xcr0 = 0x03;  // SSE
  EXPECT_EQ(to_string(features_from_cpuid(answers)), "baseline");
}

TEST(CpuFeatures, CountsNoExtensionOfAMissingBase) {
  CpuidAnswers answers = everything();
  answers.leaf7_ebx &= ~(1u << 16);  // AVX-512 F
  answers.leaf7_edx &= ~(1u << 24);  // AMX tiles
  EXPECT_EQ(to_string(features_from_cpuid(answers)), "avx2 fma f16c");
}

TEST(CpuFeatures, ReadsEachBit) {
  CpuidAnswers answers{.xcr0 = ~0ull};
  answers.leaf7_ebx = 1u << 5;
  EXPECT_EQ(to_string(features_from_cpuid(answers)), "avx2");
  answers.leaf7_ebx |= 1u << 16;
  answers.leaf7_1_eax = 1u << 5;
  EXPECT_EQ(to_string(features_from_cpuid(answers)), "avx2 avx512f avx512bf16");
  answers.leaf7_ecx = 1u << 11;
  EXPECT_EQ(to_string(features_from_cpuid(answers)), "avx2 avx512f avx512vnni avx512bf16");
}

#if defined(__x86_64__)
// The kernel's own detection.
TEST(CpuFeatures, AgreesWithProcCpuinfo) {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) flags.insert(word);
    break;
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags";
  const CpuFeatures& found = cpu_features();
  EXPECT_EQ(found.avx2, flags.contains("avx2"));
  EXPECT_EQ(found.fma, flags.contains("fma"));
  EXPECT_EQ(found.f16c, flags.contains("f16c"));
  EXPECT_EQ(found.avx512f, flags.contains("avx512f"));
  EXPECT_EQ(found.avx512bw, flags.contains("avx512bw"));
  EXPECT_EQ(found.avx512dq, flags.contains("avx512dq"));
  EXPECT_EQ(found.avx512vl, flags.contains("avx512vl"));
  EXPECT_EQ(found.avx512vnni, flags.contains("avx512_vnni"));
  EXPECT_EQ(found.avx512bf16, flags.contains("avx512_bf16"));
  EXPECT_EQ(found.avx512fp16, flags.contains("avx512_fp16"));
  EXPECT_EQ(found.amx_tile, flags.contains("amx_tile"));
  EXPECT_EQ(found.amx_int8, flags.contains("amx_int8"));
  EXPECT_EQ(found.amx_bf16, flags.contains("amx_bf16"));
}
#endif

TEST(CacheSizes, ArePlausible) {
  const CacheSizes& sizes = cache_sizes();
  EXPECT_GE(sizes.l1_data_bytes, 8 * 1024);
  EXPECT_LE(sizes.l1_data_bytes, 1024 * 1024);
  EXPECT_GE(sizes.l2_bytes, 64 * 1024);
  EXPECT_GE(sizes.l3_bytes, 0);
  EXPECT_TRUE(sizes.line_bytes == 32 || sizes.line_bytes == 64 || sizes.line_bytes == 128) << sizes.line_bytes;
}

}  // namespace
}  // namespace qx
