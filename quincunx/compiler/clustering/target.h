// What clustering asks about the machine that regions are made for. To add one: implement Target and register it;
// nothing else changes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include "quincunx/base/status.h"
#include "quincunx/compiler/compiler.h"

namespace qx::compiler {

struct EmittedRegion {
  // In the order of the kernel's arguments.
  llvm::SmallVector<mlir::Value> inputs;
  llvm::SmallVector<mlir::Value> outputs;
  std::shared_ptr<const Kernel> kernel;
};

// Stateless and thread-safe.
class Target {
 public:
  virtual ~Target() = default;
  virtual std::string_view name() const = 0;

  // Operators, dtypes and shapes; the message is the reason for the report.
  virtual Status supports(mlir::Operation* op) const = 0;
  // Whether supported operations of one block, in its order, can be one region. Called for many sets: cheap.
  virtual Status accepts(llvm::ArrayRef<mlir::Operation*> ops) const = 0;
  // What the operation costs for one element when it stands in a region; 0 for one that computes nothing. A region
  // whose operations cost nothing is not made.
  virtual int64_t cost(mlir::Operation* op) const = 0;
  // Whether a region of this supported operation alone is worth making. Views of its result stay outside.
  virtual bool standsAlone(mlir::Operation*) const { return false; }
  // A kernel for what accepts() has accepted. `name` is for dumped files.
  virtual Result<EmittedRegion> emit(llvm::ArrayRef<mlir::Operation*> ops, const std::string& name,
                                     const FuseOptions& options) const = 0;
};

// Takes the place of one of the same name. Thread-safe.
void registerTarget(std::shared_ptr<const Target> target);
// INVALID_ARGUMENT lists the names there are.
Result<std::shared_ptr<const Target>> findTarget(std::string_view name);

// Machine code through LLVM, by loop programs.
std::shared_ptr<const Target> createLlvmTarget();
// Tile programs: data that quincunx_runtime executes. Kernel::to_string() is the program's text.
std::shared_ptr<const Target> createTileTarget();

}  // namespace qx::compiler
