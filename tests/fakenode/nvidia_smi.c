/* A stand-in for nvidia-smi: prints a prepared text for its arguments (see answers.h).
 *
 *     - smi+-q+-x  EXIT FILE        FILE lies beside answers.txt; the arguments are joined by `+`
 *     - smi*       EXIT FILE        any other arguments
 * --query-gpu and --query-compute-apps are put together from `N smi.FIELD VALUE`. */
#define _GNU_SOURCE
#include "answers.h"

static int print_file(const char *value) {
    char path[8192];
    answers_folder(path, sizeof path);
    char *name;
    int code = (int)strtol(value, &name, 10);
    if (*name != ' ') return code;
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%s", name + 1);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "fake node: no %s\n", path);
        return 99;
    }
    char block[1 << 16];
    for (size_t got; (got = fread(block, 1, sizeof block, file)) > 0;) fwrite(block, 1, got, stdout);
    fclose(file);
    return code;
}

/* The unit is what follows a number: "81559 MiB". */
static const char *unit_of(const char *value) {
    char *rest;
    strtod(value, &rest);
    return rest != value && *rest == ' ' ? rest + 1 : NULL;
}

static const char *cell(int gpu, const char *field) {
    char name[NAME_MAX_LENGTH];
    snprintf(name, sizeof name, "smi.%s", field);
    const char *value = answer(gpu, name);
    return value == NULL ? "[N/A]" : value;
}

static int known(int gpus, const char *field) {
    for (int gpu = 0; gpu < gpus; gpu++)
        if (strcmp(cell(gpu, field), "[N/A]") != 0) return 1;
    return answers_number(WHOLE_NODE, "smi.every-field", 0);
}

static void print_row(int gpu, char **fields, int count, int units) {
    for (int i = 0; i < count; i++) {
        const char *value = cell(gpu, fields[i]);
        const char *unit = unit_of(value);
        int length = !units && unit != NULL ? (int)(unit - value) - 1 : (int)strlen(value);
        printf("%s%.*s", i ? ", " : "", length, value);
    }
    printf("\n");
}

static int query(const char *list, const char *format) {
    char *fields[256], copy[8192];
    int count = 0, gpus = answers_number(WHOLE_NODE, "smi.gpus", 0);
    snprintf(copy, sizeof copy, "%s", list);
    for (char *field = strtok(copy, ", "); field != NULL && count < 256; field = strtok(NULL, ", "))
        fields[count++] = field;
    for (int i = 0; i < count; i++) {
        if (known(gpus, fields[i])) continue;
        printf("Field \"%s\" is not a valid field to query.\n\n", fields[i]);
        return 2;
    }
    int units = strstr(format, "nounits") == NULL;
    for (int i = 0; i < count && strstr(format, "noheader") == NULL; i++) {
        const char *unit = NULL;
        for (int gpu = 0; gpu < gpus && unit == NULL; gpu++) unit = unit_of(cell(gpu, fields[i]));
        printf("%s%s%s%s%s", i ? ", " : "", fields[i], unit ? " [" : "", unit ? unit : "", unit ? "]" : "");
        if (i == count - 1) printf("\n");
    }
    for (int gpu = 0; gpu < gpus; gpu++) print_row(gpu, fields, count, units);
    return 0;
}

int main(int argc, char **argv) {
    char name[4096] = "smi";
    const char *list = NULL, *format = "";
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--query-gpu=", 12) == 0) list = argv[i] + 12;
        if (strncmp(argv[i], "--format=", 9) == 0) format = argv[i] + 9;
        strncat(name, "+", sizeof name - strlen(name) - 1);
        strncat(name, argv[i], sizeof name - strlen(name) - 1);
    }
    const char *value = answer(WHOLE_NODE, name);
    if (value != NULL && (list == NULL || strcmp(value, "query") != 0)) return print_file(value);
    if (list != NULL) return query(list, format);
    fprintf(stderr, "ERROR: Option %s is not recognized. Please run 'nvidia-smi -h'.\n\n", argc > 1 ? argv[1] : "");
    return 2;
}
