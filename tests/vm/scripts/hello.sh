#!/bin/bash
# hello.sh: two processes say hello over rc_verbs and ud_verbs in each way to send, and over what is chosen by cost; then
# the walk through verbs, and two senders with one receiver. What arrives has to be what was sent.
set -e
. "${0%/*}/support.sh"

for transport in rc_verbs ud_verbs; do
    for flavour in -i -b -z; do
        hello -d mlx5_0:1 -t $transport $flavour -s 64
        echo "ok: hello over $transport with $flavour"
    done
done

# Everything is listed with its cost, and memory is nearer than any network.
hello --explain
for candidate in posix/memory sysv/memory tcp/lo rc_verbs/mlx5_0:1 ud_verbs/mlx5_0:1; do
    grep -E "^(CHOSEN|USABLE) +$candidate +[0-9.]+ .?s = overhead .* latency .* transfer" /tmp/client ||
        fail "--explain does not list $candidate with its cost"
done
grep -qE '^CHOSEN +(posix|sysv)/memory' /tmp/client || fail "shared memory is the nearest and was not chosen"

hello --explain -d mlx5_0:1
grep -E '^CHOSEN +(rc|ud)_verbs/mlx5_0:1 ' /tmp/client || fail "-d mlx5_0:1 has to lead to a verbs transport"

# With more endpoints expected than rc_verbs serves well it is the other, and the reason is told.
UCT_NUM_EPS=257 hello --explain -d mlx5_0:1
grep -E '^CHOSEN +ud_verbs/mlx5_0:1 ' /tmp/client || fail "num_eps = 257 has to lead to ud_verbs"
grep -E '^REJECTED +rc_verbs/mlx5_0:1 .*num_eps = 257 endpoints are more than the 256 that it serves' /tmp/client ||
    fail "the reason for which rc_verbs was not chosen is missing"

timeout 60 rc_send_read_write -d mlx5_0:1 >/tmp/server 2>&1 &
server=$!
listening 13338
timeout 60 rc_send_read_write -d mlx5_0:1 -n 127.0.0.1 2>&1 | tee /tmp/client
wait $server || fail "the server of rc_send_read_write failed: $(cat /tmp/server)"
grep -qxF 'SEND:       received "what the server sends"' /tmp/client || fail "SEND"
grep -qxF "RDMA READ:  the server's memory holds \"what the client reads \"" /tmp/client || fail "RDMA READ"
grep -xF 'RDMA WRITE: the memory holds "what the client writes"' /tmp/server || fail "RDMA WRITE"

# Two connections with one shared receive queue.
export UCT_TLS=rc_verbs
timeout 60 shared_receive_queue >/tmp/server 2>&1 &
server=$!
printed '^now start' /tmp/server
address=$(sed -n 's/^now start .*: shared_receive_queue //p' /tmp/server)
timeout 60 shared_receive_queue "$address" >/tmp/client 2>&1 &
sender=$!
timeout 60 shared_receive_queue "$address" || fail "the second sender of shared_receive_queue"
wait $sender || fail "the first sender of shared_receive_queue"
wait $server || fail "the receiver of shared_receive_queue"
grep -qx 'over rc_verbs/mlx5_0:1' /tmp/client || fail "shared_receive_queue is not over rc_verbs"
grep -qx 'one interface, rc_verbs/mlx5_0:1, for 2 connections' /tmp/server || fail "shared_receive_queue has two interfaces"
grep -qx '1000 messages of each' /tmp/server || fail "messages of shared_receive_queue"
unset UCT_TLS

# The two short programs, led to the device by the configuration alone.
UCT_TLS=rc_verbs timeout 60 listen 127.0.0.1:7000 >/tmp/server 2>&1 &
listening 7000
UCT_TLS=rc_verbs timeout 60 connect 127.0.0.1:7000 2>&1 | tee /tmp/client
kill $!
grep -qx "connected over rc_verbs/mlx5_0:1" /tmp/client || fail "connect is not over rc_verbs"
grep -qx "the peer says hello" /tmp/client || fail "connect received no answer"
