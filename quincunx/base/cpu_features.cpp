#include "quincunx/base/cpu_features.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace qx {
namespace {

constexpr bool bit(uint64_t word, int index) { return ((word >> index) & 1) != 0; }

// Register groups in XCR0: the operating system saves those whose bits are set.
constexpr uint64_t kYmmState = 0x06;      // SSE and the upper halves of YMM
constexpr uint64_t kZmmState = 0xe6;      // and the mask registers and both parts of ZMM
constexpr uint64_t kTileState = 0x60000;  // TILECFG and TILEDATA

#if defined(__x86_64__)
CpuFeatures detect() {
  CpuidAnswers answers;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return {};
  answers.leaf1_ecx = ecx;
  constexpr int kOsUsesXsave = 27;
  if (bit(ecx, kOsUsesXsave)) {
    uint32_t low = 0, high = 0;
    // The instruction itself: the intrinsic would ask for -mxsave.
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    answers.xcr0 = (static_cast<uint64_t>(high) << 32) | low;
  }
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    const uint32_t last_subleaf = eax;
    answers.leaf7_ebx = ebx;
    answers.leaf7_ecx = ecx;
    answers.leaf7_edx = edx;
    if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) answers.leaf7_1_eax = eax;
  }
  return features_from_cpuid(answers);
}
#elif defined(__aarch64__)
CpuFeatures detect() {
  constexpr int kAsimd = 1;  // HWCAP_ASIMD and HWCAP_SVE of the kernel's asm/hwcap.h
  constexpr int kSve = 22;
  CpuFeatures features;
  features.neon = bit(getauxval(AT_HWCAP), kAsimd);
  features.sve = bit(getauxval(AT_HWCAP), kSve);
  return features;
}
#else
CpuFeatures detect() { return {}; }
#endif

// "48K" as sysfs writes it.
int64_t cache_bytes_in_sysfs(int level, const std::string& excluded_type) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    int found_level = 0;
    std::string type;
    int64_t kibibytes = 0;
    if (!(std::ifstream(folder + "level") >> found_level) || !(std::ifstream(folder + "type") >> type)) return 0;
    if (found_level != level || type == excluded_type) continue;
    if (std::ifstream(folder + "size") >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

int64_t cache_bytes(int level, int sysconf_name) {
  const int64_t bytes = cache_bytes_in_sysfs(level, "Instruction");
  return bytes > 0 ? bytes : std::max<int64_t>(0, sysconf(sysconf_name));
}

CacheSizes detect_caches() {
  CacheSizes sizes;
  sizes.l1_data_bytes = cache_bytes(1, _SC_LEVEL1_DCACHE_SIZE);
  sizes.l2_bytes = cache_bytes(2, _SC_LEVEL2_CACHE_SIZE);
  sizes.l3_bytes = cache_bytes(3, _SC_LEVEL3_CACHE_SIZE);
  sizes.line_bytes = std::max<int64_t>(0, sysconf(_SC_LEVEL1_DCACHE_LINESIZE));
  if (sizes.l1_data_bytes == 0) sizes.l1_data_bytes = 32 * 1024;
  if (sizes.l2_bytes == 0) sizes.l2_bytes = 512 * 1024;
  if (sizes.line_bytes == 0) sizes.line_bytes = 64;
  return sizes;
}

}  // namespace

CpuFeatures features_from_cpuid(const CpuidAnswers& answers) {
  CpuFeatures features;
  if ((answers.xcr0 & kYmmState) != kYmmState) return features;
  features.avx2 = bit(answers.leaf7_ebx, 5);
  features.fma = bit(answers.leaf1_ecx, 12);
  features.f16c = bit(answers.leaf1_ecx, 29);
  if ((answers.xcr0 & kZmmState) == kZmmState && bit(answers.leaf7_ebx, 16)) {
    features.avx512f = true;
    features.avx512bw = bit(answers.leaf7_ebx, 30);
    features.avx512dq = bit(answers.leaf7_ebx, 17);
    features.avx512vl = bit(answers.leaf7_ebx, 31);
    features.avx512vnni = bit(answers.leaf7_ecx, 11);
    features.avx512bf16 = bit(answers.leaf7_1_eax, 5);
    features.avx512fp16 = bit(answers.leaf7_edx, 23);
  }
  if ((answers.xcr0 & kTileState) == kTileState && bit(answers.leaf7_edx, 24)) {
    features.amx_tile = true;
    features.amx_int8 = bit(answers.leaf7_edx, 25);
    features.amx_bf16 = bit(answers.leaf7_edx, 22);
  }
  return features;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::string to_string(const CpuFeatures& features) {
  std::string text;
  const auto add = [&text](bool present, const char* name) {
    if (present) text += (text.empty() ? "" : " ") + std::string(name);
  };
  add(features.avx2, "avx2");
  add(features.fma, "fma");
  add(features.f16c, "f16c");
  add(features.avx512f, "avx512f");
  add(features.avx512bw, "avx512bw");
  add(features.avx512dq, "avx512dq");
  add(features.avx512vl, "avx512vl");
  add(features.avx512vnni, "avx512vnni");
  add(features.avx512bf16, "avx512bf16");
  add(features.avx512fp16, "avx512fp16");
  add(features.amx_tile, "amx_tile");
  add(features.amx_int8, "amx_int8");
  add(features.amx_bf16, "amx_bf16");
  add(features.neon, "neon");
  add(features.sve, "sve");
  return text.empty() ? "baseline" : text;
}

const CacheSizes& cache_sizes() {
  static const CacheSizes sizes = detect_caches();
  return sizes;
}

}  // namespace qx
