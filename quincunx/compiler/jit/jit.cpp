#include "quincunx/compiler/jit/jit.h"

#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "quincunx/base/logging.h"
#include "quincunx/compiler/jit/host_machine.h"
#include "quincunx/compiler/jit/object_cache.h"

namespace qx::compiler {
namespace {

struct Counters {
  std::atomic<int64_t> compiled{0}, from_memory{0}, from_disk{0}, rejected_files{0};
};
Counters& counters() {
  static Counters instance;
  return instance;
}

Status statusOf(llvm::Error error, const char* what) {
  return internal_error(std::string(what) + ": " + llvm::toString(std::move(error)));
}

// What generated code may call: nothing of the process is visible to it but this.
llvm::orc::SymbolMap allowedSymbols(llvm::orc::LLJIT& jit) {
  using Float = float (*)(float);
  using Double = double (*)(double);
  llvm::orc::SymbolMap symbols;
  const auto add = [&](const char* name, auto* function) {
    symbols[jit.mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(function),
                                          llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
  add("memcpy", &std::memcpy);
  add("memset", &std::memset);
  add("sinf", static_cast<Float>(&std::sin));
  add("cosf", static_cast<Float>(&std::cos));
  add("powf", static_cast<float (*)(float, float)>(&std::pow));
  add("fmodf", static_cast<float (*)(float, float)>(&std::fmod));
  add("exp2f", static_cast<Float>(&std::exp2));  // what LLVM makes of powf(2, x)
  add("expm1f", static_cast<Float>(&std::expm1));
  add("log1pf", static_cast<Float>(&std::log1p));
  add("ldexpf", static_cast<float (*)(float, int)>(&std::ldexp));  // of powf(2, float(n))
  add("sin", static_cast<Double>(&std::sin));
  add("cos", static_cast<Double>(&std::cos));
  add("fmod", static_cast<double (*)(double, double)>(&std::fmod));
  add("exp", static_cast<Double>(&std::exp));
  add("exp2", static_cast<Double>(&std::exp2));
  add("expm1", static_cast<Double>(&std::expm1));
  add("log1p", static_cast<Double>(&std::log1p));
  add("ldexp", static_cast<double (*)(double, int)>(&std::ldexp));
  add("log", static_cast<Double>(&std::log));
  add("erf", static_cast<Double>(&std::erf));
  add("tanh", static_cast<Double>(&std::tanh));
  add("pow", static_cast<double (*)(double, double)>(&std::pow));
  return symbols;
}

// Never destroyed: kernels may outlive static objects.
Result<llvm::orc::LLJIT*> processJit() {
  static const Result<llvm::orc::LLJIT*> instance = []() -> Result<llvm::orc::LLJIT*> {
    llvm::orc::JITTargetMachineBuilder machine{llvm::Triple(hostMachine().triple)};
    llvm::orc::LLJITBuilder builder;
    builder.setJITTargetMachineBuilder(std::move(machine))
        .setLinkProcessSymbolsByDefault(false)
        .setPlatformSetUp(llvm::orc::setUpInactivePlatform);
    auto jit = builder.create();
    if (!jit) return statusOf(jit.takeError(), "the JIT cannot start");
    return jit->release();
  }();
  return instance;
}

class LinkedFunction : public CompiledFunction {
 public:
  LinkedFunction(llvm::orc::LLJIT& jit, llvm::orc::JITDylib& library) : jit_(jit), library_(library) {}
  ~LinkedFunction() override {
    if (auto error = jit_.getExecutionSession().removeJITDylib(library_)) {
      QX_LOG_WARNING("compiler: cannot free a kernel: " + llvm::toString(std::move(error)));
    }
  }
  void* address() const override { return address_; }
  void set_address(void* address) { address_ = address; }

 private:
  llvm::orc::LLJIT& jit_;
  llvm::orc::JITDylib& library_;
  void* address_ = nullptr;
};

Result<std::shared_ptr<const CompiledFunction>> link(std::span<const std::byte> object, const std::string& function) {
  QX_ASSIGN_OR_RETURN(llvm::orc::LLJIT* const jit, processJit());
  static std::atomic<int64_t> count{0};
  auto& library = jit->getExecutionSession().createBareJITDylib("kernel" + std::to_string(count.fetch_add(1)));
  auto linked = std::make_shared<LinkedFunction>(*jit, library);
  if (auto error = library.define(llvm::orc::absoluteSymbols(allowedSymbols(*jit)))) {
    return statusOf(std::move(error), "the JIT cannot define symbols");
  }
  const llvm::StringRef bytes(reinterpret_cast<const char*>(object.data()), object.size());
  if (auto error = jit->addObjectFile(library, llvm::MemoryBuffer::getMemBufferCopy(bytes, function))) {
    return statusOf(std::move(error), "the JIT does not take an object");
  }
  auto address = jit->lookup(library, function);
  if (!address) return statusOf(address.takeError(), "the JIT cannot link a kernel");
  linked->set_address(address->toPtr<void*>());
  return std::shared_ptr<const CompiledFunction>(std::move(linked));
}

// The bytes of the object that this identity was compiled to before, if they are there and whole.
std::vector<std::byte> objectFromDisk(const ObjectCache& cache, const std::string& key) {
  auto object = cache.load(key);
  if (object.ok()) return std::move(object).value();
  if (object.status().code() == StatusCode::kDataLoss) counters().rejected_files.fetch_add(1);
  if (object.status().code() != StatusCode::kNotFound) QX_LOG_WARNING("compiler: " + object.status().message());
  return {};
}

Result<std::unique_ptr<llvm::Module>> buildModule(const JitRequest& request, const ModuleBuilder& build,
                                                  llvm::LLVMContext& context) {
  QX_ASSIGN_OR_RETURN(std::unique_ptr<llvm::Module> module, build(context));
  if (request.dump_path.empty()) return module;
  std::error_code error;
  llvm::raw_fd_ostream file(request.dump_path, error);
  if (error) return invalid_argument("dump_directory: cannot write " + request.dump_path + ": " + error.message());
  module->print(file, nullptr);
  return module;
}

Result<std::shared_ptr<const CompiledFunction>> compileNow(const JitRequest& request, const std::string& key,
                                                           const ModuleBuilder& build) {
  const ObjectCache cache(request.cache_directory);
  const bool keep = !request.cache_directory.empty();
  if (keep) {
    const std::vector<std::byte> object = objectFromDisk(cache, key);
    if (!object.empty()) {
      auto linked = link(object, request.function);
      if (linked.ok()) {
        counters().from_disk.fetch_add(1);
        return linked;
      }
      counters().rejected_files.fetch_add(1);
      QX_LOG_WARNING("compiler: a cached kernel is compiled anew: " + linked.status().message());
    }
  }
  llvm::LLVMContext context;
  QX_ASSIGN_OR_RETURN(const std::unique_ptr<llvm::Module> module, buildModule(request, build, context));
  QX_ASSIGN_OR_RETURN(const std::vector<std::byte> object, compileToObject(*module));
  counters().compiled.fetch_add(1);
  if (keep) {
    const Status stored = cache.store(key, object);
    if (!stored.ok()) QX_LOG_WARNING_ONCE("compiler: kernels are not kept for later: " + stored.message());
  }
  return link(object, request.function);
}

}  // namespace

CompileCounters compileCounters() {
  const Counters& now = counters();
  return {now.compiled.load(), now.from_memory.load(), now.from_disk.load(), now.rejected_files.load()};
}

Result<std::shared_ptr<const CompiledFunction>> compileOrLoad(const JitRequest& request, const ModuleBuilder& build) {
  const std::string key = digestOf(hostIdentity() + "\n" + request.function + "\n" + request.identity);
  // One lock for the table and one for each key: kernels compile side by side, but none twice.
  struct Slot {
    std::mutex mutex;
    std::weak_ptr<const CompiledFunction> code;
  };
  static std::mutex table_mutex;
  static auto& table = *new std::map<std::string, std::shared_ptr<Slot>>;
  std::shared_ptr<Slot> slot;
  {
    const std::lock_guard lock(table_mutex);
    auto& entry = table[key];
    if (entry == nullptr) entry = std::make_shared<Slot>();
    slot = entry;
  }
  const std::lock_guard lock(slot->mutex);
  if (auto code = slot->code.lock()) {
    counters().from_memory.fetch_add(1);
    if (!request.dump_path.empty()) {
      llvm::LLVMContext context;
      QX_RETURN_IF_ERROR(buildModule(request, build, context).status());
    }
    return code;
  }
  QX_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledFunction> code, compileNow(request, key, build));
  slot->code = code;
  return code;
}

}  // namespace qx::compiler
