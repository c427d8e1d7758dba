/* Whether a sanitizer is on: its own memory (shadow, quarantine) counts as the program's, so that
 * memory figures are meaningless. */
#ifndef PJ_TESTS_SANITIZED_H
#define PJ_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PJ_SANITIZED 1
#elif defined(__has_feature) /* clang's spelling */
#define PJ_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define PJ_SANITIZED 0
#endif

#endif
