/* replay_main.c - runs a fuzz target over every file of a corpus folder, so that `make test` replays what the
 * fuzzer found without needing clang. usage: replay_NAME FOLDER */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (f == NULL || fstat(fileno(f), &st) == -1) return perror(path), 1;
    uint8_t *data = malloc((size_t)st.st_size + 1);
    size_t n = data != NULL ? fread(data, 1, (size_t)st.st_size, f) : 0;
    fclose(f);
    /* an exact copy, so that a sanitizer sees one byte too many */
    uint8_t *exact = malloc(n > 0 ? n : 1);
    for (size_t i = 0; exact != NULL && i < n; i++) exact[i] = data[i];
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    free(data);
    return 0;
}

int main(int argc, char **argv) {
    char path[4096];
    int count = 0;
    DIR *d = argc == 2 ? opendir(argv[1]) : NULL;
    if (d == NULL) return fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]), 2;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        if (replay(path) != 0) return 1;
        count++;
    }
    closedir(d);
    printf("%d inputs replayed\n", count);
    return count == 0;
}
