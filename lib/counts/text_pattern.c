#define PCRE2_CODE_UNIT_WIDTH 8
#include "counts/text_pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <sys/param.h>

/* The unit of costs is a 1024th of a step. The interpreter copies and keeps some 128 bytes for an item, and 16 bytes more
 * for each group. */
#define STEP 1024
#define STEP_OF_GROUP (STEP / 8)
#define STEP_OF_BYTE 64
/* PCRE2's compiler makes machine code of up to 30 times this size. Each client of a stream has patterns of its own, so
 * larger patterns stay with the interpreter. ((a{1,40}){1,40}b){1,20} has 27 KB. */
#define JIT_SIZE_MAX ((size_t)8 << 10)

struct effort {
    PCRE2_SIZE at;  /* position in the text */
    size_t needs;   /* number of bytes that the current item may skip */
    uint64_t spent; /* cost so far, in 1024ths of a step */
};

struct text_pattern {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    const char *text; /* the pattern, during construction */
    size_t length;    /* length of the pattern */
    size_t *
        needs; /* for each item, by its position in the pattern: bytes that the item may skip and then fail */
    uint64_t of_item; /* cost of an attempt to match an item */
    uint64_t of_byte; /* cost of a skipped byte */
    struct effort effort;
};

/* Charges the cost of the previous item. PCRE2 calls `count` before each attempt to match an item. The charged bytes
 * are the larger of two numbers: the skipped bytes, and the bytes that a failed item may have skipped. */
static int count(pcre2_callout_block *block, void *arg)
{
    struct text_pattern *p = arg;
    struct effort *e = &p->effort;
    PCRE2_SIZE from = e->at, to = block->current_position;
    uint64_t bytes = from < to ? to - from : from - to;
    if (bytes < e->needs)
        bytes = MAX(bytes, MIN(e->needs, block->subject_length - from));
    e->at = to;
    e->needs = p->needs[block->pattern_position];
    e->spent += p->of_item + bytes * p->of_byte;
    return e->spent > (uint64_t)TEXT_PATTERN_STEPS_MAX * STEP ? PCRE2_ERROR_CALLOUT : 0;
}

/* Returns the largest repeat count of an item, such as 300 for a{300}. The items of a group are counted separately. */
static size_t repeats(const char *item, size_t n)
{
    size_t most = 0;
    if (n == 0 || *item == ')')
        return 0;
    for (const char *end = item + n; (item = memchr(item, '{', (size_t)(end - item)));) {
        size_t times = 0;
        while (++item < end && *item >= '0' && *item <= '9')
            times = MIN(times * 10 + (size_t)(*item - '0'), TEXT_PATTERN_TEXT_MAX);
        most = MAX(most, times);
    }
    return most;
}

/* Records how many bytes an item may skip. A lookbehind may skip bytes, because PCRE2 moves back in the text before the
 * first item of the lookbehind. */
static int note_needs(pcre2_callout_enumerate_block *block, void *arg)
{
    struct text_pattern *p = arg;
    const char *item = p->text + block->pattern_position;
    /* If a pattern ends with (?), PCRE2 reports a length that reaches three bytes past the pattern's end. */
    size_t n = MIN(block->next_item_length, p->length - block->pattern_position);
    uint32_t back = 0;
    if (*item == '(') /* every group counts as a lookbehind, because lookbehinds have many spellings */
        pcre2_pattern_info(p->code, PCRE2_INFO_MAXLOOKBEHIND, &back);
    /* A back reference such as \1 may compare the rest of the text, and so may \X. */
    bool unlimited =
        (n > 1 && item[0] == '\\' && (strchr("gkX", item[1]) || (item[1] >= '1' && item[1] <= '9'))) ||
        (n > 3 && memcmp(item, "(?P=", 4) == 0);
    p->needs[block->pattern_position] = unlimited ? TEXT_PATTERN_TEXT_MAX : MAX(back, repeats(item, n));
    return 0;
}

struct text_pattern *text_pattern_new(const char *pattern, struct error *error)
{
    static const char *const runs[] = {"(*sr:", "(*script_run:", "(*asr:", "(*atomic_script_run:"};
    int code;
    PCRE2_SIZE at;
    unsigned char why[120];
    uint32_t groups = 0;
    size_t size = 0;
    /* The pattern is untrusted. PCRE2 must check that the pattern is UTF-8, and \C could stop inside a character. */
    const uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT;
    /* A verb can remove PCRE2's limits or disable its JIT compiler. For each possible end of a script run, PCRE2 scans
     * the script run again without a callout. */
    bool refused = strncmp(pattern, "(*", 2) == 0;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        refused = refused || strstr(pattern, runs[i]);
    if (refused) {
        error_set(error, -1, "the pattern begins with (* or contains a script run");
        return NULL;
    }
    struct text_pattern *p = mem_zalloc(sizeof *p);
    p->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &code, &at, NULL);
    if (!p->code) {
        pcre2_get_error_message(code, why, sizeof why);
        error_set(error, -1, "invalid pattern at character %zu: %s", at + 1, (char *)why);
        text_pattern_free(&p);
        return NULL;
    }
    pcre2_pattern_info(p->code, PCRE2_INFO_SIZE, &size);
    if (size <= JIT_SIZE_MAX)
        pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    p->length = strlen(pattern);
    p->needs = mem_zalloc((p->length + 1) * sizeof *p->needs);
    p->text = pattern;
    pcre2_callout_enumerate(p->code, note_needs, p);
    pcre2_pattern_info(p->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    p->of_item = STEP + (uint64_t)groups * STEP_OF_GROUP;
    p->of_byte = STEP_OF_BYTE + p->length;
    p->match = pcre2_match_data_create_from_pattern(p->code, NULL);
    p->context = pcre2_match_context_create(NULL);
    pcre2_set_callout(p->context, count, p);
    pcre2_set_match_limit(p->context, TEXT_PATTERN_STEPS_MAX);
    return p;
}

void text_pattern_free(struct text_pattern **pp)
{
    struct text_pattern *p = *pp;
    if (!p)
        return;
    pcre2_code_free(p->code);
    pcre2_match_data_free(p->match);
    pcre2_match_context_free(p->context);
    free(p->needs);
    free(p);
    *pp = NULL;
}

static int find(struct text_pattern *p, struct bytes text, uint32_t options, pcre2_match_data *match)
{
    p->effort = (struct effort){.at = 0};
    return pcre2_match(
        p->code, (PCRE2_SPTR)text.ptr, text.len, 0, PCRE2_NO_UTF_CHECK | options, match, p->context);
}

/* The compiled matcher has a small stack. If the stack overflows, the interpreter repeats the search. The interpreter's
 * match data are freed after the search, because they may take 20 MB. */
enum text_pattern_result text_pattern_find(struct text_pattern *p, struct bytes text)
{
    if (text.len > TEXT_PATTERN_TEXT_MAX)
        return TEXT_PATTERN_UNDECIDED;
    int rc = find(p, text, 0, p->match);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        pcre2_match_data *match = pcre2_match_data_create_from_pattern(p->code, NULL);
        rc = find(p, text, PCRE2_NO_JIT, match);
        memcpy(pcre2_get_ovector_pointer(p->match), pcre2_get_ovector_pointer(match),
            2 * sizeof(PCRE2_SIZE) * pcre2_get_ovector_count(match));
        pcre2_match_data_free(match);
    }
    return rc >= 0                     ? TEXT_PATTERN_FOUND
           : rc == PCRE2_ERROR_NOMATCH ? TEXT_PATTERN_NOT_FOUND
                                       : TEXT_PATTERN_UNDECIDED;
}

uint64_t text_pattern_steps(const struct text_pattern *p)
{
    return p->effort.spent / STEP;
}

struct bytes text_pattern_group(const struct text_pattern *p, struct bytes text, struct bytes group)
{
    char name[33] = ""; /* PCRE2's limit of names is 32 */
    uint64_t number;
    if (!bytes_to_u64(group, &number)) {
        if (group.len < sizeof name)
            memcpy(name, group.ptr, group.len);
        int found = pcre2_substring_number_from_name(p->code, (PCRE2_SPTR)name);
        number = found > 0 ? (uint64_t)found : UINT64_MAX;
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(p->match);
    if (number >= pcre2_get_ovector_count(p->match) || at[2 * number] == PCRE2_UNSET)
        return BYTES_NONE;
    return bytes_of(text.ptr + at[2 * number], at[2 * number + 1] - at[2 * number]);
}
