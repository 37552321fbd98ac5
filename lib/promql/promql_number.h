/* promql_number: the shortest digits that read as the same number. */
#ifndef MILLRACE_PROMQL_NUMBER_H
#define MILLRACE_PROMQL_NUMBER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a finite number in the form 1.5e-07, with a NUL. */
#define PROMQL_NUMBER_SIZE 32
void promql_number_write(double value, char *out);

#ifdef __cplusplus
}
#endif

#endif
