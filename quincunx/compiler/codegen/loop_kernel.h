// A loop program as machine code: compiled for the strides that calls bring, run on all threads.
#pragma once

#include <memory>
#include <string>

#include "quincunx/compiler/codegen/loop_program.h"
#include "quincunx/compiler/compiler.h"

namespace qx::compiler {

struct LoopKernelOptions {
  // Of dumped files.
  std::string name = "kernel";
  // Empty: nothing is kept, nothing is dumped.
  std::string cache_directory;
  std::string dump_directory;
};

// Compiles for contiguous tensors at once; another pattern of strides is compiled at its first call. A program needs
// 10 to 50 ms of LLVM.
Result<std::shared_ptr<const Kernel>> createLoopKernel(const LoopProgram& program, const LoopKernelOptions& options);

}  // namespace qx::compiler
