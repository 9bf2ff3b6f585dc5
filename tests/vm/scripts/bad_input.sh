#!/bin/bash
# bad_input.sh: what a user gets wrong, or is not allowed. Each is one line that names it, and a status that is not 0.
. "${0%/*}/support.sh"

# refused WORDS COMMAND...: the command fails, in time and not by a signal, and its error is one line with these words.
refused() {
    local words=$1 status
    shift
    timeout 30 bash -c '"$@"' - "$@" >/tmp/out 2>/tmp/client
    status=$?
    { [ $status -ne 0 ] && [ $status -lt 124 ]; } || fail "status $status of: $*"
    # What the program says of its own options, and libibverbs of a low limit, is no error.
    grep -vE '^(INFO: UCT_HELLO_WORLD|libibverbs: Warning|    This will severely limit)' /tmp/client >/tmp/error
    [ "$(wc -l </tmp/error)" -eq 1 ] || fail "not one line of: $*"
    grep -qE "$words" /tmp/error || fail "no word of '$words' from: $*"
    echo "ok: $(cat /tmp/error)"
}

# as_nobody LIMIT OPTIONS: without root's rights, and with this limit on locked memory.
as_nobody() {
    su -s /bin/bash nobody -c "ulimit -l $1 && UCT_MODULE_DIR=$UCT_MODULE_DIR PATH=$PATH exec uct_hello_world $2"
}
export -f as_nobody

echo 'nobody:x:65534:65534:nobody:/tmp:/bin/bash' >>/etc/passwd
chmod 1777 /tmp

for transport in rc_verbs ud_verbs; do
    hello="uct_hello_world -t $transport"
    prefix=UCT_${transport^^}
    refused 'mlx9_9:1.*mlx5_0:1' $hello -d mlx9_9:1
    refused 'mlx5_0:2' $hello -d mlx5_0:2
    refused 'GID index 70000 is out of range' env ${prefix}_GID_INDEX=70000 $hello -d mlx5_0:1
    refused 'path MTU 8192 is more than the active MTU' env ${prefix}_PATH_MTU=8192 $hello -d mlx5_0:1
    refused "${prefix}_GID_INDEX" env ${prefix}_GID_INDEX=many $hello -d mlx5_0:1

    chmod 600 /dev/infiniband/uverbs0
    refused 'no permission to open /dev/infiniband/uverbs0' as_nobody unlimited "-t $transport -d mlx5_0:1"
    chmod 666 /dev/infiniband/uverbs0
    refused 'ulimit -l' as_nobody 0 "-t $transport -d mlx5_0:1"

    ip link set eth0 down
    refused 'port 1 of device .mlx5_0. is down' $hello -d mlx5_0:1
    ip link set eth0 up
    for _ in $(seq 100); do
        grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state && break
        sleep 0.1
    done
done

# Ends with different MTUs: a connection takes the smaller one, datagrams can not.
ends() {
    env "UCT_${1^^}_PATH_MTU=1024" timeout 60 uct_hello_world -d mlx5_0:1 -t "$1" >/tmp/server 2>&1 &
    server=$!
    listening 13337
    client=(env "UCT_${1^^}_PATH_MTU=512" uct_hello_world -n 127.0.0.1 -d mlx5_0:1 -t "$1")
}
ends ud_verbs
refused 'the MTUs differ: 512 bytes here, 1024 there; give both' "${client[@]}"
wait $server && fail "the server of a client that was refused"
grep -q 'the peer gave up: .*the MTUs differ' /tmp/server || fail "the server does not say why"
ends rc_verbs
timeout 60 "${client[@]}" >/tmp/client 2>&1 || fail "rc_verbs between different MTUs"
wait $server || fail "the server of rc_verbs between different MTUs"
