/*
 * Remote memory: one program shares memory, another one reads it, writes it and counts in it.
 *
 *     put_get ADDRESS          the owner of the memory
 *     put_get ADDRESS user     the other side
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uct.h>

#define SIZE 4096
#define COUNTER 1024 /* where a number of 64 bits is in the memory */

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

static uct_memory *allocate(void) {
    uct_memory *memory = uct_memory_allocate(net, SIZE);
    if (!memory) {
        fprintf(stderr, "allocate: %s\n", uct_error(NULL, 0));
        exit(1);
    }
    return memory;
}

static void owner(const char *address) {
    uct_listener *listener = done(uct_listen(net, address, NULL, 0), "listen").result.listener;
    uct_memory *memory = allocate();
    char *bytes = uct_memory_data(memory);
    uct_conn *conn;
    uct_event event;
    uint64_t count;
    char text[256];

    if (uct_listener_address(listener, text, sizeof text) < 0) exit(1);
    printf("listening on %s\n", text);
    fflush(stdout);
    conn = done(uct_accept(listener, 0), "accept").result.conn;

    strcpy(bytes, "from the owner");
    done(uct_share(conn, memory, 0, SIZE, 0), "share");
    /* A message that is sent after a put was done comes after its effect. */
    event = done(uct_recv(conn, 0), "receive");
    memcpy(&count, bytes + COUNTER, sizeof count);
    printf("the user has written \"%s\" and counted to %d\n", bytes + 256, (int)count);
    uct_message_release(event.result.message);
    done(uct_conn_close(conn, 0), "close");
}

static void user(const char *address) {
    uct_conn *conn = done(uct_connect(net, address, NULL, 0), "connect").result.conn;
    uct_remote *remote = done(uct_shared(conn, 0), "shared").result.remote;
    uct_memory *memory = allocate();
    char *bytes = uct_memory_data(memory);
    uint64_t before = 0;
    int i;

    done(uct_get(conn, memory, 0, 256, remote, 0, 0), "get");
    printf("the owner has written \"%s\"\n", bytes);
    strcpy(bytes + 512, "from the user");
    done(uct_put(conn, memory, 512, 64, remote, 256, 0), "put");
    for (i = 0; i < 3; i++) before = done(uct_fetch_add(conn, remote, COUNTER, 1, 0), "fetch_add").result.value;
    printf("counted from %d\n", (int)before);

    done(uct_send(conn, "done", 4, 0), "send");
    done(uct_conn_close(conn, 0), "close");
    uct_memory_free(memory);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: put_get ADDRESS [user]\n");
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
        user(argv[1]);
    /* Frees the memory, too. */
    return uct_net_close(net) == UCT_OK ? 0 : 1;
}
