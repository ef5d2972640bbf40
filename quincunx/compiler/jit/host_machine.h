// This machine as LLVM's code generator sees it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "quincunx/base/status.h"

namespace llvm {
class Module;
}

namespace qx::compiler {

struct HostMachine {
  std::string triple;
  std::string cpu;
  // "+avx2,+fma,-avx512f...", all that LLVM knows.
  std::string features;
  // f32 elements of a vector register: 16, 8 or 4.
  int lanes = 4;
  bool has_fma = false;
  // Conversions between f16 and f32 are instructions.
  bool has_f16 = false;
  // Loads and stores under a mask are instructions: of 32 and 64 bit elements, and of smaller ones.
  bool has_masked_words = false;
  bool has_masked_bytes = false;
};
const HostMachine& hostMachine();

// The text of `module`'s version, CPU and features: two objects are exchangeable only if it is the same.
std::string hostIdentity();

// Optimises `module`, whose functions are already written with vectors, and makes an object file of it. Floating point
// operations are neither reordered nor contracted beyond what their own flags say.
Result<std::vector<std::byte>> compileToObject(llvm::Module& module);

}  // namespace qx::compiler
