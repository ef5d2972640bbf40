"""The stages of a step for devices that the C++ operators do not serve: the same schedule, in PyTorch operations.

Every function has the arguments and the result of torch.ops.quincunx.muon_<its name>; tests compare the two.
"""

import torch
from torch import Tensor

Tensors = list[Tensor]

_FLAG_ELEMENTS = 1


def _matrix(tensor: Tensor, index: int) -> Tensor:
    position = []
    for size in reversed(tensor.shape[:-2]):
        position.append(index % size)
        index //= size
    return tensor[tuple(reversed(position))] if position else tensor


def _whole_piece(whole: Tensor, offset: int, stride: int, rows: int, columns: int) -> Tensor:
    return whole.as_strided((rows, columns), (stride, 1), whole.storage_offset() + offset)


def _message_piece(buffer: Tensor, offset: int, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    begin = offset + _FLAG_ELEMENTS
    return buffer[offset:begin], buffer[begin : begin + rows * columns].view(rows, columns)


def pack(
    held: Tensor,
    momenta: Tensors,
    grads: Tensors,
    has_grad: Tensor,
    rules: Tensor,
    send: Tensor,
    whole: Tensor,
    slot_flags: Tensor,
) -> None:
    present, rule_rows = has_grad.tolist(), rules.tolist()
    for tensor, matrix, rows, columns, slot, whole_offset, stride, send_offset, _ in held.tolist():
        momentum, nesterov, _, _ = rule_rows[tensor]
        if slot < 0 and send_offset < 0:
            continue
        state = _matrix(momenta[tensor], matrix)
        grad = _matrix(grads[tensor], matrix) if present[tensor] else torch.zeros_like(state)
        advanced = state.lerp(grad, 1 - momentum)
        update = grad.float().lerp(advanced.float(), momentum) if nesterov else advanced
        if slot >= 0:
            _whole_piece(whole, whole_offset, stride, rows, columns).copy_(update)
            slot_flags[slot] |= present[tensor]
        else:
            flag, values = _message_piece(send, send_offset, rows, columns)
            flag.fill_(float(present[tensor]))
            values.copy_(update)


def unpack(remote: Tensor, receive: Tensor, whole: Tensor, slot_flags: Tensor) -> None:
    for slot, rows, columns, whole_offset, stride, receive_offset, _ in remote.tolist():
        if receive_offset < 0:
            continue
        flag, values = _message_piece(receive, receive_offset, rows, columns)
        slot_flags[slot] |= int(flag.item() != 0)
        _whole_piece(whole, whole_offset, stride, rows, columns).copy_(values)


def orthogonalize(batch: Tensor, slot_flags: Tensor, coefficients: Tensor, eps: float) -> int:
    present = slot_flags.nonzero().flatten().to(batch.device)
    if present.numel():
        batch[present] = newton_schulz(batch[present], coefficients.tolist(), eps)
    return present.numel()


def newton_schulz(matrices: Tensor, coefficients: list[list[float]], eps: float) -> Tensor:
    """The recurrence of kernels/newton_schulz on [batch, rows, columns], in its direct form."""
    x = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    largest = x.abs().amax(dim=(-2, -1), keepdim=True)
    x = x / torch.where(largest > 0, largest, torch.ones_like(largest))
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + eps)
    for a, b, c in coefficients:
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.mT if matrices.shape[-2] > matrices.shape[-1] else x


def reply(remote: Tensor, whole: Tensor, slot_flags: Tensor, reply: Tensor) -> None:
    for slot, rows, columns, whole_offset, stride, _, reply_offset in remote.tolist():
        flag, values = _message_piece(reply, reply_offset, rows, columns)
        flag.fill_(float(slot_flags[slot].item()))
        values.copy_(_whole_piece(whole, whole_offset, stride, rows, columns))


def apply(
    held: Tensor,
    params: Tensors,
    momenta: Tensors,
    grads: Tensors,
    has_grad: Tensor,
    rules: Tensor,
    reply: Tensor,
    whole: Tensor,
    slot_flags: Tensor,
) -> int:
    present, rule_rows, pieces = has_grad.tolist(), rules.tolist(), []
    for tensor, matrix, rows, columns, slot, whole_offset, stride, _, reply_offset in held.tolist():
        if slot >= 0:
            update = _whole_piece(whole, whole_offset, stride, rows, columns)
            is_applied = bool(slot_flags[slot])
        else:
            flag, update = _message_piece(reply, reply_offset, rows, columns)
            is_applied = flag.item() != 0
        if is_applied:
            pieces.append((tensor, matrix, update))
        elif present[tensor]:
            return tensor
    for tensor, matrix, update in pieces:
        momentum, _, decay, step = rule_rows[tensor]
        state, param = _matrix(momenta[tensor], matrix), _matrix(params[tensor], matrix)
        state.lerp_(_matrix(grads[tensor], matrix) if present[tensor] else torch.zeros_like(state), 1 - momentum)
        param.copy_(param.float() * decay - step * update)
    return -1
