/* random_id: a unique id, 128 random bits as text. */
#ifndef MILLRACE_RANDOM_ID_H
#define MILLRACE_RANDOM_ID_H

#define RANDOM_ID_SIZE 33 /* 32 lower-case hexadecimal digits and a NUL */

void random_id(char text[RANDOM_ID_SIZE]);

#endif
