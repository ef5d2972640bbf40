#include "quincunx/compiler/transforms/match.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_DEF_FUSESWIGLU
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

using mfuse::BinaryKind;
using mfuse::UnaryKind;

struct SwigluPattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    if (root.getKind() != BinaryKind::mul) return mlir::failure();
    for (auto [activated, up] : {std::pair(root.getLhs(), root.getRhs()), std::pair(root.getRhs(), root.getLhs())}) {
      for (auto [unary, binary] :
           {std::pair(UnaryKind::silu, BinaryKind::swiglu), std::pair(UnaryKind::gelu_erf, BinaryKind::geglu_erf),
            std::pair(UnaryKind::gelu_tanh, BinaryKind::geglu_tanh)}) {
        Match match("swiglu", root);
        mlir::Value gate = match.unary(activated, unary);
        if (!gate) continue;
        if (gate.getType() != root.getType() || up.getType() != root.getType()) {
          return match.reject("gate and up have not both the result's type");
        }
        if (mlir::failed(match.guard())) return mlir::failure();
        match.accept();
        rewriter.replaceOp(root,
                           mfuse::BinaryOp::create(rewriter, match.location({root}), root.getType(), binary, gate, up));
        return mlir::success();
      }
    }
    return mlir::failure();
  }
};

struct FuseSwiglu : impl::FuseSwigluBase<FuseSwiglu> {
  void runOnOperation() override {
    mlir::RewritePatternSet patterns(&getContext());
    patterns.add<SwigluPattern>(&getContext());
    walkPatterns(getOperation(), std::move(patterns));
  }
};

}  // namespace
}  // namespace qx::compiler
