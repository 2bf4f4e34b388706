/* Dunlin for C (C99 and later): collectives between the processes of a job.
 *
 *   dunlin_job* job;
 *   if (dunlin_init(NULL, &job) != DUNLIN_OK) { fputs(dunlin_last_error(), stderr); exit(1); }
 *   dunlin_communicator* world = dunlin_world(job);
 *   dunlin_all_reduce(world, gradients, gradients, count, DUNLIN_FLOAT32, DUNLIN_AVERAGE);
 *   dunlin_finalize(job);
 *
 * All ranks make the same calls in the same order, with the same counts, types and operations, and
 * with memory from the same dunlin_allocate() calls at the same places, or all with other memory.
 * Pointers that are not said to be nullable aren't. Every wait has a deadline. Any thread may call;
 * calls on one communicator need an order that is the same on all ranks.
 *
 * Functions return DUNLIN_OK or what went wrong, and then leave their results as they were.
 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
/* What C compilers take: C programs may pass any value, which C++ has to be able to look at. */
#define DUNLIN_UNDERLYING : unsigned
#else
#define DUNLIN_UNDERLYING
#endif

typedef enum dunlin_code DUNLIN_UNDERLYING {
  DUNLIN_OK = 0,
  DUNLIN_BUSY,             /* not over yet */
  DUNLIN_INVALID_ARGUMENT, /* the caller's mistake: a value that can never work */
  DUNLIN_OUT_OF_RANGE,
  DUNLIN_NOT_FOUND,
  DUNLIN_ALREADY_EXISTS,
  DUNLIN_PERMISSION_DENIED,
  DUNLIN_UNAVAILABLE, /* not on this machine or not in this build */
  DUNLIN_DEADLINE_EXCEEDED,
  DUNLIN_PEER_DEAD,    /* a peer's process or connection is gone */
  DUNLIN_PEER_STALLED, /* the peer lives but makes no progress; noticed at a deadline */
  DUNLIN_CLOSED,       /* what was used was shut down */
  DUNLIN_CORRUPTED,
  DUNLIN_RESOURCE_EXHAUSTED,
  DUNLIN_IO_ERROR,
  DUNLIN_INTERNAL /* a bug in Dunlin */
} dunlin_code;

typedef enum dunlin_data_type DUNLIN_UNDERLYING {
  DUNLIN_INT8 = 0,
  DUNLIN_UINT8,
  DUNLIN_INT32,
  DUNLIN_INT64,
  DUNLIN_FLOAT16,
  DUNLIN_BFLOAT16,
  DUNLIN_FLOAT32,
  DUNLIN_FLOAT64
} dunlin_data_type;

typedef enum dunlin_op DUNLIN_UNDERLYING {
  DUNLIN_SUM = 0,
  DUNLIN_PRODUCT,
  DUNLIN_MIN,
  DUNLIN_MAX,
  DUNLIN_AVERAGE
} dunlin_op;

typedef struct dunlin_job dunlin_job;
typedef struct dunlin_communicator dunlin_communicator;
typedef struct dunlin_request dunlin_request;

typedef struct dunlin_options {
  /* Not 0: a thread moves on what was started and nobody waits for. 0: only calls do. */
  int background_progress;
} dunlin_options;

/* What the calling thread's last call that failed has to say, in words; "" before any has. Valid
 * until its next call that fails. */
const char* dunlin_last_error(void);
/* The rank that it concerns; -1: none. */
int dunlin_last_error_peer(void);
const char* dunlin_code_name(dunlin_code code); /* "peer_dead", ... */

/* Joins the job that the environment describes (dunlin-run, torchrun, PMIx; else one of one rank).
 * Blocks until all ranks have come. `options`: NULL for a background thread. */
dunlin_code dunlin_init(const dunlin_options* options, dunlin_job** job);
/* Waits until what is under way has ended and all ranks have come here (DUNLIN_DEADLINE at most),
 * leaves the job, and frees it with its communicators and memory, also where it reports an error.
 * No other call is under way, nor made later, with any of them; requests are to be freed before. A
 * process that ends without it is dead to the others. */
dunlin_code dunlin_finalize(dunlin_job* job);
/* The same at once, after an error: who waits for this rank gets DUNLIN_PEER_DEAD. */
void dunlin_leave(dunlin_job* job);

int dunlin_local_rank(const dunlin_job* job);
int dunlin_local_size(const dunlin_job* job);

/* Of all ranks; lasts as long as the job. */
dunlin_communicator* dunlin_world(dunlin_job* job);
int dunlin_rank(const dunlin_communicator* communicator);
int dunlin_size(const dunlin_communicator* communicator);
/* Collective: members that give the same color form a communicator, ordered by key, then by rank.
 */
dunlin_code dunlin_split(dunlin_communicator* communicator, int color, int key,
                         dunlin_communicator** part);
/* Collective: frees a communicator of dunlin_split(), when what is under way has ended. It is gone
 * unless an error is returned. */
dunlin_code dunlin_release(dunlin_communicator* communicator);

/* Collective: zeroed memory that operations use without copying, as much on all members. It lasts
 * until dunlin_free() (collective, in the same order), or its communicator's end. */
dunlin_code dunlin_allocate(dunlin_communicator* communicator, size_t bytes, void** memory);
dunlin_code dunlin_free(dunlin_communicator* communicator, void* memory);

/* With P ranks; counts are elements.
 *
 *   all_reduce      in: count      out: count        out = op over all ranks' in
 *   reduce          in: count      out: count        the same at the root; out is not used
 * elsewhere broadcast       buffer: count                    the root's, everywhere reduce_scatter
 * in: P * count  out: count        block r of op over all ranks' in, at rank r all_gather      in:
 * count      out: P * count    block r is rank r's in all_to_all      in: P * count  out: P * count
 * block s at rank r is block r of rank s
 *
 * In place: output is input; in reduce_scatter and all_gather, the smaller one is the rank's own
 * block of the larger one. all_to_all can't be done in place. Blocks for DUNLIN_DEADLINE at most;
 * what had to be waited for too long goes on, so that its memory can't be used again. */
dunlin_code dunlin_all_reduce(dunlin_communicator* communicator, const void* input, void* output,
                              size_t count, dunlin_data_type type, dunlin_op op);
dunlin_code dunlin_reduce(dunlin_communicator* communicator, const void* input, void* output,
                          size_t count, dunlin_data_type type, dunlin_op op, int root);
dunlin_code dunlin_broadcast(dunlin_communicator* communicator, void* buffer, size_t count,
                             dunlin_data_type type, int root);
dunlin_code dunlin_reduce_scatter(dunlin_communicator* communicator, const void* input,
                                  void* output, size_t count, dunlin_data_type type, dunlin_op op);
dunlin_code dunlin_all_gather(dunlin_communicator* communicator, const void* input, void* output,
                              size_t count, dunlin_data_type type);
dunlin_code dunlin_all_to_all(dunlin_communicator* communicator, const void* input, void* output,
                              size_t count, dunlin_data_type type);
dunlin_code dunlin_barrier(dunlin_communicator* communicator);

/* The same, started only. The memory is the operation's until it is over. Each request has to be
 * given to dunlin_test() or dunlin_wait() until they free it, or to dunlin_forget(). */
dunlin_code dunlin_start_all_reduce(dunlin_communicator* communicator, const void* input,
                                    void* output, size_t count, dunlin_data_type type, dunlin_op op,
                                    dunlin_request** request);
dunlin_code dunlin_start_reduce(dunlin_communicator* communicator, const void* input, void* output,
                                size_t count, dunlin_data_type type, dunlin_op op, int root,
                                dunlin_request** request);
dunlin_code dunlin_start_broadcast(dunlin_communicator* communicator, void* buffer, size_t count,
                                   dunlin_data_type type, int root, dunlin_request** request);
dunlin_code dunlin_start_reduce_scatter(dunlin_communicator* communicator, const void* input,
                                        void* output, size_t count, dunlin_data_type type,
                                        dunlin_op op, dunlin_request** request);
dunlin_code dunlin_start_all_gather(dunlin_communicator* communicator, const void* input,
                                    void* output, size_t count, dunlin_data_type type,
                                    dunlin_request** request);
dunlin_code dunlin_start_all_to_all(dunlin_communicator* communicator, const void* input,
                                    void* output, size_t count, dunlin_data_type type,
                                    dunlin_request** request);
dunlin_code dunlin_start_barrier(dunlin_communicator* communicator, dunlin_request** request);

/* DUNLIN_BUSY while it is under way. Else its outcome; *request is freed, and becomes NULL. A NULL
 * *request is over, and ok. */
dunlin_code dunlin_test(dunlin_request** request);
/* Waits until it is over; then as dunlin_test(). After `timeout_seconds` (negative:
 * DUNLIN_DEADLINE) DUNLIN_DEADLINE_EXCEEDED or DUNLIN_PEER_STALLED leaves it under way. */
dunlin_code dunlin_wait(dunlin_request** request, double timeout_seconds);
/* Frees a request (nullable), not the operation: its memory is not to be touched before the job's
 * end. */
void dunlin_forget(dunlin_request* request);

#ifdef __cplusplus
} /* extern "C" */
#endif
