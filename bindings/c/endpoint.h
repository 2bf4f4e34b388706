/* Endpoints for C: communication with processes that come and go, without a job. For programs whose
 * processes no launcher starts together: servers and their clients, plugins, other languages.
 * examples/c/endpoint.c is a whole program.
 *
 * The side that waits opens an endpoint, passes dunlin_endpoint_blob() to the other side in any
 * way, and calls dunlin_endpoint_accept(). The other side opens one as well, and calls
 * dunlin_endpoint_connect() with the blob. Then both have a connection: for messages, and for
 * copies between memory that the two endpoints have registered.
 *
 * A process that has the blob of an endpoint can connect to it: the blob contains a key, and is a
 * secret. Both sides of a connection prove that they know it.
 *
 * Threads: an endpoint, its connections and their transfers belong to one thread at a time.
 * Progress happens inside calls that wait, and in dunlin_endpoint_progress(), which a side that
 * does something else for long calls now and then. A negative timeout stands for DUNLIN_DEADLINE.
 * Pointers must not be NULL unless they are said to be nullable; to memory of 0 bytes they may be.
 *
 * Errors: as in dunlin.h, but dunlin_last_error_peer() says nothing. When a connection has ended,
 * all its calls and transfers fail with the reason: DUNLIN_PEER_DEAD, DUNLIN_CLOSED if the peer has
 * closed it, or the transport's error. Other connections are not affected. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bindings/c/dunlin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_endpoint dunlin_endpoint;
typedef struct dunlin_connection dunlin_connection;
typedef struct dunlin_transfer dunlin_transfer;

typedef struct dunlin_endpoint_options {
  /* Not 0: only processes of this host can connect. */
  int is_host_only;
  /* What peers that connect to this endpoint are told of it, at most 4,096 bytes; NULL: nothing. */
  const void* greeting;
  size_t greeting_size;
} dunlin_endpoint_options;

/* Memory that an endpoint has registered. Peers refer to it by its number, which the program passes
 * to them, for example in a message. */
typedef struct dunlin_endpoint_memory {
  uint64_t number;
  void* data;
  size_t size;
} dunlin_endpoint_memory;

/* Listens on a free port, on the interface DUNLIN_TCP_INTERFACE or on all of them. `options`: NULL
 * stands for zeros. */
dunlin_code dunlin_endpoint_open(const dunlin_endpoint_options* options,
                                 dunlin_endpoint** endpoint);
/* Frees the handle (nullable). The endpoint itself ends with its last connection and transfer:
 * until then, memory that was not deregistered stays registered, and must stay. So close
 * connections first, or deregister memory. */
void dunlin_endpoint_close(dunlin_endpoint* endpoint);
/* What peers need to connect to this endpoint: a secret of at most 128 bytes, which is valid as
 * long as the endpoint. */
const void* dunlin_endpoint_blob(const dunlin_endpoint* endpoint, size_t* size);

/* Connects to the endpoint with this blob, whose side has to make progress. The greeting, of at
 * most 4,096 bytes, is for the peer (NULL: none). DUNLIN_CORRUPTED if the bytes are no blob of this
 * version. Gives up after DUNLIN_BOOTSTRAP_TIMEOUT at the latest. */
dunlin_code dunlin_endpoint_connect(dunlin_endpoint* endpoint, const void* blob, size_t blob_size,
                                    const void* greeting, size_t greeting_size,
                                    double timeout_seconds, dunlin_connection** connection);
/* Waits for the next connection that a peer makes. DUNLIN_DEADLINE_EXCEEDED if none comes. The peer
 * may have sent messages and ended by now; dunlin_connection_receive() still returns these. */
dunlin_code dunlin_endpoint_accept(dunlin_endpoint* endpoint, double timeout_seconds,
                                   dunlin_connection** connection);

/* Allocates memory that peers can access, zeroed, of at least `bytes` bytes. */
dunlin_code dunlin_endpoint_allocate(dunlin_endpoint* endpoint, size_t bytes,
                                     dunlin_endpoint_memory* memory);
/* Lets peers access the caller's memory, which must live until it is deregistered and peers are
 * done with it. Peers on this host access it by system calls, if the kernel permits it. */
dunlin_code dunlin_endpoint_wrap(dunlin_endpoint* endpoint, void* data, size_t bytes,
                                 dunlin_endpoint_memory* memory);
/* Peers must not access the memory any more, and no transfer of this side may use it: a put without
 * a handle may until a flush. What a peer has started may still land in wrapped memory: free it, or
 * use it for something else, only when peers have said that they are done. Memory that was
 * allocated is freed when it is safe. DUNLIN_NOT_FOUND if no memory has the number. */
dunlin_code dunlin_endpoint_deregister(dunlin_endpoint* endpoint, uint64_t number);

/* Advances all connections, and returns how many events it handled. */
size_t dunlin_endpoint_progress(dunlin_endpoint* endpoint);

/* Ends the connection, when the peer has the messages that were sent, but not later than after a
 * second; then the transports end, which takes up to 7 s if the peer makes no progress. Does not
 * wait for puts: flush before. Transfers are over then; their handles stay valid. Nullable. */
void dunlin_connection_close(dunlin_connection* connection);
/* DUNLIN_OK while the connection is usable, then why it has ended. Makes no progress. */
dunlin_code dunlin_connection_status(const dunlin_connection* connection);
/* What the peer says of itself; valid as long as the connection. */
const void* dunlin_connection_greeting(const dunlin_connection* connection, size_t* size);
/* The name of the transport that is used; valid as long as the connection. */
const char* dunlin_connection_transport(const dunlin_connection* connection);

/* Copies `bytes` bytes from the memory `local` of the own endpoint to the memory `remote` of the
 * peer's, or the other way around, each from the offset given. They return when the copy was
 * started. They wait for the peer's answer at the first use of a number, and for room: for
 * DUNLIN_DEADLINE at most each.
 *
 * Puts may land in any order. A message of dunlin_connection_send() arrives behind them. A get
 * reads what earlier puts of this connection have written.
 *
 * `transfer`: the copy's handle, which has to be given to dunlin_transfer_wait() or _test() until
 * they free it, or to dunlin_transfer_forget(). A put that is over has released the local memory; a
 * get that is over has filled it. NULL: no handle; a flush tells of errors. DUNLIN_NOT_FOUND: no
 * such number here or there, now and from then on. DUNLIN_OUT_OF_RANGE: the bytes exceed a memory.
 * DUNLIN_UNAVAILABLE: this transport has no gets, or cannot access a memory. */
dunlin_code dunlin_connection_put(dunlin_connection* connection, uint64_t local,
                                  size_t local_offset, uint64_t remote, size_t remote_offset,
                                  size_t bytes, dunlin_transfer** transfer);
dunlin_code dunlin_connection_get(dunlin_connection* connection, uint64_t remote,
                                  size_t remote_offset, uint64_t local, size_t local_offset,
                                  size_t bytes, dunlin_transfer** transfer);
/* Forgets the peer's memory with this number, which no copy in progress may use. Until then, a peer
 * that has used memory of this host keeps it mapped, also when it was deregistered. */
void dunlin_connection_forget(dunlin_connection* connection, uint64_t remote);
/* Returns when the peer can see everything that was put. */
dunlin_code dunlin_connection_flush(dunlin_connection* connection, double timeout_seconds);

/* DUNLIN_BUSY while the copy is in progress. Otherwise returns its outcome, frees *transfer and
 * sets it to NULL. If *transfer is NULL, returns DUNLIN_OK. */
dunlin_code dunlin_transfer_test(dunlin_transfer** transfer);
/* Waits until the copy is over; then as dunlin_transfer_test(). After the timeout, it returns
 * DUNLIN_DEADLINE_EXCEEDED; the copy continues, and the handle stays valid. */
dunlin_code dunlin_transfer_wait(dunlin_transfer** transfer, double timeout_seconds);
/* Frees a handle (nullable). The copy continues: its memory must not be used before a flush. */
void dunlin_transfer_forget(dunlin_transfer* transfer);

/* Sends a copy of a message of at most 16 MiB (else DUNLIN_OUT_OF_RANGE). The peer receives it
 * behind everything that was put before, and behind earlier messages. Waits for room, for
 * DUNLIN_DEADLINE at most. */
dunlin_code dunlin_connection_send(dunlin_connection* connection, const void* message, size_t size);
/* Waits for the next message, and copies it to the buffer; *size is its size. Timeout 0:
 * DUNLIN_BUSY if none has come. If the buffer is too small, returns DUNLIN_OUT_OF_RANGE, sets
 * *size, and keeps the message for the next call. The messages that had come before a connection
 * ended can still be received. */
dunlin_code dunlin_connection_receive(dunlin_connection* connection, void* buffer, size_t capacity,
                                      size_t* size, double timeout_seconds);

#ifdef __cplusplus
} /* extern "C" */
#endif
