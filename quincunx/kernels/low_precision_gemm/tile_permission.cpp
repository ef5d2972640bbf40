#include "quincunx/kernels/low_precision_gemm/tile_permission.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace qx::kernels {

bool may_use_tile_registers() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of the kernel's asm/prctl.h
  constexpr long kTileData = 18;               // the component of XSAVE
  static const bool is_permitted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return is_permitted;
#else
  return false;
#endif
}

}  // namespace qx::kernels
