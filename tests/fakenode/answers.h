/* The answers of a fake node, shared by the stand-ins for libnvidia-ml, libcuda and nvidia-smi.
 *
 * One line an answer, the first line that fits counts:
 *     SCOPE NAME VALUE
 * SCOPE is a GPU's index, `*` for any GPU, or `-` for the whole node. NAME is the C function without its `_vN`,
 * with its small arguments behind dots (`nvmlDeviceGetClockInfo.1`); a trailing `*` fits whatever follows.
 * VALUE is what the function writes, or one of
 *     error NAME          the function returns that code
 *     sleep MS VALUE      it takes its time first
 *     hang                it never returns
 * The file lies beside the folder of the library or program that reads it: ../answers.txt. It is read again when
 * another one was put in its place: a node may change while a program watches it. */
#ifndef FAKENODE_ANSWERS_H
#define FAKENODE_ANSWERS_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WHOLE_NODE (-1)
#define ANY_GPU (-2)
#define NAME_MAX_LENGTH 128

struct answer {
    int scope;
    int prefix; /* whether the name ended with a star */
    size_t length;
    const char *name;
    const char *value;
};

static struct answer *answers;
static size_t answer_count;
static pthread_mutex_t answers_mutex = PTHREAD_MUTEX_INITIALIZER;
static ino_t answers_inode;

static void answers_folder(char *path, size_t size) {
    Dl_info info;
    if (dladdr((void *)(size_t)answers_folder, &info) == 0 || info.dli_fname == NULL) abort();
    snprintf(path, size, "%s", info.dli_fname);
    if (path[0] != '/') { /* a program that was found through PATH */
        ssize_t length = readlink("/proc/self/exe", path, size - 1);
        if (length < 0) abort();
        path[length] = 0;
    }
    char *slash = strrchr(path, '/');
    if (slash == NULL) snprintf(path, size, "..");
    else snprintf(slash, size - (size_t)(slash - path), "/..");
}

static void answers_line(char *line) {
    char *name = strchr(line, ' ');
    if (line[0] == '#' || name == NULL) return;
    *name++ = 0;
    char *value = strchr(name, ' ');
    if (value == NULL) value = name + strlen(name);
    else *value++ = 0;
    answers = realloc(answers, (answer_count + 1) * sizeof *answers);
    if (answers == NULL) abort();
    struct answer *last = &answers[answer_count++];
    last->scope = line[0] == '-' ? WHOLE_NODE : line[0] == '*' ? ANY_GPU : atoi(line);
    last->length = strlen(name);
    last->prefix = last->length > 0 && name[last->length - 1] == '*';
    if (last->prefix) last->length--;
    last->name = name;
    last->value = value;
}

/* What was given out stays valid: old lines are not freed. */
static void answers_load(void) {
    static char path[4096];
    struct stat now;
    if (path[0] == 0) {
        answers_folder(path, sizeof path - sizeof "/answers.txt");
        strcat(path, "/answers.txt");
    }
    if (stat(path, &now) == 0 && now.st_ino == answers_inode) return;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "fake node: no %s\n", path);
        abort();
    }
    if (fstat(fileno(file), &now) != 0) abort();
    answers_inode = now.st_ino;
    answers = NULL;
    answer_count = 0;
    char *line = NULL; /* lines stay allocated: the answers point into them */
    size_t size = 0;
    ssize_t length;
    while ((length = getline(&line, &size, file)) > 0) {
        if (line[length - 1] == '\n') line[length - 1] = 0;
        answers_line(line);
        line = NULL;
        size = 0;
    }
    free(line);
    fclose(file);
}

static int answers_fits(const struct answer *one, int scope, const char *name, size_t length) {
    if (one->scope != scope && (one->scope != ANY_GPU || scope < 0)) return 0;
    if (one->prefix ? length < one->length : length != one->length) return 0;
    return memcmp(one->name, name, one->length) == 0;
}

static void answers_sleep(long milliseconds) {
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* The value, after any wait; NULL where the file has none. Does not look at errors. */
static const char *answer(int scope, const char *name) {
    pthread_mutex_lock(&answers_mutex);
    answers_load();
    pthread_mutex_unlock(&answers_mutex);
    size_t length = strlen(name);
    for (size_t i = 0; i < answer_count; i++) {
        if (!answers_fits(&answers[i], scope, name, length)) continue;
        const char *value = answers[i].value;
        while (strncmp(value, "sleep ", 6) == 0) {
            char *rest;
            answers_sleep(strtol(value + 6, &rest, 10));
            value = *rest == ' ' ? rest + 1 : rest;
        }
        while (strcmp(value, "hang") == 0) pause();
        return value;
    }
    return NULL;
}

static int answers_number(int scope, const char *name, int otherwise) {
    const char *value = answer(scope, name);
    return value == NULL ? otherwise : atoi(value);
}

#endif
