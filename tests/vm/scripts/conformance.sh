#!/bin/bash
# conformance.sh static|plugin COUNT [WORDS]: the cases of the conformance suite with these words in their name, or all, on rc_verbs and
# ud_verbs, linked in or loaded. At least COUNT have to pass. The caller sets UCT_TEST_DEVICES and UCT_TEST_FAR_DEVICE.
. "${0%/*}/support.sh"
case "$1" in
static) other=plugin ;;
plugin) other=static ;;
*) fail "conformance.sh: expected static or plugin, not '$1'" ;;
esac
# This cable loses nothing, but in a guest that shares its processors an acknowledgement may be late. Software RoCE would send again, which
# atomics do not survive (docs/rc_verbs.md), and rc_verbs would take its peer for dead. Cases where one dies set their own time.
export UCT_RC_VERBS_TIMEOUT=1s UCT_RC_VERBS_PEER_TIMEOUT=15s
suites --skip "[$other]" "${@:3}" | tee /tmp/cases
if [ "${PIPESTATUS[0]}" != 0 ]; then
    # The reasons once more: those of one transport are far above where the other one's cases end.
    sed -n '/^[a-z_]*: failures:$/,/^[a-z_]*: test result/p; /^[a-z_]*: .* hangs: /p' /tmp/cases
    fail "$(grep -oE '^[a-z_]+: (test .* FAILED|.* hangs: .*)$' /tmp/cases | tr -s ' ' | paste -sd ';')"
fi
for transport in rc_verbs ud_verbs; do
    count=$(grep -c "^$transport: test $transport/.*\[$1\]::.* ok" /tmp/cases)
    [ "$count" -ge "$2" ] || fail "only $count cases of $transport passed with $1"
done
