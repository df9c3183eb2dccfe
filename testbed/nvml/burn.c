/* testbed-burn: a job's stand-in for a program that keeps its cards busy.
 *
 * It leaves one file per card in the node's use/ directory and waits. The simulated driver counts
 * the file only while this very process lives, so a killed burn frees its cards at once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CARDS = 64, ENVIRONMENT_SIZE = 1 << 20 };

static const char usage[] =
    "usage: testbed-burn [--util PERCENT | --pattern PERCENT:SECONDS,...] [--seconds N]\n"
    "                    [--memory-mib N] [--cards I,J] [--node NAME]\n"
    "Keeps the cards of its job (Slurm's indexes) busy for N seconds, or until it is killed.\n"
    "Outside a job, --node and --cards say which.\n";

static volatile sig_atomic_t caught;

static void catch_signal(int number) {
    caught = number;
}

static void fail(const char *what, const char *which) {
    fprintf(stderr, "testbed-burn: %s%s%s\n", what, which ? ": " : "", which ? which : "");
    exit(2);
}

static double wall_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* One field of /proc/PID/stat: 4 is the parent, 22 the start time; 0 when unreadable. */
static unsigned long long stat_field(pid_t pid, int wanted, char *command, size_t size) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    char *begin = strchr(text, '('), *end = strrchr(text, ')');
    if (!begin || !end) return 0;
    if (command) snprintf(command, size, "%.*s", (int)(end - begin - 1), begin + 1);
    char *rest = end + 2;
    for (int field = 3; field < wanted && rest; field++) {
        rest = strchr(rest, ' ');
        if (rest) rest++;
    }
    return rest ? strtoull(rest, NULL, 10) : 0;
}

/* The environment Slurm gave the job: of the process that slurmstepd started. What the job's
 * script exported since is not in it, so a job can't burn cards that are not its own. */
static char *slurm_environment(void) {
    static char text[ENVIRONMENT_SIZE];
    char path[64], command[64] = "";
    pid_t pid = getpid(), found = pid;
    while (pid > 1) {
        pid_t parent = (pid_t)stat_field(pid, 4, NULL, 0);
        stat_field(parent, 4, command, sizeof command);
        if (!strcmp(command, "slurmstepd")) found = pid;
        if (*command && !strcmp(command, "slurmstepd")) break;
        pid = parent;
    }
    snprintf(path, sizeof path, "/proc/%d/environ", found);
    FILE *file = fopen(path, "r");
    if (!file) return text;
    size_t length = fread(text, 1, sizeof text - 2, file);
    fclose(file);
    text[length] = text[length + 1] = '\0';
    return text;
}

static const char *look_up(const char *environment, const char *name) {
    size_t length = strlen(name);
    for (const char *item = environment; *item; item += strlen(item) + 1) {
        if (!strncmp(item, name, length) && item[length] == '=' && item[length + 1])
            return item + length + 1;
    }
    return NULL;
}

static int read_cards(const char *text, int *cards) {
    int count = 0;
    for (const char *rest = text; *rest;) {
        char *end;
        long first = strtol(rest, &end, 10);
        long last = first;
        if (end == rest) fail("can't read the card indexes", text);
        if (*end == '-') {
            rest = end + 1;
            last = strtol(rest, &end, 10);
            if (end == rest) fail("can't read the card indexes", text);
        }
        for (; first <= last && count < MAX_CARDS; first++) cards[count++] = (int)first;
        if (*end && *end != ',') fail("can't read the card indexes", text);
        rest = *end ? end + 1 : end;
    }
    return count;
}

/* DIR/bin/testbed-burn → DIR/nodes/NODE/nvml/use */
static void find_use_directory(const char *node, char *into, size_t size) {
    char self[PATH_MAX];
    struct stat found;
    const char *given = getenv("SLURMWRAP_TESTBED_NVML");
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) fail("can't read", "/proc/self/exe");
    self[length] = '\0';
    if (node) snprintf(into, size, "%s/nodes/%s/nvml/use", dirname(dirname(self)), node);
    else if (given && *given) snprintf(into, size, "%s/use", given);
    else fail("no node: SLURMD_NODENAME is not set; give --node", NULL);
    if (stat(into, &found) || !S_ISDIR(found.st_mode)) fail("no such directory", into);
}

static void write_use(const char *directory, int card, const char *util, long memory_mib) {
    char path[PATH_MAX + 64], temporary[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%d.%d", directory, card, getpid());
    snprintf(temporary, sizeof temporary, "%s/.%d.%d", directory, card, getpid());
    unlink(temporary);
    FILE *file = fopen(temporary, "wx");
    if (!file) fail(strerror(errno), temporary);
    fprintf(file, "minor=%d\npid=%d\nstarted=%llu\nutil=%s\nmemory_mib=%ld\nsince=%.3f\n", card,
            getpid(), stat_field(getpid(), 22, NULL, 0), util, memory_mib, wall_clock());
    if (fclose(file) || chmod(temporary, 0644) || rename(temporary, path))
        fail(strerror(errno), path);
}

static void remove_use(const char *directory, int card) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%d.%d", directory, card, getpid());
    unlink(path);
}

static double to_number(const char *text, double low, double high) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !(number >= low && number <= high))
        fail("out of range or not a number", text);
    return number;
}

/* What the driver can't parse it would ignore; so it is refused here. */
static void check_pattern(const char *pattern) {
    char copy[1000];
    if (strlen(pattern) >= sizeof copy) fail("pattern is too long", NULL);
    char *rest = strcpy(copy, pattern);
    for (char *part; (part = strsep(&rest, ",")) != NULL;) {
        char *seconds = part;
        to_number(strsep(&seconds, ":"), 0, 100);
        if (seconds) to_number(seconds, 1e-3, 1e9);
        else if (rest) fail("only the last part may go without :SECONDS", pattern);
    }
}

static void wait_for_end(double seconds) {
    struct sigaction action = {.sa_handler = catch_signal};
    sigset_t signals, before;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &before);
    double end = wall_clock() + seconds;
    while (!caught) {
        double left = seconds < 0 ? 3600 : end - wall_clock();
        if (left <= 0) return;
        struct timespec pause = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        ppoll(NULL, 0, &pause, &before);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"util", 1, NULL, 'u'},  {"pattern", 1, NULL, 'p'}, {"seconds", 1, NULL, 's'},
        {"cards", 1, NULL, 'c'}, {"memory-mib", 1, NULL, 'm'}, {"node", 1, NULL, 'n'},
        {"help", 0, NULL, 'h'},  {NULL, 0, NULL, 0},
    };
    const char *util = "95", *cards_text = NULL, *node = NULL;
    double seconds = -1, memory_mib = 20000;
    int cards[MAX_CARDS];
    char directory[PATH_MAX + 32];
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'u') to_number(util = optarg, 0, 100);
        else if (option == 'p') check_pattern(util = optarg);
        else if (option == 's') seconds = to_number(optarg, 0, 1e9);
        else if (option == 'm') memory_mib = to_number(optarg, 0, 1e9);
        else if (option == 'c') cards_text = optarg;
        else if (option == 'n') node = optarg;
        else return fputs(usage, option == 'h' ? stdout : stderr), option == 'h' ? 0 : 2;
    }
    if (optind < argc) fail("unknown argument", argv[optind]);
    const char *environment = slurm_environment();
    if (!node) node = look_up(environment, "SLURMD_NODENAME");
    if (!cards_text) cards_text = look_up(environment, "SLURM_STEP_GPUS");
    if (!cards_text) cards_text = look_up(environment, "SLURM_JOB_GPUS");
    if (!cards_text) fail("this job has no cards (SLURM_JOB_GPUS is not set); give --cards", NULL);
    int count = read_cards(cards_text, cards);
    find_use_directory(node, directory, sizeof directory);
    for (int i = 0; i < count; i++) write_use(directory, cards[i], util, (long)memory_mib);
    wait_for_end(seconds);
    for (int i = 0; i < count; i++) remove_use(directory, cards[i]);
    if (caught) {
        signal(caught, SIG_DFL);
        raise(caught);
    }
    return 0;
}
