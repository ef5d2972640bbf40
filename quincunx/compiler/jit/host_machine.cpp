#include "quincunx/compiler/jit/host_machine.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <mutex>

#include "quincunx/base/version.h"

namespace qx::compiler {
namespace {

HostMachine detectHost() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  HostMachine host;
  host.triple = llvm::sys::getProcessTriple();
  host.cpu = llvm::sys::getHostCPUName().str();
  const auto known = llvm::sys::getHostCPUFeatures();
  llvm::SmallVector<std::string> names;
  for (const auto& feature : known) names.push_back((feature.second ? "+" : "-") + feature.first().str());
  llvm::sort(names);  // the map's order is not defined, and the text is part of a key
  host.features = llvm::join(names, ",");
  const auto has = [&](llvm::StringRef name) { return known.lookup(name); };
  const bool arm = llvm::StringRef(host.triple).starts_with("aarch64");
  const bool wide = has("avx512f") && has("avx512bw") && has("avx512vl") && has("avx512dq");
  host.lanes = wide ? 16 : has("avx2") ? 8 : 4;
  host.has_fma = arm || has("fma");
  host.has_f16 = arm || has("f16c");
  host.has_masked_words = has("avx2");
  host.has_masked_bytes = wide;
  return host;
}

Result<std::unique_ptr<llvm::TargetMachine>> createTargetMachine() {
  const HostMachine& host = hostMachine();
  std::string message;
  const llvm::Triple triple(host.triple);
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, message);
  if (target == nullptr) return unimplemented("LLVM has no code generator for this machine: " + message);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, host.cpu, host.features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                  llvm::CodeGenOptLevel::Default, /*JIT=*/true));
  if (machine == nullptr) return internal_error("LLVM made no target machine for " + host.triple);
  return machine;
}

// The loops are vectorised already: what remains is to share, hoist and simplify. -O2 would take three times as long.
void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::SimplifyCFGPass());
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) passes.run(function, functions);
  }
}

}  // namespace

const HostMachine& hostMachine() {
  static const HostMachine host = detectHost();
  return host;
}

std::string hostIdentity() {
  const HostMachine& host = hostMachine();
  return std::string("quincunx ") + version() + " llvm " LLVM_VERSION_STRING " " + host.triple + " " + host.cpu + " " +
         host.features;
}

Result<std::vector<std::byte>> compileToObject(llvm::Module& module) {
  QX_ASSIGN_OR_RETURN(const std::unique_ptr<llvm::TargetMachine> machine, createTargetMachine());
  module.setTargetTriple(machine->getTargetTriple());
  module.setDataLayout(machine->createDataLayout());
  std::string problem;
  llvm::raw_string_ostream problems(problem);
  if (llvm::verifyModule(module, &problems)) return internal_error("code generation made invalid IR: " + problem);
  optimise(module, *machine);
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    return internal_error("LLVM cannot emit object files for " + hostMachine().triple);
  }
  passes.run(module);
  const auto* bytes = reinterpret_cast<const std::byte*>(object.data());
  return std::vector<std::byte>(bytes, bytes + object.size());
}

}  // namespace qx::compiler
