// The stages of a Muon step on one bucket of one rank. Python calls them in this order, with an all_to_all after
// muon_pack and another after muon_reply:
//   muon_pack  muon_unpack  muon_orthogonalize  muon_reply  muon_apply
// Momenta and parameters change in muon_apply alone: a collective that fails leaves both as they were.
#include <torch/csrc/stable/library.h>

#include <cmath>
#include <limits>

#include "quincunx/kernels/newton_schulz/newton_schulz.h"
#include "quincunx/torch/muon/piece.h"
#include "quincunx/torch/muon/schedule_table.h"

namespace qx::muon {
namespace {

using planning::kMuonFlagElements;
using planning::MuonHeldPiece;
using planning::MuonOwnerPiece;
using torch::stable::Tensor;

float* piece_in(std::span<float> buffer, int64_t offset, int64_t rows, int64_t columns, int64_t stride,
                const char* argument) {
  if (rows < 0 || columns < 0 || stride < 0) {
    throw_if_error(invalid_argument(std::string(argument) + ": a piece of " + std::to_string(rows) + " x " +
                                    std::to_string(columns) + " elements"));
  }
  const auto size = static_cast<int64_t>(buffer.size());
  if (offset < 0 || offset + (rows - 1) * stride + columns > size) {
    throw_if_error(
        invalid_argument(std::string(argument) + ": a piece ends beyond its " + std::to_string(size) + " elements"));
  }
  return buffer.data() + offset;
}

// Flag and values of a piece in a message.
struct MessagePiece {
  float* flag;
  PackedPiece values;
};
MessagePiece message_piece(std::span<float> buffer, int64_t offset, int64_t rows, int64_t columns,
                           const char* argument) {
  float* flag = piece_in(buffer, offset, 1, kMuonFlagElements + rows * columns, 0, argument);
  return {flag, {flag + kMuonFlagElements, columns}};
}

template <typename List>
auto& element_at(List& list, int64_t index, const char* argument) {
  if (index < 0 || index >= static_cast<int64_t>(list.size())) {
    throw_if_error(invalid_argument(std::string(argument) + ": expected more than " + std::to_string(index) +
                                    " elements, got " + std::to_string(list.size())));
  }
  return list[static_cast<size_t>(index)];
}

MatrixView view_of(const std::vector<Tensor>& tensors, const MuonHeldPiece& piece, const char* argument) {
  auto view = matrix_view(element_at(tensors, piece.tensor, argument), piece.local_matrix, piece.rows, piece.columns);
  if (!view.ok()) {
    throw_if_error(Status(view.status().code(), std::string(argument) + "[" + std::to_string(piece.tensor) +
                                                    "]: " + view.status().message()));
  }
  return *view;
}

void copy_rows(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(to + row * to_stride, from + row * from_stride, static_cast<size_t>(columns) * sizeof(float));
  }
}

// rules: [tensors, 4] = momentum, nesterov, decay, step.
struct Rule {
  MomentumRule momentum;
  float decay, step;
};
Rule rule_of(std::span<double> rules, int64_t tensor) {
  constexpr int64_t kColumns = 4;
  element_at(rules, (tensor + 1) * kColumns - 1, "rules");
  const double* row = rules.data() + tensor * kColumns;
  return {{static_cast<float>(row[0]), row[1] != 0.0}, static_cast<float>(row[2]), static_cast<float>(row[3])};
}

MatrixView grad_of(const std::vector<Tensor>& grads, const MuonHeldPiece& piece, const MatrixView& state) {
  const MatrixView grad = view_of(grads, piece, "grads");
  if (grad.dtype != state.dtype) throw_if_error(type_error("grads: expected the dtype of the momentum"));
  return grad;
}

// Packs u of every held piece: into `whole` where this rank owns the matrix, else into `send`.
void muon_pack(const Tensor& held, const std::vector<Tensor>& momenta, const std::vector<Tensor>& grads,
               const Tensor& has_grad, const Tensor& rules, const Tensor& send, const Tensor& whole,
               const Tensor& slot_flags) {
  const auto send_buffer = floats_of(send, "send");
  const auto whole_buffer = floats_of(whole, "whole");
  const auto flags = integers_of(slot_flags, "slot_flags");
  const auto present = integers_of(has_grad, "has_grad");
  const auto rule_rows = doubles_of(rules, "rules");
  for (const MuonHeldPiece& piece : rows_of<MuonHeldPiece>(held, "held")) {
    const bool has_gradient = element_at(present, piece.tensor, "has_grad") != 0;
    PackedPiece packed;
    if (piece.slot >= 0) {
      packed = {piece_in(whole_buffer, piece.whole_offset, piece.rows, piece.columns, piece.whole_stride, "whole"),
                piece.whole_stride};
      if (has_gradient) element_at(flags, piece.slot, "slot_flags") = 1;
    } else if (piece.send_offset >= 0) {
      const MessagePiece message = message_piece(send_buffer, piece.send_offset, piece.rows, piece.columns, "send");
      *message.flag = has_gradient ? 1.0f : 0.0f;
      packed = message.values;
    }
    if (packed.data == nullptr) continue;
    const MatrixView state = view_of(momenta, piece, "momenta");
    const MomentumRule rule = rule_of(rule_rows, piece.tensor).momentum;
    if (has_gradient) {
      pack_update(state, grad_of(grads, piece, state), rule, packed);
    } else {
      pack_without_gradient(state, rule, packed);
    }
  }
}

// Assembles whole matrices from the pieces that other ranks sent.
void muon_unpack(const Tensor& remote, const Tensor& receive, const Tensor& whole, const Tensor& slot_flags) {
  const auto buffer = floats_of(receive, "receive");
  const auto whole_buffer = floats_of(whole, "whole");
  const auto flags = integers_of(slot_flags, "slot_flags");
  for (const MuonOwnerPiece& piece : rows_of<MuonOwnerPiece>(remote, "remote")) {
    if (piece.receive_offset < 0) continue;
    const MessagePiece message = message_piece(buffer, piece.receive_offset, piece.rows, piece.columns, "receive");
    if (*message.flag != 0.0f) element_at(flags, piece.slot, "slot_flags") = 1;
    copy_rows(message.values.data, piece.columns,
              piece_in(whole_buffer, piece.whole_offset, piece.rows, piece.columns, piece.whole_stride, "whole"),
              piece.whole_stride, piece.rows, piece.columns);
  }
}

// Newton-Schulz in place on the matrices of one batch whose flag is set: batch = [count, rows, columns]. Returns how
// many there were.
int64_t muon_orthogonalize(const Tensor& batch, const Tensor& slot_flags, const Tensor& coefficients, double eps) {
  const auto values = floats_of(batch, "batch");
  const auto flags = integers_of(slot_flags, "slot_flags");
  const auto triples = floats_of(coefficients, "coefficients");
  if (batch.dim() != 3 || batch.size(0) != static_cast<int64_t>(flags.size()) || triples.size() % 3 != 0) {
    throw_if_error(
        invalid_argument("batch: expected [count, rows, columns] with a flag a matrix, and coefficients [steps, 3]"));
  }
  std::vector<kernels::NewtonSchulzStep> steps;
  for (size_t i = 0; i < triples.size(); i += 3) steps.push_back({triples[i], triples[i + 1], triples[i + 2]});
  const kernels::NewtonSchulzOptions options{.coefficients = steps, .eps = static_cast<float>(eps)};
  const int64_t elements = batch.size(1) * batch.size(2);
  int64_t done = 0;
  for (size_t begin = 0; begin < flags.size();) {
    size_t end = begin;
    while (end < flags.size() && flags[end] != 0) ++end;
    if (end > begin) {
      const int64_t shape[] = {static_cast<int64_t>(end - begin), batch.size(1), batch.size(2)};
      const auto view =
          TensorView::contiguous(values.data() + static_cast<int64_t>(begin) * elements, DType::kFloat32, shape);
      throw_if_error(view.status());
      throw_if_error(kernels::newton_schulz(*view, *view, options));
      done += shape[0];
    }
    begin = end + 1;
  }
  return done;
}

// Packs the results for the ranks that hold pieces of this rank's matrices.
void muon_reply(const Tensor& remote, const Tensor& whole, const Tensor& slot_flags, const Tensor& reply) {
  const auto buffer = floats_of(reply, "reply");
  const auto whole_buffer = floats_of(whole, "whole");
  const auto flags = integers_of(slot_flags, "slot_flags");
  for (const MuonOwnerPiece& piece : rows_of<MuonOwnerPiece>(remote, "remote")) {
    const MessagePiece message = message_piece(buffer, piece.reply_offset, piece.rows, piece.columns, "reply");
    *message.flag = element_at(flags, piece.slot, "slot_flags") != 0 ? 1.0f : 0.0f;
    copy_rows(piece_in(whole_buffer, piece.whole_offset, piece.rows, piece.columns, piece.whole_stride, "whole"),
              piece.whole_stride, message.values.data, piece.columns, piece.rows, piece.columns);
  }
}

// Advances the momenta and updates the parameters. A matrix without a gradient on any rank is left alone. Returns -1,
// or the first tensor whose gradient exists here but on no rank that feeds its owner (the replicas disagree): then
// nothing was changed.
int64_t muon_apply(const Tensor& held, const std::vector<Tensor>& params, const std::vector<Tensor>& momenta,
                   const std::vector<Tensor>& grads, const Tensor& has_grad, const Tensor& rules, const Tensor& reply,
                   const Tensor& whole, const Tensor& slot_flags) {
  const auto buffer = floats_of(reply, "reply");
  const auto whole_buffer = floats_of(whole, "whole");
  const auto flags = integers_of(slot_flags, "slot_flags");
  const auto present = integers_of(has_grad, "has_grad");
  const auto rule_rows = doubles_of(rules, "rules");
  const std::vector<MuonHeldPiece> pieces = rows_of<MuonHeldPiece>(held, "held");
  std::vector<PackedPiece> updates;  // without data where nothing is to be applied
  for (const MuonHeldPiece& piece : pieces) {
    PackedPiece update;
    bool apply = false;
    if (piece.slot >= 0) {
      update = {piece_in(whole_buffer, piece.whole_offset, piece.rows, piece.columns, piece.whole_stride, "whole"),
                piece.whole_stride};
      apply = element_at(flags, piece.slot, "slot_flags") != 0;
    } else {
      const MessagePiece message = message_piece(buffer, piece.reply_offset, piece.rows, piece.columns, "reply");
      update = message.values;
      apply = *message.flag != 0.0f;
    }
    if (!apply && element_at(present, piece.tensor, "has_grad") != 0) return piece.tensor;
    updates.push_back(apply ? update : PackedPiece{});
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (updates[i].data == nullptr) continue;
    const Rule rule = rule_of(rule_rows, pieces[i].tensor);
    const MatrixView state = view_of(momenta, pieces[i], "momenta");
    if (element_at(present, pieces[i].tensor, "has_grad") != 0) {
      advance_momentum(state, grad_of(grads, pieces[i], state), rule.momentum);
    } else {
      decay_momentum(state, rule.momentum);
    }
    apply_update(view_of(params, pieces[i], "params"), updates[i], rule.decay, rule.step);
  }
  return -1;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def(
      "muon_pack(Tensor held, Tensor[] momenta, Tensor[] grads, Tensor has_grad, Tensor rules, Tensor(a!) send, "
      "Tensor(b!) whole, Tensor(c!) slot_flags) -> ()");
  library.def("muon_unpack(Tensor remote, Tensor receive, Tensor(a!) whole, Tensor(b!) slot_flags) -> ()");
  library.def("muon_orthogonalize(Tensor(a!) batch, Tensor slot_flags, Tensor coefficients, float eps) -> int");
  library.def("muon_reply(Tensor remote, Tensor whole, Tensor slot_flags, Tensor(a!) reply) -> ()");
  library.def(
      "muon_apply(Tensor held, Tensor(a!)[] params, Tensor(b!)[] momenta, Tensor[] grads, Tensor has_grad, "
      "Tensor rules, Tensor reply, Tensor whole, Tensor slot_flags) -> int");
}
STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("muon_pack", TORCH_BOX(&muon_pack));
  library.impl("muon_unpack", TORCH_BOX(&muon_unpack));
  library.impl("muon_orthogonalize", TORCH_BOX(&muon_orthogonalize));
  library.impl("muon_reply", TORCH_BOX(&muon_reply));
  library.impl("muon_apply", TORCH_BOX(&muon_apply));
}

}  // namespace qx::muon
