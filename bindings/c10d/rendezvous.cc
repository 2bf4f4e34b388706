#include "bindings/c10d/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "bindings/c10d/claim.h"
#include "bindings/session/shared_session.h"
#include "collectives/waiting/lookup_backoff.h"
#include "runtime/bootstrap/net.h"
#include "runtime/bootstrap/secret.h"
#include "runtime/log.h"
#include "runtime/topology.h"

namespace dunlin::torch_backend {

using binding::Session;
using binding::SharedSession;

namespace {

constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kNameBytes = 8;

// Between two polls of the store, which may be on another host: the first and the longest interval.
constexpr Duration kFirstNap = std::chrono::milliseconds(1);
constexpr Duration kLongestNap = std::chrono::milliseconds(20);

// One member's part in forming a group: its place there, and the group's keys in the store.
struct Forming {
  const KeyValueStore& store;
  GroupPlace place;
  std::string prefix;
  collective::LookupBackoff lookups = {};  // for a member that gives up, while connecting

  std::string key(std::string_view name) const { return fmt::format("{}{}", prefix, name); }
  std::string quitter_key() const { return key("gave up"); }

  // This member's interrupt. Any status but ok ends the forming.
  Status interrupted() const { return store.interrupt ? store.interrupt() : Status::ok(); }
  // kUnavailable if another member has given up. Throws what the store throws.
  Status find_quitter() const {
    if (!store.has(quitter_key())) return Status::ok();
    return {Code::kUnavailable,
            fmt::format("rank {} of the group gave up while it was being formed",
                        store.get(quitter_key()))};
  }
  // Checks both while the members connect. They no longer need the store then, which may end with
  // the first member that is done. So an error of the store is ignored.
  Status check_while_connecting() {
    DUNLIN_TRY(interrupted());
    const SteadyClock clock;
    if (!lookups.is_due(clock.now())) return Status::ok();
    Status found;
    try {
      found = find_quitter();
    } catch (const std::exception& error) {
      DUNLIN_DEBUG("the store of a group failed while its members connect: {}", error.what());
    }
    lookups.put_off(clock.now());
    return found;
  }
  // Tells the other members that this one gives up. Otherwise they might learn of it only at their
  // deadlines.
  void tell_end() const {
    try {
      if (!store.has(quitter_key())) store.set(quitter_key(), std::to_string(place.rank));
    } catch (const std::exception& error) {
      DUNLIN_WARN("can't tell the other members of a group that this one gave up: {}",
                  error.what());
    }
  }
};

// Waits for a key and returns its value. `what`: a description of it ("rank 3's claim").
Result<std::string> await(const Forming& forming, const std::string& key, std::string_view what,
                          const Session::Interrupt& interrupt = {}) {
  const KeyValueStore& store = forming.store;
  const SteadyClock clock;
  const TimePoint until = clock.now() + store.timeout;
  for (Duration nap = kFirstNap; !store.has(key); nap = std::min(2 * nap, kLongestNap)) {
    if (interrupt) DUNLIN_TRY(interrupt());
    DUNLIN_TRY(forming.interrupted());
    if (Status status = forming.find_quitter(); !status.is_ok()) {
      // The member may have set the key just before, and have given up for a reason that this
      // member is about to find as well. That error says more.
      if (store.has(key)) break;
      return status;
    }
    if (clock.now() >= until) {
      return Status(Code::kDeadlineExceeded,
                    fmt::format("Timed out waiting {:g} s for {} in PyTorch's store",
                                to_seconds(store.timeout), what));
    }
    std::this_thread::sleep_for(nap);
  }
  return store.get(key);
}

Claim own_claim(const Session* session, const Config& config, GroupPlace place) {
  Claim claim;
  claim.host = host_identity(config.host_id);
  claim.token = bootstrap::random_hex(kNameBytes);
  if (session != nullptr) {
    claim.standing = Standing::kRunning;
    claim.job = fmt::format("{}/{}", session->job().job_id, session->config().bootstrap_address);
    claim.rank = session->job().rank.value();
  } else if (config.rank == std::to_string(place.rank) &&
             config.size == std::to_string(place.size)) {
    claim.standing = Standing::kLaunched;
    claim.job = config.bootstrap_address;
    claim.rank = place.rank;
  }
  return claim;
}

// The address at which all members reach this process, the first member.
std::string own_address(const std::vector<Claim>& claims, const Environment& environment) {
  const bool is_one_host = std::ranges::all_of(
      claims, [&](const Claim& claim) { return claim.host == claims.front().host; });
  if (is_one_host) return "127.0.0.1";
  // Launchers give the first member's host there.
  if (const auto master = environment.get("MASTER_ADDR"); master && !master->empty())
    return *master;
  const std::vector<std::string> addresses = bootstrap::interface_addresses();
  return addresses.empty() ? "127.0.0.1" : addresses.front();
}

// Finds a free port. Another process could take it before the coordinator does. That is unlikely,
// as the kernel hands out all other ports before it repeats one.
Result<bootstrap::Endpoint> free_endpoint(const std::string& address) {
  bootstrap::Endpoint endpoint = bootstrap::listening_endpoint({address, 0});
  DUNLIN_ASSIGN(const Fd probe, bootstrap::listen_on(endpoint));
  return bootstrap::Endpoint{address, endpoint.port};
}

// The environment for joining a new job, made for this group.
Result<Environment> environment_of_new_job(const Forming& forming, Environment environment,
                                           const std::vector<Claim>& claims) {
  const GroupPlace place = forming.place;
  const std::string address_key = forming.key("address");
  const std::string secret_key = forming.key("secret");
  if (place.rank == 0) {
    DUNLIN_ASSIGN(const auto endpoint, free_endpoint(own_address(claims, environment)));
    forming.store.set(address_key, endpoint.to_string());
    forming.store.set(secret_key, bootstrap::random_hex(kSecretBytes));
  }
  int local_size = 0;
  int local_rank = 0;
  for (int rank = 0; rank < place.size; ++rank) {
    const auto& host = claims[static_cast<std::size_t>(rank)].host;
    if (host != claims[static_cast<std::size_t>(place.rank)].host) continue;
    if (rank == place.rank) local_rank = local_size;
    ++local_size;
  }
  DUNLIN_ASSIGN(const std::string address,
                await(forming, address_key, "the address of rank 0's job"));
  DUNLIN_ASSIGN(const std::string secret, await(forming, secret_key, "the secret of rank 0's job"));
  environment.set("DUNLIN_RANK", std::to_string(place.rank));
  environment.set("DUNLIN_SIZE", std::to_string(place.size));
  environment.set("DUNLIN_LOCAL_RANK", std::to_string(local_rank));
  environment.set("DUNLIN_LOCAL_SIZE", std::to_string(local_size));
  environment.set("DUNLIN_COORDINATOR", "rank0");
  environment.set("DUNLIN_BOOTSTRAP_ADDRESS", address);
  environment.set("DUNLIN_JOB_ID", "");
  environment.set("DUNLIN_JOB_SECRET", secret);
  environment.set("DUNLIN_JOB_SECRET_FILE", "");
  return environment;
}

// Returns when all members have called it, and none of them has given up.
Status gather(const Forming& forming, const Session::Interrupt& interrupt) {
  try {
    const std::string all = forming.key("all");
    if (forming.store.add(forming.key("arrived"), 1) == forming.place.size)
      forming.store.set(all, "");
    DUNLIN_TRY(await(forming, all, "all members of a group", interrupt).status());
    DUNLIN_TRY(forming.interrupted());
    return forming.find_quitter();
  } catch (const std::exception& error) {
    return {Code::kUnavailable, error.what()};
  }
}

// Enters the session that fits the members' claims.
Result<std::shared_ptr<Session>> enter(const Forming& forming, const Environment& environment,
                                       const std::vector<Claim>& claims) {
  const auto own = static_cast<std::size_t>(forming.place.rank);
  for (std::size_t rank = 0; rank < claims.size(); ++rank) {
    if (claims[rank].standing != claims[own].standing || claims[rank].job != claims[own].job) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("ranks {} and {} of the process group are not in the same Dunlin job: "
                      "call dunlin.init() on all ranks before init_process_group(), or on "
                      "none",
                      rank, own));
    }
  }
  Environment joined = environment;
  if (claims[own].standing == Standing::kNone) {
    DUNLIN_ASSIGN(joined, environment_of_new_job(forming, std::move(joined), claims));
  }
  return SharedSession::enter([&] { return Session::create(joined, {}); });
}

Result<Membership> form(Forming& forming, const Environment& environment, const Config& config) {
  const int size = forming.place.size;
  const auto claim_key = [&](int rank) { return forming.key(fmt::format("claim/{}", rank)); };
  forming.store.set(claim_key(forming.place.rank),
                    own_claim(SharedSession::current().get(), config, forming.place).encode());
  std::vector<Claim> claims;
  for (int rank = 0; rank < size; ++rank) {
    const std::string what = fmt::format("rank {} of a group of {}", rank, size);
    DUNLIN_ASSIGN(const std::string text, await(forming, claim_key(rank), what));
    DUNLIN_ASSIGN(Claim claim, Claim::decode(text));
    claims.push_back(std::move(claim));
  }
  Membership membership;
  DUNLIN_ASSIGN(membership.session, enter(forming, environment, claims));
  const bool is_running = claims.front().standing == Standing::kRunning;
  for (int rank = 0; rank < size; ++rank)
    membership.ranks.emplace_back(is_running ? claims[static_cast<std::size_t>(rank)].rank : rank);
  membership.name = "c10d/" + claims.front().token;
  auto formed = membership.session->form(
      membership.name, membership.ranks,
      [&](const Session::Interrupt& interrupt) { return gather(forming, interrupt); },
      [&] { return forming.check_while_connecting(); });
  if (!formed) {
    (void)SharedSession::leave(membership.session, binding::Ending::kAlone, Duration::zero());
    return std::move(formed).status();
  }
  membership.communicator = *std::move(formed);
  return membership;
}

}  // namespace

Result<Membership> meet(const KeyValueStore& store, GroupPlace place) {
  const Environment environment = Environment::of_process();
  DUNLIN_ASSIGN(const Config config, Config::parse(environment));
  // A group that is made again after its end finds the keys of the former one.
  const std::int64_t arrival = store.add("dunlin/arrivals", 1) - 1;
  Forming forming{store, place, fmt::format("dunlin/{}/", arrival / place.size)};
  try {
    auto membership = form(forming, environment, config);
    if (!membership) forming.tell_end();
    return membership;
  } catch (...) {  // from the store: Ctrl-C, for example, in one that is written in Python
    forming.tell_end();
    throw;
  }
}

}  // namespace dunlin::torch_backend
