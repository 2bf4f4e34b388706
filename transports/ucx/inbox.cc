#include "transports/ucx/inbox.h"

#include <algorithm>
#include <cstring>

#include "runtime/log.h"
#include "transports/ucx/engine.h"

namespace dunlin::transport::ucx {
namespace {

// The status that the sender of announced bytes gets if they are refused. to_code() is the inverse.
ucs_status_t to_ucs(Code code) {
  switch (code) {
    case Code::kOk:
      return UCS_OK;
    case Code::kNotFound:
      return UCS_ERR_NO_ELEM;
    case Code::kOutOfRange:
      return UCS_ERR_OUT_OF_RANGE;
    default:
      return UCS_ERR_INVALID_ADDR;
  }
}

const char* reason(Code code) {
  switch (code) {
    case Code::kNotFound:
      return "its region is not registered";
    case Code::kOutOfRange:
      return "it does not lie within its region, or its cell is not on the board";
    default:
      return "it could not be received";
  }
}

// The bytes that came with the message. A message without bytes announces what RMA has written.
bool is_size_right(const MessageHeader& header, std::size_t size) {
  const bool may_carry = header.kind == MessageKind::kPut || header.kind == MessageKind::kNotify;
  return size == 0 || (may_carry && size == header.size);
}

}  // namespace

bool Inbox::is_new(const MessageHeader& header) const {
  if (header.order >= next_ && !early_.contains(header.order)) return true;
  DUNLIN_ERROR("dropped message {} of rank {} on its {} lane, which came twice", header.order,
               source_.value(), to_string(lane_));
  return false;
}

Code Inbox::check(const MessageHeader& header, const RegionTable::Entry*& entry) const {
  if (header.kind == MessageKind::kNotify && header.cell >= engine_.context().board.size()) {
    return Code::kOutOfRange;
  }
  if (header.size == 0 && header.kind != MessageKind::kRead) return Code::kOk;
  if (header.kind == MessageKind::kRead && header.size > kReadLimit) return Code::kOutOfRange;
  entry = engine_.regions().find(header.region);
  if (entry == nullptr) return Code::kNotFound;
  const std::size_t available = entry->memory->size();
  const bool fits = header.offset <= available && header.size <= available - header.offset;
  return fits ? Code::kOk : Code::kOutOfRange;
}

bool Inbox::is_fetching() const {
  return std::any_of(early_.begin(), early_.end(),
                     [](const auto& one) { return !one.second.is_fetched; });
}

void Inbox::accept(const MessageHeader& header, const void* data, std::size_t size) {
  if (is_refusing_ || !is_new(header)) return;
  const RegionTable::Entry* entry = nullptr;
  Code outcome = check(header, entry);
  if (outcome == Code::kOk && !is_size_right(header, size)) outcome = Code::kCorrupted;
  if (outcome == Code::kOk && size != 0)
    std::memcpy(entry->memory->data() + header.offset, data, size);
  if (outcome != Code::kOk) engine_.reject(source_, lane_, header, outcome);
  settle(header, outcome);
}

ucs_status_t Inbox::accept_announced(const MessageHeader& header, void* descriptor,
                                     std::size_t size) {
  if (is_refusing_ || !is_new(header)) return UCS_ERR_INVALID_ADDR;
  const RegionTable::Entry* entry = nullptr;
  Code outcome = check(header, entry);
  const bool is_expected = entry != nullptr && entry->is_kept && is_size_right(header, size);
  if (outcome == Code::kOk && !is_expected) outcome = Code::kCorrupted;
  if (outcome != Code::kOk) {
    settle(header, outcome);
    return to_ucs(outcome);
  }
  Arrival& arrival =
      early_.emplace(header.order, Arrival{this, header, Code::kOk, false, entry->memory})
          .first->second;
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.cb.recv_am = on_fetched;
  params.user_data = &arrival;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(engine_.worker(lane_).handle(), descriptor,
                           entry->memory->data() + header.offset, size, &params);
  if (!UCS_PTR_IS_PTR(request)) on_fetched(nullptr, UCS_PTR_RAW_STATUS(request), size, &arrival);
  return UCS_INPROGRESS;
}

void Inbox::on_fetched(void* request, ucs_status_t status, std::size_t size, void* user_data) {
  auto& arrival = *static_cast<Arrival*>(user_data);
  if (request != nullptr) ucp_request_free(request);
  if (status != UCS_OK) arrival.outcome = to_code(status);
  arrival.is_fetched = true;
  arrival.target.reset();
  arrival.inbox->advance();
}

void Inbox::settle(const MessageHeader& header, Code outcome) {
  if (header.order != next_) {
    early_.emplace(header.order, Arrival{this, header, outcome});
    return;
  }
  carry_out(header, outcome);
  ++next_;
  advance();
}

void Inbox::advance() {
  for (auto first = early_.begin(); first != early_.end(); first = early_.erase(first)) {
    const Arrival& arrival = first->second;
    if (first->first != next_ || !arrival.is_fetched) return;
    carry_out(arrival.header, arrival.outcome);
    ++next_;
  }
}

void Inbox::carry_out(const MessageHeader& header, Code outcome) {
  if (is_refusing_) return;
  if (outcome != Code::kOk) {
    // A put in flight while its target was deregistered is not an error here. The sender is told.
    const bool is_late = outcome == Code::kNotFound && engine_.regions().has_known(header.region);
    DUNLIN_LOG(is_late ? LogLevel::kDebug : LogLevel::kWarn,
               "refused rank {} {} {} bytes, region {} at offset {}, cell {}: {}", source_.value(),
               header.kind == MessageKind::kRead ? "a get of" : "a put of", header.size,
               header.region, header.offset, header.cell, reason(outcome));
    return;
  }
  switch (header.kind) {
    case MessageKind::kPut:
      return;
    case MessageKind::kNotify:
      engine_.context().board.cell(NotifyId{header.cell}).publish(header.notification());
      return;
    case MessageKind::kFlush:
      engine_.answer_flush(source_, lane_, header.order);
      return;
    case MessageKind::kRead:
      engine_.answer_read(source_, lane_, header);
      return;
  }
}

}  // namespace dunlin::transport::ucx
