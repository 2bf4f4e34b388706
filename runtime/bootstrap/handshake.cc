#include "runtime/bootstrap/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/printable.h"

namespace dunlin::bootstrap {
namespace {

// The request number of a proof that resumes a session.
constexpr std::uint64_t kResumes = 1;

template <typename Array>
Bytes to_bytes(const Array& array) {
  return {array.begin(), array.end()};
}

Status read_nonce(const Message& message, Nonce& nonce) {
  if (message.value.size() != nonce.size()) {
    return {Code::kCorrupted, fmt::format("a nonce of {} bytes", message.value.size())};
  }
  std::copy(message.value.begin(), message.value.end(), nonce.begin());
  return Status::ok();
}

// One attempt of a rank, as far as it has come.
struct Attempt {
  FrameSocket socket;  // moved from if it succeeds
  const JoinRequest& request;
  Claims claims;
  Refusal& refusal;

  // A failed attempt to come back ends without a FIN: the coordinator may have taken the connection
  // for the rank's already, and a FIN says that the rank's process has ended.
  ~Attempt() {
    if (request.resumed) socket.abandon();
  }
};

Status read_rejection(Attempt& attempt, const Message& reject) {
  Claims claims = attempt.claims;
  claims.role = Role::kCoordinator;
  const std::string reason = printable(reject.text);
  const bool is_denial = reject.code == Code::kOk || reject.code == Code::kPermissionDenied;
  if (proves_rejection(reject.value, attempt.request.secret, claims, reject.code, reject.text)) {
    attempt.refusal = Refusal::kByCoordinator;
    return {is_denial ? Code::kPermissionDenied : reject.code,
            "the coordinator refused: " + reason};
  }
  attempt.refusal = Refusal::kByAnyone;
  return {is_denial ? Code::kPermissionDenied : Code::kUnavailable,
          fmt::format("the program there refuses and does not prove that it knows the job secret. "
                      "It says: {}",
                      reason)};
}

Result<Message> await_type(Attempt& attempt, MessageType type, TimePoint deadline) {
  auto received = await_message(attempt.socket, deadline);
  if (received.status().code() == Code::kDeadlineExceeded) {
    return Status(Code::kDeadlineExceeded, type == MessageType::kChallenge
                                               ? "no answer to the first message"
                                               : "no answer to the proof of the job secret");
  }
  DUNLIN_ASSIGN(Message message, std::move(received));
  if (message.type == MessageType::kReject) return read_rejection(attempt, message);
  if (message.type != type) {
    return Status(Code::kCorrupted, fmt::format("unexpected message of type {} in the handshake",
                                                static_cast<int>(message.type)));
  }
  return message;
}

}  // namespace

Result<AuthenticatedSocket> authenticate(FrameSocket socket, const JoinRequest& request,
                                         TimePoint challenge_deadline, TimePoint deadline,
                                         Refusal& refusal) {
  Attempt attempt{.socket = std::move(socket),
                  .request = request,
                  .claims = {.role = Role::kMember,
                             .member_nonce = random_nonce(),
                             .job_id = request.job_id,
                             .rank = request.rank,
                             .size = request.size,
                             .founders = request.founders == 0 ? request.size : request.founders,
                             .process = request.process},
                  .refusal = refusal};
  attempt.refusal = Refusal::kNone;
  Claims& claims = attempt.claims;
  if (request.resumed) {
    claims.session = request.resumed->key;
    claims.received = request.resumed->received;
  }
  DUNLIN_TRY(attempt.socket.send({.type = MessageType::kHello,
                                  .subject = request.rank,
                                  .request = static_cast<std::uint64_t>(claims.founders),
                                  .number = static_cast<std::uint64_t>(request.size),
                                  .text = request.job_id,
                                  .value = to_bytes(claims.member_nonce)}));
  DUNLIN_ASSIGN(const Message challenge,
                await_type(attempt, MessageType::kChallenge, challenge_deadline));
  DUNLIN_TRY(read_nonce(challenge, claims.coordinator_nonce));
  DUNLIN_TRY(attempt.socket.send({.type = MessageType::kProof,
                                  .request = request.resumed ? kResumes : kNoRequest,
                                  .number = claims.received,
                                  .text = request.process,
                                  .value = to_bytes(prove(request.secret, claims))}));

  DUNLIN_ASSIGN(Message welcome, await_type(attempt, MessageType::kWelcome, deadline));
  claims.role = Role::kCoordinator;
  claims.job_id = welcome.text;
  claims.heartbeat_ns = welcome.number;
  claims.rank = welcome.subject;
  claims.received = welcome.request;
  ByteReader details(welcome.value);
  const auto proof = details.blob();
  claims.grace_ns = details.number<std::uint64_t>();
  const std::string process = details.text();
  claims.process = process;
  claims.size = details.number<std::int32_t>();
  claims.founders = details.number<std::int32_t>();
  const bool is_asked_rank = request.rank == Rank() || request.rank == claims.rank;
  if (!details.at_end() || !is_asked_rank || !proves(proof, request.secret, claims)) {
    attempt.refusal = Refusal::kByAnyone;
    return Status(Code::kPermissionDenied,
                  "the program that answers as the coordinator does not know the job secret");
  }
  attempt.socket.allow_body_bytes(kMaxBodyBytes);
  DUNLIN_ASSIGN(ProcessId coordinator, ProcessId::parse(process));
  const Nonce session =
      request.resumed ? request.resumed->key : derive_session(request.secret, claims);
  return AuthenticatedSocket{std::move(attempt.socket),
                             std::move(welcome.text),
                             Duration(static_cast<std::int64_t>(welcome.number)),
                             Duration(static_cast<std::int64_t>(claims.grace_ns)),
                             std::move(coordinator),
                             {session, claims.received},
                             claims.rank,
                             claims.size,
                             claims.founders};
}

Result<Message> Authenticator::receive(const Message& message) {
  if (message.type == MessageType::kHello && !has_hello_) return on_hello(message);
  if (message.type == MessageType::kProof && has_hello_) return on_proof(message);
  return Status(Code::kCorrupted, fmt::format("message of type {} before authentication",
                                              static_cast<int>(message.type)));
}

Result<Message> Authenticator::on_hello(const Message& hello) {
  DUNLIN_TRY(read_nonce(hello, claims_.member_nonce));
  claimed_job_id_ = hello.text;
  claims_.coordinator_nonce = random_nonce();
  claims_.rank = hello.subject;
  claims_.size = static_cast<int>(std::min<std::uint64_t>(hello.number, INT32_MAX));
  claims_.founders = static_cast<int>(std::min<std::uint64_t>(hello.request, INT32_MAX));
  has_hello_ = true;
  return Message{.type = MessageType::kChallenge, .value = to_bytes(claims_.coordinator_nonce)};
}

Result<Message> Authenticator::on_proof(const Message& proof) {
  claims_.job_id = claimed_job_id_;
  claimed_process_ = proof.text;
  claims_.process = claimed_process_;
  claims_.received = proof.number;
  resumes_ = proof.request == kResumes;
  const auto resumed = resumes_ ? find_session_(claims_.rank) : std::nullopt;
  if (resumed) claims_.session = resumed->key;
  if (!proves(proof.value, job_.secret, claims_)) {
    return Status(Code::kPermissionDenied,
                  resumes_ ? "wrong job secret, or another session" : "wrong job secret");
  }
  knows_secret_ = true;
  member_ = claims_;
  if (resumes_ && !resumed) {
    return Status(Code::kUnavailable,
                  fmt::format("rank {} has no session to resume", claims_.rank.value()));
  }
  DUNLIN_ASSIGN(process_, ProcessId::parse(claimed_process_));
  DUNLIN_TRY(check_claims());
  is_authenticated_ = true;
  claims_.role = Role::kCoordinator;
  claims_.job_id = job_.id;
  claims_.heartbeat_ns = static_cast<std::uint64_t>(job_.heartbeat.count());
  claims_.grace_ns = static_cast<std::uint64_t>(job_.grace.count());
  claims_.process = job_.process;
  claims_.received = resumed ? resumed->received : 0;
  session_ = resumed ? resumed->key : derive_session(job_.secret, claims_);
  ByteWriter details;
  details.blob(prove(job_.secret, claims_))
      .number(claims_.grace_ns)
      .text(job_.process)
      .number(static_cast<std::int32_t>(job_.size))
      .number(static_cast<std::int32_t>(job_.founders));
  return Message{.type = MessageType::kWelcome,
                 .subject = claims_.rank,
                 .request = claims_.received,
                 .number = claims_.heartbeat_ns,
                 .text = job_.id,
                 .value = details.take()};
}

// The rank has proven that it knows the secret.
Status Authenticator::check_claims() {
  if (!claimed_job_id_.empty() && claimed_job_id_ != job_.id) {
    return {Code::kInvalidArgument,
            fmt::format("this is job '{}', not '{}'", job_.id, claimed_job_id_)};
  }
  if (claims_.rank == Rank()) {
    if (!find_rank_) return {Code::kInvalidArgument, "nothing can join here without a rank"};
    DUNLIN_ASSIGN(claims_.rank, find_rank_());
    claims_.size = job_.size;
    claims_.founders = job_.founders;
  }
  const int rank = claims_.rank.value();
  if (claims_.size != job_.size) {
    return {Code::kInvalidArgument,
            fmt::format("rank {} expects a job of {} ranks, this one has {}", rank, claims_.size,
                        job_.size)};
  }
  if (claims_.founders != job_.founders) {
    return {Code::kInvalidArgument,
            fmt::format("rank {} expects a job that {} ranks start, this one is started by {} "
                        "(DUNLIN_SIZE and DUNLIN_MAX_RANKS have to be the same for all)",
                        rank, claims_.founders, job_.founders)};
  }
  return Status::ok();
}

Message Authenticator::rejection(const Status& why) const {
  Message reject{.type = MessageType::kReject,
                 .code = why.code(),
                 .text = std::string(why.message().substr(0, kMaxReasonBytes))};
  if (!knows_secret_) return reject;
  Claims claims = member_;
  claims.role = Role::kCoordinator;
  reject.value = to_bytes(prove_rejection(job_.secret, claims, reject.code, reject.text));
  return reject;
}

}  // namespace dunlin::bootstrap
