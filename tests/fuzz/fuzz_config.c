/* Any bytes as a configuration file: refused with an error that names a line, or its settings are found again; and as the value of a
 * setting of every type, which is within its bounds. */
#include "config/options.h"
#include "config/peers.h"
#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct option_row rows[] = {
    {.name = "bool", .type = OPTION_BOOL},
    {.name = "int", .type = OPTION_INT, .min = -5, .max = 1000},
    {.name = "size", .type = OPTION_SIZE, .min = 1, .max = (int64_t)1 << 40},
    {.name = "duration", .type = OPTION_DURATION, .min = 1, .max = 86400000},
    {.name = "seconds", .type = OPTION_DURATION, .min = 0, .max = 86400000, .unit = "s"},
    {.name = "string", .type = OPTION_STRING, .min = 2, .max = 10},
    {.name = "choice", .type = OPTION_CHOICE, .choices = "one|two|three"},
    {.name = "sync", .type = OPTION_SYNC, .max = 60000},
};

static void check_values(const char *text)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t number = 0;
        struct error why = {0};
        const struct option_row *row = &rows[i];
        if (option_value_read(row, text, &number, &why) != 0) {
            assert(why.text[0]);
            continue;
        }
        if (row->type == OPTION_INT || row->type == OPTION_SIZE || row->type == OPTION_DURATION)
            assert(row->min <= number && number <= row->max);
        if (row->type == OPTION_STRING)
            assert(strlen(text) >= 2 && strlen(text) <= 10);
        if (row->type == OPTION_SYNC)
            assert(number >= -1 && number <= row->max);
    }
}

static void check_config(struct bytes text)
{
    struct config *c = NULL;
    struct error error;
    struct buf url = {0};
    if (config_parse("f", text, &c, &error) != 0) {
        assert(strncmp(error.text, "f:", 2) == 0 && atoi(error.text + 2) > 0);
        return;
    }
    for (size_t i = 0; i < c->n_sections; i++) {
        const struct config_section *s = &c->sections[i];
        assert(config_section(c, s->kind, s->name) == s);
        for (size_t k = 0; k < s->n_entries; k++) {
            assert(config_value(s, s->entries[k].key) == s->entries[k].value);
            assert(s->entries[k].line > s->line && (k == 0 || s->entries[k].line > s->entries[k - 1].line));
        }
    }
    for (size_t i = 0; i < PEERS; i++)
        peer_configured_url(&peers[i], c, &url);
    buf_free(&url);
    config_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = bytes_of(data, size);
    char *copy = bytes_dup(text);
    check_config(text);
    check_values(copy);
    free(copy);
    return 0;
}
