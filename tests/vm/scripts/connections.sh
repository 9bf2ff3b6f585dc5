#!/bin/bash
# connections.sh [FROM,]ADDRESS...: connections by rdmacm, of uct-net, and to and from the programs of librdmacm; then the suite on each address of
# this machine, if given from another device's, so that the connections cross the cable. Much of the time is waiting for a limit, so that the suites of
# all addresses run side by side. The programs of librdmacm run ahead of them: in a storm the kernel loses datagrams of its connection manager and
# repeats them after seconds, so that a program may need a minute to end. Where UCT_TEST_PART names a part, of addresses of IPv6 the cases are left out
# that are about times, numbers and threads.
. "${0%/*}/support.sh"
export UCT_TEST_CMS=rdmacm UCT_TEST_CM_STORM=200
# Across the cable if there is one: without a source address the system would take the way inside the machine.
is_pair() { [ -d /sys/class/infiniband/mlx5_1 ]; }
if is_pair; then
    /usr/sbin/ip rule add pref 14 iif lo to 10.7.0.2 lookup 100 || fail "ip rule"
fi
UCT_TEST_REQUIRE=verbs,rdmacm-utils /usr/lib/uct/tests/cm_device --test-threads=1 || fail "a test of cm_device, above"
walk=(-l 10.7.0.1:7400)
# uct-net; on one device a part is enough.
if is_pair; then
    UCT_TEST_REQUIRE=verbs /usr/lib/uct/tests/net_rdmacm connecting:: || fail "a test of net_rdmacm, above"
    UCT_TEST_REQUIRE=verbs /usr/lib/uct/tests/net_rdmacm hostile:: || fail "a hostile test of net_rdmacm, above"
    walk=(-l 10.7.0.2:7400 -d mlx5_1:1)
else
    UCT_TEST_REQUIRE=verbs /usr/lib/uct/tests/net_rdmacm connecting::{every_lane,memory,the_flavour_for_threads} || fail "a test of net_rdmacm, above"
fi
# The example: server and client, each with its device.
timeout 60 rdma_cm_walk -t rc_verbs "${walk[@]}" >/tmp/server 2>&1 &
server=$!
printed '^now start: ' /tmp/server
timeout 60 rdma_cm_walk -t rc_verbs -d mlx5_0:1 "${walk[1]}" >/tmp/client 2>&1 || fail "the client of rdma_cm_walk"
wait $server || fail "the server of rdma_cm_walk"
grep -qxF "READ: the server's memory holds \"what the client reads \"" /tmp/client || fail "RDMA READ of rdma_cm_walk"
grep -qxF 'WRITE: the memory holds "what the client writes"' /tmp/server || fail "RDMA WRITE of rdma_cm_walk"
is_pair && /usr/sbin/ip rule del pref 14
pids=()
for addresses in "$@"; do
    (
        skip=()
        case $addresses in *,*) export UCT_TEST_CM_SOURCE=${addresses%,*} ;; esac
        # Where no device has an address of IPv6 the kernel says EADDRNOTAVAIL ahead of looking for a route.
        case $addresses in
        *:*)
            skip=(--skip 'without a route')
            if [ -n "$UCT_TEST_PART" ]; then
                for words in storm hundred 'many clients' 'out of time' 'does not count' 'sleeping worker' thread fork; do
                    skip+=(--skip "$words")
                done
            fi
            ;;
        esac
        UCT_TEST_CM_ADDRESSES=${addresses#*,} exec /usr/lib/uct/tests/connection_managers '[plugin]' "${skip[@]}"
    ) &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || fail "a case of connection_managers, above"
done
# Connections that are closed right after they were opened: their ends come together with the disconnects.
timeout 300 uct_perftest --by rdmacm >/tmp/server 2>&1 &
server=$!
listening 13337
timeout 300 uct_perftest 10.7.0.1 --by rdmacm -x rc_verbs -t connect -n 60 -O 20 -w 2 -f >/tmp/client 2>&1 || fail "uct_perftest by rdmacm"
cat /tmp/client
wait $server || fail "the server of uct_perftest by rdmacm"
uct_info --doctor rdmacm 10.7.0.1 || fail "the diagnosis of 10.7.0.1 finds an obstacle"
uct_info --doctor rdmacm 127.0.0.1 && fail "the diagnosis of 127.0.0.1 finds no obstacle"
exit 0
