// Machine code: any region that is one loop program.
#include <fstream>

#include "quincunx/compiler/clustering/target.h"
#include "quincunx/compiler/codegen/loop_emitter.h"
#include "quincunx/compiler/codegen/loop_kernel.h"
#include "quincunx/compiler/codegen/loop_reference.h"
#include "quincunx/compiler/codegen/region_lowering.h"
#include "quincunx/compiler/codegen/region_operations.h"
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/compiler/jit/host_machine.h"
#include "quincunx/compiler/jit/object_cache.h"

namespace qx::compiler {
namespace {

// Longer code than this costs more to compile than the memory traffic that it saves.
constexpr size_t kMaxRegionOps = 96;

class LlvmTarget : public Target {
 public:
  std::string_view name() const override { return "llvm"; }

  Status supports(mlir::Operation* op) const override {
    const auto isHalf = [](mlir::Value value) {
      const auto type = llvm::dyn_cast<mlir::RankedTensorType>(value.getType());
      return type && type.getElementType().isF16();
    };
    // LLVM would call a library for each conversion.
    const bool converts = llvm::any_of(op->getOperands(), isHalf) || llvm::any_of(op->getResults(), isHalf);
    if (converts && !hostMachine().has_f16) return unimplemented("this CPU has no conversions of float16");
    return canLower(op);
  }

  Status accepts(llvm::ArrayRef<mlir::Operation*> ops) const override {
    if (ops.size() > kMaxRegionOps) {
      return unimplemented("a region of more than " + std::to_string(kMaxRegionOps) + " operations");
    }
    return lowerRegion(ops).status();
  }

  int64_t cost(mlir::Operation* op) const override {
    if (llvm::isa<mfuse::ReshapeOp, mfuse::PermuteOp, mfuse::BroadcastOp, mfuse::SliceOp>(op)) return 0;
    return 1;
  }

  Result<EmittedRegion> emit(llvm::ArrayRef<mlir::Operation*> ops, const std::string& name,
                             const FuseOptions& options) const override {
    QX_ASSIGN_OR_RETURN(LoweredRegion region, lowerRegion(ops));
    const LoopKernelOptions kernel_options{name, cacheDirectory(options.cache_directory), options.dump_directory};
    if (!options.dump_directory.empty()) {
      std::ofstream(options.dump_directory + "/" + name + ".loops") << to_string(region.program);
    }
    QX_ASSIGN_OR_RETURN(std::shared_ptr<const Kernel> kernel, createLoopKernel(region.program, kernel_options));
    if (options.check) kernel = checkedKernel(region.program, std::move(kernel));
    return EmittedRegion{std::move(region.inputs), std::move(region.outputs), std::move(kernel)};
  }
};

}  // namespace

std::shared_ptr<const Target> createLlvmTarget() { return std::make_shared<LlvmTarget>(); }

}  // namespace qx::compiler
