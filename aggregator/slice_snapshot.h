/* slice_snapshot: one moment of a slice, to read from.
 *
 * A connection that holds one read transaction open. What was committed when it was opened or last renewed is
 * what it shows, however much is committed since: so a reader who adds counts from memory decides itself, by
 * when it renews, from where each count comes.
 *
 * 1. Between two renewals every scan sees the same rows.
 * 2. A snapshot that failed (a read error, damage) says so; a scan never ends early without it.
 *
 * One thread; one scan at a time. Reads block for as long as the disk does.
 */
#ifndef MILLRACE_SLICE_SNAPSHOT_H
#define MILLRACE_SLICE_SNAPSHOT_H

#include "aggregator/row.h"
#include "aggregator/slice.h"

struct slice_snapshot;

/* The slice must have been made. */
enum slice_result slice_snapshot_open(
    const char *path, struct slice_snapshot **out, char error[SLICE_ERROR_TEXT]);
/* Of one that is settled: it never changes, so nothing is locked and a small cache will do, however many are open. */
enum slice_result slice_snapshot_open_sealed(
    const char *path, struct slice_snapshot **out, char error[SLICE_ERROR_TEXT]);
void slice_snapshot_close(struct slice_snapshot **s);
/* Moves to what is committed now. After a failure every scan fails until a renewal succeeds. */
enum slice_result slice_snapshot_renew(struct slice_snapshot *s, char error[SLICE_ERROR_TEXT]);

/* Begins a scan of the rows whose key is at or after `from` (borrowed until the scan ends). Counts and lookups
 * are two runs, each in order. */
void slice_scan_begin(struct slice_snapshot *s, struct bytes from);
/* What *row points to is valid until the next call for the same run. False at the end, and when it failed. */
bool slice_scan_next_count(struct slice_snapshot *s, struct row *row);
bool slice_scan_next_lookup(struct slice_snapshot *s, struct row *row);
/* SLICE_OK, or why the scan ended early (the text lives until the next renewal). */
enum slice_result slice_scan_end(struct slice_snapshot *s, const char **error);

#endif
