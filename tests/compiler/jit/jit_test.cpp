#include "quincunx/compiler/jit/jit.h"

#include <gtest/gtest.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace qx::compiler {
namespace {
namespace fs = std::filesystem;

// int64 f(int64 x) { return x + addend; }
ModuleBuilder adder(int64_t addend, int* built = nullptr) {
  return [=](llvm::LLVMContext& context) -> Result<std::unique_ptr<llvm::Module>> {
    if (built != nullptr) ++*built;
    auto module = std::make_unique<llvm::Module>("adder", context);
    llvm::IRBuilder<> b(context);
    auto* type = llvm::FunctionType::get(b.getInt64Ty(), {b.getInt64Ty()}, false);
    auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "f", *module);
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function));
    b.CreateRet(b.CreateAdd(function->getArg(0), b.getInt64(static_cast<uint64_t>(addend))));
    return module;
  };
}

int64_t call(const CompiledFunction& function, int64_t x) {
  return reinterpret_cast<int64_t (*)(int64_t)>(function.address())(x);
}

class JitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = (fs::temp_directory_path() / "qx-jit-XXXXXX").string();
    ASSERT_NE(::mkdtemp(directory_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string directory_;
};

TEST_F(JitTest, CompilesOnceWhileTheCodeIsHeld) {
  int built = 0;
  const CompileCounters before = compileCounters();
  const auto first = compileOrLoad({"once", "f", "", ""}, adder(5, &built));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(call(**first, 3), 8);
  const auto second = compileOrLoad({"once", "f", "", ""}, adder(5, &built));
  EXPECT_EQ((*second)->address(), (*first)->address());
  EXPECT_EQ(built, 1);
  EXPECT_EQ(compileCounters().compiled, before.compiled + 1);
  EXPECT_EQ(compileCounters().from_memory, before.from_memory + 1);
}

TEST_F(JitTest, LoadsFromDiskWhatWasCompiledBefore) {
  int built = 0;
  const JitRequest request{"kept", "f", directory_, ""};
  ASSERT_TRUE(compileOrLoad(request, adder(7, &built)).ok());  // let go at once
  const CompileCounters before = compileCounters();
  const auto again = compileOrLoad(request, adder(7, &built));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(call(**again, 1), 8);
  EXPECT_EQ(built, 1);
  EXPECT_EQ(compileCounters().from_disk, before.from_disk + 1);
}

TEST_F(JitTest, CompilesAnewWhereTheFileIsDamaged) {
  int built = 0;
  const JitRequest request{"damaged", "f", directory_, ""};
  ASSERT_TRUE(compileOrLoad(request, adder(9, &built)).ok());
  for (const auto& file : fs::directory_iterator(directory_)) {
    std::ofstream(file.path(), std::ios::app | std::ios::binary) << "x";
  }
  const CompileCounters before = compileCounters();
  const auto again = compileOrLoad(request, adder(9, &built));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(call(**again, 1), 10);
  EXPECT_EQ(built, 2);
  EXPECT_EQ(compileCounters().rejected_files, before.rejected_files + 1);
}

TEST_F(JitTest, WritesTheIrThatIsAskedFor) {
  const std::string path = directory_ + "/adder.ll";
  ASSERT_TRUE(compileOrLoad({"dumped", "f", "", path}, adder(1)).ok());
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("define i64 @f"), std::string::npos);
  const auto failed = compileOrLoad({"no folder", "f", "", directory_ + "/missing/adder.ll"}, adder(1));
  EXPECT_EQ(failed.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(JitTest, ServesThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        const auto code = compileOrLoad({"threads" + std::to_string(round), "f", directory_, ""}, adder(round));
        ASSERT_TRUE(code.ok());
        EXPECT_EQ(call(**code, i), i + round);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(JitTest, LeavesNothingToCompileForTheNextProcess) {
  const JitRequest request{"processes", "f", directory_, ""};
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto code = compileOrLoad(request, adder(11));
      ::_exit(code.ok() && call(**code, i) == i + 11 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const CompileCounters before = compileCounters();
  const auto code = compileOrLoad(request, adder(11));
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(call(**code, 1), 12);
  EXPECT_EQ(compileCounters().compiled, before.compiled);
  EXPECT_EQ(compileCounters().from_disk, before.from_disk + 1);
}

TEST_F(JitTest, ReportsInvalidIr) {
  const auto broken =
      compileOrLoad({"broken", "f", "", ""}, [](llvm::LLVMContext& context) -> Result<std::unique_ptr<llvm::Module>> {
        auto module = std::make_unique<llvm::Module>("broken", context);
        auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), false);
        auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "f", *module);
        llvm::BasicBlock::Create(context, "entry", function);  // without an end
        return module;
      });
  EXPECT_EQ(broken.status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace qx::compiler
