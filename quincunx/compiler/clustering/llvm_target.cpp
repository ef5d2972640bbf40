// Machine code: any region that is one loop program or a few, and products with a weight by the kernel library.
#include <algorithm>
#include <fstream>
#include <vector>

#include "quincunx/compiler/clustering/target.h"
#include "quincunx/compiler/codegen/loop_emitter.h"
#include "quincunx/compiler/codegen/loop_kernel.h"
#include "quincunx/compiler/codegen/loop_reference.h"
#include "quincunx/compiler/codegen/product_lowering.h"
#include "quincunx/compiler/codegen/region_operations.h"
#include "quincunx/compiler/codegen/region_parts.h"
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/compiler/jit/host_machine.h"
#include "quincunx/compiler/jit/object_cache.h"

namespace qx::compiler {
namespace {

// Longer code than this costs more to compile than the memory traffic that it saves.
constexpr size_t kMaxRegionOps = 96;

struct KernelPart {
  std::shared_ptr<const Kernel> kernel;
  // Which of the region's inputs and outputs are the part's.
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
};

// Loop programs that read the same inputs, one after the other.
class KernelOfParts : public Kernel {
 public:
  explicit KernelOfParts(std::vector<KernelPart> parts) : parts_(std::move(parts)) {
    for (const KernelPart& part : parts_) {
      for (const int32_t input : part.inputs) num_inputs_ = std::max<size_t>(num_inputs_, input + 1);
      for (const int32_t output : part.outputs) num_outputs_ = std::max<size_t>(num_outputs_, output + 1);
    }
  }

  Status run(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
             std::span<const int64_t> symbols) const override {
    if (inputs.size() != num_inputs_ || outputs.size() != num_outputs_) {
      return invalid_argument("expected " + std::to_string(num_inputs_) + " inputs and " +
                              std::to_string(num_outputs_) + " outputs, got " + std::to_string(inputs.size()) +
                              " and " + std::to_string(outputs.size()));
    }
    for (const KernelPart& part : parts_) {
      std::vector<TensorView> own_inputs, own_outputs;
      for (const int32_t input : part.inputs) own_inputs.push_back(inputs[input]);
      for (const int32_t output : part.outputs) own_outputs.push_back(outputs[output]);
      QX_RETURN_IF_ERROR(part.kernel->run(own_inputs, own_outputs, symbols));
    }
    return ok_status();
  }

  std::string to_string() const override {
    std::string text;
    for (const KernelPart& part : parts_) text += part.kernel->to_string();
    return text;
  }

 private:
  const std::vector<KernelPart> parts_;
  size_t num_inputs_ = 0;
  size_t num_outputs_ = 0;
};

bool isProduct(mlir::Operation* op) { return llvm::isa<mfuse::MatmulOp>(op); }

class LlvmTarget : public Target {
 public:
  std::string_view name() const override { return "llvm"; }

  Status supports(mlir::Operation* op) const override {
    if (isProduct(op)) return canLowerProduct(op);
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
    if (llvm::any_of(ops, isProduct)) return lowerProduct(ops).status();
    return lowerParts(ops).status();
  }

  int64_t cost(mlir::Operation* op) const override {
    if (llvm::isa<mfuse::ReshapeOp, mfuse::PermuteOp, mfuse::BroadcastOp, mfuse::SliceOp>(op)) return 0;
    return 1;
  }

  bool standsAlone(mlir::Operation* op) const override { return isProduct(op); }

  Result<EmittedRegion> emit(llvm::ArrayRef<mlir::Operation*> ops, const std::string& name,
                             const FuseOptions& options) const override {
    if (llvm::any_of(ops, isProduct)) {
      QX_ASSIGN_OR_RETURN(LoweredProduct product, lowerProduct(ops));
      return EmittedRegion{std::move(product.inputs), {product.output}, createProductKernel(product.program)};
    }
    QX_ASSIGN_OR_RETURN(std::vector<LoweredRegion> parts, lowerParts(ops));
    if (parts.size() == 1) {
      QX_ASSIGN_OR_RETURN(std::shared_ptr<const Kernel> kernel, loopKernel(parts[0].program, name, options));
      return EmittedRegion{std::move(parts[0].inputs), std::move(parts[0].outputs), std::move(kernel)};
    }
    EmittedRegion region;
    std::vector<KernelPart> kernels;
    for (const LoweredRegion& part : parts) {
      const std::string part_name = name + "_part" + std::to_string(kernels.size());
      QX_ASSIGN_OR_RETURN(std::shared_ptr<const Kernel> kernel, loopKernel(part.program, part_name, options));
      kernels.push_back(
          {std::move(kernel), positions(part.inputs, region.inputs), positions(part.outputs, region.outputs)});
    }
    region.kernel = std::make_shared<KernelOfParts>(std::move(kernels));
    return region;
  }

 private:
  static Result<std::shared_ptr<const Kernel>> loopKernel(const LoopProgram& program, const std::string& name,
                                                          const FuseOptions& options) {
    const LoopKernelOptions kernel_options{name, cacheDirectory(options.cache_directory), options.dump_directory};
    if (!options.dump_directory.empty()) {
      std::ofstream(options.dump_directory + "/" + name + ".loops") << to_string(program);
    }
    QX_ASSIGN_OR_RETURN(std::shared_ptr<const Kernel> kernel, createLoopKernel(program, kernel_options));
    return options.check ? checkedKernel(program, std::move(kernel)) : kernel;
  }

  // Where `values` stand in `all`, to which new ones are added.
  static std::vector<int32_t> positions(llvm::ArrayRef<mlir::Value> values, llvm::SmallVector<mlir::Value>& all) {
    std::vector<int32_t> result;
    for (const mlir::Value value : values) {
      const auto found = llvm::find(all, value);
      result.push_back(static_cast<int32_t>(found - all.begin()));
      if (found == all.end()) all.push_back(value);
    }
    return result;
  }
};

}  // namespace

std::shared_ptr<const Target> createLlvmTarget() { return std::make_shared<LlvmTarget>(); }

}  // namespace qx::compiler
