/* Which living programs use a card: the files that testbed-burn leaves in use/. */
#include "scenario.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct use {
    long minor;
    unsigned pid;
    unsigned long long started_ticks;
    double memory_mib, since;
    struct schedule util;
};

static struct {
    pthread_mutex_t lock;
    char directory[512];
    struct timespec changed;
    int count;
    struct use uses[MAX_USES];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int take_use_line(void *into, const char *key, char *value) {
    struct use *use = into;
    double number;
    if (!strcmp(key, "util")) return parse_schedule(value, &use->util);
    if (parse_number(value, 0, 1e18, &number)) return -1;
    if (!strcmp(key, "minor")) use->minor = (long)number;
    else if (!strcmp(key, "pid")) use->pid = (unsigned)number;
    else if (!strcmp(key, "started")) use->started_ticks = strtoull(value, NULL, 10);
    else if (!strcmp(key, "memory_mib")) use->memory_mib = number;
    else if (!strcmp(key, "since")) use->since = number;
    else return -1;
    return 0;
}

/* Re-read the directory when it changed; a change this second may not be the last in it. */
static void refresh(const char *directory) {
    struct stat found;
    if (stat(directory, &found)) {
        known.count = 0;
        known.directory[0] = '\0';
        return;
    }
    int settled = wall_clock() - (double)found.st_mtim.tv_sec > 2;
    if (settled && !strcmp(directory, known.directory)
        && !memcmp(&found.st_mtim, &known.changed, sizeof found.st_mtim)) return;
    snprintf(known.directory, sizeof known.directory, "%s", directory);
    known.changed = found.st_mtim;
    known.count = 0;
    DIR *listing = opendir(directory);
    if (!listing) return;
    for (struct dirent *item; (item = readdir(listing)) && known.count < MAX_USES;) {
        char path[1024], text[2048];
        if (item->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", directory, item->d_name);
        struct use *use = &known.uses[known.count];
        memset(use, 0, sizeof *use);
        use->minor = -1;
        if (read_text(path, text, sizeof text) <= 0) continue;
        if (for_each_line(text, take_use_line, use) || use->minor < 0 || !use->pid) continue;
        known.count++;
    }
    closedir(listing);
}

/* The same process still lives: its pid, its start time, and not a zombie. */
static int is_alive(const struct use *use) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", use->pid);
    if (read_text(path, text, sizeof text) <= 0) return 0;
    char *rest = strrchr(text, ')');
    if (!rest || rest[1] != ' ' || rest[2] == 'Z' || rest[2] == 'X') return 0;
    rest += 2;
    for (int field = 3; field < 22; field++) {
        rest = strchr(rest, ' ');
        if (!rest) return 0;
        rest++;
    }
    return strtoull(rest, NULL, 10) == use->started_ticks;
}

void read_uses(const char *directory, struct card *card) {
    double util = 0;
    pthread_mutex_lock(&known.lock);
    refresh(directory);
    for (int i = 0; i < known.count && card->process_count < MAX_PROCESSES; i++) {
        const struct use *use = &known.uses[i];
        if (use->minor != card->minor || !is_alive(use)) continue;
        double now = schedule_value(&use->util, wall_clock() - use->since);
        struct process *process = &card->processes[card->process_count++];
        process->pid = use->pid;
        process->memory_mib = (unsigned long long)use->memory_mib;
        process->util = (unsigned)now;
        util += now;
    }
    pthread_mutex_unlock(&known.lock);
    card->util_now = util > 100 ? 100 : util;
}
