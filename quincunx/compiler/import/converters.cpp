#include "quincunx/compiler/import/converters.h"

namespace qx::compiler {

const ConverterTable& converters() {
  static const ConverterTable* const table = [] {
    auto* made = new ConverterTable;
    addElementwiseConverters(*made);
    addActivationConverters(*made);
    addBackwardConverters(*made);
    addShapeConverters(*made);
    addSourceConverters(*made);
    addReductionConverters(*made);
    addMatmulConverters(*made);
    addNormConverters(*made);
    return made;
  }();
  return *table;
}

}  // namespace qx::compiler
