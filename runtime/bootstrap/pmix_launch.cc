#include "runtime/bootstrap/pmix_launch.h"

#include <fmt/format.h>
#include <pmix.h>

#include <memory>

#include "runtime/bootstrap/discovery.h"
#include "runtime/bootstrap/secret.h"

namespace dunlin::bootstrap {
namespace {

constexpr const char* kContactKey = "dunlin.contact";  // "SECRET ADDRESS:PORT ADDRESS:PORT ..."

Status from_pmix(const char* what, pmix_status_t status) {
  if (status == PMIX_SUCCESS) return Status::ok();
  const Code code = status == PMIX_ERR_TIMEOUT ? Code::kDeadlineExceeded : Code::kUnavailable;
  return {code, fmt::format("{}: {}", what, PMIx_Error_string(status))};
}

// Calls PMIx_Init and, when destroyed, PMIx_Finalize.
class PmixSession {
 public:
  static Result<std::shared_ptr<PmixSession>> start() {
    auto session = std::shared_ptr<PmixSession>(new PmixSession);
    DUNLIN_TRY(from_pmix("PMIx_Init", PMIx_Init(&session->self_, nullptr, 0)));
    session->is_open_ = true;
    return session;
  }
  ~PmixSession() {
    if (is_open_) PMIx_Finalize(nullptr, 0);
  }
  PmixSession(const PmixSession&) = delete;
  PmixSession& operator=(const PmixSession&) = delete;

  int rank() const { return static_cast<int>(self_.rank); }
  std::string job_id() const { return self_.nspace; }

  // A number that the launcher has assigned to the job (`of_job`) or to this process.
  Result<int> number(const char* key, bool of_job) const {
    pmix_proc_t process = self_;
    if (of_job) process.rank = PMIX_RANK_WILDCARD;
    pmix_value_t* value = nullptr;
    DUNLIN_TRY(from_pmix(key, PMIx_Get(&process, key, nullptr, 0, &value)));
    int number = 0;
    pmix_status_t status = PMIX_SUCCESS;
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): the macro converts all types of numbers
    PMIX_VALUE_GET_NUMBER(status, value, number, int);
    PMIX_VALUE_RELEASE(value);
    DUNLIN_TRY(from_pmix(key, status));
    return number;
  }

  Status publish(const std::string& text) {
    pmix_value_t value;
    PMIX_VALUE_LOAD(&value, text.c_str(), PMIX_STRING);
    const Status put = from_pmix("PMIx_Put", PMIx_Put(PMIX_GLOBAL, kContactKey, &value));
    PMIX_VALUE_DESTRUCT(&value);
    DUNLIN_TRY(put);
    return from_pmix("PMIx_Commit", PMIx_Commit());
  }

  // Waits until all processes of the job have called it, and collects the values that they
  // published.
  Status fence(Duration timeout) {
    const auto seconds = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(timeout).count());
    bool collect = true;
    pmix_info_t options[2];
    PMIX_INFO_LOAD(&options[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    PMIX_INFO_LOAD(&options[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    return from_pmix("PMIx_Fence", PMIx_Fence(nullptr, 0, options, 2));
  }

  Result<std::string> lookup(int rank) const {
    pmix_proc_t process = self_;
    process.rank = static_cast<pmix_rank_t>(rank);
    pmix_value_t* value = nullptr;
    DUNLIN_TRY(from_pmix("PMIx_Get of rank 0's address",
                         PMIx_Get(&process, kContactKey, nullptr, 0, &value)));
    std::string text = value->type == PMIX_STRING ? value->data.string : "";
    PMIX_VALUE_RELEASE(value);
    return text;
  }

 private:
  PmixSession() = default;
  pmix_proc_t self_{};
  bool is_open_ = false;
};

Result<JobInfo> read_job(const PmixSession& session) {
  JobInfo job;
  job.rank = Rank(session.rank());
  job.launcher = "pmix";
  job.job_id = session.job_id();
  DUNLIN_ASSIGN(job.size, session.number(PMIX_JOB_SIZE, true));
  DUNLIN_ASSIGN(job.local_size, session.number(PMIX_LOCAL_SIZE, true));
  DUNLIN_ASSIGN(job.local_rank, session.number(PMIX_LOCAL_RANK, false));
  return job;
}

// A job on one host stays on loopback.
bool is_on_one_host(const JobInfo& job) {
  return job.local_size == job.size;
}

// With a new secret and port, which only the ranks of this job learn, by PMIx.
Status host_coordinator(JoinPlan& plan, PmixSession& session, const Config& config) {
  const bool is_local = is_on_one_host(plan.job);
  plan.secret = random_hex(32);
  DUNLIN_TRY(plan.start_coordinator(config, {is_local ? "127.0.0.1" : "", 0}));
  std::string contact = plan.secret;
  for (const std::string& address :
       is_local ? std::vector<std::string>{"127.0.0.1"} : interface_addresses()) {
    contact += " " + Endpoint{address, plan.hosted->address().port}.to_string();
  }
  return session.publish(contact);
}

// A job that may grow: processes that PMIx has not started with it have to know the secret and the
// address, too.
Status plan_growing_job(JoinPlan& plan, const Config& config) {
  if (config.bootstrap_address.empty()) {
    return {Code::kInvalidArgument,
            "DUNLIN_MAX_RANKS is set and DUNLIN_BOOTSTRAP_ADDRESS is not: processes that join the "
            "job need it. Give HOST:PORT, the host of rank 0 and a free port there"};
  }
  DUNLIN_TRY(leave_room(plan.job, config));
  DUNLIN_ASSIGN(const std::string job_id, read_job_id(config));
  if (!job_id.empty()) plan.job.job_id = job_id;
  DUNLIN_ASSIGN(plan.secret, read_job_secret(config));
  DUNLIN_ASSIGN(const Endpoint coordinator,
                read_endpoint("DUNLIN_BOOTSTRAP_ADDRESS", config.bootstrap_address));
  plan.coordinator = {coordinator};
  if (plan.job.rank != Rank(0)) return Status::ok();
  return plan.start_coordinator(config, listening_endpoint(coordinator))
      .with_context("DUNLIN_BOOTSTRAP_ADDRESS, where rank 0 listens");
}

Status read_contact(JoinPlan& plan, std::string_view contact) {
  const auto next_word = [&contact] {
    const auto end = std::min(contact.find(' '), contact.size());
    const std::string_view word = contact.substr(0, end);
    contact.remove_prefix(std::min(end + 1, contact.size()));
    return word;
  };
  plan.secret = next_word();
  while (!contact.empty()) {
    DUNLIN_ASSIGN(Endpoint endpoint, Endpoint::parse(next_word()));
    plan.coordinator.push_back(std::move(endpoint));
  }
  if (plan.coordinator.empty()) return {Code::kUnavailable, "rank 0 has no network address"};
  return Status::ok();
}

}  // namespace

Result<JoinPlan> plan_from_pmix(const Config& config) {
  DUNLIN_ASSIGN(auto session, PmixSession::start());
  JoinPlan plan;
  plan.timeout = config.bootstrap_timeout;
  plan.linger = config.deadline;
  DUNLIN_ASSIGN(plan.job, read_job(*session));
  if (config.max_ranks != 0) {
    DUNLIN_TRY(plan_growing_job(plan, config));
  } else {
    if (plan.job.rank == Rank(0)) DUNLIN_TRY(host_coordinator(plan, *session, config));
    DUNLIN_TRY(session->fence(config.bootstrap_timeout));
    DUNLIN_ASSIGN(const std::string contact, session->lookup(0));
    DUNLIN_TRY(read_contact(plan, contact));
  }
  // shared_ptr, because std::function must be copyable. The plan is the only owner.
  plan.on_leave = [session]() mutable { session.reset(); };
  return plan;
}

}  // namespace dunlin::bootstrap
