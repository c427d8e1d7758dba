/* Whether this build watches its own memory or threads: what a sanitizer keeps beside the program
 * (shadow, quarantine) then counts as the program's, and figures of memory mean nothing. */
#ifndef PJ_TESTS_SANITIZED_H
#define PJ_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PJ_SANITIZED 1
#elif defined(__has_feature) /* clang says it another way */
#define PJ_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define PJ_SANITIZED 0
#endif

#endif
