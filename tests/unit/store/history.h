/* The steps of earlier versions' schemas, NULL at the end. */
#ifndef HISTORY_H
#define HISTORY_H

extern const char *const sqlite_history[];
extern const char *const postgres_history[];

#endif
