// Runs passes of the compiler over IR in text form: `qx-opt --qx-fuse-rms-norm in.mlir`. For tests and for looking at
// what a pass does; all of MLIR's driver options work (--verify-diagnostics, --mlir-print-ir-after-all ...).
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/compiler/transforms/patterns.h"

int main(int argc, char** argv) {
  qx::compiler::registerPasses();
  mlir::DialectRegistry registry;
  registry.insert<qx::mfuse::MFuseDialect, mlir::func::FuncDialect>();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "Quincunx's pass driver\n", registry));
}
