/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the rest of the program may ask of a GPU: device, stream, event, buffer, pinned host memory, copies and the
 * table of operations. No CUDA type appears here; a build without CUDA links gpu_none.c, which has zero devices.
 * Must not know: layers, experts, plans.
 *
 * Functions return 0 or a negative errno. Objects belong to the device they were created on and are destroyed before
 * it; destroy functions accept NULL. One thread at a time uses a device and what belongs to it. Work given to a stream
 * is done in order; between streams only events order it. An error of asynchronous work is reported by the next
 * gpu_stream_synchronise of that stream. */
#ifndef SLUICE_CUDA_GPU_H
#define SLUICE_CUDA_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_device;
struct gpu_stream;
struct gpu_event;
struct gpu_buffer;

struct gpu_info {
    char name[64];
    char pci[16];                     /* "0000:01:00.0" */
    uint64_t total_bytes, free_bytes; /* device memory, when asked */
    int numa_node;                    /* of the host side of the link; -1 unknown */
    uint32_t capability;              /* 10 * major + minor: 89, 120 */
};

/* ---- device ---- */

uint32_t gpu_count(void); /* devices this build can use here; 0 is a normal answer */
/* -ENODEV: no such device. */
int gpu_open(uint32_t index, struct gpu_device **ret_device, struct error *e);
void gpu_close(struct gpu_device *device);
int gpu_read_info(const struct gpu_device *device, struct gpu_info *ret_info, struct error *e);

/* ---- streams and events ---- */

int gpu_stream_create(struct gpu_device *device, struct gpu_stream **ret_stream, struct error *e);
void gpu_stream_destroy(struct gpu_stream *stream);                       /* waits for its work */
int gpu_stream_synchronise(struct gpu_stream *stream, struct error *e);   /* blocks until its work is done */
int gpu_stream_wait_event(struct gpu_stream *stream, struct gpu_event *event); /* later work waits; the host does not */

int gpu_event_create(struct gpu_device *device, struct gpu_event **ret_event, struct error *e);
void gpu_event_destroy(struct gpu_event *event);
int gpu_event_record(struct gpu_event *event, struct gpu_stream *stream);
int gpu_event_done(const struct gpu_event *event, bool *ret_done); /* true also if it was never recorded */

/* ---- memory ---- */

/* Device memory, 256-byte aligned, not initialised. -ENOMEM names what was asked and what is free. */
int gpu_buffer_create(struct gpu_device *device, size_t bytes, struct gpu_buffer **ret_buffer, struct error *e);
void gpu_buffer_destroy(struct gpu_buffer *buffer);
size_t gpu_buffer_bytes(const struct gpu_buffer *buffer);
/* Device address for the args of an operation; the host must not read or write it. */
void *gpu_buffer_address(const struct gpu_buffer *buffer);

/* Page-locked host memory: copies from and to it are asynchronous. */
int gpu_pinned_create(struct gpu_device *device, size_t bytes, void **ret_host, struct error *e);
void gpu_pinned_destroy(struct gpu_device *device, void *host);

/* Copies in stream order. Host memory stays untouched by the caller until the stream has passed them; ranges lie inside
 * the buffers (-EINVAL otherwise). gpu_copy takes buffers of two devices as well. */
int gpu_upload(struct gpu_stream *stream, struct gpu_buffer *to, size_t to_offset, const void *host, size_t bytes);
int gpu_download(struct gpu_stream *stream, void *host, const struct gpu_buffer *from, size_t from_offset, size_t bytes);
int gpu_copy(struct gpu_stream *stream, struct gpu_buffer *to, size_t to_offset, const struct gpu_buffer *from,
             size_t from_offset, size_t bytes);

/* ---- operations ---- */

/* The exact operations of a routed expert: bit-equal to struct ops, in stream order. All pointers in the args are device
 * addresses; the args struct itself is read before the call returns. NULL: this device cannot do it. */
struct gpu_ops {
    int (*quantise)(struct gpu_stream *, const struct quantise_args *);
    int (*matvec[FORMAT_COUNT])(struct gpu_stream *, const struct matvec_args *);
    int (*matvec_f32[FORMAT_COUNT])(struct gpu_stream *, const struct matvec_args *);
    int (*swiglu)(struct gpu_stream *, const struct swiglu_args *);
    int (*expert_sum)(struct gpu_stream *, const struct expert_sum_args *);
};

const struct gpu_ops *gpu_device_ops(const struct gpu_device *device); /* owned by the device */

#ifdef __cplusplus
}
#endif

#endif
