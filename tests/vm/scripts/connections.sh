#!/bin/bash
# connections.sh ADDRESS...: connections by rdmacm between this machine's own addresses, of uct-net, and to and from the programs of librdmacm. Much of
# the time is waiting for a limit, so that the suites of all addresses run side by side. The programs of librdmacm run ahead of them: in a storm
# the kernel loses datagrams of its connection manager and repeats them after seconds, so that a program may need a minute to end.
. "${0%/*}/support.sh"
export UCT_TEST_CMS=rdmacm UCT_TEST_CM_STORM=200
UCT_TEST_REQUIRE=verbs,rdmacm-utils /usr/lib/uct/tests/cm_device --test-threads=1 || fail "a test of cm_device, above"
# uct-net, across the cable if there is one: the system would take the way inside the machine. On one device a part is enough.
if [ -d /sys/class/infiniband/mlx5_1 ]; then
    /usr/sbin/ip rule add pref 14 iif lo to 10.7.0.2 lookup 100
    UCT_TEST_REQUIRE=verbs /usr/lib/uct/tests/net_rdmacm || fail "a test of net_rdmacm, above"
    UCT_TEST_REQUIRE=verbs /usr/lib/uct/tests/net_hostile_rdmacm || fail "a test of net_hostile_rdmacm, above"
    /usr/sbin/ip rule del pref 14
else
    UCT_TEST_REQUIRE=verbs /usr/lib/uct/tests/net_rdmacm every_lane memory threads || fail "a test of net_rdmacm, above"
fi
pids=()
for address in "$@"; do
    UCT_TEST_CM_ADDRESSES=$address /usr/lib/uct/tests/connection_managers '[plugin]' &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || fail "a case of connection_managers, above"
done
uct_info --doctor rdmacm "$1" || fail "the diagnosis of $1 finds an obstacle"
uct_info --doctor rdmacm 127.0.0.1 && fail "the diagnosis of 127.0.0.1 finds no obstacle"
exit 0
