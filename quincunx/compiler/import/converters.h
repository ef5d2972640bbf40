// What each PyTorch operator is in mfuse.
#pragma once

#include <functional>

#include "llvm/ADT/StringMap.h"
#include "quincunx/compiler/import/node_importer.h"

namespace qx::compiler {

// Emits a node and finishes all of its results. False if the dialect does not model it with these arguments; what was
// emitted by then is removed.
using Converter = std::function<bool(NodeImporter&)>;
using ConverterTable = llvm::StringMap<Converter>;

void addElementwiseConverters(ConverterTable& table);
void addActivationConverters(ConverterTable& table);
void addBackwardConverters(ConverterTable& table);
void addShapeConverters(ConverterTable& table);
void addSourceConverters(ConverterTable& table);
void addReductionConverters(ConverterTable& table);
void addMatmulConverters(ConverterTable& table);
void addNormConverters(ConverterTable& table);

// All of them, by the operator's full name: "aten.add.Tensor".
const ConverterTable& converters();

}  // namespace qx::compiler
