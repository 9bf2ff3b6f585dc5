/*
 * The library from C++11: handles that close themselves, errors as exceptions, and a message, a put, a get and a
 * transfer of blocks between two programs.
 *
 *     tour ADDRESS          the owner of the memory
 *     tour ADDRESS TEXT     the other side
 */
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <uct.h>

namespace {

const std::size_t block = 4096, blocks = 4;

/* A handle that is closed at the end of its scope: Owned<uct_net> net(uct_net_open(nullptr), uct_net_close). */
template <typename T> using Owned = std::unique_ptr<T, int (*)(T *)>;

[[noreturn]] void fail() {
    const char *reason = uct_error(nullptr, 0);
    throw std::runtime_error(reason ? reason : "no reason is known");
}

/* Waits for an operation; throws if it has failed, or was refused. */
uct_event done(uct_net *net, uct_op op) {
    uct_event event;
    if (uct_wait(net, op, -1, &event) != UCT_OK) fail();
    return event;
}

/* The text of a message or a notification, which is released. */
std::string text(const uct_event &event) {
    Owned<uct_message> message(event.result.message, uct_message_release);
    return std::string(static_cast<const char *>(event.data), event.length);
}

/* A new piece of memory. */
Owned<uct_memory> allocate(uct_net *net) {
    Owned<uct_memory> memory(uct_memory_allocate(net, blocks * block), uct_memory_free);
    if (!memory) fail();
    return memory;
}

char *bytes(const Owned<uct_memory> &memory) { return static_cast<char *>(uct_memory_data(memory.get())); }

void owner(uct_net *net, const char *address) {
    uct_listener *listener = done(net, uct_listen(net, address, nullptr, 0)).result.listener;
    char place[256];
    if (uct_listener_address(listener, place, sizeof place) < 0) fail();
    std::cout << "listening on " << place << std::endl;
    uct_conn *conn = done(net, uct_accept(listener, 0)).result.conn;

    std::string said = text(done(net, uct_recv(conn, 0)));
    done(net, uct_send(conn, said.data(), said.size(), 0));

    Owned<uct_memory> memory = allocate(net);
    done(net, uct_share(conn, memory.get(), 0, blocks * block, 0));
    std::cout << text(done(net, uct_notified(conn, 0))) << ":";
    for (std::size_t i = 0; i < blocks; i++) std::cout << ' ' << bytes(memory)[i * block];
    std::cout << std::endl;
    done(net, uct_conn_close(conn, 0));
}

void user(uct_net *net, const char *address, const std::string &said) {
    uct_conn *conn = done(net, uct_connect(net, address, nullptr, 0)).result.conn;
    done(net, uct_send(conn, said.data(), said.size(), 0));
    std::cout << text(done(net, uct_recv(conn, 0))) << std::endl;

    Owned<uct_remote> remote(done(net, uct_shared(conn, 0)).result.remote, uct_remote_release);
    Owned<uct_memory> memory = allocate(net);
    std::strcpy(bytes(memory), "put and got");
    done(net, uct_put(conn, memory.get(), 0, 12, remote.get(), 0, 0));
    done(net, uct_get(conn, memory.get(), block, 12, remote.get(), 0, 0));
    std::cout << bytes(memory) + block << std::endl;

    /* The last block here is the first one there. */
    std::vector<uct_block> list;
    for (std::size_t i = 0; i < blocks; i++) {
        std::memset(bytes(memory) + i * block, static_cast<int>('a' + i), block);
        list.push_back(uct_block{i * block, (blocks - 1 - i) * block, block});
    }
    const std::string moved = "all have moved";
    done(net, uct_put_blocks(conn, memory.get(), remote.get(), list.data(), list.size(), moved.data(), moved.size(), 0));
    done(net, uct_conn_close(conn, 0));
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 2) {
        std::cerr << "usage: tour ADDRESS [TEXT]" << std::endl;
        return 2;
    }
    try {
        Owned<uct_net> net(uct_net_open(nullptr), uct_net_close);
        if (!net) fail();
        if (argc == 2)
            owner(net.get(), argv[1]);
        else
            user(net.get(), argv[1], argv[2]);
    } catch (const std::exception &error) {
        std::cerr << "tour: " << error.what() << std::endl;
        return 1;
    }
    return 0;
}
