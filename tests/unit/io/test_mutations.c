/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: headers changed at random (the same way every time) and headers made to cost memory. Nothing may crash, and what
 * is accepted must be sound. Argument: number of mutations per format; with it the costly headers are tried too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/container.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "tests/unit/io/io_test.h"

enum { MEMORY_LIMIT_KB = 256 << 10, EDGE = 600 };

struct plan {
    uint64_t seed;
    int rounds;
};

/* Changes 1 to 8 places, most of them near the beginning or the end, where the structure is. */
static void mutate(struct bytes *b, uint64_t *seed)
{
    static const uint64_t odd[] = {0, 1, 2, 31, 255, 256, 65535, 1ull << 31, 1ull << 32, 1ull << 62, 1ull << 63, UINT64_MAX};
    static const char json[] = "{}[]:,\"\\0123456789-.eEu a\x01\xff";
    for (uint32_t n = next_random(seed) % 8 + 1; n > 0; n--) {
        size_t at = next_random(seed) % b->len, near = next_random(seed) % EDGE % b->len;
        uint32_t where = next_random(seed) % 4;
        at = where == 0 ? near : where == 1 ? b->len - 1 - near : at;
        switch (next_random(seed) % 5) {
        case 0:
            b->data[at] ^= (uint8_t)(1u << next_random(seed) % 8);
            break;
        case 1:
            b->data[at] = (uint8_t)next_random(seed);
            break;
        case 2:
            b->data[at] = (uint8_t)json[next_random(seed) % (sizeof json - 1)];
            break;
        case 3:
            memcpy(b->data + at, &odd[next_random(seed) % ARRAY_LEN(odd)], b->len - at < 8 ? b->len - at : next_random(seed) % 2 == 0 ? 8 : 4);
            break;
        default:
            memmove(b->data + at, b->data + near, (b->len - (at > near ? at : near)) / (1 + next_random(seed) % 64));
            break;
        }
    }
    if (next_random(seed) % 8 == 0) {
        b->len = next_random(seed) % b->len + 1;
    }
}

static void check_gguf(const struct gguf_header *h)
{
    uint64_t end = 0;
    for (size_t i = 0; i < h->n_tensors; i++) {
        const struct gguf_tensor *t = &h->tensors[i];
        assert_true(t->bytes > 0 && t->offset >= end && t->offset % h->alignment == 0 && strlen(t->name) <= 63);
        end = t->offset + t->bytes;
    }
    assert_true(h->data_end == h->data_start + end && h->data_start % h->alignment == 0);
    for (size_t i = 0; i < h->meta.n; i++) {
        const struct gguf_value *v = &h->meta.values[i];
        uint64_t u;
        double f;
        bool flag;
        struct gguf_string s;
        assert_true(gguf_find(&h->meta, v->key) == v);
        gguf_get_u64(&h->meta, v->key, &u, NULL);
        gguf_get_f64(&h->meta, v->key, &f, NULL);
        gguf_get_bool(&h->meta, v->key, &flag, NULL);
        gguf_get_string(&h->meta, v->key, &s, NULL);
        gguf_array_i64(v, v->count / 2);
    }
}

static void test_gguf(void **state)
{
    const struct plan *p = *state;
    uint64_t seed = p->seed;
    struct bytes whole = read_bytes(GOLDEN "/gguf-q8_0-split/model-00003-of-00003.gguf");
    struct bytes large = read_bytes(GOLDEN "/gguf-q4_0/model.gguf");
    int accepted = 0;
    for (int i = 0; i < p->rounds; i++) {
        const struct bytes *from = i % 8 == 0 ? &large : &whole;
        struct bytes b = {0};
        struct gguf_header h;
        struct error e = {0};
        put(&b, from->data, i % 8 == 0 ? 50000 : 1000);
        mutate(&b, &seed);
        uint8_t *exact = malloc(b.len);
        memcpy(exact, b.data, b.len);
        int r = gguf_parse(exact, b.len, i % 2 == 0 ? from->len : b.len, &h, &e);
        if (r == 0) {
            check_gguf(&h);
            gguf_header_deinit(&h);
            accepted++;
        } else {
            assert_true(r == GGUF_MORE || (e.code == r && e.text[0] != '\0'));
        }
        free(exact);
        bytes_free(&b);
    }
    assert_true(accepted < p->rounds);
    bytes_free(&whole);
    bytes_free(&large);
}

static void test_safetensors(void **state)
{
    const struct plan *p = *state;
    uint64_t seed = p->seed + 1;
    struct bytes file = read_bytes(GOLDEN "/v3-fp8/model-00002-of-000003.safetensors");
    struct bytes list = read_bytes(GOLDEN "/v3-fp8/model.safetensors.index.json");
    for (int i = 0; i < p->rounds; i++) {
        struct bytes b = {0};
        struct error e = {0};
        bool index = i % 4 == 0;
        if (index) {
            put(&b, list.data, list.len);
        } else {
            put(&b, file.data + 8, 5656);
        }
        mutate(&b, &seed);
        char *text = malloc(b.len);
        memcpy(text, b.data, b.len);
        struct safetensors_header h;
        struct safetensors_index x;
        int r = index ? safetensors_index_parse(text, b.len, &x, &e) : safetensors_parse(text, b.len, &h, &e);
        if (r < 0) {
            assert_true(e.code == r && e.text[0] != '\0');
            free(text);
        } else if (index) {
            assert_ptr_equal(safetensors_index_find(&x, x.entries[0].name), &x.entries[0]);
            safetensors_index_deinit(&x);
        } else {
            uint64_t at = 0;
            for (size_t k = 0; k < h.n_tensors; k++) {
                assert_true(h.tensors[k].begin == at && h.tensors[k].end >= at);
                at = h.tensors[k].end;
            }
            assert_true(at == h.data_bytes);
            safetensors_header_deinit(&h);
        }
        bytes_free(&b);
    }
    bytes_free(&file);
    bytes_free(&list);
}

/* Through files, as a user would meet them. */
static void test_files(void **state)
{
    const struct plan *p = *state;
    uint64_t seed = p->seed + 2;
    char *folder;
    folder_setup((void **)&folder);
    for (int i = 0; i < p->rounds / 10; i++) {
        bool gguf = i % 2 == 0;
        const char *path = in(folder, gguf ? "x.gguf" : "x.safetensors");
        struct bytes b = read_bytes(gguf ? GOLDEN "/gguf-q8_0-split/model-00003-of-00003.gguf" : GOLDEN "/v3-f32/model.safetensors");
        size_t len = b.len;
        b.len = gguf ? 1000 : 6000;
        mutate(&b, &seed);
        write_bytes(path, b.data, len);
        struct container *c;
        struct error e = {0};
        struct container_options options = {.allow_header_only = i % 4 < 2};
        int r = container_open(path, &options, &c, &e);
        if (r == 0) {
            container_close(c);
        } else {
            check_error(&e, r, path, NULL);
        }
        bytes_free(&b);
    }
    folder_teardown((void **)&folder);
}

extern void __asan_init(void) __attribute__((weak));

/* Opens a file in a process of its own, whose largest memory is looked at. */
static void costs_little(const char *path, int wanted)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct container *c;
        struct container_options options = {.allow_header_only = true};
        int r = container_open(path, &options, &c, NULL);
        struct rusage use;
        getrusage(RUSAGE_SELF, &use);
        _exit(r != wanted ? 2 : use.ru_maxrss > MEMORY_LIMIT_KB && __asan_init == NULL ? 3 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_memory(void **state)
{
    (void)state;
    enum { STRINGS = 8380000, TENSORS = 500000, HEADER = SAFETENSORS_MAX_HEADER };
    char *folder;
    folder_setup((void **)&folder);
    FILE *f = fopen(in(folder, "x.gguf"), "wb");
    fwrite("GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0k\x09\0\0\0\x08\0\0\0", 1, 41, f);
    fwrite(&(uint64_t){STRINGS}, 8, 1, f);
    for (int i = 0; i < STRINGS; i++) {
        fwrite("\0\0\0\0\0\0\0", 8, 1, f);
    }
    fwrite("\1\0\0\0\0\0\0\0t\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 1, 25, f);
    fclose(f);
    costs_little(in(folder, "x.gguf"), 0);
    f = fopen(in(folder, "x.safetensors"), "wb");
    fwrite(&(uint64_t){HEADER}, 8, 1, f);
    long begin = ftell(f);
    for (int i = 0; i < TENSORS; i++) {
        fprintf(f, "%c\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i == 0 ? '{' : ',', i);
    }
    fputs("}", f);
    fprintf(f, "%*s", (int)(HEADER - (ftell(f) - begin)), "");
    fclose(f);
    costs_little(in(folder, "x.safetensors"), 0);
    folder_teardown((void **)&folder);
}

int main(int argc, char **argv)
{
    struct plan plan = {.seed = 20240229, .rounds = argc > 1 ? atoi(argv[1]) : 400};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_gguf, &plan),
        cmocka_unit_test_prestate(test_safetensors, &plan),
        cmocka_unit_test_prestate(test_files, &plan),
    };
    const struct CMUnitTest large[] = {cmocka_unit_test(test_memory)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return argc > 1 ? failed + cmocka_run_group_tests(large, NULL, NULL) : failed;
}
