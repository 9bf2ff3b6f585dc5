#!/bin/bash
# interop.sh: the device in software and the kernel's rdma_rxe, each the other's peer, over a cable between two network namespaces: the driver takes the
# port of RoCE in the namespace in which it was loaded. Programs of others, which compare what arrives; then random operations, whose results are
# those of either device alone; then both over a cable that loses, doubles and reorders packets. Where UCT_TEST_PART names a part, each is run
# over one family of addresses, both families have some, and the random operations cross a whole cable only.
. "${0%/*}/support.sh"

kernel=mlx5_9
# Of each family: the kernel's address, and that of the device in software.
v4=(10.9.0.1 10.9.0.2)
v6=(fd00:9::1 fd00:9::2)

ip=/usr/sbin/ip
{
    $ip netns add soft && $ip link add cable type veth peer name cable netns soft &&
        $ip link set cable mtu 4500 up && $ip addr add ${v4[0]}/24 dev cable && $ip addr add ${v6[0]}/64 dev cable &&
        $ip -n soft link set lo up && $ip -n soft link set cable mtu 4500 up &&
        $ip -n soft addr add ${v4[1]}/24 dev cable && $ip -n soft addr add ${v6[1]}/64 dev cable &&
        /usr/bin/rdma link add $kernel type rxe netdev cable
} || fail "cannot make the cable"

# gid PREFIX: the index of the kernel's GID that begins so.
gid() {
    for _ in $(seq 100); do
        for index in 0 1 2 3 4 5 6 7; do
            grep -q "^$1" /sys/class/infiniband/$kernel/ports/1/gids/$index 2>/dev/null && echo $index && return
        done
        sleep 0.1
    done
    fail "no GID $1"
}
gid4=$(gid 0000:0000:0000:0000:0000:ffff)
gid6=$(gid fd00)

# on_kernel FAMILY PROGRAM...; on_software FAMILY PROGRAM...
on_kernel() {
    local index=gid${1#v} program=$2
    case $program in
    ibv_*) set -- "$1" "$program" -d $kernel -g "${!index}" "${@:3}" ;;
    *) set -- "$1" "$program" -d $kernel -x "${!index}" "${@:3}" ;;
    esac
    timeout 60 "${@:2}"
}
on_software() {
    local address=$1[1] program=$2
    case $program in
    ibv_*) set -- "$1" "$program" -d soft0 -g 0 "${@:3}" ;;
    *) set -- "$1" "$program" -d soft0 -x 0 "${@:3}" ;;
    esac
    timeout 60 $ip netns exec soft softverbs run --address "${!address}" -- "${@:2}"
}

port=18600
# Whether the cable loses packets.
loses=
# talk FAMILY PROGRAM...: a server on either device, and its client on the other.
talk() {
    local family=$1 host server
    shift
    for way in "on_kernel on_software" "on_software on_kernel"; do
        set -- $family "${@:1}"
        # The programs find each other by IPv4, whatever the family of the packets.
        [ "${way%% *}" = on_kernel ] && host=${v4[0]} || host=${v4[1]}
        for attempt in 1 2 3; do
            port=$((port + 1))
            ${way%% *} "$@" -p $port >/tmp/server 2>&1 &
            server=$!
            wait_for "${way%% *}" $port
            local client_ended=yes server_ended=yes
            ${way##* } "$@" -p $port "$host" >/tmp/client 2>&1 || client_ended=
            wait $server || server_ended=
            # perftest fails at its end where other work has disturbed its look at the processor's clock.
            grep -q "Can't produce a report" /tmp/client /tmp/server || break
        done
        # A side has ended whose last acknowledgement was lost: nobody is left who would send the other one another.
        if [ -n "$loses" ] && [ -n "$client_ended$server_ended" ]; then
            grep -q "retry counter exceeded (12)" /tmp/client && client_ended=yes
            grep -q "retry counter exceeded (12)" /tmp/server && server_ended=yes
        fi
        [ -n "$client_ended" ] || fail "$way: the client of $*"
        [ -n "$server_ended" ] || fail "$way: the server of $*"
        shift
        echo "ok: $way: $family $*"
    done
}

# Waits until a server listens, in its namespace.
wait_for() {
    local where=() hexadecimal
    [ "$1" = on_software ] && where=($ip netns exec soft)
    hexadecimal=$(printf ':%04X' "$2")
    for _ in $(seq 600); do
        "${where[@]}" cat /proc/net/tcp /proc/net/tcp6 | grep -q "$hexadecimal 0*:0000 0A" && return
        sleep 0.05
    done
    fail "$1: nobody listens on port $2"
}

talk v4 ibv_rc_pingpong -c -n 200
talk v6 ibv_ud_pingpong -c -n 200
talk v4 ibv_srq_pingpong -c -n 200
if [ -z "$UCT_TEST_PART" ]; then
    talk v6 ibv_rc_pingpong -c -n 200
    talk v4 ibv_ud_pingpong -c -n 200
    talk v6 ibv_srq_pingpong -c -n 200
fi
talk v4 ib_write_lat -s 5000 -n 100
talk v6 ib_read_lat -s 5000 -n 100
talk v4 ib_atomic_lat -n 100
talk v6 ib_send_bw -s 5000 -n 500

# random FAMILY CABLE: see transports/ib/tests/peers.
random() {
    local address=$1[1]
    UCT_TEST_KERNEL_DEVICE=$kernel UCT_TEST_SOFT_NAMESPACE=/run/netns/soft SOFTVERBS_ADDRESS=${!address} UCT_TEST_CABLE=$2 \
        UCT_TEST_REQUIRE=kernel-device timeout 300 /usr/lib/uct/tests/peers kernel:: --nocapture || fail "random operations over $1, $2"
}
random v4 whole
[ -n "$UCT_TEST_PART" ] || random v6 whole

# The questions for a neighbour's address are not lost: the kernel asks for a second only.
there=$($ip netns exec soft cat /sys/class/net/cable/address)
$ip neigh replace ${v4[1]} lladdr "$there" dev cable nud permanent || fail "ip neigh"
$ip -n soft neigh replace ${v4[0]} lladdr "$(cat /sys/class/net/cable/address)" dev cable nud permanent || fail "ip neigh"
for where in "" "netns exec soft"; do
    ${where:+$ip} $where /usr/sbin/tc qdisc add dev cable root netem loss 2% duplicate 3% delay 200us reorder 25% || fail "tc"
done
loses=yes
talk v4 ibv_rc_pingpong -c -n 100
[ -n "$UCT_TEST_PART" ] || random v4 lossy

/usr/bin/rdma link del $kernel && $ip link del cable && $ip netns del soft || fail "cannot take the cable away"
