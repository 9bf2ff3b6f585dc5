/*
 * A transfer: blocks that lie anywhere in another program's memory come as one operation, with one notification.
 *
 *     blocks ADDRESS         the owner of the blocks
 *     blocks ADDRESS get     the other side
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uct.h>

#define BLOCK 32768
#define SHARED 512
#define WANTED 256

static uct_net *net;

/* Waits for an operation; ends the program if it has failed, or was refused. */
static uct_event done(uct_op op, const char *what) {
    uct_event event;
    if (uct_wait(net, op, -1, &event) != UCT_OK) {
        const char *reason = uct_error(net, 0);
        fprintf(stderr, "%s: %s\n", what, reason ? reason : "no reason is known");
        exit(1);
    }
    return event;
}

static uct_memory *allocate(size_t length) {
    uct_memory *memory = uct_memory_allocate(net, length);
    if (!memory) {
        fprintf(stderr, "allocate: %s\n", uct_error(NULL, 0));
        exit(1);
    }
    return memory;
}

static void owner(const char *address) {
    uct_listener *listener = done(uct_listen(net, address, NULL, 0), "listen").result.listener;
    uct_memory *memory = allocate((size_t)SHARED * BLOCK);
    unsigned char *bytes = uct_memory_data(memory);
    uct_conn *conn;
    uct_event event;
    char text[256];
    int i;

    if (uct_listener_address(listener, text, sizeof text) < 0) exit(1);
    printf("listening on %s\n", text);
    fflush(stdout);
    conn = done(uct_accept(listener, 0), "accept").result.conn;

    for (i = 0; i < SHARED; i++) memset(bytes + (size_t)i * BLOCK, i, BLOCK);
    done(uct_share(conn, memory, 0, uct_memory_size(memory), 0), "share");
    /* It comes once, when every block has moved: from then on the memory may be used for something else. */
    event = done(uct_notified(conn, 0), "notified");
    printf("notified: %.*s\n", (int)event.length, (const char *)event.data);
    uct_message_release(event.result.message);
    done(uct_conn_close(conn, 0), "close");
}

/* Where a block is at the owner. */
static int from(int number) { return number * 37 % SHARED; }

static void get(const char *address) {
    static uct_block blocks[WANTED];
    const char notification[] = "all are read";
    uct_options *options = uct_options_create();
    uct_memory *memory = allocate((size_t)WANTED * BLOCK);
    unsigned char *bytes = uct_memory_data(memory);
    uct_remote *remote;
    uct_conn *conn;
    uct_event event;
    size_t i;

    /* The transport is chosen for what is done over it. */
    uct_options_set(options, "request", "get_zcopy 32k");
    conn = done(uct_connect(net, address, options, 0), "connect").result.conn;
    uct_options_free(options);
    remote = done(uct_shared(conn, 0), "shared").result.remote;

    for (i = 0; i < WANTED; i++) {
        blocks[i].local = i * BLOCK;
        blocks[i].remote = (uint64_t)from((int)i) * BLOCK;
        blocks[i].length = BLOCK;
    }
    event = done(uct_get_blocks(conn, memory, remote, blocks, WANTED, notification, strlen(notification), 0), "get_blocks");
    for (i = 0; i < (size_t)WANTED * BLOCK; i++) {
        if (bytes[i] != (unsigned char)from((int)(i / BLOCK))) {
            fprintf(stderr, "block %d is wrong\n", (int)(i / BLOCK));
            exit(1);
        }
    }
    printf("%d blocks, %d bytes\n", WANTED, (int)event.length);
    done(uct_conn_close(conn, 0), "close");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: blocks ADDRESS [get]\n");
        return 2;
    }
    net = uct_net_open(NULL);
    if (!net) {
        fprintf(stderr, "open: %s\n", uct_error(NULL, 0));
        return 1;
    }
    if (argc == 2)
        owner(argv[1]);
    else
        get(argv[1]);
    return uct_net_close(net) == UCT_OK ? 0 : 1;
}
