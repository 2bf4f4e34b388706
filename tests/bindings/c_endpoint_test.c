/* The C interface of endpoints, between two processes: c_endpoint_test. The second one is this
 * program, started with `client`, the blob as its input, and what it has to do. */
#define _POSIX_C_SOURCE 200809L
#include "bindings/c/endpoint.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/bindings/c_expect.h"

enum { kBytes = 1 << 20, kSeconds = 50 };

static const char* program;

static FILE* start_client(const void* blob, size_t size, const char* what) {
  char command[4096];
  snprintf(command, sizeof command, "%s client %s", program, what);
  FILE* const client = popen(command, "w");
  EXPECT(client != NULL && fputc((int)size, client) != EOF);
  EXPECT(fwrite(blob, 1, size, client) == size && fflush(client) == 0);
  return client;
}

static dunlin_connection* accept_client(dunlin_endpoint* endpoint, const char* what,
                                        FILE** client) {
  size_t size = 0;
  const void* const blob = dunlin_endpoint_blob(endpoint, &size);
  EXPECT(size > 0 && size <= 128);
  *client = start_client(blob, size, what);
  dunlin_connection* peer = NULL;
  EXPECT_OK(dunlin_endpoint_accept(endpoint, kSeconds, &peer));
  return peer;
}

static void expect_message(dunlin_connection* peer, const char* text) {
  char buffer[64];
  size_t size = 0;
  EXPECT_OK(dunlin_connection_receive(peer, buffer, sizeof buffer, &size, kSeconds));
  EXPECT(size == strlen(text) && memcmp(buffer, text, size) == 0);
}

static void tell(dunlin_connection* peer, const char* text) {
  EXPECT_OK(dunlin_connection_send(peer, text, strlen(text)));
}

/* The server's part of `copies`. */
static void serve_copies(dunlin_endpoint* endpoint, dunlin_connection* peer) {
  size_t size = 0;
  EXPECT(memcmp(dunlin_connection_greeting(peer, &size), "client", 6) == 0 && size == 6);
  EXPECT(strlen(dunlin_connection_transport(peer)) > 0);
  dunlin_endpoint_memory memory;
  EXPECT_OK(dunlin_endpoint_allocate(endpoint, kBytes, &memory));
  unsigned char* const bytes = memory.data;
  EXPECT(memory.size >= kBytes && bytes[0] == 0 && bytes[kBytes - 1] == 0);
  for (int i = 0; i < kBytes / 2; ++i) bytes[i] = (unsigned char)(i * 7);
  EXPECT_OK(dunlin_connection_send(peer, &memory.number, sizeof memory.number));
  expect_message(peer, "put");
  for (int i = 0; i < kBytes / 2; ++i) EXPECT(bytes[i + kBytes / 2] == (unsigned char)(i * 7));
  expect_message(peer, "flushed");
  EXPECT(bytes[3] == 'x');
  /* The client's memory, which it has wrapped. */
  uint64_t theirs = 0;
  EXPECT_OK(dunlin_connection_receive(peer, &theirs, sizeof theirs, &size, kSeconds));
  dunlin_transfer* transfer = NULL;
  EXPECT_OK(dunlin_connection_get(peer, theirs, 0, memory.number, 100, 50, &transfer));
  EXPECT_OK(dunlin_transfer_wait(&transfer, kSeconds));
  EXPECT(bytes[103] == 'x' && bytes[110] == (unsigned char)(10 * 7));
  dunlin_connection_forget(peer, theirs);
  EXPECT_OK(dunlin_endpoint_deregister(endpoint, memory.number));
  EXPECT(dunlin_endpoint_deregister(endpoint, memory.number) == DUNLIN_NOT_FOUND);
  tell(peer, "deregistered");
}

/* Reads the first half of the server's memory, writes it to the second half. */
static void copy(dunlin_endpoint* endpoint, dunlin_connection* peer) {
  size_t size = 0;
  EXPECT(memcmp(dunlin_connection_greeting(peer, &size), "server", 6) == 0 && size == 6);
  static unsigned char own[kBytes];
  dunlin_endpoint_memory memory;
  EXPECT_OK(dunlin_endpoint_wrap(endpoint, own, sizeof own, &memory));
  EXPECT(memory.data == own && memory.size == sizeof own);
  uint64_t there = 0;
  EXPECT(dunlin_connection_receive(peer, &there, 3, &size, kSeconds) == DUNLIN_OUT_OF_RANGE);
  EXPECT(size == sizeof there);
  EXPECT_OK(dunlin_connection_receive(peer, &there, sizeof there, &size, 0));
  EXPECT(dunlin_connection_receive(peer, &size, sizeof size, &size, 0) == DUNLIN_BUSY);
  dunlin_transfer* transfer = NULL;
  EXPECT_OK(dunlin_connection_get(peer, there, 0, memory.number, 0, kBytes / 2, &transfer));
  EXPECT_OK(dunlin_transfer_wait(&transfer, kSeconds));
  EXPECT(transfer == NULL);
  EXPECT_OK(dunlin_transfer_wait(&transfer, 0));
  for (int i = 0; i < kBytes / 2; ++i) EXPECT(own[i] == (unsigned char)(i * 7));
  EXPECT_OK(
      dunlin_connection_put(peer, memory.number, 0, there, kBytes / 2, kBytes / 2, &transfer));
  tell(peer, "put");
  dunlin_code code;
  while ((code = dunlin_transfer_test(&transfer)) == DUNLIN_BUSY) {
  }
  EXPECT_OK(code);
  own[3] = 'x';
  EXPECT_OK(dunlin_connection_put(peer, memory.number, 3, there, 3, 1, NULL));
  EXPECT_OK(dunlin_connection_flush(peer, kSeconds));
  tell(peer, "flushed");
  EXPECT_OK(dunlin_connection_send(peer, &memory.number, sizeof memory.number));

  EXPECT(dunlin_connection_put(peer, memory.number, 1, there, 0, kBytes, NULL) ==
         DUNLIN_OUT_OF_RANGE);
  EXPECT(dunlin_connection_put(peer, memory.number, 0, there, kBytes * 2, 1, NULL) ==
         DUNLIN_OUT_OF_RANGE);
  EXPECT(dunlin_connection_put(peer, memory.number + 77, 0, there, 0, 1, NULL) == DUNLIN_NOT_FOUND);
  EXPECT(dunlin_connection_put(peer, memory.number, 0, there + 77, 0, 1, NULL) == DUNLIN_NOT_FOUND);
  expect_message(peer, "deregistered");
  EXPECT_OK(dunlin_connection_put(peer, memory.number, 0, there, 0, 0, &transfer));
  dunlin_transfer_forget(transfer);
}

/* The transfer is over when its connection is closed, one way or the other. */
static void outlive(dunlin_endpoint* endpoint, dunlin_connection* peer) {
  static unsigned char own[kBytes];
  dunlin_endpoint_memory memory;
  EXPECT_OK(dunlin_endpoint_wrap(endpoint, own, sizeof own, &memory));
  uint64_t there = 0;
  size_t size = 0;
  EXPECT_OK(dunlin_connection_receive(peer, &there, sizeof there, &size, kSeconds));
  dunlin_transfer* transfer = NULL;
  EXPECT_OK(dunlin_connection_get(peer, there, 0, memory.number, 0, kBytes, &transfer));
  tell(peer, "sent and gone");
  dunlin_connection_close(peer);
  dunlin_endpoint_close(endpoint);
  const dunlin_code code = dunlin_transfer_wait(&transfer, 0);
  EXPECT(code == DUNLIN_OK || code == DUNLIN_CLOSED || code == DUNLIN_PEER_DEAD);
  EXPECT(transfer == NULL);
  exit(0);
}

static void client(const char* what) {
  const dunlin_endpoint_options options = {.is_host_only = 1};
  dunlin_endpoint* endpoint = NULL;
  EXPECT_OK(dunlin_endpoint_open(&options, &endpoint));
  char blob[128];
  const size_t size = (size_t)getchar();
  EXPECT(size <= sizeof blob && fread(blob, 1, size, stdin) == size);
  dunlin_connection* peer = NULL;
  EXPECT(dunlin_endpoint_connect(endpoint, blob, size / 2, NULL, 0, 1, &peer) == DUNLIN_CORRUPTED);
  EXPECT(peer == NULL);
  EXPECT_OK(dunlin_endpoint_connect(endpoint, blob, size, "client", 6, kSeconds, &peer));
  /* A connection keeps what it needs of its endpoint, but its memory can only be registered before.
   */
  if (strcmp(what, "copies") == 0) {
    copy(endpoint, peer);
  } else if (strcmp(what, "outlives") == 0) {
    outlive(endpoint, peer);
  } else if (strcmp(what, "brings") == 0) {
    EXPECT(pclose(start_client(blob, size, "ends")) == 0);
  } else if (strcmp(what, "dies") == 0) {
    expect_message(peer, "die");
    raise(SIGKILL);
  }
  dunlin_endpoint_close(endpoint);
  tell(peer, "ends");
  dunlin_connection_close(peer);
  exit(0);
}

int main(int argc, char** argv) {
  program = argv[0];
  if (argc == 3) client(argv[2]);
  const dunlin_endpoint_options options = {
      .is_host_only = 1, .greeting = "server", .greeting_size = 6};
  dunlin_endpoint* endpoint = NULL;
  static char long_greeting[5000];
  EXPECT(dunlin_endpoint_open(&(dunlin_endpoint_options){.greeting = long_greeting,
                                                         .greeting_size = sizeof long_greeting},
                              &endpoint) == DUNLIN_INVALID_ARGUMENT);
  EXPECT_OK(dunlin_endpoint_open(&options, &endpoint));
  dunlin_connection* peer = NULL;
  EXPECT(dunlin_endpoint_accept(endpoint, 0.01, &peer) == DUNLIN_DEADLINE_EXCEEDED);
  EXPECT(strstr(dunlin_last_error(), "no peer has connected within 0.01 s") != NULL);
  EXPECT(dunlin_endpoint_progress(endpoint) == 0);

  FILE* client_input = NULL;
  peer = accept_client(endpoint, "copies", &client_input);
  serve_copies(endpoint, peer);
  expect_message(peer, "ends");
  char byte = 0;
  size_t size = 0;
  EXPECT(dunlin_connection_receive(peer, &byte, 1, &size, kSeconds) == DUNLIN_CLOSED);
  EXPECT(dunlin_connection_status(peer) == DUNLIN_CLOSED);
  EXPECT(dunlin_connection_send(peer, "x", 1) == DUNLIN_CLOSED);
  dunlin_connection_close(peer);
  EXPECT(pclose(client_input) == 0);

  /* A client that another one has started connects, sends and ends before it is accepted. */
  peer = accept_client(endpoint, "brings", &client_input);
  expect_message(peer, "ends");
  dunlin_connection* brought = NULL;
  EXPECT_OK(dunlin_endpoint_accept(endpoint, kSeconds, &brought));
  expect_message(brought, "ends");
  dunlin_connection_close(brought);
  dunlin_connection_close(peer);
  EXPECT(pclose(client_input) == 0);

  peer = accept_client(endpoint, "outlives", &client_input);
  dunlin_endpoint_memory memory;
  EXPECT_OK(dunlin_endpoint_allocate(endpoint, kBytes, &memory));
  EXPECT_OK(dunlin_connection_send(peer, &memory.number, sizeof memory.number));
  expect_message(peer, "sent and gone");
  EXPECT(pclose(client_input) == 0);
  dunlin_connection_close(peer);

  peer = accept_client(endpoint, "dies", &client_input);
  tell(peer, "die");
  EXPECT(dunlin_connection_receive(peer, &byte, 1, &size, kSeconds) == DUNLIN_PEER_DEAD);
  EXPECT(dunlin_connection_put(peer, memory.number, 0, 1, 0, 8, NULL) == DUNLIN_PEER_DEAD);
  EXPECT(dunlin_connection_flush(peer, kSeconds) == DUNLIN_PEER_DEAD);
  dunlin_connection_close(peer);
  dunlin_connection_close(NULL);
  EXPECT(pclose(client_input) != 0);
  dunlin_endpoint_close(endpoint);
  dunlin_endpoint_close(NULL);
  return 0;
}
