/* Uses UCX's libuct and this project's in turns. Their names in C are the same, so those of UCX are looked up by name. */
#include <uct/api/uct.h>

#include <dlfcn.h>
#include <stdio.h>

#define CHECK(_condition)                                                                                                                  \
    do {                                                                                                                                   \
        if (!(_condition)) {                                                                                                               \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #_condition);                                                                        \
            return 1;                                                                                                                      \
        }                                                                                                                                  \
    } while (0)

int main(void)
{
    void *ucx = dlopen("libuct.so.0", RTLD_NOW | RTLD_GLOBAL);
    signed char (*theirs)(void ***, unsigned *);
    void (*release_theirs)(void **);
    uct_component_h *components;
    void **their_components;
    unsigned count, their_count;

    if (!ucx) {
        printf("no library: %s\n", dlerror());
        return 0;
    }
    *(void **)&theirs = dlsym(ucx, "uct_query_components");
    *(void **)&release_theirs = dlsym(ucx, "uct_release_component_list");
    CHECK(theirs && release_theirs);
    for (int round = 0; round < 2; ++round) {
        uct_worker_h worker;

        CHECK(theirs(&their_components, &their_count) == UCS_OK && their_count > 0);
        CHECK(uct_query_components(&components, &count) == UCS_OK && count > 0);
        CHECK((void *)components != (void *)their_components);
        CHECK(uct_worker_create(NULL, UCS_THREAD_MODE_SERIALIZED, &worker) == UCS_OK);
        CHECK(uct_worker_progress(worker) == 0);
        uct_worker_destroy(worker);
        uct_release_component_list(components);
        release_theirs(their_components);
    }
    printf("done\n");
    return 0;
}
