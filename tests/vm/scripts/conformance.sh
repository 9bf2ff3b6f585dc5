#!/bin/bash
# conformance.sh: the whole conformance suite on rc_verbs and ud_verbs. The caller sets UCT_TEST_DEVICES and
# UCT_TEST_FAR_DEVICE.
. "${0%/*}/support.sh"
suites
