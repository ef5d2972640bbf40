// The part of Group that gathers calls up the tree of a large group and brings the verdict down.
#include <algorithm>

#include "quincunx/collectives/group.h"

namespace qx::collectives {
namespace {

// Of a text that comes in several frames.
constexpr size_t kPieceBytes = 64 << 10;

}  // namespace

void Group::post_long(int rank, FrameHeader header, std::span<const std::byte> text) {
  header.group = id_;
  header.sequence = current_sequence_;
  header.count = static_cast<int64_t>(text.size());
  do {
    const size_t size = std::min(text.size(), kPieceBytes);
    engine_.post(world_rank(rank), header, text.first(size));
    text = text.subspan(size);
  } while (!text.empty());
}

Status Group::take_piece(const FrameHeader& header, std::span<const std::byte> payload, LongText& text) {
  const auto size = static_cast<int64_t>(text.bytes.size() + payload.size());
  if (text.is_complete || size > header.count || header.count > kMaxGatheredBytes) {
    return data_loss("a text of " + std::to_string(header.count) + " bytes that is too long or comes twice");
  }
  text.bytes.insert(text.bytes.end(), payload.begin(), payload.end());
  text.is_complete = size == header.count;
  return ok_status();
}

void Group::climb() {
  const size_t turn = current_sequence_ % 2;
  const std::vector<int>& children = tree_.children();
  const auto is_there = [&](int child) { return below_[child][turn].is_complete; };
  if (!announced_ || climbed_ || !std::all_of(children.begin(), children.end(), is_there)) return;
  climbed_ = true;
  std::vector<GatheredCall> calls;
  calls.push_back(
      {entry(rank_, current_sequence_).call, queue_.front().direct->input_for_tree(), layout_ ? 0 : engine_.host()});
  for (const int child : children) {
    auto below = decode_calls(below_[child][turn].bytes, static_cast<int>(tree_.below(child).size()));
    if (!below.ok()) return fail(below.status(), true);
    std::move(below->begin(), below->end(), std::back_inserter(calls));
  }
  if (rank_ == 0) return judge(std::move(calls));
  FrameHeader header;
  header.kind = FrameKind::kCalls;
  std::vector<std::byte> text;
  encode_calls(calls, text);
  post_long(tree_.parent(), header, text);
  engine_.flush();
}

Status Group::on_calls(int rank, const FrameHeader& header, std::span<const std::byte> payload) {
  const bool is_child = tree_.is_neighbour(rank) && rank != tree_.parent();
  // Before this rank knows the hosts, others may.
  if (layout_ && !is_child) return data_loss("gathered calls from a rank that is not below this one");
  QX_RETURN_IF_ERROR(check_sequence(header));
  LongText& text = below_[rank][header.sequence % 2];
  QX_RETURN_IF_ERROR(take_piece(header, payload, text));
  if (text.is_complete && announced_ && header.sequence == current_sequence_) climb();
  return ok_status();
}

void Group::judge(std::vector<GatheredCall> gathered) {
  std::vector<GatheredCall> calls(gathered.size());
  const std::vector<int> ranks = tree_.subtree();
  for (size_t i = 0; i < ranks.size(); ++i) calls[static_cast<size_t>(ranks[i])] = std::move(gathered[i]);
  std::vector<const Call*> compared;
  for (const GatheredCall& each : calls) compared.push_back(&each.call);
  Verdict verdict;
  verdict.status = compare_calls(compared);
  if (verdict.status.ok()) {
    verdict.result = compute_in_tree(calls);
    for (const GatheredCall& each : calls) {
      if (!layout_) verdict.hosts.push_back(each.host);
    }
  }
  take_verdict(verdict);
}

void Group::send_verdict(const Verdict& verdict) {
  const bool with_results = verdict.result.is_complete;
  FrameHeader header;
  header.kind = FrameKind::kVerdict;
  header.status_code = static_cast<uint8_t>(verdict.status.code());
  header.stream = with_results ? 1 : 0;
  const std::string& message = verdict.status.message();
  // The largest part of the tree first: it takes longest.
  for (auto child = tree_.children().rbegin(); child != tree_.children().rend(); ++child) {
    std::vector<std::byte> text = encode_hosts(verdict.hosts);
    const auto append = [&](std::span<const std::byte> bytes) { text.insert(text.end(), bytes.begin(), bytes.end()); };
    if (with_results)
      append(encode_result(verdict.result, tree_.below(*child)));
    else
      append(std::as_bytes(std::span(message.data(), message.size())));
    post_long(*child, header, text);
  }
  engine_.flush();
}

void Group::take_verdict(const Verdict& verdict) {
  send_verdict(verdict);
  if (!verdict.status.ok()) {
    return finish({verdict.status.code(), queue_.front().operation->label() + ": " + verdict.status.message()});
  }
  if (!verdict.hosts.empty()) learn_hosts(verdict.hosts);
  if (!verdict.result.is_complete) return begin({});
  const Status status = queue_.front().direct->take_result(verdict.result);
  if (!status.ok()) return fail(status, true);
  finish(ok_status());
}

Status Group::on_verdict(int rank, const FrameHeader& header, std::span<const std::byte> payload) {
  if (rank != tree_.parent() || !climbed_ || begun_ || header.sequence != current_sequence_) {
    return data_loss("a verdict that this rank does not wait for");
  }
  QX_RETURN_IF_ERROR(take_piece(header, payload, verdict_));
  if (!verdict_.is_complete) return ok_status();
  const auto code = static_cast<StatusCode>(header.status_code);
  std::span<const std::byte> text = verdict_.bytes;
  Verdict verdict;
  QX_ASSIGN_OR_RETURN(verdict.hosts, take_hosts(text, size()));
  if (code != StatusCode::kOk) {
    verdict.status = {code, std::string(reinterpret_cast<const char*>(text.data()), text.size())};
  } else if (!layout_ && verdict.hosts.empty()) {
    return data_loss("a verdict that does not tell the hosts of the ranks");
  } else if (header.stream == 1) {
    QX_ASSIGN_OR_RETURN(verdict.result, decode_result(text, tree_.subtree(), size()));
  }
  take_verdict(verdict);
  return ok_status();
}

}  // namespace qx::collectives
