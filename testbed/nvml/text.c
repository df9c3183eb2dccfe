/* Reading key=value text: numbers, schedules and lines, none of it trusted. */
#include "scenario.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double wall_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

ssize_t read_text(const char *path, char *buffer, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    size_t length = 0;
    while (length < size - 1) {
        ssize_t got = read(file, buffer + length, size - 1 - length);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        length += (size_t)got;
    }
    close(file);
    buffer[length] = '\0';
    return (ssize_t)length;
}

int parse_number(const char *text, double low, double high, double *value) {
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || errno || !isfinite(number)) return -1;
    if (number < low || number > high) return -1;
    *value = number;
    return 0;
}

int parse_schedule(const char *text, struct schedule *schedule) {
    char copy[1024];
    if (strlen(text) >= sizeof copy) return -1;
    strcpy(copy, text);
    schedule->count = 0;
    char *rest = copy;
    for (char *part; (part = strsep(&rest, ",")) != NULL;) {
        if (schedule->count == MAX_PARTS) return -1;
        char *seconds = part;
        char *value = strsep(&seconds, ":");
        double *into = &schedule->parts[schedule->count].seconds;
        *into = -1;
        if (seconds && parse_number(seconds, 1e-3, 1e9, into)) return -1;
        if (parse_number(value, 0, 100, &schedule->parts[schedule->count].value)) return -1;
        schedule->count++;
        if (!seconds && rest) return -1; /* what follows "for ever" would never come */
    }
    return 0;
}

double schedule_value(const struct schedule *schedule, double elapsed) {
    double cycle = 0;
    for (int i = 0; i < schedule->count; i++) {
        if (schedule->parts[i].seconds < 0) {
            cycle = -1;
            break;
        }
        cycle += schedule->parts[i].seconds;
    }
    if (elapsed < 0) elapsed = 0;
    if (cycle > 0) elapsed = fmod(elapsed, cycle);
    for (int i = 0; i < schedule->count; i++) {
        double seconds = schedule->parts[i].seconds;
        if (seconds < 0 || elapsed < seconds) return schedule->parts[i].value;
        elapsed -= seconds;
    }
    return schedule->count ? schedule->parts[schedule->count - 1].value : 0;
}

/* Blank lines and lines that start with # say nothing; any other needs key=value. */
int for_each_line(char *text, int (*take)(void *into, const char *key, char *value), void *into) {
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        size_t length = strlen(line);
        while (length && (line[length - 1] == ' ' || line[length - 1] == '\r')) {
            line[--length] = '\0';
        }
        if (!length || line[0] == '#') continue;
        char *value = line;
        char *key = strsep(&value, "=");
        if (!value || take(into, key, value)) return -1;
    }
    return 0;
}
