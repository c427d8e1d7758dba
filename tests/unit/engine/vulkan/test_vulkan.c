/* The low layer of Vulkan on whatever driver there is, a software one in the tests: memory,
 * pipelines, order of work, failures, and the device's clock. */
#include "base/clock.h"
#include "base/file.h"
#include "engine/vulkan/api.h"

#include "../../assertions.h"
#include "vulkan_test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint32_t probe_code[] = {
#include "probe.inc"
};
static const pj_vk_shader probe = {"probe", probe_code, sizeof probe_code, 16};

typedef struct probe_push {
    uint64_t words;
    uint32_t count, rounds;
} probe_push;

enum { WORDS = 1000 };

static const pj_vk_pipeline *adds(pj_vk *vk, uint32_t added)
{
    const pj_vk_pipeline *p = pj_vk_pipeline_get(vk, &probe, &added, 1, NULL);
    assert_non_null(p);
    return p;
}

static void add(pj_vk *vk, const pj_vk_buffer *words, uint32_t added, uint32_t rounds)
{
    probe_push push = {words->address, WORDS, rounds};
    pj_vk_dispatch(vk, adds(vk, added), &push, (WORDS + 63) / 64, 1, 1, WORDS * 4);
}

static void test_list(void **state)
{
    pj_vk_info devices[PJ_VK_MAX_DEVICES];
    uint32_t count;
    pj_vk *vk = *state;
    assert_int_equal(pj_vk_list(devices, &count, NULL), PJ_OK);
    assert_that(count, >=, 1);
    assert_string_equal(devices[0].name, pj_vk_device(vk)->name);
    assert_memory_equal(devices[0].uuid, pj_vk_device(vk)->uuid, 16);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(devices[i].usable == !devices[i].reason[0]);
        if (devices[i].usable) assert_that(devices[i].memory_bytes, >, 1 << 20);
        if (i > 0 && devices[i].usable && devices[i].kind != PJ_VK_SOFTWARE)
            assert_int_not_equal(devices[i - 1].kind, PJ_VK_SOFTWARE);
    }
}

static void test_what_a_name_means(void **state)
{
    const pj_vk_info devices[] = {
        {.name = "NVIDIA H200", .kind = PJ_VK_DISCRETE, .uuid = {0xab, 0xcd, 1}},
        {.name = "Intel(R) Graphics", .kind = PJ_VK_INTEGRATED, .uuid = {2}},
        {.name = "llvmpipe (LLVM 15.0.6, 256 bits)", .kind = PJ_VK_SOFTWARE, .uuid = {3}}};
    const struct {
        const char *name;
        int device;
    } cases[] = {{"gpu", 0},
                 {"GPU:1", 1},
                 {"gpu:2", -1}, /* software is none of them */
                 {"gpu:x", -1},
                 {"gpu:1x", -1},
                 {"gpu:", -1},
                 {"llvmpipe", 2},
                 {"llvm", -1},
                 {"nvidia h200", 0},
                 {"nvidia", 0},
                 {"abcd0100000000000000000000000000", 0},
                 {"GPU-ABCD0100-0000-0000-0000-000000000000", 0},
                 {"abcd01", -1},
                 {"abcd01000000000000000000000000000", -1},
                 {"", -1},
                 {"cpu", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(pj_vk_select(devices, 3, cases[i].name), cases[i].device);
    assert_int_equal(pj_vk_select(devices + 2, 1, "gpu"), -1);
}

/* A name that two devices have is nobody's; the whole name of one is not the first words of
 * another. */
static void test_what_several_are_called(void **state)
{
    const pj_vk_info devices[] = {{.name = "NVIDIA H100 PCIe", .kind = PJ_VK_DISCRETE},
                                  {.name = "NVIDIA H100", .kind = PJ_VK_DISCRETE},
                                  {.name = "NVIDIA H200", .kind = PJ_VK_DISCRETE},
                                  {.name = "NVIDIA H200", .kind = PJ_VK_DISCRETE}};
    assert_int_equal(pj_vk_select(devices, 4, "NVIDIA"), PJ_VK_SEVERAL);
    assert_int_equal(pj_vk_select(devices, 4, "nvidia h200"), PJ_VK_SEVERAL);
    assert_int_equal(pj_vk_select(devices, 4, "NVIDIA H100"), 1);
    assert_int_equal(pj_vk_select(devices, 4, "gpu:3"), 3);
}

/* A UUID that two devices have is nobody's, either. */
static void test_a_uuid_of_several(void **state)
{
    const pj_vk_info devices[] = {{.name = "AMD A", .kind = PJ_VK_DISCRETE, .uuid = {1}},
                                  {.name = "AMD B", .kind = PJ_VK_DISCRETE, .uuid = {1}},
                                  {.name = "AMD C", .kind = PJ_VK_DISCRETE, .uuid = {2}}};
    assert_int_equal(pj_vk_select(devices, 3, "01000000000000000000000000000000"), PJ_VK_SEVERAL);
    assert_int_equal(pj_vk_select(devices, 3, "02000000000000000000000000000000"), 2);
    assert_int_equal(pj_vk_select(devices, 3, "gpu:1"), 1);
    assert_int_equal(pj_vk_select(devices, 3, "AMD B"), 1);
}

static void test_copies_through_memory_of_each_place(void **state)
{
    pj_vk *vk = *state;
    enum { BYTES = 9 * 1024 * 1024 + 3 }; /* more than a staging buffer, not whole words */
    unsigned char *in = malloc(BYTES), *out = malloc(BYTES);
    for (int i = 0; i < BYTES; i++) in[i] = (unsigned char)(i * 7 + i / 251);
    for (int place = PJ_VK_DEVICE; place <= PJ_VK_READBACK; place++) {
        pj_vk_buffer b;
        assert_int_equal(pj_vk_buffer_make(vk, place, BYTES, "bytes", &b, NULL), PJ_OK);
        assert_int_equal(b.address % 16, 0);
        assert_true((b.mapped == NULL) == (place == PJ_VK_DEVICE));
        assert_int_equal(pj_vk_upload(vk, &b, 0, in, BYTES, NULL), PJ_OK);
        memset(out, 0, BYTES);
        assert_int_equal(pj_vk_download(vk, &b, 0, out, BYTES, NULL), PJ_OK);
        assert_memory_equal(in, out, BYTES);
        assert_int_equal(pj_vk_upload(vk, &b, 8, in, BYTES, NULL), PJ_E_INVALID);
        pj_vk_buffer_free(vk, &b);
        pj_vk_buffer_free(vk, &b);
    }
    assert_that(pj_vk_memory_used(vk), ==, 0);
    free(in);
    free(out);
}

/* Dispatches, fills and copies that depend on each other, in more than one submission. */
static void test_order_of_work(void **state)
{
    pj_vk *vk = *state;
    enum { STEPS = 900 };
    pj_vk_buffer words, copy;
    assert_int_equal(pj_vk_buffer_make(vk, PJ_VK_DEVICE, WORDS * 4, "words", &words, NULL), PJ_OK);
    assert_int_equal(pj_vk_buffer_make(vk, PJ_VK_READBACK, WORDS * 4, "copy", &copy, NULL), PJ_OK);
    pj_vk_fill(vk, &words, 0, WORDS * 4, 5);
    for (int i = 0; i < STEPS; i++) {
        pj_vk_barrier(vk);
        add(vk, &words, i % 2 ? 3 : 1000, 1);
    }
    pj_vk_barrier(vk);
    pj_vk_copy(vk, &copy, 0, &words, 0, WORDS * 4);
    assert_int_equal(pj_vk_wait(vk, NULL), PJ_OK);
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(((uint32_t *)copy.mapped)[i], 5 + STEPS / 2 * 1003);
    pj_vk_buffer_free(vk, &words);
    pj_vk_buffer_free(vk, &copy);
}

static void test_pipelines_are_made_once(void **state)
{
    pj_vk *vk = *state;
    pj_error err = {0};
    uint32_t many[PJ_VK_MAX_CONSTANTS + 1] = {0};
    assert_ptr_equal(adds(vk, 77), adds(vk, 77));
    assert_ptr_not_equal(adds(vk, 77), adds(vk, 78));
    assert_null(pj_vk_pipeline_get(vk, &probe, many, PJ_VK_MAX_CONSTANTS + 1, &err));
    assert_int_equal(err.status, PJ_E_INVALID);
}

/* The first failure is reported by the next wait, and what follows works. */
static void test_failed_recordings(void **state)
{
    pj_vk *vk = *state;
    pj_vk_buffer words;
    pj_error err = {0};
    assert_int_equal(pj_vk_buffer_make(vk, PJ_VK_DEVICE, WORDS * 4, "words", &words, NULL), PJ_OK);
    pj_vk_fill(vk, &words, 4, WORDS * 4, 1);
    pj_vk_dispatch(vk, NULL, NULL, 1, 1, 1, 0);
    assert_int_not_equal(pj_vk_wait(vk, &err), PJ_OK);
    assert_non_null(strstr(err.text, "a fill exceeds its buffer"));
    assert_non_null(strstr(err.text, pj_vk_device(vk)->name));
    pj_vk_dispatch(vk, adds(vk, 1), &(probe_push){words.address, WORDS, 1}, 1, 70000, 1, 0);
    assert_int_not_equal(pj_vk_wait(vk, &err), PJ_OK);
    assert_non_null(strstr(err.text, "too many workgroups"));
    pj_vk_fill(vk, &words, 0, WORDS * 4, 1);
    assert_int_equal(pj_vk_wait(vk, &err), PJ_OK);
    pj_vk_buffer_free(vk, &words);
}

static void test_full_memory(void **state)
{
    pj_vk *vk;
    pj_vk_buffer kept, b;
    pj_error err = {0};
    pj_vk_options small = vulkan_test_options;
    small.memory_limit = 5000000;
    assert_int_equal(pj_vk_open(&vk, &small, NULL), PJ_OK);
    assert_int_equal(pj_vk_buffer_make(vk, PJ_VK_DEVICE, 3000000, "kept", &kept, &err), PJ_OK);
    assert_int_equal(pj_vk_buffer_make(vk, PJ_VK_DEVICE, 2500000, "weights of a model", &b, &err),
                     PJ_E_NO_MEMORY);
    assert_non_null(
        strstr(err.text, "weights of a model needs 2.5 MB, and 2.0 MB of 5.0 MB are free"));
    assert_int_equal(pj_vk_memory_used(vk), 3000000);
    pj_vk_buffer_free(vk, &kept);
    assert_int_equal(pj_vk_buffer_make(vk, PJ_VK_DEVICE, 2500000, "weights", &b, &err), PJ_OK);
    pj_vk_buffer_free(vk, &b);
    pj_vk_close(vk);
}

/* Drivers truncate sizes beyond what they promise. */
static void test_a_buffer_beyond_the_driver(void **state)
{
    pj_vk *vk = *state;
    pj_vk_buffer b;
    pj_error err = {0};
    uint64_t most = vk->physical.info.buffer_bytes;
    assert_true(most == 0 || most >= 1 << 30);
    vk->physical.info.buffer_bytes = 1000000;
    assert_int_equal(pj_vk_buffer_make(vk, PJ_VK_DEVICE, 1000000, "a cache", &b, NULL), PJ_OK);
    pj_vk_buffer_free(vk, &b);
    pj_status status = pj_vk_buffer_make(vk, PJ_VK_DEVICE, 2500000, "a cache", &b, &err);
    vk->physical.info.buffer_bytes = most;
    assert_int_equal(status, PJ_E_NO_MEMORY);
    assert_non_null(strstr(err.text, "a cache needs 2.5 MB in one piece, and the driver's buffers "
                                     "have at most 1.0 MB"));
}

static uint64_t heap_used;
static VkResult allocation_result;

static VKAPI_ATTR void VKAPI_CALL budget_of(VkPhysicalDevice device,
                                            VkPhysicalDeviceMemoryProperties2 *properties)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = properties->pNext;
    for (int i = 0; budget && i < VK_MAX_MEMORY_HEAPS; i++) {
        budget->heapBudget[i] = 4000000;
        budget->heapUsage[i] = heap_used;
    }
}

static VKAPI_ATTR VkResult VKAPI_CALL refuse_memory(VkDevice device,
                                                    const VkMemoryAllocateInfo *info,
                                                    const VkAllocationCallbacks *callbacks,
                                                    VkDeviceMemory *memory)
{
    return allocation_result;
}

/* By what the driver says is free, also if it is nothing; and sizes that only the driver knows. */
static void test_memory_that_others_use(void **state)
{
    pj_vk *vk;
    pj_vk_buffer b;
    pj_error err = {0};
    assert_int_equal(pj_vk_open(&vk, &vulkan_test_options, NULL), PJ_OK);
    vk->instance.fn.GetPhysicalDeviceMemoryProperties2 = budget_of;
    vk->physical.info.memory_budget = true;
    for (heap_used = 3000000; heap_used <= 5000000; heap_used += 1000000) {
        assert_int_equal(pj_vk_buffer_make(vk, PJ_VK_DEVICE, 2000000, "weights", &b, &err),
                         PJ_E_NO_MEMORY);
        assert_non_null(strstr(err.text, heap_used == 3000000 ? "needs 2.0 MB, and 1.0 MB of"
                                                              : "needs 2.0 MB, and 0 bytes of"));
    }
    heap_used = 0;
    vk->instance.fn.AllocateMemory = refuse_memory;
    vk->physical.info.allocation_bytes = 1500000;
    for (pj_vk_place place = PJ_VK_DEVICE; place <= PJ_VK_READBACK; place++) {
        allocation_result =
            place == PJ_VK_DEVICE ? VK_ERROR_OUT_OF_DEVICE_MEMORY : VK_ERROR_OUT_OF_HOST_MEMORY;
        assert_int_equal(pj_vk_buffer_make(vk, place, 2000000, "a cache", &b, &err),
                         PJ_E_NO_MEMORY);
        assert_non_null(strstr(err.text, "the driver refuses 2.0 MB for a cache; it promises up "
                                         "to 1.5 MB at once"));
    }
    pj_vk_close(vk);
}

static bool families_have_timestamps;

static VKAPI_ATTR void VKAPI_CALL families_of(VkPhysicalDevice device, uint32_t *count,
                                              VkQueueFamilyProperties *families)
{
    *count = 4;
    for (uint32_t i = 0; i < 4; i++)
        families[i] = (VkQueueFamilyProperties){
            .queueFlags = i ? VK_QUEUE_COMPUTE_BIT : VK_QUEUE_TRANSFER_BIT,
            .queueCount = 1,
            .timestampValidBits = families_have_timestamps && i > 1 ? 36 : 0};
}

static void test_queue_with_timestamps(void **state)
{
    pj_vk_instance instance;
    pj_vk_physical devices[PJ_VK_MAX_DEVICES];
    uint32_t count;
    assert_int_equal(pj_vk_instance_open(&instance, false, NULL), PJ_OK);
    instance.fn.GetPhysicalDeviceQueueFamilyProperties = families_of;
    families_have_timestamps = true;
    assert_int_equal(pj_vk_physical_list(&instance, devices, &count, NULL), PJ_OK);
    assert_int_equal(devices[0].family, 2);
    assert_int_equal(devices[0].stamp_bits, 36);
    families_have_timestamps = false;
    assert_int_equal(pj_vk_physical_list(&instance, devices, &count, NULL), PJ_OK);
    assert_false(devices[0].info.usable);
    assert_string_equal(devices[0].info.reason, "it has no queue that computes and has timestamps");
    pj_vk_instance_close(&instance);
}

/* Work of a tenth of a second on a device that may take a millisecond. */
static void test_hung_device(void **state)
{
    pj_vk *vk;
    pj_vk_buffer words;
    pj_error err = {0};
    pj_vk_options hasty = vulkan_test_options;
    hasty.timeout_ns = PJ_NS_PER_MS;
    assert_int_equal(pj_vk_open(&vk, &hasty, NULL), PJ_OK);
    assert_int_equal(pj_vk_buffer_make(vk, PJ_VK_UPLOAD, WORDS * 4, "words", &words, NULL), PJ_OK);
    for (int i = 0; i < 200; i++) add(vk, &words, 3, 3000);
    assert_int_equal(pj_vk_wait(vk, &err), PJ_E_LOST);
    assert_non_null(strstr(err.text, "it hangs"));
    assert_int_equal(pj_vk_wait(vk, &err), PJ_E_LOST); /* for good */
    pj_vk_buffer_free(vk, &words);                     /* waits once more for what runs */
    pj_vk_close(vk);
}

/* A stamp whose commands were thrown away never comes: it is not waited for forever. */
static void test_stamp_that_never_comes(void **state)
{
    pj_vk *vk;
    int64_t time;
    pj_error err = {0}, refused = {.status = PJ_E_UNSUPPORTED, .text = "refused"};
    pj_vk_options hasty = vulkan_test_options;
    hasty.timeout_ns = 20 * PJ_NS_PER_MS;
    assert_int_equal(pj_vk_open(&vk, &hasty, NULL), PJ_OK);
    assert_int_equal(pj_vk_stamp(vk), 0);
    pj_vk_refuse(vk, &refused);
    assert_int_equal(pj_vk_wait(vk, &err), PJ_E_UNSUPPORTED);
    assert_int_equal(pj_vk_stamps_read(vk, 0, 1, &time, &err), PJ_E_LOST);
    assert_non_null(strstr(err.text, "its timestamps: it did not finish in time"));
    assert_int_equal(pj_vk_wait(vk, &err), PJ_E_LOST); /* for good */
    pj_vk_close(vk);
}

/* A stamp lies between the submission and the end of the wait, and stamps are in order. */
static void test_stamps(void **state)
{
    pj_vk *vk = *state;
    pj_vk_buffer words;
    pj_error err = {0};
    int64_t times[4], slack = (int64_t)pj_vk_clock_error_ns(vk) + 1000;
    assert_that(pj_vk_clock_error_ns(vk), >, 0);
    assert_that(pj_vk_clock_error_ns(vk), <, 1e6);
    assert_int_equal(pj_vk_buffer_make(vk, PJ_VK_DEVICE, WORDS * 4, "words", &words, NULL), PJ_OK);
    for (int round = 0; round < 20; round++) {
        pj_vk_stamps_clear(vk);
        int64_t before = pj_clock_ns();
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(pj_vk_stamp(vk), i);
            add(vk, &words, 1, 10);
            pj_vk_barrier(vk);
        }
        assert_int_equal(pj_vk_wait(vk, &err), PJ_OK);
        int64_t after = pj_clock_ns();
        assert_int_equal(pj_vk_stamps_read(vk, 0, 4, times, &err), PJ_OK);
        assert_that(times[0], >=, before - slack);
        assert_that(times[3], <=, after + slack);
        for (int i = 1; i < 4; i++) assert_that(times[i], >=, times[i - 1]);
    }
    assert_int_equal(pj_vk_stamps_read(vk, 2, 3, times, &err), PJ_E_INVALID);
    pj_vk_stamps_clear(vk);
    pj_vk_buffer_free(vk, &words);
}

static void test_too_many_stamps(void **state)
{
    pj_vk *vk = *state;
    for (int i = 0; i < PJ_VK_MAX_STAMPS; i++) assert_int_equal(pj_vk_stamp(vk), i);
    assert_int_equal(pj_vk_stamp(vk), UINT32_MAX);
    assert_int_equal(pj_vk_wait(vk, NULL), PJ_OK);
    pj_vk_stamps_clear(vk);
    assert_int_equal(pj_vk_stamp(vk), 0);
    assert_int_equal(pj_vk_wait(vk, NULL), PJ_OK);
    pj_vk_stamps_clear(vk);
}

/* Pipelines are kept on disk; a damaged file is not used. */
static void test_cache_on_disk(void **state)
{
    char folder[] = "/tmp/pj-vulkan-XXXXXX", command[100];
    pj_vk *vk;
    pj_vk_options cached = vulkan_test_options;
    assert_non_null(mkdtemp(folder));
    cached.cache_dir = folder;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(pj_vk_open(&vk, &cached, NULL), PJ_OK);
        adds(vk, 4);
        pj_vk_close(vk);
        snprintf(command, sizeof command, "test $(cat %s/vulkan-* | head -c 27 | wc -c) = 27",
                 folder);
        assert_int_equal(system(command), 0);
        if (round == 1) {
            snprintf(command, sizeof command, "cd %s && echo damaged >>$(ls)", folder);
            assert_int_equal(system(command), 0);
        }
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_missing_library(void **state)
{
    pj_vk_info devices[PJ_VK_MAX_DEVICES];
    uint32_t count = 1;
    pj_error err = {0};
    setenv("PERJOULE_VULKAN", "/nowhere/libvulkan.so", 1);
    pj_status status = pj_vk_list(devices, &count, &err);
    unsetenv("PERJOULE_VULKAN");
    assert_int_equal(status, PJ_E_UNAVAILABLE);
    assert_int_equal(count, 0);
    assert_non_null(strstr(err.text, "PERJOULE_VULKAN=/nowhere/libvulkan.so: "));
}

static void test_unknown_device(void **state)
{
    pj_vk *vk;
    pj_error err = {0};
    uint8_t uuid[16] = {1, 2, 3};
    pj_vk_options other = {.uuid = uuid, .cache_dir = ""};
    assert_int_equal(pj_vk_open(&vk, &other, &err), PJ_E_NOT_FOUND);
    assert_null(vk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        vulkan_test(test_missing_library),
        vulkan_test(test_unknown_device),
        vulkan_test(test_list),
        vulkan_test(test_what_a_name_means),
        vulkan_test(test_what_several_are_called),
        vulkan_test(test_a_uuid_of_several),
        vulkan_test(test_copies_through_memory_of_each_place),
        vulkan_test(test_order_of_work),
        vulkan_test(test_pipelines_are_made_once),
        vulkan_test(test_failed_recordings),
        vulkan_test(test_full_memory),
        vulkan_test(test_a_buffer_beyond_the_driver),
        vulkan_test(test_memory_that_others_use),
        vulkan_test(test_queue_with_timestamps),
        vulkan_test(test_hung_device),
        vulkan_test(test_stamp_that_never_comes),
        vulkan_test(test_stamps),
        vulkan_test(test_too_many_stamps),
        vulkan_test(test_cache_on_disk),
    };
    if (!vulkan_test_open()) return VULKAN_TEST_SKIPPED;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pj_vk_close(vulkan_test_vk);
    return failed;
}
