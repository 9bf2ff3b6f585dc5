#!/bin/bash
# impaired.sh: messages, puts, gets and, of ud_verbs, atomics of the conformance suite over a cable that does to packets what tc-netem is
# told to, one impairment after another. Every message has to come once, in order, with its contents.
. "${0%/*}/support.sh"
export UCT_TEST_DEVICES=mlx5_0:1 UCT_TEST_FAR_DEVICE=mlx5_1:1
# A lost packet is noticed after this time; the default is for networks, not for a cable of a few microseconds.
export UCT_RC_VERBS_TIMEOUT=16ms
# No peer dies here, and in a guest that shares its processors an acknowledgement may take longer than the default.
export UCT_RC_VERBS_PEER_TIMEOUT=30s

# The kernel asks for a neighbour's address for a second only; losing that question is no matter of the transports.
ip neigh replace 10.7.0.2 lladdr "$(cat /sys/class/net/eth1/address)" dev eth0 nud permanent || fail "ip neigh"
ip neigh replace 10.7.0.1 lladdr "$(cat /sys/class/net/eth0/address)" dev eth1 nud permanent || fail "ip neigh"

everything="ten thousand random operations"
for impairment in "loss 5%" "delay 1ms reorder 25% 50%" "duplicate 10%" "delay 2ms"; do
    echo "== netem $impairment"
    for device in eth0 eth1; do
        tc qdisc replace dev $device root netem $impairment || fail "tc"
    done
    suite ud_verbs --skip "[static]" "$everything" &
    ud=$!
    # Where packets are sent again, software RoCE may end an atomic without its result (docs/rc_verbs.md), and now and then answers
    # nothing on that queue pair any more. rc_verbs says so, which is right and yet no success: here it is tested with messages, puts
    # and gets.
    suite rc_verbs --skip "[static]" "messages of mixed flavours" || fail "netem $impairment"
    suite rc_verbs --skip "[static]" "puts and gets at once" || fail "netem $impairment"
    wait $ud || fail "netem $impairment"
done

# As fast as a sender may, in every way to send, where it is hardest.
echo "== netem loss 5%, a stream"
for device in eth0 eth1; do
    tc qdisc replace dev $device root netem loss 5% || fail "tc"
done
suites --skip "[static]" "messages of mixed flavours" || fail "a stream with loss"

# The timers of ud_verbs in a thread of their own, as fast as they are at work.
echo "== netem loss 5%, an asynchronous context with a thread"
UCT_ASYNC_MODE=thread suite ud_verbs --skip "[static]" "$everything" || fail "async_mode thread"
