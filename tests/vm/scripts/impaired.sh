#!/bin/bash
# impaired.sh TRANSPORTS: messages, puts, gets and atomics of the conformance suite over a cable that does to packets what
# tc-netem is told to, one impairment after another. Every message has to come once, in order, with its contents.
set -e
export UCT_TEST_TRANSPORTS=$1 UCT_TEST_REQUIRE=$1 UCT_TEST_DEVICES=mlx5_0:1 UCT_TEST_FAR_DEVICE=mlx5_1:1
# A lost packet is noticed after this time; the default is for networks, not for a cable of a few microseconds.
export UCT_RC_VERBS_TIMEOUT=${UCT_RC_VERBS_TIMEOUT:-16ms}

impair() {
    echo "== netem $*"
    for device in eth0 eth1; do
        tc qdisc replace dev $device root netem $*
    done
}

# A case or several, by a part of their names.
cases() {
    /usr/lib/uct/tests/conformance "$1" --test-threads=1
}

for impairment in "loss 5%" "delay 1ms reorder 25% 50%" "duplicate 10%" "corrupt 2%" "delay 2ms 1ms"; do
    impair $impairment
    cases "messages of mixed"
    cases "ten thousand random operations"
done
