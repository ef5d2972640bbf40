// All operations of the dialect.
include "quincunx/compiler/dialect/mfuse_source_ops.td"
include "quincunx/compiler/dialect/mfuse_elementwise_ops.td"
include "quincunx/compiler/dialect/mfuse_shape_ops.td"
include "quincunx/compiler/dialect/mfuse_contraction_ops.td"
include "quincunx/compiler/dialect/mfuse_composite_ops.td"
