/* Two processes that no launcher has started: one writes into the other's memory, and says so.
 *
 *     example_endpoint_c     # starts the second process by itself, with --write
 *
 * The blob travels through a pipe, behind a byte with its size. */
#define _POSIX_C_SOURCE 200809L
#include <dunlin/endpoint_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kInbox = 64, kSeconds = 60 };

static void check(dunlin_code code, const char* what) {
  if (code == DUNLIN_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, dunlin_code_name(code), dunlin_last_error());
  exit(1);
}

static void write_to(dunlin_endpoint* endpoint, const void* blob, size_t size) {
  char text[kInbox] = "written from C by another process";
  dunlin_endpoint_memory mine;
  dunlin_connection* peer = NULL;
  uint64_t inbox = 0;
  check(dunlin_endpoint_wrap(endpoint, text, sizeof text, &mine), "wrap");
  check(dunlin_endpoint_connect(endpoint, blob, size, NULL, 0, kSeconds, &peer), "connect");
  check(dunlin_connection_receive(peer, &inbox, sizeof inbox, &size, kSeconds), "receive");
  check(dunlin_connection_put(peer, mine.number, 0, inbox, 0, kInbox, NULL), "put");
  check(dunlin_connection_send(peer, NULL, 0), "send"); /* arrives behind the put */
  dunlin_connection_close(peer);
}

static void serve(dunlin_endpoint* endpoint) {
  dunlin_endpoint_memory inbox;
  dunlin_connection* peer = NULL;
  size_t size = 0;
  check(dunlin_endpoint_allocate(endpoint, kInbox, &inbox), "allocate");
  check(dunlin_endpoint_accept(endpoint, kSeconds, &peer), "accept");
  check(dunlin_connection_send(peer, &inbox.number, sizeof inbox.number), "send");
  check(dunlin_connection_receive(peer, NULL, 0, &size, kSeconds), "receive");
  printf("over %s: %s\n", dunlin_connection_transport(peer), (const char*)inbox.data);
  dunlin_connection_close(peer);
  check(dunlin_endpoint_deregister(endpoint, inbox.number), "deregister");
}

int main(int argc, char** argv) {
  const dunlin_endpoint_options options = {.is_host_only = 1};
  dunlin_endpoint* endpoint = NULL;
  char blob[128];
  check(dunlin_endpoint_open(&options, &endpoint), "open");
  if (argc == 2 && strcmp(argv[1], "--write") == 0) {
    const int size = getchar();
    if (size < 0 || fread(blob, 1, (size_t)size, stdin) != (size_t)size) return 1;
    write_to(endpoint, blob, (size_t)size);
  } else {
    size_t size = 0;
    const void* const own = dunlin_endpoint_blob(endpoint, &size);
    char command[4096];
    snprintf(command, sizeof command, "%s --write", argv[0]);
    FILE* const writer = popen(command, "w");
    if (writer == NULL || fputc((int)size, writer) == EOF) return 1;
    if (fwrite(own, 1, size, writer) != size || fflush(writer) != 0) return 1;
    serve(endpoint);
    if (pclose(writer) != 0) return 1;
  }
  dunlin_endpoint_close(endpoint);
  return 0;
}
