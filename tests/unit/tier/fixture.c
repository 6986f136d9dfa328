/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/tier/fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/model/bind.h"


static void on_progress(void *ctx, uint64_t done, uint64_t total, double seconds)
{
    struct fixture *f = ctx;
    (void)seconds;
    assert_true(done <= total && done >= f->last_done);
    f->last_done = done;
    f->last_total = total;
    f->calls++;
    if (f->calls == f->cancel_at_call) {
        atomic_store(&f->cancel, 1);
    }
}

static void shell(const char *format, const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof(command), format, a, b);
    assert_int_equal(system(command), 0);
}

void open_model(struct fixture *f, const char *path)
{
    struct bind_options o = {.path = path, .mtp = true, .group_routing = true};
    struct reader_options r = {.depth = LOAD_DEPTH, .chunk = 1 << 20};
    struct error e = {0};
    if (weights_open(&o, &f->weights, &e) != 0 || reader_create(&r, &f->reader, &e) != 0) {
        fail_msg("%s", e.text);
    }
    f->loader = (struct loader){.reader = f->reader, .account = &f->account, .nodes = 1, .clock = clock_system(), .cancel = &f->cancel,
                                .progress = on_progress, .progress_ctx = f};
}

void close_model(struct fixture *f)
{
    weights_close(f->weights);
    reader_destroy(f->reader);
    assert_int_equal(account_total(&f->account), 0);
}

/* A copy that may be damaged. */
void open_copy(struct fixture *f)
{
    strcpy(f->folder, "/tmp/sluice-tier-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    shell("cp %s/* %s/", DEMO, f->folder);
    open_model(f, f->folder);
}

void close_copy(struct fixture *f)
{
    close_model(f);
    shell("rm -rf %s%s", f->folder, "");
}

void overwrite(const char *path, uint64_t offset, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "r+b");
    struct stat st;
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &st), 0);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fflush(file), 0);
    assert_int_equal(futimens(fileno(file), (const struct timespec[2]){st.st_atim, st.st_mtim}), 0); /* as if it had always been so */
    fclose(file);
}

/* Every row, wherever it lies. */
void assert_matrix(const struct weight_ref *ref, const struct weight_view *v)
{
    unsigned char *raw = malloc(ref->bytes);
    assert_non_null(raw);
    assert_int_equal(file_read_at(ref->file, ref->offset, raw, ref->bytes, NULL), 0);
    assert_int_equal(v->rows, ref->rows);
    assert_int_equal(v->cols, ref->cols);
    assert_int_equal(v->row_bytes * v->rows, ref->bytes);
    assert_int_equal(v->end[v->parts - 1], ref->rows);
    for (uint32_t r = 0; r < v->rows; r++) {
        struct matrix_view row = weight_rows(v, r, 1);
        assert_int_equal(row.row0, r);
        assert_memory_equal(raw + r * v->row_bytes, row.data, v->row_bytes);
    }
    free(raw);
    assert_int_equal(v->scale != NULL, ref->scale != NULL);
    if (ref->scale != NULL) {
        assert_int_equal(v->scale_cols, (ref->cols + 127) / 128);
        float *scale = malloc(ref->scale->bytes);
        assert_non_null(scale);
        assert_int_equal(file_read_at(ref->scale_file, ref->scale->offset, scale, ref->scale->bytes, NULL), 0);
        assert_memory_equal(scale, v->scale, ref->scale->bytes);
        free(scale);
    }
}

int create_all(struct fixture *f, struct store **ret, struct error *e)
{
    return store_create(f->weights, &f->loader, &(struct store_options){.cached = UINT64_MAX}, &f->counters, ret, e);
}
