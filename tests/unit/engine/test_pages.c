/* Copies of mapped files: the same bytes at the same address, independent of the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"
#include "engine/files/pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/perjoule-pages-XXXXXX";

static unsigned char byte_at(size_t i, unsigned seed)
{
    return (unsigned char)((i * 2654435761u + seed) >> 11);
}

static void write_file(size_t bytes, unsigned seed)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++) putc(byte_at(i, seed), file);
    assert_int_equal(fclose(file), 0);
}

static void copies_replace_mappings_of_any_size(void **state)
{
    static const size_t sizes[] = {1,
                                   4096,
                                   70000,
                                   PJ_PAGES_PART_BYTES - 1,
                                   PJ_PAGES_PART_BYTES,
                                   PJ_PAGES_PART_BYTES + 1,
                                   2 * PJ_PAGES_PART_BYTES + 12345};
    char *scratch = malloc(PJ_PAGES_PART_BYTES);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        pj_mapping map;
        write_file(sizes[s], 7);
        assert_int_equal(pj_file_map(path, &map, NULL), PJ_OK);
        const unsigned char *data = map.data;
        size_t parts = pj_pages_parts(map.data, map.size);
        for (size_t part = parts; part-- > 0;)
            assert_true(pj_pages_copy_part(map.data, map.size, part, scratch));
        assert_ptr_equal(map.data, data);
        /* a mapping would fault here */
        assert_int_equal(truncate(path, 0), 0);
        for (size_t i = 0; i < sizes[s]; i++)
            if (data[i] != byte_at(i, 7)) fail_msg("byte %zu of %zu differs", i, sizes[s]);
        pj_file_unmap(&map);
    }
    free(scratch);
}

static void a_file_of_no_bytes_has_no_parts(void **state)
{
    assert_int_equal(pj_pages_parts(NULL, 0), 0);
}

static void a_copy_without_memory_is_reported(void **state)
{
    pj_mapping map;
    char *scratch = malloc(PJ_PAGES_PART_BYTES);
    write_file(5000, 3);
    assert_int_equal(pj_file_map(path, &map, NULL), PJ_OK);
    pj_memory_fail_after(0);
    assert_false(pj_pages_copy_part(map.data, map.size, 0, scratch));
    pj_memory_fail_after(-1);
    assert_true(pj_pages_copy_part(map.data, map.size, 0, scratch));
    pj_file_unmap(&map);
    free(scratch);
}

static int make_path(void **state)
{
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    return close(fd);
}

static int remove_path(void **state)
{
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_replace_mappings_of_any_size),
        cmocka_unit_test(a_file_of_no_bytes_has_no_parts),
        cmocka_unit_test(a_copy_without_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
