/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: gpu.h for builds without a GPU back end: zero devices. No object can come into being, so everything that takes
 * one answers -ENODEV. */
#include "cuda/gpu.h"

#include <errno.h>

#include "common/attr.h"

static int no_device(struct error *e) { return error_set(e, -ENODEV, "gpu: this build has no GPU back end; use --gpu none"); }

uint32_t gpu_count(void) { return 0; }

int gpu_open(uint32_t index ATTR_UNUSED, struct gpu_device **ret_device ATTR_UNUSED, struct error *e)
{
    return no_device(e);
}

void gpu_close(struct gpu_device *device ATTR_UNUSED) {}

int gpu_read_info(const struct gpu_device *device ATTR_UNUSED, struct gpu_info *ret_info ATTR_UNUSED, struct error *e)
{
    return no_device(e);
}

int gpu_stream_create(struct gpu_device *device ATTR_UNUSED, struct gpu_stream **ret_stream ATTR_UNUSED, struct error *e)
{
    return no_device(e);
}

void gpu_stream_destroy(struct gpu_stream *stream ATTR_UNUSED) {}

int gpu_stream_synchronise(struct gpu_stream *stream ATTR_UNUSED, struct error *e) { return no_device(e); }

int gpu_stream_wait_event(struct gpu_stream *stream ATTR_UNUSED, struct gpu_event *event ATTR_UNUSED) { return -ENODEV; }

int gpu_event_create(struct gpu_device *device ATTR_UNUSED, struct gpu_event **ret_event ATTR_UNUSED, struct error *e)
{
    return no_device(e);
}

void gpu_event_destroy(struct gpu_event *event ATTR_UNUSED) {}

int gpu_event_record(struct gpu_event *event ATTR_UNUSED, struct gpu_stream *stream ATTR_UNUSED) { return -ENODEV; }

int gpu_event_done(const struct gpu_event *event ATTR_UNUSED, bool *ret_done ATTR_UNUSED) { return -ENODEV; }

int gpu_buffer_create(struct gpu_device *device ATTR_UNUSED, size_t bytes ATTR_UNUSED,
                      struct gpu_buffer **ret_buffer ATTR_UNUSED, struct error *e)
{
    return no_device(e);
}

void gpu_buffer_destroy(struct gpu_buffer *buffer ATTR_UNUSED) {}

size_t gpu_buffer_bytes(const struct gpu_buffer *buffer ATTR_UNUSED) { return 0; }

void *gpu_buffer_address(const struct gpu_buffer *buffer ATTR_UNUSED) { return NULL; }

int gpu_pinned_create(struct gpu_device *device ATTR_UNUSED, size_t bytes ATTR_UNUSED, void **ret_host ATTR_UNUSED,
                      struct error *e)
{
    return no_device(e);
}

void gpu_pinned_destroy(struct gpu_device *device ATTR_UNUSED, void *host ATTR_UNUSED) {}

int gpu_upload(struct gpu_stream *stream ATTR_UNUSED, struct gpu_buffer *to ATTR_UNUSED, size_t to_offset ATTR_UNUSED,
               const void *host ATTR_UNUSED, size_t bytes ATTR_UNUSED)
{
    return -ENODEV;
}

int gpu_download(struct gpu_stream *stream ATTR_UNUSED, void *host ATTR_UNUSED,
                 const struct gpu_buffer *from ATTR_UNUSED, size_t from_offset ATTR_UNUSED, size_t bytes ATTR_UNUSED)
{
    return -ENODEV;
}

int gpu_copy(struct gpu_stream *stream ATTR_UNUSED, struct gpu_buffer *to ATTR_UNUSED, size_t to_offset ATTR_UNUSED,
             const struct gpu_buffer *from ATTR_UNUSED, size_t from_offset ATTR_UNUSED, size_t bytes ATTR_UNUSED)
{
    return -ENODEV;
}

const struct gpu_ops *gpu_device_ops(const struct gpu_device *device ATTR_UNUSED) { return NULL; }
