/*
 * A server that sends back what its clients send, for any number of clients in one thread, and a client.
 *
 *     echo ADDRESS          the server; 127.0.0.1:0 has the system choose a port
 *     echo ADDRESS TEXT     a client: sends the text, and prints what comes back
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uct.h>

/* Ends the program with the reason of the call that was refused, or of the operation that failed. */
static void fail(uct_net *net, uct_op op, const char *what) {
    const char *reason = uct_error(net, op);
    fprintf(stderr, "%s: %s\n", what, reason ? reason : "no reason is known");
    exit(1);
}

/* The word of an operation is the connection that it is of. */
static uint64_t word(uct_conn *conn) { return (uint64_t)(uintptr_t)conn; }

/* What a client has sent goes back, and the next message is asked for. */
static void serve(uct_net *net, const uct_event *event) {
    uct_conn *conn = (uct_conn *)(uintptr_t)event->user;
    if (event->status != UCT_OK) {
        const char *reason = uct_error(net, event->op);
        printf("a client has gone: %s\n", reason ? reason : uct_status_string(event->status));
        uct_conn_close(conn, 0);
        return;
    }
    /* The bytes are copied: the message may be released at once. */
    if (!uct_send(conn, event->data, (size_t)event->length, word(conn)) || !uct_recv(conn, word(conn)))
        fail(net, 0, "serve");
    uct_message_release(event->result.message);
}

static void server(uct_net *net, const char *address) {
    uct_event events[16];
    uct_listener *listener;
    char text[256];
    int count, i;

    if (uct_wait(net, uct_listen(net, address, NULL, 0), -1, &events[0]) != UCT_OK) fail(net, 0, "listen");
    listener = events[0].result.listener;
    if (uct_listener_address(listener, text, sizeof text) < 0) fail(net, 0, "address");
    printf("listening on %s\n", text);
    fflush(stdout);
    if (!uct_accept(listener, 0)) fail(net, 0, "accept");
    while ((count = uct_net_wait(net, events, 16, -1)) >= 0) {
        for (i = 0; i < count; i++) {
            switch (events[i].kind) {
            case UCT_EV_ACCEPT:
                if (events[i].status != UCT_OK) fail(net, events[i].op, "accept");
                if (uct_conn_transport(events[i].result.conn, text, sizeof text) < 0) fail(net, 0, "transport");
                printf("a client over %s\n", text);
                if (!uct_recv(events[i].result.conn, word(events[i].result.conn)) || !uct_accept(listener, 0))
                    fail(net, 0, "accept");
                break;
            case UCT_EV_RECV:
                serve(net, &events[i]);
                break;
            default: /* A send: if it has failed, so does the receive. The end of a connection. */
                break;
            }
        }
        fflush(stdout);
    }
    fail(net, 0, "wait");
}

static void client(uct_net *net, const char *address, const char *text) {
    uct_event event;
    uct_conn *conn;

    if (uct_wait(net, uct_connect(net, address, NULL, 0), -1, &event) != UCT_OK) fail(net, 0, "connect");
    conn = event.result.conn;
    if (uct_wait(net, uct_send(conn, text, strlen(text), 0), -1, NULL) != UCT_OK) fail(net, 0, "send");
    if (uct_wait(net, uct_recv(conn, 0), -1, &event) != UCT_OK) fail(net, 0, "receive");
    printf("%.*s\n", (int)event.length, (const char *)event.data);
    uct_message_release(event.result.message);
    if (uct_wait(net, uct_conn_close(conn, 0), -1, NULL) != UCT_OK) fail(net, 0, "close");
}

int main(int argc, char **argv) {
    uct_net *net;

    if (argc < 2) {
        fprintf(stderr, "usage: echo ADDRESS [TEXT]\n");
        return 2;
    }
    net = uct_net_open(NULL);
    if (!net) fail(NULL, 0, "open");
    if (argc == 2)
        server(net, argv[1]);
    else
        client(net, argv[1], argv[2]);
    return uct_net_close(net) == UCT_OK ? 0 : 1;
}
