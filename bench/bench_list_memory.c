/* bench_list_memory: a simulated week of lists in process, by lists.h: memory and files, and the bytes of an entry beside two other layouts.
 *
 *     bench_list_memory [USERS [ITEMS]]     in thousands (default 2); items in 20 simulated minutes on average (default 100)
 *
 * Each item goes to 20 lists of random users. Twice as many come at noon as on average, and none at midnight. The data has 20 to 400
 * bytes, from day to day more, and after the third day less. Each 20th item is removed everywhere. `keep` is 100, `delay` an hour.
 *
 * Prints every half day: bytes of unsaved changes, bytes that the allocator gave out, resident bytes without mapped files, and the
 * files. Then the bytes of an entry:
 *
 *   lists       lists and items, as stored (keys included); and the file, with LMDB's pages
 *   full items  for each key a text of lines TIME ID DATA
 *   ids, items  for each key a text of ids, and each item once: {"id":"ID","time":TIME,"data":"DATA"} */
#include "base/bytes.h"
#include "lists/list_code.h"
#include "lists/lists.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DAY (24 * 3600 * USEC_PER_SEC)
#define STEP (1200 * USEC_PER_SEC)
#define HOUR (3600 * USEC_PER_SEC)
#define LISTS_OF_ITEM 20
#define KEEP 100

static char dir[] = "bench-list-memory-XXXXXX";
static struct lists *lists;
static uint64_t state = 1, n_items;
static bool is_done;

static uint64_t draw(uint64_t n)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return (z ^ z >> 31) % n;
}

static void die(const char *text)
{
    fprintf(stderr, "bench_list_memory: %s\n", text);
    exit(1);
}

static void ignore(void *arg)
{
    (void)arg;
}

static void on_done(struct lists_change *c, enum journal_result r)
{
    (void)c;
    if (r != JOURNAL_OK)
        die(journal_strerror(r));
    is_done = true;
}

static struct bytes print(char *out, size_t size, const char *kind, uint64_t n)
{
    return bytes_of(out, (size_t)snprintf(out, size, "%s%d", kind, (int)n));
}

static void append_item(struct buf *ops, struct buf *names, usec_t now, uint64_t users)
{
    static char data[400];
    char id[32], key[32];
    uint64_t day = (uint64_t)(now / DAY), most = day < 3 ? 200 + 60 * day : 380 - 60 * (day - 3);
    memset(data, 'x', sizeof data);
    buf_clear(names);
    for (int i = 0; i < LISTS_OF_ITEM; i++)
        list_name_append(names, print(key, sizeof key, "user", draw(users)));
    list_op_append(ops, &(struct list_op){.type = LIST_ADD,
                            .id = print(id, sizeof id, "post", 10000000 + n_items++),
                            .data = bytes_of(data, 20 + draw(most)),
                            .time = now,
                            .names = buf_bytes(names)});
    if (draw(20) == 0)
        list_op_append(ops, &(struct list_op){.type = LIST_REMOVE,
                                .id = print(id, sizeof id, "post",
                                    10000000 + n_items - 1 - draw(n_items < 5000 ? n_items : 5000))});
}

static void turn(usec_t now)
{
    lists_poll(lists, now);
    lists_tick(lists, now);
    if (lists_failure(lists))
        die(lists_failure(lists));
}

static bool is_due(usec_t now)
{
    usec_t oldest = lists_stats(lists).oldest_change;
    return oldest > 0 && now - oldest >= HOUR;
}

static void make_step(usec_t now, uint64_t users, uint64_t items)
{
    struct buf ops = {0}, names = {0};
    for (; items > 0; items--)
        append_item(&ops, &names, now, users);
    struct lists_change c = {.ops = ops, .done = on_done};
    is_done = ops.len == 0;
    enum journal_result r = is_done ? JOURNAL_OK : lists_change(lists, &c, now);
    if (r != JOURNAL_OK)
        die(journal_strerror(r));
    while (!is_done || is_due(now))
        turn(now);
    buf_free(&ops);
    buf_free(&names);
}

static uint64_t resident_bytes(void)
{
    char line[100];
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %llu", &n) == 1)
            break;
    if (f)
        fclose(f);
    return n * 1024;
}

static void report(usec_t now)
{
    struct lists_stats s = lists_stats(lists);
    printf("day %.1f: unsaved %5.1f MB, allocated %5.1f MB, resident %5.1f MB; store %6.1f MB, journal %5.1f "
           "MB; %.1f M entries, %.1f M "
           "lists written\n",
        (double)now / DAY, (double)s.memory / 1e6, (double)mallinfo2().uordblks / 1e6,
        (double)resident_bytes() / 1e6, (double)s.store_bytes / 1e6, (double)s.journal_bytes / 1e6,
        (double)s.entries / 1e6, (double)s.keys_saved / 1e6);
    fflush(stdout);
}

/* The layouts, by a walk over all lists. */
static struct layouts {
    uint64_t entries, stored, full, ids;
    bool *is_counted; /* items, by their number */
    struct list list;
    struct buf code;
    char last[LIST_NAME_MAX];
    size_t last_len, keys;
} sizes;

static void on_item(const struct lists_shown *item, void *arg)
{
    (void)arg;
    uint64_t number;
    size_t time = 17, line = time + 1 + item->id.len + 1 + item->data.len + 1;
    if (!bytes_to_u64(bytes_of(item->id.ptr + 4, item->id.len - 4), &number))
        die("no id of this program");
    number -= 10000000;
    list_add(&sizes.list, &(struct list_entry){.time = item->time, .stamp = 400 * number, .id = item->id});
    sizes.entries++;
    sizes.full += line;
    sizes.ids += item->id.len + 1;
    if (sizes.is_counted[number])
        return;
    struct list_item record = {.lists = 20, .sequence = 400 * number, .data = item->data};
    sizes.is_counted[number] = true;
    buf_clear(&sizes.code);
    list_item_encode(&record, &sizes.code);
    sizes.stored += item->id.len + sizes.code.len;
    sizes.ids +=
        item->id.len + strlen("{\"id\":\"\",\"time\":,\"data\":\"\"}") + item->id.len + time + item->data.len;
}

static void on_key(struct bytes key, void *arg)
{
    (void)arg;
    memcpy(sizes.last, key.ptr, key.len);
    sizes.last_len = key.len;
    sizes.keys++;
}

static void compare_layouts(void)
{
    struct error error;
    sizes.is_counted = mem_zalloc(n_items * sizeof *sizes.is_counted);
    for (size_t before = SIZE_MAX; sizes.keys != before;) {
        before = sizes.keys;
        if (lists_keys(lists, bytes_of(sizes.last, sizes.last_len), 1, on_key, NULL, &error) != LISTS_OK)
            die(error.text);
        sizes.list.n = 0;
        if (sizes.keys != before && lists_get(lists, bytes_of(sizes.last, sizes.last_len), KEEP, NULL,
                                        on_item, NULL, &error) != LISTS_OK)
            die(error.text);
        if (sizes.keys == before)
            continue;
        buf_clear(&sizes.code);
        list_encode(&sizes.list, &sizes.code);
        sizes.stored += sizes.last_len + sizes.code.len;
        sizes.full += sizes.last_len;
        sizes.ids += sizes.last_len;
    }
    double n = (double)sizes.entries;
    printf("bytes an entry (%.1f M entries, %d items): lists %.1f (file %.1f), full items %.1f, ids and "
           "items %.1f\n",
        n / 1e6, (int)n_items, (double)sizes.stored / n, (double)lists_stats(lists).store_bytes / n,
        (double)sizes.full / n, (double)sizes.ids / n);
}

int main(int argc, char **argv)
{
    uint64_t users = (argc > 1 ? strtoull(argv[1], NULL, 10) : 2) * 1000,
             items = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
    struct error error;
    char command[100];
    if (users == 0 || !mkdtemp(dir))
        die("mkdtemp");
    lists = lists_open(
        &(struct lists_config){
            .dir = dir, .keep = KEEP, .delay = HOUR, .memory = 256 << 20, .notify = ignore},
        1, &error);
    if (!lists)
        die(error.text);
    for (usec_t now = STEP; now <= 7 * DAY; now += STEP) {
        uint64_t minute = (uint64_t)(now % DAY / (60 * USEC_PER_SEC)),
                 distance = minute < 720 ? minute : 1440 - minute;
        make_step(now, users, 2 * items * distance / 720);
        if (now % (DAY / 2) == 0)
            report(now);
    }
    for (usec_t later = 8 * DAY; lists_stats(lists).oldest_change != 0;)
        turn(later);
    report(7 * DAY);
    compare_layouts();
    lists_close(&lists);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command) == 0 ? 0 : 1;
}
