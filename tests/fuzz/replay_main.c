/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: replaying a fuzz target's corpus without libFuzzer: every file of the folder, and every cut of the small ones.
 * Must not know: the target. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

enum { CUT_BELOW = 2048 };

/* Each run has its own exact copy, so that a sanitizer sees a byte too much. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size + (size == 0));
    if (exact == NULL) {
        abort();
    }
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (f == NULL || fstat(fileno(f), &st) != 0) {
        fprintf(stderr, "%s: cannot read\n", path);
        if (f != NULL) {
            fclose(f);
        }
        return 1;
    }
    uint8_t *data = malloc((size_t)st.st_size + 1);
    if (data == NULL) {
        abort();
    }
    size_t size = fread(data, 1, (size_t)st.st_size, f);
    fclose(f);
    run(data, size);
    for (size_t n = 0; n < size && size < CUT_BELOW; n++) {
        run(data, n);
    }
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    if (dir == NULL) {
        fprintf(stderr, "usage: replay_NAME CORPUS_FOLDER\n");
        return 2;
    }
    int failed = 0, n = 0;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
            failed += replay(path);
            n++;
        }
    }
    closedir(dir);
    printf("%d inputs\n", n);
    return failed > 0 || n == 0;
}
