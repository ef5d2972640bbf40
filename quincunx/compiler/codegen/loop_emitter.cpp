#include "quincunx/compiler/codegen/loop_emitter.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <functional>
#include <map>

#include "quincunx/base/check.h"
#include "quincunx/compiler/codegen/lane_operations.h"
#include "quincunx/compiler/jit/host_machine.h"

namespace qx::compiler {
namespace {

using Values = std::vector<llvm::Value*>;

class LoopEmitter {
 public:
  LoopEmitter(const LoopProgram& program, const LoopVariant& variant, const std::string& name, llvm::Module& module)
      : program_(program),
        variant_(variant),
        levels_(analyseLevels(program)),
        host_(hostMachine()),
        b_(module.getContext()),
        lanes_(b_, host_.has_fma) {
    if (variant.keeps_values) kept_ = keptValues(program);
    for (const Axis& axis : program.axes) num_reduced_ += axis.reduced ? 1 : 0;
    num_loops_ = 2 + num_reduced_ - (variant.vector_is_reduced ? 1 : 0);
    llvm::Type* const pointer = b_.getPtrTy();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, pointer, pointer, pointer}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    const std::string bits = std::to_string(host_.lanes * 32);
    function_->addFnAttr("prefer-vector-width", bits);
    function_->addFnAttr("min-legal-vector-width", bits);
    b_.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", function_));
  }

  void emit() {
    readArguments();
    forLoop(b_.getInt64(0), sizes_[0], 1, [&](llvm::Value* row) {
      const Values views = advance(views_, 0, row);
      if (variant_.vector_is_reduced) {
        emitRow(views, nullptr);
      } else {
        forVectors(
            [&](llvm::Value* first, llvm::Value* count) { emitRow(advance(views, vectorLoop(), first), count); });
      }
    });
    b_.CreateRetVoid();
  }

 private:
  int vectorLoop() const { return num_loops_ - 1; }
  llvm::Type* vectorOf(llvm::Type* element) { return llvm::FixedVectorType::get(element, host_.lanes); }
  // Whether values that are constant along the reduced axes are scalars, or vectors with a row in each lane.
  bool rowsAreScalar() const { return variant_.vector_is_reduced; }
  llvm::Value* splat(llvm::Value* scalar) { return b_.CreateVectorSplat(host_.lanes, scalar); }

  llvm::Value* readArray(unsigned argument, llvm::Type* type, int64_t index) {
    llvm::Value* const address = b_.CreateConstInBoundsGEP1_64(type, function_->getArg(argument), index);
    return invariant(b_.CreateLoad(type, address));
  }

  // Nothing that the loops read is written meanwhile: outputs overlap no input.
  llvm::LoadInst* invariant(llvm::LoadInst* load) {
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b_.getContext(), {}));
    return load;
  }

  void readArguments() {
    for (size_t view = 0; view < program_.views.size(); ++view) {
      views_.push_back(readArray(0, b_.getPtrTy(), static_cast<int64_t>(view)));
      Values strides;
      for (int loop = 0; loop < num_loops_; ++loop) {
        strides.push_back(readArray(1, b_.getInt64Ty(), static_cast<int64_t>(view) * num_loops_ + loop));
      }
      strides_.push_back(strides);
    }
    for (int loop = 0; loop < num_loops_; ++loop) sizes_.push_back(readArray(2, b_.getInt64Ty(), loop));
    kept_position_ = b_.CreateAlloca(b_.getPtrTy());
  }

  // for (i = begin; i < end; i += step) body(i)
  void forLoop(llvm::Value* begin, llvm::Value* end, int64_t step, const std::function<void(llvm::Value*)>& body) {
    llvm::BasicBlock* const before = b_.GetInsertBlock();
    auto* head = llvm::BasicBlock::Create(b_.getContext(), "loop", function_);
    auto* inside = llvm::BasicBlock::Create(b_.getContext(), "body", function_);
    auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", function_);
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode* const i = b_.CreatePHI(b_.getInt64Ty(), 2);
    i->addIncoming(begin, before);
    b_.CreateCondBr(b_.CreateICmpSLT(i, end), inside, after);
    b_.SetInsertPoint(inside);
    body(i);
    i->addIncoming(b_.CreateNSWAdd(i, b_.getInt64(step)), b_.GetInsertBlock());
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
  }

  // The vector loop: whole vectors with no count, then what is left with its count.
  void forVectors(const std::function<void(llvm::Value* first, llvm::Value* count)>& body) {
    llvm::Value* const size = sizes_[vectorLoop()];
    llvm::Value* const rest = b_.CreateAnd(size, b_.getInt64(host_.lanes - 1));
    llvm::Value* const whole = b_.CreateSub(size, rest);
    forLoop(b_.getInt64(0), whole, host_.lanes, [&](llvm::Value* first) { body(first, nullptr); });
    auto* partial = llvm::BasicBlock::Create(b_.getContext(), "partial", function_);
    auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", function_);
    b_.CreateCondBr(b_.CreateICmpSGT(rest, b_.getInt64(0)), partial, after);
    b_.SetInsertPoint(partial);
    body(whole, rest);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  Values advance(const Values& views, int loop, llvm::Value* steps) {
    Values moved;
    for (size_t view = 0; view < views.size(); ++view) {
      moved.push_back(b_.CreatePtrAdd(views[view], b_.CreateMul(steps, strides_[view][loop])));
    }
    return moved;
  }

  // All that is computed for one row, or for as many rows as there are lanes (the first `count` of them).
  void emitRow(const Values& views, llvm::Value* count) {
    rows_.assign(program_.code.size(), nullptr);
    emitRowValues(0, views, count);
    for (int level = 0; level < levels_.num_levels; ++level) {
      emitPass(level, views, count);
      if (level + 1 < levels_.num_levels) emitRowValues(level + 1, views, count);
    }
  }

  // Values of `level` that are constant along the reduced axes, but for the reductions, which the pass before has left.
  void emitRowValues(int level, const Values& views, llvm::Value* count) {
    for (size_t number = 0; number < program_.code.size(); ++number) {
      const Instruction& code = program_.code[number];
      if (!levels_.row[number] || levels_.level[number] != level || isReduction(code.opcode)) continue;
      if (code.opcode == Opcode::kStore) {
        storeView(code, views, rows_[code.operands[0]], count, /*scalar=*/rowsAreScalar());
        continue;
      }
      const auto operand = [&](int32_t value) { return rows_[value]; };
      rows_[number] = emitValue(number, views, count, rowsAreScalar(), operand);
    }
  }

  // What a pass over the reduced axes has to do at `level`.
  bool isRoot(size_t number, int level) const {
    const Instruction& code = program_.code[number];
    if (isReduction(code.opcode)) return levels_.level[number] == level + 1;
    return code.opcode == Opcode::kStore && !levels_.row[number] && levels_.level[number] == level;
  }

  void emitPass(int level, const Values& views, llvm::Value* count) {
    std::vector<size_t> roots;
    for (size_t number = 0; number < program_.code.size(); ++number) {
      if (isRoot(number, level)) roots.push_back(number);
    }
    if (roots.empty()) return;
    std::map<size_t, llvm::Value*> accumulators;
    for (const size_t number : roots) {
      const Instruction& code = program_.code[number];
      if (!isReduction(code.opcode)) continue;
      llvm::Type* const type = vectorOf(lanes_.accumulatorType(code.opcode, code.dtype));
      accumulators[number] = createAlloca(type);
      b_.CreateStore(llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(host_.lanes),
                                                    lanes_.identity(code.opcode, code.dtype)),
                     accumulators[number]);
    }
    b_.CreateStore(function_->getArg(4), kept_position_);
    emitReducedLoops(1, views, [&](const Values& inner) {
      if (!variant_.vector_is_reduced) return emitElements(level, roots, inner, count, accumulators);
      forVectors([&](llvm::Value* first, llvm::Value* rest) {
        emitElements(level, roots, advance(inner, vectorLoop(), first), rest, accumulators);
      });
    });
    for (const auto& [number, accumulator] : accumulators) rows_[number] = finishReduction(number, accumulator);
  }

  void emitReducedLoops(int loop, const Values& views, const std::function<void(const Values&)>& body) {
    if (loop == vectorLoop()) return body(views);
    forLoop(b_.getInt64(0), sizes_[loop], 1,
            [&](llvm::Value* i) { emitReducedLoops(loop + 1, advance(views, loop, i), body); });
  }

  llvm::Value* createAlloca(llvm::Type* type) {
    llvm::IRBuilder<> entry(&function_->getEntryBlock(), function_->getEntryBlock().begin());
    return entry.CreateAlloca(type);
  }

  // One vector of elements: everything that the roots of this level need.
  void emitElements(int level, const std::vector<size_t>& roots, const Values& views, llvm::Value* count,
                    const std::map<size_t, llvm::Value*>& accumulators) {
    elements_.assign(program_.code.size(), nullptr);
    readKept(level);
    for (const size_t number : roots) {
      const Instruction& code = program_.code[number];
      llvm::Value* value = element(code.operands[0], views, count);
      if (code.opcode == Opcode::kStore) {
        storeView(code, views, value, count, /*scalar=*/false);
        continue;
      }
      llvm::Value* const accumulator = accumulators.at(number);
      value = lanes_.widen(code.opcode, code.dtype, value);
      if (variant_.vector_is_reduced && count != nullptr) {
        llvm::Value* const nothing = splat(lanes_.identity(code.opcode, code.dtype));
        value = b_.CreateSelect(laneMask(count), value, nothing);
      }
      llvm::Value* const before = b_.CreateLoad(value->getType(), accumulator);
      b_.CreateStore(combine(code, before, value), accumulator);
    }
    writeKept(level, views, count);
  }

  llvm::Value* combine(const Instruction& code, llvm::Value* a, llvm::Value* b) {
    const bool is_double = a->getType()->getScalarType()->isDoubleTy();
    return lanes_.combine(code.opcode, is_double ? DType::kFloat64 : code.dtype, a, b);
  }

  llvm::Value* finishReduction(size_t number, llvm::Value* accumulator) {
    const Instruction& code = program_.code[number];
    llvm::Type* const type = vectorOf(lanes_.accumulatorType(code.opcode, code.dtype));
    llvm::Value* value = b_.CreateLoad(type, accumulator);
    if (!rowsAreScalar()) return lanes_.narrow(code.opcode, code.dtype, value);
    for (int width = host_.lanes / 2; width > 0; width /= 2) {
      std::vector<int> low, high;
      for (int i = 0; i < width; ++i) {
        low.push_back(i);
        high.push_back(width + i);
      }
      value = combine(code, b_.CreateShuffleVector(value, low), b_.CreateShuffleVector(value, high));
    }
    return lanes_.narrow(code.opcode, code.dtype, b_.CreateExtractElement(value, uint64_t{0}));
  }

  // A value at the current elements, as a vector.
  llvm::Value* element(int32_t number, const Values& views, llvm::Value* count) {
    if (elements_[number] != nullptr) return elements_[number];
    llvm::Value* value = rows_[number];
    if (levels_.row[number]) {
      if (rowsAreScalar()) value = splat(value);
    } else {
      const auto operand = [&](int32_t used) { return element(used, views, count); };
      value = emitValue(number, views, count, /*scalar=*/false, operand);
    }
    return elements_[number] = value;
  }

  template <typename Operand>
  llvm::Value* emitValue(size_t number, const Values& views, llvm::Value* count, bool scalar, const Operand& operand) {
    const Instruction& code = program_.code[number];
    switch (code.opcode) {
      case Opcode::kLoad: return loadView(code, views, count, scalar);
      case Opcode::kConstant: return lanes_.constant(code, scalar ? 0 : host_.lanes);
      case Opcode::kScalar: {
        llvm::Value* const value = readArray(3, b_.getInt64Ty(), code.index);
        return scalar ? value : splat(value);
      }
      case Opcode::kCast:
        return lanes_.cast(operand(code.operands[0]), program_.code[code.operands[0]].dtype, code.dtype);
      default: break;
    }
    Values operands;
    for (int i = 0; i < numOperands(code.opcode); ++i) operands.push_back(operand(code.operands[i]));
    const int typed = code.opcode == Opcode::kSelect ? 1 : 0;
    return lanes_.apply(code.opcode, program_.code[code.operands[typed]].dtype, operands);
  }

  llvm::Value* laneMask(llvm::Value* count) {
    std::vector<llvm::Constant*> numbers;
    for (int lane = 0; lane < host_.lanes; ++lane) numbers.push_back(b_.getInt32(lane));
    return b_.CreateICmpULT(llvm::ConstantVector::get(numbers), splat(b_.CreateTrunc(count, b_.getInt32Ty())));
  }

  bool hasMaskedAccess(llvm::Type* element) const {
    return element->getScalarSizeInBits() >= 32 ? host_.has_masked_words : host_.has_masked_bytes;
  }

  // Copies `count` elements one by one between a buffer on the stack and memory with a stride.
  void copyElements(llvm::Type* type, llvm::Value* count, llvm::Value* to, llvm::Value* to_stride, llvm::Value* from,
                    llvm::Value* from_stride) {
    llvm::Value* const end = count != nullptr ? count : b_.getInt64(host_.lanes);
    forLoop(b_.getInt64(0), end, 1, [&](llvm::Value* i) {
      llvm::Value* const source = b_.CreatePtrAdd(from, b_.CreateMul(i, from_stride));
      b_.CreateStore(b_.CreateAlignedLoad(type, source, elementAlign(type)),
                     b_.CreatePtrAdd(to, b_.CreateMul(i, to_stride)));
    });
  }

  static llvm::Align elementAlign(llvm::Type* element) { return llvm::Align(element->getScalarSizeInBits() / 8); }

  llvm::Value* loadView(const Instruction& code, const Values& views, llvm::Value* count, bool scalar) {
    llvm::Type* const type = lanes_.memoryType(code.dtype);
    llvm::Value* const address = views[code.index];
    const VectorStride stride = variant_.strides[code.index];
    const llvm::Align align = elementAlign(type);
    if (scalar || stride == VectorStride::kZero) {
      llvm::Value* const value = lanes_.fromMemory(invariant(b_.CreateAlignedLoad(type, address, align)), code.dtype);
      return scalar ? value : splat(value);
    }
    llvm::Type* const vector = vectorOf(type);
    llvm::Value* loaded = nullptr;
    if (stride == VectorStride::kUnit && count == nullptr) {
      loaded = invariant(b_.CreateAlignedLoad(vector, address, align));
    } else if (stride == VectorStride::kUnit && hasMaskedAccess(type)) {
      loaded = b_.CreateMaskedLoad(vector, address, align, laneMask(count), llvm::Constant::getNullValue(vector));
    } else {
      llvm::Value* const buffer = createAlloca(vector);
      b_.CreateStore(llvm::Constant::getNullValue(vector), buffer);
      llvm::Value* const step = b_.getInt64(align.value());
      copyElements(type, count, buffer, step, address, strides_[code.index][vectorLoop()]);
      loaded = b_.CreateLoad(vector, buffer);
    }
    return lanes_.fromMemory(loaded, code.dtype);
  }

  void storeView(const Instruction& code, const Values& views, llvm::Value* value, llvm::Value* count, bool scalar) {
    llvm::Type* const type = lanes_.memoryType(code.dtype);
    llvm::Value* const address = views[code.index];
    const llvm::Align align = elementAlign(type);
    llvm::Value* const stored = lanes_.toMemory(value, code.dtype);
    const bool unit = variant_.strides[code.index] == VectorStride::kUnit;
    if (scalar || (unit && count == nullptr)) {
      b_.CreateAlignedStore(stored, address, align);
    } else if (unit && hasMaskedAccess(type)) {
      b_.CreateMaskedStore(stored, address, align, laneMask(count));
    } else {
      llvm::Value* const buffer = createAlloca(vectorOf(type));
      b_.CreateStore(stored, buffer);
      copyElements(type, count, address, strides_[code.index][vectorLoop()], buffer, b_.getInt64(align.value()));
    }
  }

  llvm::Value* keptAddress(size_t slot) {
    const int64_t bytes = host_.lanes * kKeptElementBytes;
    llvm::Value* const position = b_.CreateLoad(b_.getPtrTy(), kept_position_);
    return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), position, static_cast<int64_t>(slot) * bytes);
  }

  void readKept(int level) {
    for (size_t slot = 0; slot < kept_.size(); ++slot) {
      const auto [number, first] = kept_[slot];
      if (first >= level) continue;
      elements_[number] = b_.CreateLoad(vectorOf(lanes_.registerType(program_.code[number].dtype)), keptAddress(slot));
    }
  }

  void writeKept(int level, const Values& views, llvm::Value* count) {
    for (size_t slot = 0; slot < kept_.size(); ++slot) {
      const auto [number, first] = kept_[slot];
      if (first == level) b_.CreateStore(element(number, views, count), keptAddress(slot));
    }
    if (!kept_.empty()) b_.CreateStore(keptAddress(kept_.size()), kept_position_);
  }

  const LoopProgram& program_;
  const LoopVariant& variant_;
  const LoopLevels levels_;
  const HostMachine& host_;
  llvm::IRBuilder<> b_;
  LaneOperations lanes_;
  llvm::Function* function_ = nullptr;
  std::vector<KeptValue> kept_;
  int num_reduced_ = 0;
  int num_loops_ = 0;
  Values views_;
  std::vector<Values> strides_;
  Values sizes_;
  llvm::Value* kept_position_ = nullptr;
  // What each instruction gives in the current row and for the current elements.
  Values rows_;
  Values elements_;
};

}  // namespace

std::string to_string(const LoopVariant& variant) {
  std::string text = variant.vector_is_reduced ? "across lanes " : "in lanes ";
  text += variant.keeps_values ? "keeping " : "";
  for (const VectorStride stride : variant.strides) text += static_cast<char>(stride);
  return text;
}

bool isExpensive(Opcode opcode) {
  switch (opcode) {
    case Opcode::kExp:
    case Opcode::kExpm1:
    case Opcode::kLog:
    case Opcode::kLog1p:
    case Opcode::kTanh:
    case Opcode::kErf:
    case Opcode::kSigmoid:
    case Opcode::kSin:
    case Opcode::kCos:
    case Opcode::kPow: return true;
    default: return false;
  }
}

std::vector<KeptValue> keptValues(const LoopProgram& program) {
  const LoopLevels levels = analyseLevels(program);
  // The first and the last pass over the reduced axes that need each element.
  std::vector<int> first(program.code.size(), levels.num_levels);
  std::vector<int> last(program.code.size(), -1);
  std::vector<KeptValue> kept;
  for (size_t number = program.code.size(); number-- > 0;) {
    const Instruction& code = program.code[number];
    if (levels.row[number] && !isReduction(code.opcode)) continue;
    if (code.opcode == Opcode::kStore) first[number] = last[number] = levels.level[number];
    if (isReduction(code.opcode)) first[number] = last[number] = levels.level[number] - 1;
    if (last[number] < 0) continue;
    if (isExpensive(code.opcode) && first[number] < last[number]) {
      kept.push_back({static_cast<int32_t>(number), first[number]});
      last[number] = first[number];  // its operands are needed that once only
    }
    for (int i = 0; i < numOperands(code.opcode); ++i) {
      const int32_t operand = code.operands[i];
      first[operand] = std::min(first[operand], first[number]);
      last[operand] = std::max(last[operand], last[number]);
    }
  }
  return kept;
}

ModuleBuilder loopBuilder(const LoopProgram& program, const LoopVariant& variant, const std::string& name) {
  QX_CHECK(variant.strides.size() == program.views.size());
  return [&](llvm::LLVMContext& context) -> Result<std::unique_ptr<llvm::Module>> {
    auto module = std::make_unique<llvm::Module>(name, context);
    LoopEmitter(program, variant, name, *module).emit();
    return module;
  };
}

}  // namespace qx::compiler
