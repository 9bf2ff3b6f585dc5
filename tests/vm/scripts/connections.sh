#!/bin/bash
# connections.sh ADDRESS...: connections by rdmacm between this machine's own addresses, and to and from the programs of librdmacm. Much of
# the time is waiting for a limit, so that the suites of all addresses run side by side. The programs of librdmacm run ahead of them: in a storm
# the kernel loses datagrams of its connection manager and repeats them after seconds, so that a program may need a minute to end.
. "${0%/*}/support.sh"
export UCT_TEST_CMS=rdmacm UCT_TEST_CM_STORM=200
UCT_TEST_REQUIRE=verbs,rdmacm-utils /usr/lib/uct/tests/cm_device --test-threads=1 || fail "a test of cm_device, above"
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
