/* The database's schema, as the steps that lead to it. */
#ifndef PJ_STORE_SCHEMA_H
#define PJ_STORE_SCHEMA_H

/* "PJDB" in ASCII: PRAGMA application_id, so that `file` and we know our own. */
#define PJ_SCHEMA_APPLICATION_ID 0x504a4442

/* Step i leads from user_version i to i + 1. NULL ends the list; its length is our version. */
extern const char *const pj_schema_steps[];

#endif
