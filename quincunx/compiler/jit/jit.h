// Machine code for this process: from memory, from the disk cache, or compiled now.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "quincunx/base/status.h"
#include "quincunx/compiler/compiler.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace qx::compiler {

// A function that was linked into this process; the code goes when the last holder does.
class CompiledFunction {
 public:
  virtual ~CompiledFunction() = default;
  virtual void* address() const = 0;
};

struct JitRequest {
  // All that decides what the code does, in words: equal identities give exchangeable code. The CPU and the versions of
  // LLVM and of this library are added.
  std::string identity;
  // The symbol to look up.
  std::string function;
  // See FuseOptions; here empty means that nothing is kept.
  std::string cache_directory;
  // A file for the LLVM IR, which is then made even where the code is found in a cache; empty: none.
  std::string dump_path;
};
using ModuleBuilder = std::function<Result<std::unique_ptr<llvm::Module>>(llvm::LLVMContext&)>;

// Calls `build` only if the code is not found. A cache that cannot be read or written is reported once on the log and
// costs a compilation, nothing else. Thread-safe.
Result<std::shared_ptr<const CompiledFunction>> compileOrLoad(const JitRequest& request, const ModuleBuilder& build);

}  // namespace qx::compiler
