// Every function of tests/lit before and after the patterns and their decomposition, on numbers: what is fused keeps
// its values, and so does what only looks alike.
#include "quincunx/compiler/transforms/patterns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "compiler/transforms/module_interpreter.h"
#include "mlir/Parser/Parser.h"
#include "quincunx/compiler/import/import.h"

namespace qx::compiler {
namespace {

// Rewrites reassociate a few operations in f64.
constexpr double kTolerance = 1e-12;

const std::filesystem::path kCorpus = std::filesystem::path(QX_SOURCE_DIRECTORY) / "tests/lit";

std::vector<std::string> corpusFiles() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
    std::string name = entry.path().stem().string();
    if (name.starts_with("fuse_") || name.starts_with("decompose_")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Array> randomArguments(mlir::func::FuncOp function, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> numbers(-2.0, 2.0);
  std::vector<Array> arguments;
  for (mlir::Type type : function.getArgumentTypes()) {
    Array array{ModuleInterpreter::shapeOf(type), {}};
    for (int64_t count = countOf(array.shape); count > 0; --count) array.data.push_back(numbers(random));
    arguments.push_back(std::move(array));
  }
  return arguments;
}

void expectEqual(const std::vector<Array>& expected, const std::vector<Array>& got, const std::string& where) {
  ASSERT_EQ(expected.size(), got.size()) << where;
  for (size_t result = 0; result < expected.size(); ++result) {
    ASSERT_EQ(expected[result].shape, got[result].shape) << where;
    for (size_t i = 0; i < expected[result].data.size(); ++i) {
      double right = expected[result].data[i], value = got[result].data[i];
      if (std::isnan(right) && std::isnan(value)) continue;
      ASSERT_NEAR(value, right, kTolerance * std::max(1.0, std::abs(right))) << where << " element " << i;
    }
  }
}

class Patterns : public testing::TestWithParam<std::string> {
 protected:
  Patterns() { loadDialects(context_); }

  // Compares all functions of the module with themselves after the passes; gives how many were compared.
  int compare(bool decompose) {
    mlir::ScopedDiagnosticHandler quiet(&context_, [](mlir::Diagnostic&) { return mlir::success(); });
    std::string path = (kCorpus / (GetParam() + ".mlir")).string();
    auto before = mlir::parseSourceFile<mlir::ModuleOp>(path, &context_);
    if (!before) return 0;
    mlir::OwningOpRef<mlir::ModuleOp> after(before->clone());
    PatternOptions options;
    options.decompose = decompose;
    std::vector<Candidate> candidates;
    EXPECT_TRUE(runPatterns(*after, options, candidates).ok());
    int compared = 0;
    for (auto function : before->getOps<mlir::func::FuncOp>()) {
      auto rewritten = after->lookupSymbol<mlir::func::FuncOp>(function.getName());
      ModuleInterpreter first, second;
      auto arguments = randomArguments(function, 11);
      auto expected = first.run(function, arguments);
      auto got = second.run(rewritten, arguments);
      if (!first.known) continue;  // it has an opaque operator
      EXPECT_TRUE(second.known) << function.getName().str();
      expectEqual(expected, got, GetParam() + " @" + function.getName().str());
      ++compared;
    }
    return compared;
  }

  mlir::MLIRContext context_{mlir::MLIRContext::Threading::DISABLED};
};

TEST_P(Patterns, KeepValues) { EXPECT_GT(compare(false), 4); }

TEST_P(Patterns, KeepValuesWhenDecomposed) { EXPECT_GT(compare(true), 4); }

INSTANTIATE_TEST_SUITE_P(Corpus, Patterns, testing::ValuesIn(corpusFiles()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace qx::compiler
